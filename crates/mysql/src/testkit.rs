//! Objects for tests.

use serde_json::{Value, json};

use crate::api::MySQLCluster;

/// The users' manifest as it stands.
const USERS: &str = include_str!("users.yaml");

/// The MySQLCluster of the users' manifest.
pub(crate) fn users() -> MySQLCluster {
    serde_saphyr::from_str(USERS).unwrap()
}

/// A MySQLCluster `web/db` with this spec, besides its Secret.
pub(crate) fn cluster(spec: Value) -> MySQLCluster {
    let metadata = json!({"name": "db", "namespace": "web", "uid": "u1", "generation": 1});
    let mut all = json!({"secret": "root"});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "cr.mysqloperator.grtl.github.com/v1", "kind": "MySQLCluster",
        "metadata": metadata, "spec": all,
    }))
    .unwrap()
}
