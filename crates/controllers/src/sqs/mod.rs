//! Queue: a queue of Amazon SQS that heals itself.
//!
//! In data order: [`api`] is what users write; `desired` translates it for SQS, under a name by
//! `name`; `plan` compares it with the queue that exists; `reconcile` carries the plan out through
//! `client`, `requests` and `credentials` (the manager's own come from its [`environment`]), and
//! `ending` handles deletion; `status` describes the outcome, which `record` writes; `schedule` says
//! when to look again.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::CustomResourceExt;
use sdk::rbac::{events, rule};

pub mod api;
mod client;
mod credentials;
mod desired;
mod ending;
pub mod environment;
mod name;
mod plan;
mod reconcile;
mod record;
mod requests;
mod schedule;
mod status;

pub use api::Queue;
pub use client::LIMITS;
pub use reconcile::controller_over;

use crate::Builtin;

/// The name under which our changes of a Queue are recorded.
const FIELD_MANAGER: &str = "sqs.leasehold.dev";
/// The finalizer: the object stays until its queue is deleted, kept or left behind.
const FINALIZER: &str = "sqs.leasehold.dev/queue";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "sqs",
    crds: &[Queue::crd],
    build: |workers| vec![reconcile::controller(workers)],
    rbac,
    example: include_str!("../../sqs/example.yaml"),
};

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    vec![
        // The patch is of the finalizer.
        rule("sqs.leasehold.dev", &["queues"], &["list", "patch", "watch"]),
        rule("sqs.leasehold.dev", &["queues/status"], &["update"]),
        // Those that Queues name, one by one: never listed, never watched.
        rule("", &["secrets"], &["get"]),
        events(),
    ]
}
