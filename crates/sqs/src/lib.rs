//! Queue: a queue of Amazon SQS that heals itself.
//!
//! In data order: [`api`] is what users write; `desired` translates it for SQS, under a name by
//! `name`, with policies by `documents`; `owner` says whose a queue is; `plan` compares it with the queue
//! that exists; `reconcile` decides what a reconcile does, and `bringing` carries the plan out through
//! `client` and `requests`. Credentials are those that the spec names (`source`) and the administrator
//! permits (`access`), got by `credentials` from Secrets, which `holding` keeps while they are in use,
//! from `sts`, or as the manager's `own`, in part from its [`environment`]. `ending` handles deletion;
//! `connection` tells consumers; `status` describes the outcome, which `record` writes; `schedule` says
//! when to look again. `gauges` shows how many messages queues have.

#![deny(unreachable_pub)]

use k8s_openapi::api::rbac::v1::PolicyRule;
use sdk::rbac::{events, rule};

mod access;
pub mod api;
mod bringing;
mod client;
mod connection;
mod credentials;
mod desired;
mod documents;
mod ending;
pub mod environment;
#[cfg(test)]
mod fuzz;
mod gauges;
mod holding;
mod invalid;
mod name;
mod own;
mod owner;
mod plan;
mod reconcile;
mod record;
mod referrers;
mod requests;
mod schedule;
mod source;
mod status;
mod sts;

pub use access::{KEYS, check};
pub use api::Queue;
pub use client::LIMITS;
pub use reconcile::{controller, controller_over};

/// Its name in the configuration, in metrics and in shards.
pub const NAME: &str = "sqs";

/// A manifest that shows it at work.
pub const EXAMPLE: &str = include_str!("../example.yaml");

/// The name under which our changes of a Queue are recorded.
const FIELD_MANAGER: &str = "sqs.leasehold.dev";
/// The finalizer: the object stays until its queue is deleted, kept or left behind.
const FINALIZER: &str = "sqs.leasehold.dev/queue";

/// The rights of the controller in a workload cluster.
pub fn rbac() -> Vec<PolicyRule> {
    vec![
        // The patch is of the finalizer.
        rule("sqs.leasehold.dev", &["queues"], &["list", "patch", "watch"]),
        rule("sqs.leasehold.dev", &["queues/status"], &["update"]),
        // Those that Queues name, one by one: never listed, never watched. The patch is of a finalizer.
        rule("", &["secrets"], &["get", "patch"]),
        // Likewise.
        rule("", &["configmaps"], &["create", "delete", "get", "patch"]),
        events(),
    ]
}
