//! An event handler: one task per (controller, cluster, watched kind) that turns an informer's events into
//! keys in the controller's queue.
//!
//! Predicates and mappings run here, before anything is queued. A first look, at everything or at a
//! range that was gained, handlers primary objects, and children whose owner is not there: nobody else
//! would see that they are left over. What other children and kinds say adds nothing, for the
//! primary objects are reconciled anyway. What a first look leads to in other clusters is in [`crate::across`].

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use model::{Clock, ClusterName, ObjectKey};
use prometheus::Histogram;

use crate::across;
use crate::assigned::Assigned;
use crate::assignment::AssignmentQueue;
use crate::informer::{Change, Event, Informer};
use crate::meter::Slices;
use crate::spec::{Mapping, Predicate, Role, Source};
use crate::view::CacheView;
use cache::{Entry, LocalKey, Store};
use model::Kind;
use queue::{HashedKey, Priority};

/// Everything a handler needs.
pub(crate) struct EventHandler {
    pub(crate) cluster: ClusterName,
    pub(crate) informer: Arc<Informer>,
    pub(crate) source: Source,
    pub(crate) view: Arc<CacheView>,
    /// The stores of the primary kind.
    pub(crate) primary: Arc<[Store]>,
    /// The controller's assignments, for keys of other clusters.
    pub(crate) assigned: Arc<Assigned>,
    pub(crate) queue: Arc<AssignmentQueue>,
    /// Where events are counted.
    pub(crate) slices: Arc<Slices>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) latency: Histogram,
}

impl EventHandler {
    /// Runs until the informer stops. Calls `synced` whenever everything that the scopes up to a
    /// number cover is queued.
    pub(crate) async fn run(self, synced: impl AsyncFn(u64)) {
        let mut events = self.informer.subscribe().await;
        while let Some(event) = events.next().await {
            if let Change::Synced(number) = event.change {
                synced(number).await;
                continue;
            }
            self.slices.event(self.concerns(&event));
            self.queue.add(&self.keys(&event), event.priority, &event.span).await;
            self.latency.observe(self.clock.now().since(event.received).as_secs_f64());
        }
    }

    /// The hash of the primary object that an event concerns, if it is a certain one.
    fn concerns(&self, event: &Event) -> Option<u64> {
        let (Change::Upsert { new: entry, .. } | Change::Delete { old: entry }) = &event.change
        else {
            return None;
        };
        match &self.source.role {
            Role::Primary => Some(entry.header.hash()),
            Role::Owned { .. } => entry.header.owner.as_deref().map(|owner| owner.uid.hash()),
            Role::Mapped(_) | Role::Across(_) => None,
        }
    }

    fn keys(&self, event: &Event) -> Vec<HashedKey> {
        let (old, new) = match &event.change {
            Change::Upsert { old, new } => (old.as_deref(), Some(&**new)),
            Change::Delete { old } => (Some(&**old), None),
            Change::Synced(_) => return Vec::new(),
        };
        let first = event.priority == Priority::Initial;
        if !first && !all_hold(&self.source.predicates, old, new) {
            return Vec::new();
        }
        match &self.source.role {
            Role::Primary => new.or(old).map(|entry| self.own_key(entry)).into_iter().collect(),
            Role::Owned { owner } => both(old, new, |entry| {
                let key = self.owner_key(owner, entry);
                key.filter(|owner| !first || !self.is_cached(owner)).into_iter().collect()
            }),
            Role::Mapped(mapping) if !first => both(old, new, |entry| self.mapped(mapping, entry)),
            Role::Across(mapping) if !first => {
                both(old, new, |entry| across::keys(mapping, entry, &self.cluster, &self.assigned))
            }
            Role::Mapped(_) | Role::Across(_) => Vec::new(),
        }
    }

    fn own_key(&self, entry: &Entry) -> HashedKey {
        (self.key(&entry.header.key), Some(entry.header.hash()))
    }

    fn owner_key(&self, kind: &Kind, entry: &Entry) -> Option<HashedKey> {
        let owner = entry.header.owner.as_deref()?;
        if !kind.is_owner(&owner.api_version, &owner.kind) {
            return None;
        }
        let namespace = entry.header.key.namespace.clone().filter(|_| kind.namespaced);
        let key = self.key(&LocalKey { namespace, name: owner.name.clone() });
        Some((key, Some(owner.uid.hash())))
    }

    /// Whether the primary object is there, and not just one of the same name.
    fn is_cached(&self, (key, hash): &HashedKey) -> bool {
        let cached = self.cached(key.namespace.as_deref(), &key.name);
        cached.is_some_and(|entry| Some(entry.header.hash()) == *hash)
    }

    /// The primary object of that name.
    fn cached(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Entry>> {
        self.primary.iter().find_map(|store| store.get(namespace, name))
    }

    fn mapped(&self, mapping: &Mapping, entry: &Entry) -> Vec<HashedKey> {
        // The mapping is the user's: a panic in it must not end the handler.
        let Ok(named) = catch_unwind(AssertUnwindSafe(|| mapping(entry, &self.view))) else {
            let (cluster, name) = (&self.cluster, &entry.header.key.name);
            tracing::error!(%cluster, %name, "a mapping panicked; the change is not followed up");
            return Vec::new();
        };
        // One that is not there, or not yet, is reconciled when it appears.
        let routed = named.into_iter().filter_map(|(namespace, name)| {
            let entry = self.cached(namespace.as_deref(), &name)?;
            Some((self.key(&entry.header.key), Some(entry.header.hash())))
        });
        routed.collect()
    }

    fn key(&self, local: &LocalKey) -> ObjectKey {
        ObjectKey {
            cluster: self.cluster.clone(),
            namespace: local.namespace.clone(),
            name: Arc::from(&*local.name),
        }
    }
}

/// Keys of the object as it was and as it is, each once.
fn both(
    old: Option<&Entry>,
    new: Option<&Entry>,
    keys: impl Fn(&Entry) -> Vec<HashedKey>,
) -> Vec<HashedKey> {
    let mut found: Vec<HashedKey> = new.map(&keys).unwrap_or_default();
    let before = old.map(&keys).unwrap_or_default();
    // Most changes leave it as it was.
    if before.is_empty() || before == found {
        return found;
    }
    let known: HashSet<ObjectKey> = found.iter().map(|(key, _)| key.clone()).collect();
    found.extend(before.into_iter().filter(|(key, _)| !known.contains(key)));
    found
}

fn all_hold(predicates: &[Predicate], old: Option<&Entry>, new: Option<&Entry>) -> bool {
    let hold = || predicates.iter().all(|predicate| predicate(old, new));
    // The predicates are the user's: one that panics lets the change pass.
    catch_unwind(AssertUnwindSafe(hold)).unwrap_or_else(|_| {
        tracing::error!("a predicate panicked; the change counts");
        true
    })
}
