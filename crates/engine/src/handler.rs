//! An event handler: one task per (controller, cluster, source) that turns an informer's events
//! into keys in the controller's queue.
//!
//! Predicates and mappings run here, before anything is queued. A first list, of everything or of a
//! range that was gained, queues primary objects, and the missing owners of children that are left
//! over. Other children and other kinds queue nothing then, because all primary objects are queued.
//! [`crate::across`] does the same for other clusters.
//!
//! The controller does not wait for an optional kind while the cluster lacks it. When the kind appears,
//! all its objects queue their keys, because the primary objects were reconciled without it.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use model::{Clock, ClusterName, ControllerName, ObjectKey};
use prometheus::Histogram;

use crate::across;
use crate::assigned::Assigned;
use crate::assignment::AssignmentQueue;
use crate::backlog::{Backlog, SETTLE_EVERY};
use crate::meter::Slices;
use crate::source::{Mapping, Predicate, Role, Source};
use crate::view::CacheView;
use cache::{Entry, LocalKey, Owner, Store, is_name};
use informer::{Absence, Change, Event, Informer, Subscription};
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
    pub(crate) backlog: Arc<Backlog>,
    /// Where events are counted.
    pub(crate) slices: Arc<Slices>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) latency: Histogram,
}

impl EventHandler {
    /// Runs until the informer stops. Calls `synced` whenever everything that the scopes up to a
    /// number cover is queued.
    pub(crate) async fn run(self: Box<Self>, synced: impl AsyncFn(u64)) {
        let mut events = self.informer.subscribe().await;
        let mut progress = Progress::default();
        let maps = self.maps();
        while let Some(event) = self.next(&mut events).await {
            match event.change {
                Change::Synced(number) => {
                    self.present(&mut progress, number);
                    synced(number).await;
                    continue;
                }
                Change::Absent(absence, number) => {
                    if self.absent(&mut progress, absence, number) {
                        synced(number).await;
                    }
                    continue;
                }
                Change::Upsert { .. } | Change::Delete { .. } => {}
            }
            // Before the first list is complete nothing was reconciled, unless without the kind.
            let first = event.priority == Priority::Initial && !progress.without;
            self.slices.event(self.concerns(&event));
            let priority = match event.priority {
                Priority::Change => self.source.priority,
                other => other,
            };
            let keys = self.keys(&event, first);
            if self.backlog.add(&keys, priority, &event.span).await.is_err() {
                // The cluster is left alone, and with it this handler.
                return;
            }
            self.latency.observe(self.clock.now().since(event.received).as_secs_f64());
            if maps {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The next event. What was charged for keys is given back when they are done, whether or not one comes.
    async fn next(&self, events: &mut Subscription) -> Option<Event> {
        while self.backlog.is_charged() {
            // In a box, because it is rare and every handler has room for it otherwise.
            let next = Box::pin(tokio::time::timeout(SETTLE_EVERY, events.next()));
            if let Ok(event) = next.await {
                return event;
            }
            self.backlog.settle_again();
        }
        events.next().await
    }

    /// Everything in the scopes up to a number is cached.
    fn present(&self, progress: &mut Progress, number: u64) {
        if progress.absent.take().is_some() {
            let (controller, cluster, kind) = self.names();
            tracing::info!(%controller, %cluster, %kind, "a kind that the controller watches is there");
        }
        *progress = Progress { met: number, ..Progress::default() };
    }

    /// The cluster lacks the kind. Returns whether the controller goes on without it.
    fn absent(&self, progress: &mut Progress, absence: Absence, number: u64) -> bool {
        let is_waited_for = number > progress.met;
        if progress.absent.replace(absence) != Some(absence) {
            let (controller, cluster, kind) = self.names();
            if self.source.optional {
                tracing::info!(%controller, %cluster, "the controller does without {kind}, which {absence}");
            } else if is_waited_for {
                tracing::error!(
                    %controller, %cluster,
                    "the controller does not run in this cluster: it needs {kind}, which {absence}"
                );
            } else {
                tracing::error!(
                    %controller, %cluster,
                    "the controller runs on what it last knew of {kind}, which {absence}"
                );
            }
        }
        progress.without |= self.source.optional && is_waited_for;
        self.source.optional
    }

    fn names(&self) -> (&ControllerName, &ClusterName, &Kind) {
        (self.queue.name(), &self.cluster, &self.source.kind)
    }

    /// The hash of the primary object that an event concerns, if it concerns exactly one.
    fn concerns(&self, event: &Event) -> Option<u64> {
        let (Change::Upsert { new: entry, .. } | Change::Delete { old: entry }) = &event.change
        else {
            return None;
        };
        match &self.source.role {
            Role::Primary => Some(entry.header.hash()),
            Role::Owned { .. } => entry.header.owner.as_deref().map(|owner| owner.uid.hash()),
            Role::Dependent { .. } | Role::Mapped(_) | Role::Across(_) => None,
        }
    }

    /// Whether an event may cost much: a mapping looks at as many objects as it likes, and an object may have
    /// many owners. The tasks of other clusters need the thread too.
    fn maps(&self) -> bool {
        match &self.source.role {
            Role::Dependent { .. } | Role::Mapped(_) | Role::Across(_) => true,
            Role::Primary | Role::Owned { .. } => false,
        }
    }

    /// The keys that an event adds; `first` if it is part of a first list.
    fn keys(&self, event: &Event, first: bool) -> Vec<HashedKey> {
        let (old, new) = match &event.change {
            Change::Upsert { old, new } => (old.as_deref(), Some(&**new)),
            Change::Delete { old } => (Some(&**old), None),
            Change::Synced(_) | Change::Absent(..) => return Vec::new(),
        };
        if event.priority != Priority::Initial
            && !all_hold(&self.source.predicates, old, new, &self.view)
        {
            return Vec::new();
        }
        match &self.source.role {
            Role::Primary => new.or(old).map(|entry| self.own_key(entry)).into_iter().collect(),
            Role::Owned { owner } => both(old, new, |entry| {
                let key =
                    entry.header.owner.as_deref().and_then(|o| self.owner_key(owner, entry, o));
                key.filter(|owner| !first || !self.is_cached(owner)).into_iter().collect()
            }),
            Role::Dependent { owner } => both(old, new, |entry| {
                let keys =
                    self.owners(entry).into_iter().filter_map(|o| self.owner_key(owner, entry, &o));
                keys.filter(|owner| !first || !self.is_cached(owner)).collect()
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

    /// The key of an owner of an object, if it is of the kind. API servers take any text for the name of an
    /// owner, and nothing has such a name but what can be a name.
    fn owner_key(&self, kind: &Kind, entry: &Entry, owner: &Owner) -> Option<HashedKey> {
        if !kind.is_owner(&owner.api_version, &owner.kind) || !is_name(&owner.name) {
            return None;
        }
        let namespace = entry.header.key.namespace.clone().filter(|_| kind.namespaced);
        let key = self.key(&LocalKey { namespace, name: owner.name.clone() });
        Some((key, Some(owner.uid.hash())))
    }

    /// Whether this incarnation of the primary object is cached, not just one of the same name.
    fn is_cached(&self, (key, hash): &HashedKey) -> bool {
        let cached = self.cached(key.namespace.as_deref(), &key.name);
        cached.is_some_and(|entry| Some(entry.header.hash()) == *hash)
    }

    /// The primary object of that name.
    fn cached(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Entry>> {
        self.primary.iter().find_map(|store| store.get(namespace, name))
    }

    fn mapped(&self, mapping: &Mapping, entry: &Entry) -> Vec<HashedKey> {
        // The mapping is the user's code: its panic must not end the handler.
        let Ok(named) = catch_unwind(AssertUnwindSafe(|| mapping(entry, &self.view))) else {
            let (cluster, name) = (&self.cluster, &entry.header.key.name);
            let view = &self.view;
            log_some!(view, error, "a mapping panicked; the change is not followed up", %cluster, %name);
            return Vec::new();
        };
        // An object that is not cached, or not yet, is reconciled when it appears.
        let routed = named.into_iter().filter_map(|(namespace, name)| {
            let entry = self.cached(namespace.as_deref(), &name)?;
            Some((self.key(&entry.header.key), Some(entry.header.hash())))
        });
        routed.collect()
    }

    /// Every owner of an object.
    fn owners(&self, entry: &Entry) -> Vec<Owner> {
        entry.owners().unwrap_or_else(|error| {
            let (view, error) = (&self.view, model::error::chain(&error));
            log_some!(
                view,
                warn,
                "an object whose owners cannot be read is followed up for none",
                error
            );
            Vec::new()
        })
    }

    fn key(&self, local: &LocalKey) -> ObjectKey {
        ObjectKey {
            cluster: self.cluster.clone(),
            namespace: local.namespace.clone(),
            name: Arc::from(&*local.name),
        }
    }
}

/// How far a handler has come with its source.
#[derive(Default)]
struct Progress {
    /// Everything in the scopes up to this number has been cached.
    met: u64,
    /// Why the cluster lacks the kind.
    absent: Option<Absence>,
    /// Shards were opened without the kind, and it has not been listed since.
    without: bool,
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

/// Whether a change counts: whether all predicates say so.
pub(crate) fn all_hold(
    predicates: &[Predicate],
    old: Option<&Entry>,
    new: Option<&Entry>,
    view: &CacheView,
) -> bool {
    let hold = || predicates.iter().all(|predicate| predicate(old, new));
    // The predicates are the user's code: if one panics, the change counts.
    catch_unwind(AssertUnwindSafe(hold)).unwrap_or_else(|_| {
        log_some!(view, error, "a predicate panicked; the change counts");
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica has one for each source of each controller in each of its clusters.
    #[test]
    fn a_handler_at_rest_is_small() {
        fn state<F>(_: impl FnOnce(Box<EventHandler>) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size_of::<EventHandler>() + state(|handler| handler.run(async |_| ()));
        assert!(bytes < 1200, "{bytes} bytes");
    }
}
