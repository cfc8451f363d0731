//! Shorthand for RBAC rules: the rights that a controller needs, beside its code.
//!
//! ```
//! use leasehold_sdk::rbac::{events, rule};
//!
//! let rights = [rule("apps", &["deployments"], &["list", "watch", "patch"]), events()];
//! assert_eq!(rights[0].api_groups.as_deref(), Some(&["apps".to_owned()][..]));
//! assert_eq!(rights[0].verbs, ["list", "watch", "patch"]);
//! ```

use k8s_openapi::api::rbac::v1::PolicyRule;

pub use model::rbac::rule;

/// The rights to publish Events: to create one, or to extend a series.
pub fn events() -> PolicyRule {
    rule("events.k8s.io", &["events"], &["create", "patch"])
}

/// The rights to dial ports of Pods: see [`crate::Context::pod`]. API servers ask for `get` when the
/// connection is a WebSocket, and from Kubernetes 1.35 on for `create` too.
///
/// RBAC cannot select Pods by label: who has these rights in a namespace reaches every port of every Pod
/// there. Grant them in the namespaces where they are needed.
pub fn port_forward() -> PolicyRule {
    rule("", &["pods/portforward"], &["create", "get"])
}
