//! The roles and bindings of a new cluster, as far as clients need them: full rights of the
//! administrator, discovery, and reviews about oneself.
//!
//! The real server has more of them, for its controllers and nodes, and `admin`, `edit` and `view`,
//! which a controller fills.

use serde_json::{Value, json};

use super::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED};

const GROUP: &str = "rbac.authorization.k8s.io";

const PUBLIC_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
const DISCOVERY_PATHS: &[&str] = &["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"];

/// The ClusterRoles.
pub fn roles() -> Vec<Value> {
    let discovery = [DISCOVERY_PATHS, PUBLIC_PATHS].concat();
    let create = |group: &str, resources: &[&str]| json!({"verbs": ["create"], "apiGroups": [group], "resources": resources});
    let get = |paths: &[&str]| json!([{"verbs": ["get"], "nonResourceURLs": paths}]);
    let rules = [
        (
            "cluster-admin",
            json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]),
        ),
        ("system:discovery", get(&discovery)),
        (
            "system:basic-user",
            json!([
                create(
                    "authorization.k8s.io",
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                ),
                create("authentication.k8s.io", &["selfsubjectreviews"]),
            ]),
        ),
        ("system:public-info-viewer", get(PUBLIC_PATHS)),
    ];
    let role = |(name, rules)| json!({"kind": "ClusterRole", "apiVersion": format!("{GROUP}/v1"), "metadata": metadata(name), "rules": rules});
    rules.into_iter().map(role).collect()
}

/// The ClusterRoleBindings.
pub fn bindings() -> Vec<Value> {
    let groups: [(&str, &[&str]); 4] = [
        ("cluster-admin", &[MASTERS]),
        ("system:discovery", &[AUTHENTICATED]),
        ("system:basic-user", &[AUTHENTICATED]),
        ("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ];
    let subject = |name: &&str| json!({"kind": "Group", "apiGroup": GROUP, "name": name});
    let binding = |(name, groups): (&str, &[&str])| {
        json!({
            "kind": "ClusterRoleBinding", "apiVersion": format!("{GROUP}/v1"),
            "metadata": metadata(name),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": groups.iter().map(subject).collect::<Vec<_>>(),
        })
    };
    groups.into_iter().map(binding).collect()
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::attributes::Attributes;
    use crate::access::policy::Policy;
    use crate::access::user::User;

    #[test]
    fn everybody_may_discover_and_only_the_administrator_may_do_everything() {
        let policy = Policy::build(roles().iter(), bindings().iter());
        let may = |user: &User, verb: &str, path: &str| {
            let asked =
                Attributes { verb: verb.into(), path: Some(path.into()), ..Attributes::default() };
            policy.authorize(user, &asked).allowed
        };
        let jane =
            User { name: "jane".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
        let cases =
            [("/apis/apps/v1", true, false), ("/livez", true, true), ("/metrics", false, false)];
        for (path, known, unknown) in cases {
            assert!(may(&User::administrator(), "get", path));
            assert_eq!(may(&jane, "get", path), known, "{path}");
            assert_eq!(may(&User::anonymous(), "get", path), unknown, "{path}");
            assert!(!may(&jane, "post", path), "{path}");
        }
    }
}
