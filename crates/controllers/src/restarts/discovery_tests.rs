//! Who restarts for what.

use serde_json::json;

use super::*;

fn annotated(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Uses ConfigMap `c` and Secret `s`.
fn template() -> Value {
    json!({"containers": [{"envFrom": [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]}]})
}

fn saying(of_object: &[(&str, &str)]) -> ObjectMeta {
    ObjectMeta { annotations: Some(annotated(of_object)), ..ObjectMeta::default() }
}

fn word(
    content: &ContentRef,
    of_object: &[(&str, &str)],
    of_workload: &[(&str, &str)],
    asker: Asker,
) -> String {
    let changed = Discovery::new(content.clone(), &saying(of_object), asker);
    let (annotations, uses) = (annotated(of_workload), uses(&template()));
    let asking = Asking { annotations, uses, ..Asking::default() };
    match asking.verdict(&changed) {
        Verdict::Restart(why) => format!("restart: {why}"),
        Verdict::Leave(why) => format!("leave: {why}"),
    }
}

#[test]
fn who_restarts_and_why() {
    let (c, s, other) =
        (ContentRef::config_map("c"), ContentRef::secret("s"), ContentRef::config_map("s"));
    let auto = (RESTART, "auto");
    let search = (RESTART, "search");
    let matches = (RESTART_MATCH, "true");
    let ignored = (RESTART_IGNORE, "true");
    let all = "restart: the workload restarts for all that it uses";
    let nothing = "leave: the workload asks for nothing";
    let unused = "leave: the workload does not use it";
    let named = "restart: the workload names it";
    let excepted = "leave: the workload excepts it";
    let off = "leave: the workload says off";
    let unknown = "leave: the workload says neither auto nor search nor off";
    for (content, of_object, of_workload, expect) in [
        (&c, &[][..], &[][..], nothing),
        (&c, &[matches], &[], nothing),
        (&c, &[], &[auto], all),
        (&s, &[], &[(RESTART, " auto ")], all),
        // A namesake of another kind is another object.
        (&other, &[], &[auto], unused),
        (&c, &[], &[(RESTART, "off")], off),
        (&c, &[], &[(RESTART, "true")], unknown),
        (&c, &[], &[(RESTART, "off"), (RESTART_FOR, "configmap/c")], off),
        (&c, &[], &[search], "leave: the workload searches, and it does not match"),
        (&c, &[matches], &[search], "restart: the workload searches, and it matches"),
        (
            &c,
            &[(RESTART_MATCH, "yes")],
            &[search],
            "leave: the workload searches, and it does not match",
        ),
        // Who misspelt it did not want a restart.
        (&c, &[(RESTART_IGNORE, "True")], &[auto], "leave: the object says that it is ignored"),
        (&c, &[(RESTART_IGNORE, " false ")], &[auto], all),
        (&c, &[(RESTART_IGNORE, "")], &[auto], all),
        (&other, &[matches], &[search], unused),
        (&c, &[ignored], &[auto], "leave: the object says that it is ignored"),
        (&c, &[ignored, matches], &[search], "leave: the object says that it is ignored"),
        (
            &c,
            &[ignored],
            &[(RESTART_FOR, "configmap/c")],
            "leave: the object says that it is ignored",
        ),
        (&other, &[], &[(RESTART_FOR, "secret/x, configmap/s")], named),
        (&other, &[], &[(RESTART_FOR, "configmap/*")], unused),
        (&other, &[], &[(RESTART_FOR, "s"), auto], unused),
        (&other, &[], &[(RESTART_FOR, "s,, configmap/s,")], named),
        (&c, &[], &[auto, (RESTART_EXCEPT, "configmap/c")], excepted),
        (&c, &[], &[auto, (RESTART_EXCEPT, "secret/*,configmap/d")], all),
        (&s, &[], &[auto, (RESTART_EXCEPT, "secret/*")], excepted),
        (&c, &[matches], &[search, (RESTART_EXCEPT, "configmap/*")], excepted),
        (&c, &[], &[auto, (RESTART_EXCEPT, "configmap/c"), (RESTART_FOR, "configmap/c")], named),
    ] {
        let found = word(content, of_object, of_workload, Asker::Workload);
        assert_eq!(found, expect, "{content}: {of_object:?}, {of_workload:?}");
    }
    let asked = "restart: the workload uses it";
    for (content, of_object, of_workload, expect) in [
        (&c, &[][..], &[][..], asked),
        (&c, &[], &[search], asked),
        (&other, &[], &[], unused),
        (&other, &[], &[(RESTART_FOR, "configmap/s")], named),
        (&c, &[], &[(RESTART, "off")], off),
        (&c, &[], &[(RESTART, "of")], unknown),
        (&c, &[], &[(RESTART_EXCEPT, "configmap/c")], excepted),
        (&c, &[ignored], &[], "leave: the object says that it is ignored"),
    ] {
        let found = word(content, of_object, of_workload, Asker::Monitor);
        assert_eq!(found, expect, "{content}: {of_object:?}, {of_workload:?}");
    }
}

/// A template that names an object in each place, and in places that do not count.
fn everywhere() -> Value {
    let container = |at: &str| {
        json!({
            "name": "x", "image": "i",
            "envFrom": [{"prefix": "P"}, {"configMapRef": {"name": format!("{at}-from")}},
                {"secretRef": {"name": format!("{at}-from")}}],
            "env": [
                {"name": "PLAIN", "value": "v"},
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": format!("{at}-env"), "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": format!("{at}-env"), "key": "k"}}},
                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        })
    };
    json!({
        "volumes": [
            {"name": "a", "configMap": {"name": "volume", "items": [{"key": "k", "path": "p"}]}},
            {"name": "b", "secret": {"secretName": "volume"}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "projected"}},
                {"secret": {"name": "projected"}}, {"serviceAccountToken": {"path": "t"}}]}},
            {"name": "d", "emptyDir": {}},
        ],
        "containers": [container("main"), {"name": "bare", "image": "i"}],
        "initContainers": [container("init")],
        "ephemeralContainers": [container("ephemeral")],
        "imagePullSecrets": [{"name": "registry"}],
    })
}

