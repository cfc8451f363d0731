//! The graph of owners, and what follows from it.

use std::collections::{BTreeSet, HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PropagationPolicy;

/// The finalizer of an owner whose dependents are deleted first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents are kept.
pub(crate) const ORPHAN: &str = "orphan";

/// A followed kind, as `plural.group`.
pub(crate) type KindName = String;

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) kind: KindName,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What the graph keeps of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: Location,
    pub(crate) owners: Vec<OwnerReference>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) resource_version: String,
    pub(crate) deleting: bool,
}

/// What has to be done about an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    /// Delete it, once these owners are known to be absent.
    Delete { propagation: PropagationPolicy, absent: Vec<OwnerReference> },
    /// Remove these owners from it, once those that are not in the graph are known to be absent.
    Disown { owners: BTreeSet<String>, absent: Vec<OwnerReference> },
    /// Remove this finalizer.
    RemoveFinalizer(&'static str),
}

/// All objects by uid, with the edges in both directions.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<String, Node>,
    dependents: HashMap<String, BTreeSet<String>>,
    by_kind: HashMap<KindName, HashSet<String>>,
    by_namespace: HashMap<String, BTreeSet<String>>,
}

// === impl Node ===

impl Node {
    pub(crate) fn new(kind: &str, meta: &ObjectMeta) -> Self {
        Self {
            at: Location {
                kind: kind.to_owned(),
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
            },
            owners: meta.owner_references.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }

    fn waits_with(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|f| f == finalizer)
    }

    fn is_blocking(&self, owner: &str) -> bool {
        self.owners.iter().any(|o| o.uid == owner && o.block_owner_deletion == Some(true))
    }
}

// === impl Graph ===

impl Graph {
    /// An object.
    pub(crate) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Objects of a namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = (&str, &Node)> {
        let uids = self.by_namespace.get(namespace).into_iter().flatten();
        uids.filter_map(|uid| Some((uid.as_str(), self.nodes.get(uid)?)))
    }

