//! BlogPost: records when a post was published. The smallest controller there is.
//!
//! [`api`] is what users write; `reconcile` is all the rest. The tutorial
//! (`crates/leasehold/TUTORIAL.md`) builds it step by step.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::CustomResourceExt;
use sdk::rbac::{events, rule};

pub mod api;
mod reconcile;

pub use api::BlogPost;

use crate::Builtin;

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "blogpost",
    crds: &[BlogPost::crd],
    keys: &[],
    check: crate::anything,
    build: |workers, _| vec![reconcile::controller(workers)],
    rbac,
    more_rbac: &[],
    target_rbac: None,
    example: include_str!("../../blogpost/example.yaml"),
};

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    vec![
        rule("iximiuz.com", &["blogposts"], &["list", "watch"]),
        rule("iximiuz.com", &["blogposts/status"], &["update"]),
        events(),
    ]
}
