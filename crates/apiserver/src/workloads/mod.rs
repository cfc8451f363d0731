//! Stand-ins for the cluster's workload controllers, so that demos and tests have Pods: Deployment
//! -> ReplicaSet -> Pods, StatefulSets and DaemonSets, and Pods that become Ready.
//!
//! They are ordinary clients of the server, off by default. In data order: `shell` follows six
//! kinds and feeds `world`, which says which objects a change concerns; `deployment`, `replicaset`,
//! `statefulset`, `daemonset` and `pod` compare what is desired with what is observed and answer
//! with `Action`s; `shell` carries them out.
//!
//! Left out, because nothing here fails or takes time: scheduling, images, probes,
//! `minReadySeconds`, `progressDeadlineSeconds`, volume claims, ControllerRevisions, Jobs.
//!
//! # Invariants
//! - Plans are pure functions of observed objects and `now`; only `shell` does IO or reads a clock.
//! - One watch per kind, whatever the number of objects, and no polling.
//! - An object is planned again only after the world has seen its last writes, so nothing is
//!   created twice.

mod action;
mod daemonset;
mod deployment;
mod object;
mod pod;
mod replicaset;
mod shell;
mod statefulset;
mod status;
mod template;
#[cfg(test)]
mod tests;
mod world;

pub use shell::spawn;