    /// Adds or updates an object; adds those whose decision it may change.
    pub(crate) fn apply(&mut self, uid: &str, node: Node, touched: &mut BTreeSet<String>) {
        self.touch(uid, touched);
        self.unlink(uid);
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.to_owned());
        }
        self.by_kind.entry(node.at.kind.clone()).or_default().insert(uid.to_owned());
        let namespace = self.by_namespace.entry(node.at.namespace.clone()).or_default();
        namespace.insert(uid.to_owned());
        self.nodes.insert(uid.to_owned(), node);
        self.touch(uid, touched);
    }

    /// Removes an object; adds those whose decision it may change.
    pub(crate) fn remove(&mut self, uid: &str, touched: &mut BTreeSet<String>) {
        self.touch(uid, touched);
        self.unlink(uid);
        self.nodes.remove(uid);
    }

    /// Replaces all objects of a kind.
    pub(crate) fn reset(
        &mut self,
        kind: &str,
        objects: Vec<(String, Node)>,
        touched: &mut BTreeSet<String>,
    ) {
        let mut gone = self.by_kind.get(kind).cloned().unwrap_or_default();
        for (uid, node) in objects {
            gone.remove(&uid);
            self.apply(&uid, node, touched);
        }
        for uid in gone {
            self.remove(&uid, touched);
        }
    }

    fn touch(&self, uid: &str, touched: &mut BTreeSet<String>) {
        touched.insert(uid.to_owned());
        touched.extend(self.dependents.get(uid).into_iter().flatten().cloned());
        let owners = self.nodes.get(uid).into_iter().flat_map(|node| &node.owners);
        touched.extend(owners.map(|owner| owner.uid.clone()));
    }

    fn unlink(&mut self, uid: &str) {
        let Some(node) = self.nodes.get(uid) else { return };
        for owner in &node.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        if let Some(uids) = self.by_kind.get_mut(&node.at.kind) {
            uids.remove(uid);
        }
        if let Some(uids) = self.by_namespace.get_mut(&node.at.namespace) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_namespace.remove(&node.at.namespace);
            }
        }
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &Node> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| self.nodes.get(uid))
    }

    /// The owner with this uid, if it is where an object's owners are looked for: in the object's own namespace, or
    /// in none.
    fn owner_of(&self, node: &Node, uid: &str) -> Option<&Node> {
        let owner = self.nodes.get(uid)?;
        let namespace = &owner.at.namespace;
        (namespace.is_empty() || *namespace == node.at.namespace).then_some(owner)
    }

    /// What has to be done about an object now, if anything.
    pub(crate) fn decide(&self, uid: &str) -> Option<Decision> {
        let node = self.nodes.get(uid)?;
        if node.waits_with(ORPHAN) {
            let free = self.dependents_of(uid).next().is_none();
            return free.then_some(Decision::RemoveFinalizer(ORPHAN));
        }
        if node.waits_with(FOREGROUND) {
            let blocked = self.dependents_of(uid).any(|dependent| dependent.is_blocking(uid));
            return (!blocked).then_some(Decision::RemoveFinalizer(FOREGROUND));
        }
        self.decide_by_owners(uid, node)
    }

    fn decide_by_owners(&self, uid: &str, node: &Node) -> Option<Decision> {
        if node.owners.is_empty() {
            return None;
        }
        let (mut absent, mut waiting, mut orphaning, mut solid) = (vec![], vec![], vec![], 0);
        for owner in &node.owners {
            match self.owner_of(node, &owner.uid) {
                None => absent.push(owner.clone()),
                Some(o) if o.waits_with(ORPHAN) => orphaning.push(owner.uid.clone()),
                Some(o) if o.waits_with(FOREGROUND) => waiting.push(owner.uid.clone()),
                Some(_) => solid += 1,
            }
        }
        if !orphaning.is_empty() {
            return Some(Decision::Disown {
                owners: orphaning.into_iter().collect(),
                absent: vec![],
            });
        }
        if node.deleting || (absent.is_empty() && waiting.is_empty()) {
            return None;
        }
        if solid > 0 {
            let unknown = absent.iter().map(|owner| owner.uid.clone());
            return Some(Decision::Disown { owners: unknown.chain(waiting).collect(), absent });
        }
        let has = |finalizer: &str| node.finalizers.iter().any(|f| f == finalizer);
        let has_dependents = self.dependents_of(uid).next().is_some();
        let propagation = if !waiting.is_empty() && has_dependents || has(FOREGROUND) {
            PropagationPolicy::Foreground
        } else if has(ORPHAN) {
            PropagationPolicy::Orphan
        } else {
            PropagationPolicy::Background
        };
        Some(Decision::Delete { propagation, absent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of nodes written as `name <- owner! owner`, where `!` marks a blocking owner, and
    /// `~f` and `~o` mark a node being deleted in the foreground, or orphaning.
    fn graph(lines: &[&str]) -> Graph {
        let mut graph = Graph::default();
        for line in lines {
            let (name, owners) = line.split_once("<-").unwrap_or((line, ""));
            let (name, mode) = name.trim().split_once('~').unwrap_or((name.trim(), ""));
            let owners = owners.split_whitespace().map(|owner| OwnerReference {
                uid: owner.trim_end_matches('!').into(),
                block_owner_deletion: Some(owner.ends_with('!')),
                ..OwnerReference::default()
            });
            let node = Node {
                at: Location { kind: "things".into(), namespace: "n".into(), name: name.into() },
                owners: owners.collect(),
                finalizers: match mode {
                    "f" => vec![FOREGROUND.into()],
                    "o" => vec![ORPHAN.into()],
                    _ => vec![],
                },
                resource_version: String::new(),
                deleting: !mode.is_empty(),
            };
            graph.apply(name, node, &mut BTreeSet::new());
        }
        graph
    }

    /// What is decided, in a few letters.
    fn decided(lines: &[&str], name: &str) -> String {
        match graph(lines).decide(name) {
            None => "-".into(),
            Some(Decision::Delete { propagation, absent }) => {
                format!("delete {propagation:?} absent={}", absent.len())
            }
            Some(Decision::Disown { owners, absent }) => {
                let owners: Vec<_> = owners.into_iter().collect();
                format!("disown {} absent={}", owners.join(","), absent.len())
            }
            Some(Decision::RemoveFinalizer(finalizer)) => format!("release {finalizer}"),
        }
    }

    #[test]
    fn decisions() {
        let cases: &[(&[&str], &str, &str)] = &[
            (&["a"], "a", "-"),
            (&["a", "b <- a"], "b", "-"),
            (&["b <- a"], "b", "delete Background absent=1"),
            (&["b <- a c"], "b", "delete Background absent=2"),
            (&["c", "b <- a c"], "b", "disown a absent=1"),
            // Foreground: dependents first, and only blocking ones keep the owner.
            (&["a~f", "b <- a!"], "a", "-"),
            (&["a~f", "b <- a!"], "b", "delete Background absent=0"),
            (&["a~f", "b <- a!", "c <- b!"], "b", "delete Foreground absent=0"),
            (&["a~f", "b <- a"], "a", "release foregroundDeletion"),
            (&["a~f"], "a", "release foregroundDeletion"),
            (&["a~f", "c", "b <- a! c"], "b", "disown a absent=0"),
            // A dependent that is already being deleted is left alone.
            (&["a~f", "b~f <- a!", "c <- b!"], "b", "-"),
            // Orphans are released, then the owner.
            (&["a~o", "b <- a"], "b", "disown a absent=0"),
            (&["a~o", "b <- a"], "a", "-"),
            (&["a~o"], "a", "release orphan"),
        ];
        for (lines, name, expected) in cases {
            assert_eq!(decided(lines, name), *expected, "{name} in {lines:?}");
        }
    }

    #[test]
    fn an_owner_in_another_namespace_is_absent() {
        for (owner, dependent, is_absent) in [
            ("n", "n", false),
            ("", "n", false),
            ("", "", false),
            ("m", "n", true),
            ("m", "", true),
        ] {
            let mut graph = graph(&["a", "b <- a"]);
            for (uid, namespace) in [("a", owner), ("b", dependent)] {
                let mut node = graph.get(uid).unwrap().clone();
                node.at.namespace = namespace.into();
                graph.apply(uid, node, &mut BTreeSet::new());
            }
            assert_eq!(graph.decide("b").is_some(), is_absent, "{owner:?} of {dependent:?}");
        }
    }

    #[test]
    fn a_change_touches_both_directions() {
        let mut graph = graph(&["a", "b <- a", "c <- b"]);
        let mut touched = BTreeSet::new();
        graph.remove("b", &mut touched);
        assert_eq!(touched, ["a", "b", "c"].map(String::from).into());
        assert_eq!(decided(&["a", "c <- b"], "c"), "delete Background absent=1");
    }

    #[test]
    fn a_reset_forgets_what_it_does_not_name() {
        let mut graph = graph(&["a", "b <- a"]);
        let mut touched = BTreeSet::new();
        let a = graph.get("a").unwrap().clone();
        graph.reset("things", vec![("a".into(), a)], &mut touched);
        assert!(graph.get("a").is_some() && graph.get("b").is_none());
        assert_eq!(graph.in_namespace("n").map(|(uid, _)| uid).collect::<Vec<_>>(), ["a"]);
    }
}
