//! Stand-ins for the cluster's workload controllers, so that demos and tests have Pods: Deployment
//! -> ReplicaSet -> Pods, StatefulSets, DaemonSets and Jobs; Pods that get a Node, run what there is
//! to run in them (`program.rs`) and become Ready; and volumes for claims.
//!
//! They are ordinary clients of the server, off by default. In data order: `shell` follows nine
//! kinds and feeds `world`, which says which objects a change concerns; `deployment`, `replicaset`,
//! `statefulset`, `daemonset`, `job`, `pod` and `claim` compare what is desired with what is observed
//! and answer with `Action`s; `shell` carries them out, with `mounts` for programs.
//!
//! Left out, because nothing here fails or takes time: resources and constraints of Nodes, images,
//! probes, init containers (they have done their work at once), `minReadySeconds`,
//! `progressDeadlineSeconds`, `volumeClaimTemplates`, classes of storage, ControllerRevisions,
//! CronJobs.
//!
//! # Invariants
//! - Plans are pure functions of observed objects and `now`; only `shell` does IO or reads a clock.
//! - One watch per kind, whatever the number of objects, and no polling.
//! - An object is planned again only after the world has seen its last writes, so nothing is
//!   created twice.

mod action;
mod claim;
mod daemonset;
mod deployment;
mod job;
mod mounts;
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

pub(crate) use daemonset::VIRTUAL_NODE;
pub(crate) use shell::spawn;
