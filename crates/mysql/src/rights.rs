//! The rights of the controller in a workload cluster.

use k8s_openapi::api::rbac::v1::PolicyRule;
use sdk::rbac::{events, port_forward, rule};

/// The rights of the controller in a workload cluster.
pub fn rbac() -> Vec<PolicyRule> {
    const GROUP: &str = "cr.mysqloperator.grtl.github.com";
    let keep = ["create", "get", "list", "patch", "watch"];
    let mut rights = vec![
        rule(GROUP, &["mysqlclusters"], &["get", "list", "watch"]),
        rule(GROUP, &["mysqlclusters/status"], &["update"]),
        // An ownerReference that blocks deletion asks for this where
        // OwnerReferencesPermissionEnforcement is on.
        rule(GROUP, &["mysqlclusters/finalizers"], &["update"]),
        // Deleted without its Pods, to be made anew, when volumes grow.
        rule("apps", &["statefulsets"], &["create", "delete", "get", "list", "patch", "watch"]),
        // The label of the role is patched; a Pod is deleted to be made anew.
        rule("", &["pods"], &["delete", "get", "list", "patch", "watch"]),
        rule("", &["persistentvolumeclaims"], &["create", "get", "list", "patch", "watch"]),
        rule("", &["services", "configmaps"], &keep),
        rule("policy", &["poddisruptionbudgets"], &keep),
        rule("", &["secrets"], &["create", "get", "patch"]),
        port_forward(),
        events(),
    ];
    rights.extend(crate::backup::rbac());
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_right_is_for_everything_and_no_secret_is_listed() {
        for right in rbac() {
            let resources = right.resources.unwrap_or_default();
            assert!(!resources.iter().chain(&right.verbs).any(|word| word == "*"));
            if resources.iter().any(|resource| resource == "secrets") {
                assert!(!right.verbs.iter().any(|verb| ["list", "watch"].contains(&verb.as_str())));
            }
        }
    }
}
