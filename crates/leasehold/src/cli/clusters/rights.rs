//! What the fleet's user in a cluster is and may do, as manifests: pure.

use ::clusters::LABEL;
use k8s_openapi::api::rbac::v1::PolicyRule;
use model::ClusterName;
use serde_json::{Value, json};

/// The namespace of the user in a workload cluster.
pub(super) const NAMESPACE: &str = "leasehold-system";
/// The user: a ServiceAccount. Its name and those of its roles are not the chart's, whose release may be in
/// the same cluster.
pub(super) const USER: &str = "leasehold-fleet";
/// The label of everything that is made in a workload cluster, and its value.
pub(super) const MADE: [&str; 2] = ["app.kubernetes.io/managed-by", "leasehold-clusters"];

/// The annotation of the user that says whose it is: the uid of the namespace of the fleet's home.
pub(super) const FLEET: &str = "leasehold.dev/fleet";
/// The annotation of the user that says under which name the cluster was added.
pub(super) const CLUSTER: &str = LABEL;

/// The namespace and the user of a fleet, in the cluster that it calls `cluster`.
pub(super) fn user(fleet: &str, cluster: &ClusterName) -> Vec<Value> {
    let [key, value] = MADE;
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
            "metadata": {"name": USER, "namespace": NAMESPACE, "labels": {key: value},
                "annotations": {FLEET: fleet, CLUSTER: cluster}}}),
    ]
}

/// The namespace whose uid says which cluster this is.
const IDENTITY: &str = "kube-system";

/// The right to read that namespace, by which a fleet finds out that two names are one cluster. A right in a
/// namespace holds for the namespace itself.
pub(super) fn identity() -> [Value; 2] {
    let rule = PolicyRule {
        resource_names: Some(vec![IDENTITY.to_owned()]),
        ..sdk::rbac::rule("", &["namespaces"], &["get"])
    };
    role(&format!("{USER}-identity"), Some(IDENTITY), &[rule])
}

/// The right to mark the cluster as this fleet's, by which another fleet that does the same is noticed. A rule
/// cannot name what does not exist yet, so it may create any Lease there.
pub(super) fn own_marks() -> [Value; 2] {
    let rule = |verbs| sdk::rbac::rule("coordination.k8s.io", &["leases"], verbs);
    let change = PolicyRule {
        resource_names: Some(vec![marks::NAME.to_owned()]),
        ..rule(&["get", "patch"])
    };
    role(&format!("{USER}-marks"), Some(marks::NAMESPACE), &[rule(&["create"]), change])
}

/// The rights of one controller: in these namespaces, or in all if there are none. Rules for what has no
/// namespace are for the whole cluster in any case.
pub(super) fn rights(
    controller: &str,
    rules: Vec<PolicyRule>,
    namespaces: &[String],
) -> Vec<Value> {
    let (wide, narrow): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|rule| namespaces.is_empty() || is_cluster_wide(rule));
    let name = format!("{USER}-{controller}");
    let mut all = Vec::new();
    if !wide.is_empty() {
        all.extend(role(&name, None, &wide));
    }
    if !narrow.is_empty() {
        all.extend(namespaces.iter().flat_map(|namespace| role(&name, Some(namespace), &narrow)));
    }
    all
}

/// Whether a rule is for a kind without namespaces: of those that controllers ask for, Namespaces.
fn is_cluster_wide(rule: &PolicyRule) -> bool {
    rule.resources.iter().flatten().any(|resource| resource == "namespaces")
}

/// A role and its binding to the user.
fn role(name: &str, namespace: Option<&str>, rules: &[PolicyRule]) -> [Value; 2] {
    let (group, [key, value]) = ("rbac.authorization.k8s.io", MADE);
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let metadata = json!({"name": name, "namespace": namespace, "labels": {key: value}});
    let version = format!("{group}/v1");
    [
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({"apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": USER, "namespace": NAMESPACE}]}),
    ]
}

#[cfg(test)]
mod tests {
    use sdk::rbac::rule;

    use super::*;

    #[test]
    fn one_namespace_tells_which_cluster_it_is() {
        let [role, binding] = identity();
        let rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"],
            "resourceNames": ["kube-system"]});
        assert_eq!((&role["kind"], &role["rules"]), (&json!("Role"), &json!([rule])));
        assert_eq!(role["metadata"]["namespace"], "kube-system");
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    }

    #[test]
    fn marks_are_written_in_one_namespace_and_one_lease() {
        let [role, _] = own_marks();
        assert_eq!(role["metadata"]["namespace"], "kube-public");
        let rules = role["rules"].as_array().unwrap();
        assert_eq!(rules[0]["verbs"], json!(["create"]));
        assert_eq!(rules[1]["resourceNames"], json!(["leasehold-fleets"]));
        assert_eq!(rules[1]["verbs"], json!(["get", "patch"]));
    }

    #[test]
    fn rights_reach_no_further_than_the_namespaces() {
        let rules =
            || vec![rule("apps", &["deployments"], &["list"]), rule("", &["namespaces"], &["get"])];
        let named = |namespaces: &[&str]| {
            let namespaces: Vec<_> = namespaces.iter().map(|&name| name.to_owned()).collect();
            let of = |object: &Value| {
                let rules = object["rules"].as_array().map_or(0, Vec::len);
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or("-").to_owned();
                (object["kind"].as_str().unwrap().to_owned(), namespace, rules)
            };
            rights("tdset", rules(), &namespaces).iter().map(of).collect::<Vec<_>>()
        };
        let row =
            |kind: &str, namespace: &str, rules| (kind.to_owned(), namespace.to_owned(), rules);
        assert_eq!(named(&[]), [row("ClusterRole", "-", 2), row("ClusterRoleBinding", "-", 0)]);
        assert_eq!(
            named(&["a", "b"]),
            [
                row("ClusterRole", "-", 1),
                row("ClusterRoleBinding", "-", 0),
                row("Role", "a", 1),
                row("RoleBinding", "a", 0),
                row("Role", "b", 1),
                row("RoleBinding", "b", 0),
            ]
        );
    }
}
