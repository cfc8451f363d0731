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

fn word(
    content: &ContentRef,
    of_object: &[(&str, &str)],
    of_workload: &[(&str, &str)],
    asker: Asker,
) -> String {
    let metadata = ObjectMeta { annotations: Some(annotated(of_object)), ..ObjectMeta::default() };
    let changed = Discovery::new(content.clone(), &metadata, asker);
    match verdict(&changed, &annotated(of_workload), &template()) {
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
    let count = |of_workload: &[(&str, &str)]| asked_for(&workload(of_workload)).len();
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
        assert_eq!(count(of_workload), expect, "{of_workload:?}");
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
    assert_eq!(asked_for(&read), asked_for(&whole));
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
