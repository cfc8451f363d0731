//! The known objects of the cluster by owner, and the objects that a change concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::api::PartialObjectMeta;
use kube::{Resource, ResourceExt};

use super::action::{Action, Kind, ObjectRef};
use super::object::Object;
use super::{daemonset, deployment, pod, replicaset, statefulset};
use crate::follow::{FollowEvent, version_number};

/// A change of an object.
#[derive(Debug)]
pub(crate) enum News {
    Object(Kind, FollowEvent<Object>),
    Node(FollowEvent<PartialObjectMeta>),
}

/// Namespace and name.
type Name = (String, String);

/// All objects of one kind, by name and by the uid of their controller.
#[derive(Debug, Default)]
struct Table {
    objects: HashMap<Name, Arc<Object>>,
    by_owner: HashMap<String, BTreeSet<Name>>,
    /// The version up to which this kind is known; `None` until its first list.
    seen: Option<u64>,
}

/// All known objects.
#[derive(Debug, Default)]
pub(crate) struct World {
    tables: BTreeMap<Kind, Table>,
    nodes: BTreeSet<String>,
    nodes_listed: bool,
}

// === impl Table ===

impl Table {
    fn get(&self, key: &ObjectRef) -> Option<&Arc<Object>> {
        self.objects.get(&(key.namespace.clone(), key.name.clone()))
    }

    fn owned_by(&self, owner: &Object) -> Vec<Arc<Object>> {
        let names = owner.uid().and_then(|uid| self.by_owner.get(&uid));
        names.into_iter().flatten().filter_map(|name| self.objects.get(name).cloned()).collect()
    }

    /// Applies a change and returns the objects it concerns, with their last state.
    fn enter(&mut self, change: FollowEvent<Object>) -> Vec<Arc<Object>> {
        match change {
            FollowEvent::Reset(objects, version) => {
                let mut concerned: Vec<Arc<Object>> =
                    self.objects.drain().map(|(_, o)| o).collect();
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

    fn insert(&mut self, object: Object) -> Arc<Object> {
        let (name, object) = (name_of(&object), Arc::new(object));
        if let Some(owner) = controller_uid(&object) {
            self.by_owner.entry(owner).or_default().insert(name.clone());
        }
        self.objects.insert(name, object.clone());
        object
    }

    fn remove(&mut self, name: &Name) -> Option<Arc<Object>> {
        let object = self.objects.remove(name)?;
        if let Some(owner) = controller_uid(&object)
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
        self.nodes_listed && Kind::ALL.into_iter().all(|kind| self.seen(kind).is_some())
    }

    /// The version up to which a kind is known.
    pub(crate) fn seen(&self, kind: Kind) -> Option<u64> {
        self.tables.get(&kind)?.seen
    }

    /// Applies a change and adds the objects that it concerns to `dirty`.
    pub(crate) fn enter(&mut self, message: News, dirty: &mut BTreeSet<ObjectRef>) {
        match message {
            News::Object(kind, change) => {
                touch(kind, &self.tables.entry(kind).or_default().enter(change), dirty);
            }
            News::Node(change) => self.enter_node(change, dirty),
        }
    }

    fn enter_node(
        &mut self,
        change: FollowEvent<PartialObjectMeta>,
        dirty: &mut BTreeSet<ObjectRef>,
    ) {
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
            let sets = self.tables.get(&Kind::DaemonSet).into_iter();
            let sets = sets.flat_map(|sets| sets.objects.values());
            dirty.extend(sets.map(|set| ObjectRef::new(Kind::DaemonSet, &**set)));
        }
    }

    /// Removes an object whose deletion has been confirmed, before the watch shows it.
    pub(crate) fn forget(&mut self, key: &ObjectRef, uid: &str) {
        if let Some(table) = self.tables.get_mut(&key.kind) {
            table.forget(key, uid);
        }
    }

    /// The next writes for one object; none if it is gone.
    pub(crate) fn plan(&self, key: &ObjectRef, now: Timestamp) -> Vec<Action> {
        let table = self.tables.get(&key.kind);
        let Some(object) = table.and_then(|table| table.get(key)) else { return Vec::new() };
        let owned =
            |kind| self.tables.get(&kind).map_or_else(Vec::new, |table| table.owned_by(object));
        match key.kind {
            Kind::Deployment => deployment::plan(object, &owned(Kind::ReplicaSet), now),
            Kind::ReplicaSet => replicaset::plan(object, &owned(Kind::Pod)),
            Kind::StatefulSet => statefulset::plan(object, &owned(Kind::Pod)),
            Kind::DaemonSet => daemonset::plan(object, &owned(Kind::Pod), &self.nodes),
            Kind::Pod => pod::plan(object, now),
        }
    }
}

fn touch(kind: Kind, objects: &[Arc<Object>], dirty: &mut BTreeSet<ObjectRef>) {
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

fn name_of(object: &Object) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn controller_uid(object: &Object) -> Option<String> {
    let references = object.meta().owner_references.iter().flatten();
    references.into_iter().find(|r| r.controller == Some(true)).map(|r| r.uid.clone())
}
