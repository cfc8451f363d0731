//! Tunnel: gives Services of type LoadBalancer an address in clusters without load balancers, through
//! a small host at a cloud provider.
//!
//! ```text
//!   Service ──▶ tunnel-service ──▶ Tunnel ──▶ tunnel ──▶ provider: a host at the tunnel's end
//!      ▲              │              │ status    │
//!      └── address ───┘◀─────────────┘           └─────▶ Deployment: the client that connects to it
//!   ConfigMap leasehold-tunnel ──▶ tunnel-sweep ──▶ provider: hosts whose Tunnel is gone
//! ```
//!
//! In data order: [`api`] is the Tunnel; [`names`] says what belongs together; `spelling` says what people may write; `choice` selects
//! provider, region and size, as far as `access` permits; `service` decides what a Service gets. `plan` decides the next step of a
//! Tunnel, and `stable` that of the address that outlives its host; `reconcile` takes it, through `machine`, `address`, `client` and `account`, at a [`provider`]; `ending` gives back what it has, and `holding` keeps the token
//! until then; `record` writes what the status says. [`exit`] is the tunnel itself, [`balance`] divides it among several clients,
//! and [`credentials`] authenticates its ends. `clients` is what is known of its clients. `probe` tries whether connections come through; `inventory` lists all hosts at once, so that a thousand
//! Tunnels cost no more requests than ten; `rank` says which Tunnels come first where not all may have a host, and `number` bounds what an account may have; `sweep` removes hosts whose Tunnel
//! is gone, from all accounts that `used` has recorded. `ipv6` is what is known of a host's second address.

#![deny(unreachable_pub)]

use k8s_openapi::api::rbac::v1::PolicyRule;
use sdk::ControllerSpec;
use sdk::rbac::{events, rule};

mod access;
mod account;
mod address;
pub mod api;
pub mod balance;
mod choice;
mod client;
mod clients;
pub mod credentials;
mod ending;
pub mod exit;
#[cfg(test)]
mod fuzz;
mod holding;
mod inventory;
mod ipv6;
mod machine;
pub mod names;
mod number;
mod plan;
mod probe;
pub mod provider;
mod rank;
mod reconcile;
mod record;
mod service;
mod service_reconcile;
mod settings;
mod spelling;
mod stable;
mod sweep;
mod used;

pub use access::{Access, KEYS, check};
pub use api::Tunnel;
pub use probe::{Probe, Proof};
pub use provider::http::Http;
pub use provider::local::Local;
pub use settings::Settings;

/// Its name in the configuration, in metrics and in shards.
pub const NAME: &str = "tunnel";

/// A manifest that shows it at work.
pub const EXAMPLE: &str = include_str!("../example.yaml");

/// The field manager of our fields.
const FIELD_MANAGER: &str = "tunnel.leasehold.dev";

/// The group of its parts. They share kinds with other controllers, but need not run where those do.
const GROUP: &str = "tunnel";

/// The parts of the controller, with these settings.
pub fn controllers(workers: usize, settings: &Settings) -> Vec<ControllerSpec> {
    vec![
        reconcile::controller(workers, settings.clone()),
        service_reconcile::controller(workers, settings.access.clone()),
        sweep::controller(settings.clone()),
    ]
}

/// The rights of the controller in a workload cluster.
pub fn rbac() -> Vec<PolicyRule> {
    let named = |name: &str, rule: PolicyRule| PolicyRule {
        resource_names: Some(vec![name.to_owned()]),
        ..rule
    };
    vec![
        rule(
            "inlets.inlets.dev",
            &["tunnels"],
            &["create", "delete", "get", "list", "patch", "watch"],
        ),
        rule("inlets.inlets.dev", &["tunnels/status"], &["update"]),
        // An ownerReference that blocks deletion asks for these where
        // OwnerReferencesPermissionEnforcement is on.
        rule("inlets.inlets.dev", &["tunnels/finalizers"], &["update"]),
        rule("", &["services/finalizers"], &["update"]),
        rule("", &["services"], &["list", "watch"]),
        rule("", &["services/status"], &["update"]),
        // A list that selects one name by a field is a list of that name.
        // The patch is of annotations: the accounts that were used.
        named(names::CONFIG_MAP, rule("", &["configmaps"], &["list", "patch", "watch"])),
        // The providers' tokens, the credentials of host and client, the client's configuration.
        rule("", &["secrets"], &["create", "get", "patch"]),
        named("kube-system", rule("", &["namespaces"], &["get"])),
        rule("apps", &["deployments"], &["create", "list", "patch", "watch"]),
        events(),
    ]
}
