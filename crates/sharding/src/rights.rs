//! The rights that replicas need in their namespace of the home cluster. The chart's Role is generated from this.

use k8s_openapi::api::rbac::v1::PolicyRule;
use model::rbac::rule;

/// What the sharding protocol reads and writes, in one namespace.
pub fn rights() -> Vec<PolicyRule> {
    const OWN: &[&str] = &["create", "delete", "get", "list", "update", "watch"];
    vec![
        rule("coordination.k8s.io", &["leases"], OWN),
        rule("leasehold.dev", &["members", "shardmaps"], OWN),
        rule("leasehold.dev", &["fleetpolicies"], &["list", "watch"]),
        rule("events.k8s.io", &["events"], &["create"]),
    ]
}
