//! The checks, by name. Each is a file of this folder: what is done, and what must hold.

mod admission_policy;
mod bucket;
mod chart;
mod conformance;
mod console;
mod control_plane;
mod embedded_kubectl;
mod etcd;
mod examples;
mod ground;
mod home_cost;
mod home_restored;
mod issuer;
mod kind;
mod memcached;
mod moto;
mod mysql;
mod mysql_soak;
mod node;
mod otlp;
mod sharded_list;
mod sqs;
mod stage;
mod tunnel;
mod tunnel_clients;
mod tunnel_pods;
mod tunnel_traffic;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use crate::harness::Scene;
use crate::harness::tools::Need;

/// One check.
#[derive(Debug)]
pub struct Check {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The programs it needs.
    pub needs: &'static [Need],
    /// Runs the check.
    pub run: for<'a> fn(&'a Scene) -> LocalBoxFuture<'a, Result<()>>,
}

/// Every check, in the order in which they run.
pub const CHECKS: &[Check] = &[
    Check {
        name: "chart",
        about: "every set of values renders to objects that a real API server accepts",
        needs: &[Need::Kube, Need::Helm, Need::Kubeconform, Need::Leasehold],
        run: |scene| Box::pin(chart::run(scene)),
    },
    Check {
        name: "admission-policy",
        about: "the API server refuses a write that arrives after its epoch has passed",
        needs: &[Need::Kube, Need::Helm, Need::Leasehold],
        run: |scene| Box::pin(admission_policy::run(scene)),
    },
    Check {
        name: "control-plane",
        about: "three replicas over two clusters: kills and moves lose nothing, audit logs agree",
        needs: &[Need::Kube, Need::Leasehold],
        run: |scene| Box::pin(control_plane::run(scene)),
    },
    Check {
        name: "home-restored",
        about: "home is restored from a backup and emptied: served again soon, no epoch returns",
        needs: &[Need::Kube, Need::Leasehold],
        run: |scene| Box::pin(home_restored::run(scene)),
    },
    Check {
        name: "examples",
        about: "BlogPost, annotated ConfigMaps, Memcached: published once, restarted once for each change, scaled",
        needs: &[Need::Kube, Need::Leasehold],
        run: |scene| Box::pin(examples::run(scene)),
    },
    Check {
        name: "issuer",
        about: "a replica works by its ServiceAccount's token in a cluster that trusts the home's issuer",
        needs: &[Need::Kube, Need::Leasehold],
        run: |scene| Box::pin(issuer::run(scene)),
    },
    Check {
        name: "home-cost",
        about: "a thousand clusters cost their home no more writes than ten, and no object is large",
        needs: &[Need::Kube],
        run: |scene| Box::pin(home_cost::run(scene)),
    },
    Check {
        name: "node",
        about: "installed by helm on a node that runs real containers, it survives kills and upgrades",
        needs: &[Need::Kube, Need::Helm, Need::Node, Need::Leasehold],
        run: |scene| Box::pin(node::run(scene)),
    },
    Check {
        name: "kind",
        about: "README's commands on three clusters of kind: install, add clusters, upgrade, uninstall",
        needs: &[Need::Kube, Need::Helm, Need::Node, Need::Kind, Need::Leasehold],
        run: |scene| Box::pin(kind::run(scene)),
    },
    Check {
        name: "otlp",
        about: "a real OpenTelemetry collector receives traces from watch event to API call, and a real Prometheus \
                leads to them",
        needs: &[Need::Kube, Need::Collector, Need::Prometheus, Need::Leasehold],
        run: |scene| Box::pin(otlp::run(scene)),
    },
    Check {
        name: "sharded-list",
        about: "a server that divides lists and watches by uid divides as we do, and says so",
        needs: &[Need::Kube],
        run: |scene| Box::pin(sharded_list::run(scene)),
    },
    Check {
        name: "console",
        about: "the console in a real browser: live, light and dark, 3 and 1,000 clusters",
        needs: &[Need::Chromium, Need::Leasehold],
        run: |scene| Box::pin(console::run(scene)),
    },
    Check {
        name: "bucket",
        about: "backups in a bucket of another S3: stored in parts, verified, owned, pruned",
        needs: &[Need::Moto, Need::Leasehold],
        run: |scene| Box::pin(bucket::run(scene)),
    },
    Check {
        name: "sqs",
        about: "queues of another SQS implementation are created, repaired, left alone and deleted",
        needs: &[Need::Kube, Need::Moto, Need::Leasehold],
        run: |scene| Box::pin(sqs::run(scene)),
    },
    Check {
        name: "conformance",
        about: "the embedded API server answers as a real one does, request by request",
        needs: &[Need::Kube, Need::Leasehold],
        run: |scene| Box::pin(conformance::run(scene)),
    },
    Check {
        name: "embedded-kubectl",
        about: "the real kubectl works with the embedded API server",
        needs: &[Need::Kube, Need::Leasehold],
        run: |scene| Box::pin(embedded_kubectl::run(scene)),
    },
    Check {
        name: "ground",
        about: "etcd, memcached and MySQL in plain Pods: volumes, DNS, workloads and faults are real",
        needs: &[Need::Kube, Need::Node, Need::Etcd, Need::Memcached, Need::MySql],
        run: |scene| Box::pin(ground::run(scene)),
    },
    Check {
        name: "memcached",
        about: "real memcached: nodes keep their keys through growth, deaths and updates of others",
        needs: &[Need::Kube, Need::Node, Need::Memcached, Need::Leasehold],
        run: |scene| Box::pin(memcached::run(scene)),
    },
    Check {
        name: "etcd",
        about: "real etcd: 1 to 5 to 3 members, losses, an upgrade, a restore; no acknowledged write is lost",
        needs: &[Need::Kube, Need::Node, Need::Etcd, Need::Leasehold],
        run: |scene| Box::pin(etcd::run(scene)),
    },
    Check {
        name: "mysql",
        about: "real MySQL: primaries die, are cut off and lose volumes; no acknowledged commit is lost",
        needs: &[Need::Kube, Need::Node, Need::MySql, Need::Leasehold],
        run: |scene| Box::pin(mysql::run(scene)),
    },
    Check {
        name: "mysql-soak",
        about: "real MySQL for ten minutes, its primary and the manager killed again and again",
        needs: &[Need::Kube, Need::Node, Need::MySql, Need::Leasehold],
        run: |scene| Box::pin(mysql_soak::run(scene)),
    },
    Check {
        name: "tunnel",
        about: "bytes pass a Service's tunnel, only its own clients serve it, one or two, and its host is deleted",
        needs: &[Need::Kube, Need::Rathole, Need::Leasehold],
        run: |scene| Box::pin(tunnel::run(scene)),
    },
];
