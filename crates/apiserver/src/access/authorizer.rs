//! Keeps the policy of the stored RBAC objects, and reads it anew when one of them has changed.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

use super::policy::Policy;
use crate::resource::table_id;
use crate::store::{Store, TableId};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The policy of a store.
#[derive(Debug)]
pub struct Authorizer {
    roles: [TableId; 2],
    bindings: [TableId; 2],
    /// The newest revision of each of these tables.
    revisions: Vec<watch::Receiver<u64>>,
    known: Mutex<Option<Known>>,
}

/// A policy and the revisions it was read at.
#[derive(Debug)]
struct Known {
    revisions: Vec<u64>,
    policy: Arc<Policy>,
}

impl Authorizer {
    /// One that follows a store.
    pub fn new(store: &Store) -> Self {
        let roles = ["roles", "clusterroles"].map(|plural| table_id(GROUP, plural));
        let bindings = ["rolebindings", "clusterrolebindings"].map(|p| table_id(GROUP, p));
        let revisions = roles.iter().chain(&bindings).map(|table| store.subscribe(table)).collect();
        Self { roles, bindings, revisions, known: Mutex::new(None) }
    }

    /// The policy of the store as it is now.
    pub fn policy(&self, store: &Store) -> Arc<Policy> {
        // Read before the objects, so that a policy never counts as newer than it is.
        let revisions: Vec<u64> = self.revisions.iter().map(|r| *r.borrow()).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.revisions == revisions) {
            return known.policy.clone();
        }
        let (roles, bindings) = (objects(store, &self.roles), objects(store, &self.bindings));
        let policy = Arc::new(Policy::build(roles.iter(), bindings.iter()));
        *known = Some(Known { revisions, policy: policy.clone() });
        policy
    }
}

fn objects(store: &Store, tables: &[TableId]) -> Vec<Value> {
    let listed = tables.iter().filter_map(|table| store.list(table, None, None, None).ok());
    listed.flat_map(|snapshot| snapshot.items).map(|object| object.to_value()).collect()
}
