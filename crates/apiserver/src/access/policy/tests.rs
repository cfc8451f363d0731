use serde_json::json;

use super::*;

fn role(namespace: &str, name: &str, rules: Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules})
}

fn binding(namespace: &str, name: &str, role: [&str; 2], subjects: Value) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "roleRef": {"kind": role[0], "name": role[1]}, "subjects": subjects,
    })
}

fn get(namespace: &str, resource: &str) -> Attributes {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes {
        verb: "get".into(),
        namespace: namespace.into(),
        resource: resource.into(),
        subresource: subresource.into(),
        ..Attributes::default()
    }
}

fn rule(rule: Value) -> Rule {
    Rule::read(&rule)
}

#[test]
fn resources_match_with_their_subresources() {
    let cases = [
        ("pods", "pods", true),
        ("pods", "pods/log", false),
        ("pods/log", "pods/log", true),
        ("pods/log", "pods", false),
        ("*", "pods/log", true),
        ("*/log", "pods/log", true),
        ("*/log", "pods", false),
        ("*/scale", "pods/log", false),
        ("pods/*", "pods/log", false),
    ];
    for (listed, asked, allowed) in cases {
        let rule = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": [listed]}));
        assert_eq!(rule.allows(&get("a", asked)), allowed, "{listed} {asked}");
    }
}

#[test]
fn verbs_groups_and_names_all_have_to_match() {
    let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
    let narrow = rule(json!({
        "verbs": ["get", "list"], "apiGroups": ["apps"], "resources": ["deployments"],
        "resourceNames": ["web"],
    }));
    let asked = Attributes { group: "apps".into(), name: "web".into(), ..get("a", "deployments") };
    assert!(all.allows(&asked) && narrow.allows(&asked));
    for other in [
        Attributes { verb: "delete".into(), ..asked.clone() },
        Attributes { group: "".into(), ..asked.clone() },
        Attributes { name: "db".into(), ..asked.clone() },
        // A list has no name, so names do not allow it.
        Attributes { verb: "list".into(), name: String::new(), ..asked.clone() },
    ] {
        assert!(all.allows(&other) && !narrow.allows(&other), "{other:?}");
    }
}

#[test]
fn paths_match_exactly_or_by_their_beginning() {
    let cases = [
        ("/healthz", "/healthz", true),
        ("/healthz", "/healthz/etcd", false),
        ("/healthz/*", "/healthz/etcd", true),
        ("/healthz/*", "/healthz", false),
        ("*", "/anything", true),
    ];
    for (listed, path, allowed) in cases {
        let rule = rule(json!({"verbs": ["get"], "nonResourceURLs": [listed]}));
        let asked =
            Attributes { verb: "get".into(), path: Some(path.into()), ..Attributes::default() };
        assert_eq!(rule.allows(&asked), allowed, "{listed} {path}");
        // Rules about resources say nothing about paths, and the other way round.
        assert!(!rule.allows(&get("", "pods")));
    }
}

#[test]
fn bindings_name_users_groups_and_service_accounts() {
    let roles =
        [role("a", "r", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]))];
    let account = User::service_account("a", "b", "u");
    let jane = User { name: "jane".into(), groups: vec!["devs".into()], ..User::default() };
    let cases = [
        (json!([{"kind": "ServiceAccount", "name": "b", "namespace": "a"}]), true, false),
        (json!([{"kind": "ServiceAccount", "name": "b"}]), true, false),
        (json!([{"kind": "ServiceAccount", "name": "b", "namespace": "c"}]), false, false),
        (json!([{"kind": "User", "name": "jane"}]), false, true),
        (json!([{"kind": "Group", "name": "devs"}]), false, true),
        (json!([{"kind": "Group", "name": "system:serviceaccounts:a"}]), true, false),
        (json!([{"kind": "Robot", "name": "jane"}]), false, false),
        (Value::Null, false, false),
    ];
    for (subjects, account_may, jane_may) in cases {
        let bindings = [binding("a", "rb", ["Role", "r"], subjects.clone())];
        let policy = Policy::build(roles.iter(), bindings.iter());
        assert_eq!(
            policy.authorize(&account, &get("a", "pods")).allowed,
            account_may,
            "{subjects}"
        );
        assert_eq!(policy.authorize(&jane, &get("a", "pods")).allowed, jane_may, "{subjects}");
        for elsewhere in ["", "c"] {
            assert!(!policy.authorize(&jane, &get(elsewhere, "pods")).allowed, "{subjects}");
        }
    }
}

#[test]
fn a_cluster_role_binding_holds_everywhere_and_a_role_binding_in_its_namespace() {
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    let roles = [role("", "reader", rules)];
    let jane = User { name: "jane".into(), ..User::default() };
    let to_jane = json!([{"kind": "User", "name": "jane"}]);
    let wide = [binding("", "crb", ["ClusterRole", "reader"], to_jane.clone())];
    let wide = Policy::build(roles.iter(), wide.iter());
    let narrow = [binding("a", "rb", ["ClusterRole", "reader"], to_jane)];
    let narrow = Policy::build(roles.iter(), narrow.iter());
    for (namespace, in_narrow) in [("a", true), ("b", false), ("", false)] {
        assert!(wide.authorize(&jane, &get(namespace, "pods")).allowed);
        assert_eq!(narrow.authorize(&jane, &get(namespace, "pods")).allowed, in_narrow);
    }
    assert_eq!(
        wide.authorize(&jane, &get("", "pods")).reason,
        "RBAC: allowed by ClusterRoleBinding \"crb\" of ClusterRole \"reader\" to User \"jane\""
    );
    assert_eq!(
        narrow.authorize(&jane, &get("a", "pods")).reason,
        "RBAC: allowed by RoleBinding \"rb/a\" of ClusterRole \"reader\" to User \"jane\""
    );
}

#[test]
fn missing_roles_are_part_of_the_refusal() {
    let everybody = json!([{"kind": "Group", "name": "system:serviceaccounts"}]);
    let bindings = [
        binding("", "x", ["ClusterRole", "gonec"], everybody.clone()),
        binding("", "y", ["ClusterRole", "gonec"], everybody.clone()),
        binding("a", "z", ["Role", "gone"], everybody),
    ];
    let policy = Policy::build(std::iter::empty(), bindings.iter());
    let account = User::service_account("a", "b", "u");
    assert_eq!(
        policy.authorize(&account, &get("a", "pods")).reason,
        "rbac: RBAC: [clusterrole.rbac.authorization.k8s.io \"gonec\" not found, \
         role.rbac.authorization.k8s.io \"gone\" not found]"
    );
    assert_eq!(
        policy.authorize(&account, &get("", "nodes")).reason,
        "rbac: RBAC: clusterrole.rbac.authorization.k8s.io \"gonec\" not found"
    );
    let (rules, failure) = policy.rules_of(&account, "a");
    assert!(rules.is_empty() && failure.is_some_and(|f| f.starts_with('[')));
}