const ALL: [&str; 6] = ["init-env", "init-from", "main-env", "main-from", "projected", "volume"];

#[test]
fn every_way_to_read_content_counts_and_no_other() {
    let expect =
        ALL.iter().flat_map(|name| [ContentRef::config_map(name), ContentRef::secret(name)]);
    assert_eq!(uses(&everywhere()), expect.collect());
    assert_eq!(uses(&Value::Null), BTreeSet::new());
    assert_eq!(uses(&json!({"volumes": {"configMap": 7}, "containers": "none"})), BTreeSet::new());
}

fn workload(of_workload: &[(&str, &str)]) -> DynamicObject {
    serde_json::from_value(json!({
        "metadata": {"name": "w", "namespace": "n", "uid": "u", "labels": {"app": "w"},
            "annotations": annotated(&[of_workload, &[("other.example/x", "y")]].concat())},
        "spec": {"replicas": 3, "template": {"metadata": {"labels": {"app": "w"}}, "spec": everywhere()}},
        "status": {"replicas": 3},
    }))
    .unwrap()
}

#[test]
fn what_a_workload_asks_for_is_what_it_restarts_for_without_a_match() {
    let asking = |of_workload: &[(&str, &str)]| Asking::of(&workload(of_workload));
    let auto = (RESTART, "auto");
    for (of_workload, expect) in [
        (&[][..], 0),
        (&[auto], 2 * ALL.len()),
        (&[auto, (RESTART_EXCEPT, "secret/*")], ALL.len()),
        (&[(RESTART, "search")], 0),
        (&[(RESTART, "off"), (RESTART_FOR, "secret/a")], 0),
        (&[(RESTART_FOR, "secret/a, configmap/volume, nonsense, secret/*")], 2),
        (&[auto, (RESTART_FOR, "secret/a, configmap/volume")], 2 * ALL.len() + 1),
    ] {
        assert_eq!(asking(of_workload).asked_for().len(), expect, "{of_workload:?}");
    }
}

/// Drops what a transform drops, as a cache does.
fn kept(value: &Value, path: &mut Vec<String>) -> Value {
    let mut within = |name: &str, value: &Value| {
        path.push(name.to_owned());
        let kept = (!drops(path)).then(|| kept(value, path));
        path.pop();
        kept
    };
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), within(name, value)?)));
            Value::Object(fields.collect())
        }
        Value::Array(elements) => {
            Value::Array(elements.iter().filter_map(|value| within("*", value)).collect())
        }
        other => other.clone(),
    }
}

#[test]
fn a_cached_workload_is_small_and_asks_for_the_same() {
    let all =
        [(RESTART, "auto"), (RESTART_FOR, "secret/a"), (RESTART_EXCEPT, "configmap/main-env")];
    let whole = workload(&all);
    let value = serde_json::to_value(&whole).unwrap();
    let cached = kept(&value, &mut Vec::new());
    let read: DynamicObject = serde_json::from_value(cached.clone()).unwrap();
    assert_eq!(Asking::of(&read), Asking::of(&whole));
    assert!(Asking::of(&read).asked_for().len() > ALL.len());
    let text = cached.to_string();
    for gone in [
        "other.example",
        "labels",
        "replicas",
        "image",
        "fieldPath",
        "emptyDir",
        "ephemeral",
        "registry",
    ] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
}

