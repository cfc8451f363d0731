//! The known objects of the cluster by owner, and the objects that a change concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::action::{Action, Kind, ObjectRef};
use super::claim::claims_of;
use super::object::Object;
use super::pod::Surroundings;
use super::{claim, daemonset, deployment, job, pod, replicaset, statefulset, template};
use crate::follow::{Bare, FollowEvent, version_number};
use crate::program::Processes;

/// A change of an object.
#[derive(Debug)]
pub(crate) enum News {
    Object(Kind, FollowEvent<Object>),
    Node(FollowEvent<Bare>),
}

/// Namespace and name.
type Name = (String, String);

/// All objects of one kind, by name and by the uid of their controller.
#[derive(Debug, Default)]
struct Table {
    objects: HashMap<Name, Arc<Object>>,
    by_owner: HashMap<String, BTreeSet<Name>>,
    /// The Pods that have a claim.
    by_claim: HashMap<Name, BTreeSet<Name>>,
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
                self.by_claim.clear();
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
        if let Some(owner) = object.controller() {
            self.by_owner.entry(owner.uid.clone()).or_default().insert(name.clone());
        }
        for (_, claim) in claims_of(&object.spec) {
            let claim = (name.0.clone(), claim.to_owned());
            self.by_claim.entry(claim).or_default().insert(name.clone());
        }
        self.objects.insert(name, object.clone());
        object
    }

    fn remove(&mut self, name: &Name) -> Option<Arc<Object>> {
        let object = self.objects.remove(name)?;
        if let Some(owner) = object.controller() {
            drop_from(&mut self.by_owner, &owner.uid, name);
        }
        for (_, claim) in claims_of(&object.spec) {
            drop_from(&mut self.by_claim, &(name.0.clone(), claim.to_owned()), name);
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
                let concerned = self.tables.entry(kind).or_default().enter(change);
                touch(kind, &concerned, dirty);
                for object in &concerned {
                    self.touch_storage(kind, object, dirty);
                }
            }
            News::Node(change) => self.enter_node(change, dirty),
        }
    }

    fn enter_node(&mut self, change: FollowEvent<Bare>, dirty: &mut BTreeSet<ObjectRef>) {
        let before = self.nodes.len();
        let changed = match change {
            FollowEvent::Reset(nodes, _) => {
                self.nodes_listed = true;
                self.nodes = nodes.iter().map(|node| node.name().to_owned()).collect();
                true
            }
            FollowEvent::Applied(node) => self.nodes.insert(node.name().to_owned()),
            FollowEvent::Deleted(node) => self.nodes.remove(node.name()),
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

    /// The uid of a Pod that is there and has not finished.
    pub(crate) fn live_pod(&self, key: &ObjectRef) -> Option<String> {
        let pod = self.tables.get(&Kind::Pod)?.get(key)?;
        pod.uid().filter(|_| template::is_active(pod))
    }

    /// The next writes for one object; none if it is gone.
    pub(crate) fn plan(
        &self,
        key: &ObjectRef,
        processes: &Processes,
        now: Timestamp,
    ) -> Vec<Action> {
        let table = self.tables.get(&key.kind);
        let Some(object) = table.and_then(|table| table.get(key)) else { return Vec::new() };
        let owned =
            |kind| self.tables.get(&kind).map_or_else(Vec::new, |table| table.owned_by(object));
        let mut actions = match key.kind {
            Kind::Deployment => deployment::plan(object, &owned(Kind::ReplicaSet), now),
            Kind::ReplicaSet => replicaset::plan(object, &owned(Kind::Pod)),
            Kind::StatefulSet => {
                let namespace = object.namespace().unwrap_or_default();
                let find = |kind, name: &str| {
                    let (namespace, name) = (namespace.clone(), name.to_owned());
                    self.get(&ObjectRef { kind, namespace, name })
                };
                statefulset::plan(object, &owned(Kind::Pod), &find)
            }
            Kind::DaemonSet => daemonset::plan(object, &owned(Kind::Pod), &self.nodes),
            Kind::Job => job::plan(object, &owned(Kind::Pod), now),
            Kind::Pod => pod::plan(object, &self.surroundings(object, processes), now),
            Kind::Claim => {
                let (kind, name) = (Kind::Volume, claim::volume_of(object));
                claim::plan(object, self.get(&ObjectRef { kind, namespace: String::new(), name }))
            }
            Kind::Volume => claim::plan_volume(object, self.get(&claim::claim_of(object)), now),
        };
        self.place(&mut actions);
        actions
    }

    fn surroundings<'a>(&'a self, pod: &'a Object, processes: &Processes) -> Surroundings<'a> {
        let uid = pod.uid().unwrap_or_default();
        Surroundings {
            node: self.node(template::fnv1a(uid.as_bytes()) as usize),
            claims: self.claims(pod),
            expected: processes.expected(&pod.spec),
            runs: processes.runs(&uid),
        }
    }

    /// The uids of the claims behind a Pod's volumes, or why it cannot have them yet.
    fn claims(&self, pod: &Object) -> Result<BTreeMap<String, String>, String> {
        let namespace = pod.namespace().unwrap_or_default();
        let found = claims_of(&pod.spec).map(|(volume, name)| {
            let (kind, namespace) = (Kind::Claim, namespace.clone());
            let claim = self.get(&ObjectRef { kind, namespace, name: name.to_owned() });
            let uid = claim.and_then(ResourceExt::uid).unwrap_or_default();
            let obstacle = claim::obstacle(name, claim);
            obstacle.map_or(Ok((volume.to_owned(), uid)), Err)
        });
        found.collect()
    }

    /// A claim concerns its volume and the Pods that have it, a volume its claim.
    fn touch_storage(&self, kind: Kind, object: &Object, dirty: &mut BTreeSet<ObjectRef>) {
        match kind {
            Kind::Volume => drop(dirty.insert(claim::claim_of(object))),
            Kind::Claim => {
                let name = claim::volume_of(object);
                dirty.insert(ObjectRef { kind: Kind::Volume, namespace: String::new(), name });
                let pods = self.tables.get(&Kind::Pod);
                let pods = pods.and_then(|pods| pods.by_claim.get(&name_of(object)));
                dirty.extend(pods.into_iter().flatten().map(|(namespace, name)| {
                    let (namespace, name) = (namespace.clone(), name.clone());
                    ObjectRef { kind: Kind::Pod, namespace, name }
                }));
            }
            _ => {}
        }
    }

    fn get(&self, key: &ObjectRef) -> Option<&Object> {
        self.tables.get(&key.kind)?.get(key).map(|object| &**object)
    }

    /// New Pods that wait for nothing have their Node from the start, which saves a write for each.
    fn place(&self, actions: &mut [Action]) {
        for (number, action) in actions.iter_mut().enumerate() {
            if let Action::Create { kind: Kind::Pod, body, .. } = action
                && body["spec"]["nodeName"].is_null()
                && claims_of(&body["spec"]).next().is_none()
            {
                body["spec"]["nodeName"] = json!(self.node(number));
            }
        }
    }

    fn node(&self, number: usize) -> &str {
        let chosen = self.nodes.iter().nth(number % self.nodes.len().max(1));
        chosen.map_or(daemonset::VIRTUAL_NODE, String::as_str)
    }
}

fn touch(kind: Kind, objects: &[Arc<Object>], dirty: &mut BTreeSet<ObjectRef>) {
    for object in objects {
        dirty.insert(ObjectRef::new(kind, &**object));
        if let Some(owner) = object.controller()
            && let Some(kind) = Kind::of_owner(&owner.api_version, &owner.kind)
        {
            let namespace = object.namespace().unwrap_or_default();
            dirty.insert(ObjectRef { kind, namespace, name: owner.name.clone() });
        }
    }
}

fn drop_from<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<Name>>, at: &K, name: &Name) {
    if let Some(names) = index.get_mut(at) {
        names.remove(name);
        if names.is_empty() {
            index.remove(at);
        }
    }
}

fn name_of(object: &Object) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}
