//! The life of clusters, step by step, with a stand-in of etcd: growing, shrinking, replacing, upgrading,
//! losing, and a crash at every step.

mod life;
mod standin;
mod world;

use serde_json::{Value, json};

use crate::api::EtcdCluster;

/// A cluster `web/db` with this spec.
pub(crate) fn cluster(spec: Value) -> EtcdCluster {
    let metadata = json!({"name": "db", "namespace": "web", "uid": "u1", "generation": 1});
    serde_json::from_value(json!({
        "apiVersion": "data.leasehold.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": metadata, "spec": spec,
    }))
    .unwrap()
}