/// What is misspelt concerns what the workload uses, and what it may mean.
#[test]
fn what_cannot_be_read_is_told() {
    let told = |content: ContentRef, of_workload: &[(&str, &str)]| {
        let words = Asking::of(&workload(of_workload)).unread(&content);
        words.unwrap_or_else(|| "nothing".to_owned())
    };
    let (used, other) = (|| ContentRef::config_map("volume"), || ContentRef::config_map("other"));
    for (content, of_workload, expect) in [
        (used(), &[][..], "nothing"),
        (used(), &[(RESTART, "auto")], "nothing"),
        (used(), &[(RESTART, " off ")], "nothing"),
        (used(), &[(RESTART_FOR, "")], "nothing"),
        (used(), &[(RESTART_EXCEPT, "secret/*, configmap/a,")], "nothing"),
        (used(), &[(RESTART, "True")], "restart is \"True\": write auto, search or off"),
        (used(), &[(RESTART, "")], "restart is \"\": write auto, search or off"),
        (used(), &[(RESTART, "au\u{202e}to")], "restart is \"au to\": write"),
        (used(), &[(RESTART_EXCEPT, "ConfigMap/volume")], "except has \"ConfigMap/volume\": write"),
        (used(), &[(RESTART_FOR, "secret/*")], "restart-for has \"secret/*\": write"),
        (used(), &[("leasehold.dev/restarts", "auto")], "leasehold.dev/restarts is none of those"),
        (used(), &[("leasehold.dev/restart-match", "true")], "restart-match is none of those of"),
        // Used or not.
        (other(), &[(RESTART, "True")], "nothing"),
        (other(), &[(RESTART_FOR, "cm/other")], "restart-for has \"cm/other\": write"),
        (ContentRef::secret("other"), &[(RESTART_FOR, "other")], "restart-for has \"other\""),
    ] {
        let found = told(content, of_workload);
        assert!(found.contains(expect), "{of_workload:?}: {found}");
    }
    let long = "x".repeat(10_000);
    let found = told(used(), &[(RESTART, long.as_str())]);
    assert!(found.len() < 200, "{found}");
}

#[test]
fn what_an_object_says_that_cannot_be_read_is_told() {
    for (of_object, expect) in [
        (&[][..], None),
        (&[(RESTART_MATCH, " true"), (RESTART_IGNORE, "false")], None),
        (&[(RESTART_MATCH, "yes")], Some("restart-match is \"yes\": write true or false")),
        (&[(RESTART_IGNORE, "True")], Some("restart-ignore is \"True\": write true or false")),
    ] {
        let content = ContentRef::config_map("c");
        let changed = Discovery::new(content, &saying(of_object), Asker::Workload);
        let found = changed.unread().map(|words| words.replace("annotation leasehold.dev/", ""));
        assert_eq!(found.as_deref(), expect, "{of_object:?}");
    }
}

/// A Rollout of Argo that runs the template of a Deployment.
#[test]
fn who_runs_the_template_of_another_uses_what_that_uses() {
    let rollout = |of_workload: &[(&str, &str)], reference: Value| -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": "r", "annotations": annotated(of_workload)},
            "spec": {"workloadRef": reference},
        }))
        .unwrap()
    };
    let to = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "w"});
    for (reference, expect) in [
        (to("apps/v1", "Deployment"), Some("w")),
        (to("apps/v1", "ReplicaSet"), None),
        (to("v1", "PodTemplate"), None),
        (to("evil.io/v1", "Deployment"), None),
        (json!("w"), None),
        (Value::Null, None),
    ] {
        assert_eq!(referred(&rollout(&[], reference.clone())), expect, "{reference}");
    }
    let asked = |own: &[(&str, &str)], of_deployment: &[(&str, &str)]| {
        let rollout = Asking::of(&rollout(own, to("apps/v1", "Deployment")));
        rollout.running(Some(&Asking::of(&workload(of_deployment)))).asked_for().len()
    };
    let (auto, off) = ((RESTART, "auto"), (RESTART, "off"));
    for (own, of_deployment, expect) in [
        (&[][..], &[][..], 0),
        (&[auto], &[], 2 * ALL.len()),
        (&[], &[auto], 2 * ALL.len()),
        (&[off], &[auto], 0),
        (&[auto], &[off, (RESTART_EXCEPT, "secret/*")], ALL.len()),
    ] {
        assert_eq!(asked(own, of_deployment), expect, "{own:?} {of_deployment:?}");
    }
    let whole = rollout(&[auto, ("other.example/x", "y")], to("apps/v1", "Deployment"));
    let cached = kept(&serde_json::to_value(&whole).unwrap(), &mut Vec::new());
    let read: DynamicObject = serde_json::from_value(cached).unwrap();
    assert_eq!((referred(&read), Asking::of(&read).is_silent()), (Some("w"), false));
}
