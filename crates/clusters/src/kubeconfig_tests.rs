//! Kubeconfigs, good and bad.

use super::*;
use crate::risk::Risk;
use crate::trust::Plugin;

#[test]
fn of_what_nothing_reads_nothing_is_kept() {
    let of = |exec: &str| {
        let text = format!(
            "extensions: [{{name: x, extension: [secret1]}}]
clusters:
- {{name: c, other: [secret2], cluster: {{server: 'https://c', more: [secret3],
extensions: [{{name: client.authentication.k8s.io/exec, extension: {{audience: kept}}}}]}}}}
users:
- {{name: u, other: [secret4], user: {{token: t, more: [secret5], extensions: [{{name: x, extension: [secret6]}}]{exec}}}}}
contexts:
- {{name: east, other: [secret7], context: {{cluster: c, user: u, extensions: [{{name: x, extension: [secret8]}}]}}}}
"
        );
        let drafts = read(&text, Contexts::All);
        let Ok((Access::Kubeconfig { kubeconfig, .. }, _)) = &drafts[0].access else {
            panic!("{drafts:?}");
        };
        serde_json::to_string(&**kubeconfig).unwrap()
    };
    let kept = of("");
    assert!(!kept.contains("secret") && !kept.contains("audience"), "{kept}");
    let program = "exec: {apiVersion: client.authentication.k8s.io/v1, command: plugin";
    let kept = of(&format!(", {program}, provideClusterInfo: true}}"));
    assert!(!kept.contains("secret") && kept.contains("audience"), "{kept}");
}

const GOOD: &str = "
clusters:
- {name: a, cluster: {server: 'https://a:6443', certificate-authority: ca.crt}}
- {name: b, cluster: {server: 'https://b:6443'}}
- {name: bad, cluster: {server: 'b:6443:x'}}
- {name: none, cluster: {}}
users:
- {name: u, user: {token: sesame}}
- {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1}}}
contexts:
- {name: a, context: {cluster: a, user: u}}
- {name: b, context: {cluster: b}}
- {name: lost-cluster, context: {cluster: z, user: u}}
- {name: lost-user, context: {cluster: a, user: z}}
- {name: bad-server, context: {cluster: bad}}
- {name: no-server, context: {cluster: none}}
- {name: no-command, context: {cluster: b, user: plugin}}
";

fn read(text: &str, wanted: Contexts) -> Vec<Draft> {
    read_with(text, &wanted, Trust::own())
}

fn read_with(text: &str, wanted: &Contexts, trust: Trust) -> Vec<Draft> {
    let origin = Origin { path: "/k/config.yaml".into(), prefix: None, trust };
    match parse(&origin.path, text.as_bytes()) {
        Ok(config) => drafts(&origin, &config, wanted),
        Err(error) => vec![origin.down_as_a_whole(error)],
    }
}

/// The only context of a kubeconfig with this user, and why it cannot be used, if so.
fn reason(user: &str, trust: Trust) -> String {
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: 'https://c'}}}}]\n\
         users: [{{name: u, user: {user}}}]\n\
         contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n"
    );
    let found = read_with(&text, &Contexts::All, trust);
    found[0].access.as_ref().err().map(|error| error.reason()).unwrap_or_default()
}

fn check(text: &str, wanted: Contexts, expect: &[(&str, &str)]) {
    let found: Vec<_> = read(text, wanted)
        .iter()
        .map(|d| match &d.access {
            Ok(_) => (d.name.to_string(), "ok".to_owned()),
            Err(error) => (d.name.to_string(), error.reason()),
        })
        .collect();
    assert_eq!(found.len(), expect.len(), "{found:#?}");
    for ((name, reason), (expect_name, expect_part)) in found.iter().zip(expect) {
        assert_eq!(name, expect_name);
        assert!(reason.contains(expect_part), "{reason}");
    }
}

