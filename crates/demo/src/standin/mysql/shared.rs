//! What the servers of one API server share: their clusters, and who is told when something changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apiserver::State;
use apiserver::faults::Fault;
use tokio::sync::watch;

use super::group::Group;

/// Namespace and name of a cluster.
pub(super) type Key = (String, String);

/// Decides what happens to a query that changes something: it may be lost, or its answer.
pub(super) type Hook = Arc<dyn Fn(&str) -> Fault + Send + Sync>;

/// Every server of one API server. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Servers(Arc<Inner>);

#[derive(Default)]
struct Inner {
    shared: Mutex<Shared>,
    /// Tells that something changed.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Shared {
    groups: BTreeMap<Key, Group>,
    /// Who is told how a server is, by the number of its start.
    told: BTreeMap<(Key, u64), watch::Sender<State>>,
    hook: Option<Hook>,
    sessions: usize,
}

/// A server in the cluster of its name.
#[derive(Clone, Debug)]
pub(super) struct Id {
    pub(super) key: Key,
    pub(super) name: String,
}

impl Id {
    /// By the name of its Pod: its cluster's name and a number.
    pub(super) fn of(namespace: &str, pod: &str) -> Self {
        let cluster = pod.rsplit_once('-').map_or(pod, |(cluster, _)| cluster);
        Self { key: (namespace.to_owned(), cluster.to_owned()), name: pod.to_owned() }
    }
}

impl Servers {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads something of a cluster; nothing if it has had no server yet.
    pub(super) fn read<T>(&self, key: &Key, read: impl FnOnce(&Group) -> T) -> Option<T> {
        self.lock().groups.get(key).map(read)
    }

    /// Reads something of every cluster.
    pub(super) fn all<T>(&self, read: impl FnMut(&Group) -> Vec<T>) -> Vec<T> {
        self.lock().groups.values().flat_map(read).collect()
    }

    /// Changes something in a cluster, and tells everybody.
    pub(super) fn change<T>(&self, key: &Key, change: impl FnOnce(&mut Group) -> T) -> T {
        let mut shared = self.lock();
        let Shared { groups, told, .. } = &mut *shared;
        let group = groups.entry(key.clone()).or_default();
        let done = change(group);
        for (name, server) in &group.servers {
            let Some(sender) = told.get(&(key.clone(), server.start)) else { continue };
            // Nobody knows how it is if nobody reaches its node.
            let ready = server.is_ready() && !group.cut_off.contains(name);
            let now = State::Running { ready };
            sender.send_if_modified(|state| {
                let is_other = *state != now;
                *state = now;
                is_other
            });
        }
        drop(shared);
        self.0.changed.send_replace(());
        done
    }

    /// From now on somebody is told how a server is.
    pub(super) fn tell(&self, key: &Key, start: u64, sender: watch::Sender<State>) {
        self.lock().told.insert((key.clone(), start), sender);
        self.change(key, |_| ());
    }

    /// A server ends.
    pub(super) fn stop(&self, me: &Id, start: u64) {
        self.lock().told.remove(&(me.key.clone(), start));
        self.change(&me.key, |group| group.stop(&me.name, start));
    }

    /// Learns of every change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    pub(super) fn set_hook(&self, hook: Hook) {
        self.lock().hook = Some(hook);
    }

    /// What happens to a query.
    pub(super) fn fault(&self, query: &str) -> Fault {
        let hook = self.lock().hook.clone();
        hook.map_or(Fault::None, |hook| hook(query))
    }

    pub(super) fn count_session(&self) {
        self.lock().sessions += 1;
    }

    /// How many sessions were begun.
    pub(super) fn sessions(&self) -> usize {
        self.lock().sessions
    }
}
