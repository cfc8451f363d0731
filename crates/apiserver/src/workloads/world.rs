//! The known objects of the cluster by owner, and the objects that a change concerns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Resource, ResourceExt};

use super::action::{Action, Kind, ObjectRef};
use super::{daemonset, deployment, pod, replicaset, statefulset};
use crate::follow::{FollowEvent, version_number};

/// A change of an object of one kind.
#[derive(Debug)]
pub(crate) enum News {
    Deployment(FollowEvent<Deployment>),
    ReplicaSet(FollowEvent<ReplicaSet>),
    StatefulSet(FollowEvent<StatefulSet>),
    DaemonSet(FollowEvent<DaemonSet>),
    Pod(FollowEvent<Pod>),
    Node(FollowEvent<Node>),
}

/// Namespace and name.
type Name = (String, String);

/// All objects of one kind, by name and by the uid of their controller.
#[derive(Debug)]
struct Table<K> {
    objects: HashMap<Name, Arc<K>>,
    by_owner: HashMap<String, BTreeSet<Name>>,
    /// The version up to which this kind is known; `None` until its first list.
    seen: Option<u64>,
}

/// All known objects.
#[derive(Debug, Default)]
pub(crate) struct World {
    deployments: Table<Deployment>,
    replica_sets: Table<ReplicaSet>,
    stateful_sets: Table<StatefulSet>,
    daemon_sets: Table<DaemonSet>,
    pods: Table<Pod>,
    nodes: BTreeSet<String>,
    nodes_listed: bool,
}

// === impl Table ===

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), by_owner: HashMap::new(), seen: None }
    }
}

impl<K: ResourceExt> Table<K> {
    fn get(&self, key: &ObjectRef) -> Option<&Arc<K>> {
        self.objects.get(&(key.namespace.clone(), key.name.clone()))
    }

    fn owned_by(&self, owner: &impl ResourceExt) -> Vec<Arc<K>> {
        let names = owner.uid().and_then(|uid| self.by_owner.get(&uid));
        names.into_iter().flatten().filter_map(|name| self.objects.get(name).cloned()).collect()
    }

    /// Applies a change and returns the objects it concerns, with their last state.
    fn enter(&mut self, change: FollowEvent<K>) -> Vec<Arc<K>> {
        match change {
            FollowEvent::Reset(objects, version) => {
                let mut concerned: Vec<Arc<K>> = self.objects.drain().map(|(_, o)| o).collect();
                self.by_owner.clear();
                self.seen = Some(version);
                concerned.extend(objects.into_iter().map(|object| self.insert(object)));
                concerned
            }
            FollowEvent::Applied(object) => {
                self.saw(version_number(object.resource_version().as_deref()));
                let before = self.remove(&name_of(&object));
                before.into_iter().chain([self.insert(object)]).collect()
            }
            FollowEvent::Deleted(object) => {
                self.saw(version_number(object.resource_version().as_deref()));
                self.remove(&name_of(&object));
                vec![Arc::new(object)]
            }
            FollowEvent::Bookmark(version) => {
                self.saw(version);
                Vec::new()
            }
        }
    }

    fn saw(&mut self, version: u64) {
        self.seen = Some(self.seen.unwrap_or(0).max(version));
    }

    fn insert(&mut self, object: K) -> Arc<K> {
        let (name, object) = (name_of(&object), Arc::new(object));
        if let Some(owner) = controller_uid(&*object) {
            self.by_owner.entry(owner).or_default().insert(name.clone());
        }
        self.objects.insert(name, object.clone());
        object
    }

    fn remove(&mut self, name: &Name) -> Option<Arc<K>> {
        let object = self.objects.remove(name)?;
        if let Some(owner) = controller_uid(&*object)
            && let Some(names) = self.by_owner.get_mut(&owner)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
        Some(object)
    }

    /// Removes an object whose deletion has been confirmed, before the watch shows it.
    fn forget(&mut self, key: &ObjectRef, uid: &str) {
        let name = (key.namespace.clone(), key.name.clone());
        if self.objects.get(&name).is_some_and(|o| o.uid().as_deref() == Some(uid)) {
            self.remove(&name);
        }
    }
}

// === impl World ===

impl World {
    /// Whether every kind has been listed; before that, absence proves nothing.
    pub(crate) fn is_complete(&self) -> bool {
        self.nodes_listed
            && [Kind::Deployment, Kind::ReplicaSet, Kind::StatefulSet, Kind::DaemonSet, Kind::Pod]
                .into_iter()
                .all(|kind| self.seen(kind).is_some())
    }

