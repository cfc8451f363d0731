//! The controllers that come with Leasehold: one cargo feature each, and one folder here or a crate of
//! its own, as `etcd`, `mysql`, `sqs` and `tunnel`.
//!
//! A folder holds `api` (the custom resource), pure decisions (`plan` and its helpers) and
//! `reconcile` (the shell: cache in, fenced client out). What the rest of the product needs to
//! know of a controller is one row of [`BUILTINS`]: its name in the configuration, its CRD, the
//! rights it needs in a workload cluster, and an example. A controller whose feature is off is not
//! there, nor are the crates that only it needs.
//!
//! # Invariants
//! - A reconciler never learns why it ran, and decides from objects and `now` alone.
//! - [`Builtin::rbac`] lists every request a controller makes and nothing else; charts and tests
//!   are made from it.

#![deny(unreachable_pub)]
// What the controllers share is not all used in a build with few of them.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sdk::ControllerSpec;
use serde_json::Value;

#[cfg(feature = "blogpost")]
pub mod blogpost;
mod children;
#[cfg(feature = "configmonitor")]
pub mod configmonitor;
#[cfg(feature = "memcached")]
pub mod memcached;
#[cfg(feature = "restart-pods")]
pub mod restartpods;
#[cfg(any(feature = "configmonitor", feature = "restart-pods"))]
pub mod restarts;
#[cfg(feature = "tdset")]
pub mod tdset;

#[cfg(feature = "blogpost")]
pub use blogpost::BlogPost;
#[cfg(feature = "configmonitor")]
pub use configmonitor::ConfigMonitor;
#[cfg(feature = "etcd")]
pub use etcd::{EtcdCluster, EtcdSnapshot};
#[cfg(feature = "memcached")]
pub use memcached::Memcached;
#[cfg(feature = "mysql")]
pub use mysql::{MySQLBackup, MySQLBackupSchedule, MySQLCluster};
#[cfg(feature = "sqs")]
pub use sqs::Queue;
#[cfg(feature = "tdset")]
pub use tdset::TDSet;
#[cfg(feature = "tunnel")]
pub use tunnel::Tunnel;

/// When a controller that has said that it was refused, and goes on with its work, asks again. What
/// refuses may change without a word: an admission policy, or a definition that a server has not
/// read yet.
#[cfg(any(feature = "memcached", feature = "tdset"))]
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_secs(5 * 60);

/// A key of a controller's section, and the rights that the controller needs where it is `true`.
pub type SettingRights = (&'static str, fn() -> Vec<PolicyRule>);

/// The rights that a controller needs for a kind of its settings, by group and plural name.
pub type TargetRights = fn(&str, &str) -> Vec<PolicyRule>;

/// What the product needs to know of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name in the configuration, in metrics and in shards.
    pub name: &'static str,
    /// The keys of its section of the configuration that are its own.
    pub keys: &'static [&'static str],
    /// Checks what the section has under those keys, a mapping or null, and says what is wrong.
    pub check: fn(&Value) -> Result<(), String>,
    /// Makes it, with this many workers in each cluster and these checked settings of its own: one
    /// controller, or several that are one to whoever names it. The first has its name; the others say
    /// that they are part of it.
    pub build: fn(usize, &Value) -> Vec<ControllerSpec>,
    /// The CRDs of the kinds that are its own, made from the Rust types.
    pub crds: &'static [fn() -> CustomResourceDefinition],
    /// The rights it needs in every workload cluster.
    pub rbac: fn() -> Vec<PolicyRule>,
    /// The rights it needs besides, for each setting of its own that is `true`.
    pub more_rbac: &'static [SettingRights],
    /// The rights it needs besides for each kind, by group and plural name, that its settings list as a target; for
    /// a controller with such settings.
    pub target_rbac: Option<TargetRights>,
    /// A manifest that shows it at work.
    pub example: &'static str,
}

/// The controllers of this build, in order of their names.
pub const BUILTINS: &[Builtin] = &[
    #[cfg(feature = "blogpost")]
    blogpost::BUILTIN,
    #[cfg(feature = "configmonitor")]
    configmonitor::BUILTIN,
    #[cfg(feature = "etcd")]
    Builtin {
        name: etcd::NAME,
        crds: etcd::CRDS,
        keys: &[],
        check: anything,
        build: |workers, _| {
            let gateway = std::sync::Arc::new(etcd::PodGateway);
            etcd::controllers(workers, gateway, &etcd::Settings::from_environment())
        },
        rbac: etcd::rbac,
        more_rbac: &[],
        target_rbac: None,
        example: etcd::EXAMPLE,
    },
    #[cfg(feature = "memcached")]
    memcached::BUILTIN,
    #[cfg(feature = "mysql")]
    Builtin {
        name: mysql::NAME,
        crds: mysql::CRDS,
        keys: &[],
        check: anything,
        build: |workers, _| mysql::controllers(workers, &mysql::Settings::from_environment()),
        rbac: mysql::rbac,
        more_rbac: &[],
        target_rbac: None,
        example: mysql::EXAMPLE,
    },
    #[cfg(feature = "restart-pods")]
    restartpods::BUILTIN,
    #[cfg(feature = "sqs")]
    Builtin {
        name: sqs::NAME,
        crds: &[<Queue as kube::CustomResourceExt>::crd],
        keys: sqs::KEYS,
        check: sqs::check,
        build: |workers, settings| vec![sqs::controller(workers, settings)],
        rbac: sqs::rbac,
        more_rbac: &[],
        target_rbac: None,
        example: sqs::EXAMPLE,
    },
    #[cfg(feature = "tdset")]
    tdset::BUILTIN,
    #[cfg(feature = "tunnel")]
    Builtin {
        name: tunnel::NAME,
        crds: &[<Tunnel as kube::CustomResourceExt>::crd],
        keys: tunnel::KEYS,
        check: tunnel::check,
        build: |workers, settings| {
            let access = tunnel::Access::parse(settings).expect("the configuration was checked");
            tunnel::controllers(workers, &tunnel::Settings::from_environment(access))
        },
        rbac: tunnel::rbac,
        more_rbac: &[],
        target_rbac: None,
        example: tunnel::EXAMPLE,
    },
];

/// The names of all controllers.
pub fn all() -> impl Iterator<Item = &'static str> {
    BUILTINS.iter().map(|builtin| builtin.name)
}

/// The controller of that name.
pub fn get(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|builtin| builtin.name == name)
}

/// Makes the controller of that name, with this many workers in each cluster and no settings of its own;
/// nothing if there is none.
pub fn build(name: &str, workers: usize) -> Vec<ControllerSpec> {
    get(name).map(|builtin| (builtin.build)(workers, &Value::Null)).unwrap_or_default()
}

/// The check of a controller without settings of its own.
fn anything(_: &Value) -> Result<(), String> {
    Ok(())
}

/// Whether a number is left out where it is written.
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// The CRDs of all controllers.
pub fn crds() -> Vec<CustomResourceDefinition> {
    BUILTINS.iter().flat_map(|builtin| builtin.crds).map(|crd| crd()).collect()
}