#[test]
fn where_a_cluster_comes_from_is_told_in_one_short_line() {
    let long = "x".repeat(10_000);
    let text = format!("{GOOD}- {{name: {long}, context: {{cluster: b}}}}\n");
    let drafts = read(&text, Contexts::All);
    let longest = drafts.iter().map(|draft| draft.origin.len()).max();
    assert!(drafts.len() == 8 && longest < Some(1_000), "{longest:?}");
    let path = "/k/a\n2026-01-01T00:00:00Z ERROR forged.yaml".into();
    let (_, origin) = Origin { path, prefix: None, trust: Trust::own() }.nameless();
    assert!(!origin.contains('\n'), "{origin}");
}

#[test]
fn every_context_stands_for_itself() {
    check(
        GOOD,
        Contexts::All,
        &[
            ("a", "ok"),
            ("b", "ok"),
            (
                "lost-cluster",
                "names cluster \"z\", which the file does not have; fix: add the cluster",
            ),
            ("lost-user", "names user \"z\""),
            ("bad-server", "server \"b:6443:x\", which is not an https:// URL; fix: set"),
            ("no-server", "cluster \"none\" has no server"),
            ("no-command", "exec section has no command"),
        ],
    );
}

#[test]
fn a_token_file_of_a_folder_s_kubeconfig_lies_in_the_folder() {
    let check = |file: &str, trust: Trust, expect: &str| {
        let reason = reason(&format!("{{tokenFile: {file}}}"), trust);
        assert!(reason.starts_with(expect), "{reason:?}");
        assert_eq!(reason.is_empty(), expect.is_empty(), "{reason:?}");
    };
    for inside in ["token", "./token", "tokens/east", "/k/token"] {
        check(inside, Trust::stranger(), "");
    }
    for outside in ["/run/secrets/token", "../token", "/k/../token", "/kk/token"] {
        let expect = "kubeconfig /k/config.yaml, context \"east\": its tokenFile /";
        check(outside, Trust::stranger(), expect);
        check(outside, Trust::default(), "");
    }
}

#[test]
fn programs_run_only_where_they_are_allowed() {
    let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}";
    let relative = "{exec: {command: ./login}}";
    let listed = |commands: &[&str]| {
        let plugin = |name: &&str| Plugin { command: (*name).into(), ..Plugin::default() };
        Plugins::Listed(commands.iter().map(plugin).collect())
    };
    for (user, plugins, expect) in [
        (exec, listed(&["gke-gcloud-auth-plugin", "aws"]), ""),
        (exec, Plugins::Any, ""),
        (
            exec,
            Plugins::default(),
            "kubeconfig /k/config.yaml: context \"east\" would run \"aws\" for credentials, which \
             is not allowed; fix: list {command: \"aws\", args: [...], env: {...}}",
        ),
        (exec, listed(&["aw", "awss", "/bin/aws"]), "not allowed; fix: list {command: \"aws\""),
        (exec, Plugins::Never, "or name the file under clusters.kubeconfigs"),
        (relative, listed(&["./login"]), "would run \"/k/./login\""),
        (relative, listed(&["/k/./login"]), ""),
    ] {
        let reason = reason(user, Trust { plugins, ..Trust::default() });
        assert_eq!(reason.is_empty(), expect.is_empty(), "{reason}");
        assert!(reason.contains(expect), "{reason}");
    }
}

#[test]
fn what_is_refused_says_how_to_allow_it() {
    assert_eq!(
        reason("{as: admin}", Trust::stranger()),
        "kubeconfig /k/config.yaml: context \"east\" sets as, which is not allowed; fix: change the \
         kubeconfig, or, if its author may do that, write allow: [impersonation] where the \
         configuration names the kubeconfig, its folder or its Secrets"
    );
    assert_eq!(reason("{as: admin}", Trust::stranger().allow([Risk::Impersonation])), "");
}