    /// The version up to which a kind is known.
    pub(crate) fn seen(&self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Deployment => self.deployments.seen,
            Kind::ReplicaSet => self.replica_sets.seen,
            Kind::StatefulSet => self.stateful_sets.seen,
            Kind::DaemonSet => self.daemon_sets.seen,
            Kind::Pod => self.pods.seen,
        }
    }

    /// Applies a change and adds the objects that it concerns to `dirty`.
    pub(crate) fn enter(&mut self, message: News, dirty: &mut BTreeSet<ObjectRef>) {
        match message {
            News::Deployment(change) => {
                touch(Kind::Deployment, &self.deployments.enter(change), dirty);
            }
            News::ReplicaSet(change) => {
                touch(Kind::ReplicaSet, &self.replica_sets.enter(change), dirty);
            }
            News::StatefulSet(change) => {
                touch(Kind::StatefulSet, &self.stateful_sets.enter(change), dirty);
            }
            News::DaemonSet(change) => {
                touch(Kind::DaemonSet, &self.daemon_sets.enter(change), dirty);
            }
            News::Pod(change) => touch(Kind::Pod, &self.pods.enter(change), dirty),
            News::Node(change) => self.enter_node(change, dirty),
        }
    }

    fn enter_node(&mut self, change: FollowEvent<Node>, dirty: &mut BTreeSet<ObjectRef>) {
        let before = self.nodes.len();
        let changed = match change {
            FollowEvent::Reset(nodes, _) => {
                self.nodes_listed = true;
                self.nodes = nodes.iter().map(ResourceExt::name_any).collect();
                true
            }
            FollowEvent::Applied(node) => self.nodes.insert(node.name_any()),
            FollowEvent::Deleted(node) => self.nodes.remove(&node.name_any()),
            FollowEvent::Bookmark(_) => false,
        };
        if changed || before != self.nodes.len() {
            let sets = self.daemon_sets.objects.values();
            dirty.extend(sets.map(|set| ObjectRef::new(Kind::DaemonSet, &**set)));
        }
    }

    /// Removes an object whose deletion has been confirmed, before the watch shows it.
    pub(crate) fn forget(&mut self, key: &ObjectRef, uid: &str) {
        match key.kind {
            Kind::Deployment => self.deployments.forget(key, uid),
            Kind::ReplicaSet => self.replica_sets.forget(key, uid),
            Kind::StatefulSet => self.stateful_sets.forget(key, uid),
            Kind::DaemonSet => self.daemon_sets.forget(key, uid),
            Kind::Pod => self.pods.forget(key, uid),
        }
    }

    /// The next writes for one object; none if it is gone.
    pub(crate) fn plan(&self, key: &ObjectRef, now: Timestamp) -> Vec<Action> {
        match key.kind {
            Kind::Deployment => self.deployments.get(key).map(|deployment| {
                deployment::plan(deployment, &self.replica_sets.owned_by(&**deployment), now)
            }),
            Kind::ReplicaSet => {
                let set = self.replica_sets.get(key);
                set.map(|set| replicaset::plan(set, &self.pods.owned_by(&**set)))
            }
            Kind::StatefulSet => {
                let set = self.stateful_sets.get(key);
                set.map(|set| statefulset::plan(set, &self.pods.owned_by(&**set)))
            }
            Kind::DaemonSet => {
                let set = self.daemon_sets.get(key);
                set.map(|set| daemonset::plan(set, &self.pods.owned_by(&**set), &self.nodes))
            }
            Kind::Pod => self.pods.get(key).map(|pod| pod::plan(pod, now)),
        }
        .unwrap_or_default()
    }
}

fn touch<K: ResourceExt>(kind: Kind, objects: &[Arc<K>], dirty: &mut BTreeSet<ObjectRef>) {
    for object in objects {
        dirty.insert(ObjectRef::new(kind, &**object));
        let owner =
            object.meta().owner_references.iter().flatten().find(|r| r.controller == Some(true));
        if let Some(owner) = owner
            && let Some(kind) = Kind::of_owner(&owner.api_version, &owner.kind)
        {
            let namespace = object.namespace().unwrap_or_default();
            dirty.insert(ObjectRef { kind, namespace, name: owner.name.clone() });
        }
    }
}

fn name_of(object: &impl ResourceExt) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn controller_uid(object: &impl Resource) -> Option<String> {
    let references = object.meta().owner_references.iter().flatten();
    references.into_iter().find(|r| r.controller == Some(true)).map(|r| r.uid.clone())
}