#[test]
fn choosing_contexts() {
    let chosen = |names: &[&str]| Contexts::Chosen(names.iter().map(|n| (*n).into()).collect());
    check(GOOD, chosen(&["b"]), &[("b", "ok")]);
    check(
        GOOD,
        chosen(&["a", "c"]),
        &[
            ("a", "ok"),
            ("c", "has no context \"c\"; fix: add it, or use one of its contexts: a, b"),
        ],
    );
    check(GOOD, Contexts::Current, &[("config", "no current-context")]);
    check("{}", Contexts::All, &[("config", "/k/config.yaml has no contexts")]);
    check("", Contexts::All, &[("config", "has no contexts")]);
}

#[test]
fn broken_text_says_where_and_keeps_secrets() {
    for text in [
        "users:\n- name: u\n  user: {token: sesame\n",
        "users:\n- name: u\n  user: sesame\n",
        "sesame",
        "users:\n\t- sesame",
        "users: [{name: u, name: sesame}]",
        "users: \"text \\\"sesame\"",
        "users: [{name: u, user: {exec: {interactiveMode: sesame}}}]",
        "users: [{name: u, user: {exec: {interactiveMode: '`, expected sesame'}}}]",
        "clusters: [{name: c, sesame: 1, sesame: 2}]",
    ] {
        let error = parse(Path::new("/k/config.yaml"), text.as_bytes()).unwrap_err();
        let reason = error.reason();
        assert!(reason.starts_with("/k/config.yaml is not a kubeconfig: "), "{reason}");
        assert!(!reason.contains("sesame") && !reason.contains('\n'), "{text:?}: {reason}");
    }
    for (text, expect) in [
        ("users: sesame", "k is not a kubeconfig: expected sequence start at line 1, column 8"),
        ("users: [{}]", "missing field `name` at line 1, column"),
        (
            "users: [{name: u, user: {exec: {interactiveMode: sesame}}}]",
            "unknown variant, expected one of Never, IfAvailable, Always at line 1, column",
        ),
    ] {
        let error = parse(Path::new("k"), text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expect), "{error}");
    }
}

#[test]
fn aliases_repeat_no_more_than_is_there() {
    let user = |aliases: usize| {
        let anchors = (0..aliases).map(|n| format!("&b{n} 1")).collect::<Vec<_>>().join(", ");
        let long = "x".repeat(4096);
        let repeated: String = (0..aliases).map(|n| format!(", k{n}: *a")).collect();
        let config = format!("{{k: &a {long}{repeated}}}");
        format!(
            "{GOOD}\nx: [{anchors}]\nusers: [{{name: u, user: {{auth-provider: {{name: oidc, config: {config}}}}}}}]"
        )
    };
    let parsed = |text: &str| parse(Path::new("/k/config.yaml"), text.as_bytes());
    assert!(parsed(&user(200)).unwrap_err().to_string().contains("is not a kubeconfig"));
    assert!(parsed("x: &a {}\ny: *a\n").is_ok());
}

#[test]
fn references_are_absolute_and_embedded_data_wins() {
    let drafts = read(GOOD, Contexts::Chosen(vec!["a".into()]));
    let ca = Reference { field: "certificate-authority", file: "/k/ca.crt".into() };
    assert_eq!(drafts[0].references, [ca]);
    let embedded = GOOD.replace("ca.crt}", "ca.crt, certificate-authority-data: eA==}");
    assert_eq!(read(&embedded, Contexts::Chosen(vec!["a".into()]))[0].references, []);
}

#[test]
fn only_the_changed_context_has_a_new_fingerprint() {
    let print = |text: &str| -> Vec<_> {
        let wanted = Contexts::Chosen(vec!["a".into(), "b".into()]);
        read(text, wanted).into_iter().map(|d| d.access.unwrap().1).collect()
    };
    let (old, new) = (print(GOOD), print(&GOOD.replace("sesame", "other")));
    assert_ne!(old[0], new[0]);
    assert_eq!(old[1], new[1]);
}
