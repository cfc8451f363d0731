//! Controller groups: controllers that share a watched kind run in the same replica, so that the kind is
//! cached once. Groups are the connected components of the controller-kind graph.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{ControllerName, GroupName};

/// How far the work of a group may be divided, from the least strict to the strictest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum GroupScope {
    /// By cluster and by object: a shard may be split into ranges of uids.
    #[default]
    Object,
    /// By cluster only: one instance sees all objects of its cluster.
    Cluster,
    /// Not at all: one instance serves every cluster.
    Fleet,
}

/// The details of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTraits {
    /// The controllers in it, as far as they are known.
    pub controllers: BTreeSet<ControllerName>,
    /// How far its work may be divided.
    pub scope: GroupScope,
    /// The kinds it watches, as `group/Kind`.
    pub kinds: BTreeSet<String>,
}

/// A controller as grouping sees it.
#[derive(Clone, Debug)]
pub struct GroupInput {
    /// The controller.
    pub controller: ControllerName,
    /// The group that it names itself, if any. It is not part of the graph then.
    pub named: Option<GroupName>,
    /// The kinds it watches, as `group/Kind`.
    pub kinds: BTreeSet<String>,
    /// How far its work may be divided.
    pub scope: GroupScope,
}

/// The group of every controller.
///
/// A component is named after its alphabetically first controller, so the name stays when a controller
/// joins that sorts later. Controllers that name their own group are not part of a component. They share
/// a group with those that give the same name.
pub fn groups(inputs: &[GroupInput]) -> BTreeMap<ControllerName, GroupName> {
    let mut result = BTreeMap::new();
    let mut open: BTreeMap<&ControllerName, &BTreeSet<String>> = BTreeMap::new();
    for input in inputs {
        match &input.named {
            Some(group) => {
                result.insert(input.controller.clone(), group.clone());
            }
            None => {
                open.insert(&input.controller, &input.kinds);
            }
        }
    }
    while let Some((first, kinds)) = open.pop_first() {
        let mut members = vec![first];
        let mut reached: BTreeSet<&String> = kinds.iter().collect();
        // Each round adds every controller that watches a reached kind, until a round adds none.
        loop {
            let joined: Vec<_> = open
                .iter()
                .filter(|(_, kinds)| kinds.iter().any(|kind| reached.contains(kind)))
                .map(|(name, _)| *name)
                .collect();
            if joined.is_empty() {
                break;
            }
            for name in joined {
                reached.extend(open.remove(name).into_iter().flatten());
                members.push(name);
            }
        }
        let group = GroupName::from(first);
        result.extend(members.into_iter().map(|name| (name.clone(), group.clone())));
    }
    result
}

/// What joins the controllers of every group: each kind that several of them watch, and which do.
pub fn joined(inputs: &[GroupInput]) -> BTreeMap<GroupName, BTreeMap<String, Vec<ControllerName>>> {
    let mut result: BTreeMap<GroupName, BTreeMap<String, Vec<ControllerName>>> = BTreeMap::new();
    let groups = groups(inputs);
    for input in inputs {
        let Some(group) = groups.get(&input.controller) else { continue };
        let kinds = result.entry(group.clone()).or_default();
        for kind in &input.kinds {
            kinds.entry(kind.clone()).or_default().push(input.controller.clone());
        }
    }
    for kinds in result.values_mut() {
        kinds.retain(|_, controllers| controllers.len() > 1);
    }
    result
}

/// The details of every group: it has its controllers, watches the kinds of all of them, and has
/// the strictest of their scopes.
pub fn traits(inputs: &[GroupInput]) -> BTreeMap<GroupName, GroupTraits> {
    let groups = groups(inputs);
    let mut result: BTreeMap<GroupName, GroupTraits> = BTreeMap::new();
    for input in inputs {
        let Some(group) = groups.get(&input.controller) else { continue };
        let traits = result.entry(group.clone()).or_default();
        traits.controllers.insert(input.controller.clone());
        traits.scope = traits.scope.max(input.scope);
        traits.kinds.extend(input.kinds.iter().cloned());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, kinds: &[&str], named: Option<&str>) -> GroupInput {
        GroupInput {
            controller: name.parse().unwrap(),
            named: named.map(|n| n.parse().unwrap()),
            kinds: kinds.iter().map(|k| (*k).to_owned()).collect(),
            scope: GroupScope::default(),
        }
    }

    fn check(inputs: &[GroupInput], expect: &str) {
        let text: Vec<_> = groups(inputs).iter().map(|(c, g)| format!("{c}={g}")).collect();
        assert_eq!(text.join(" "), expect);
    }

    #[test]
    fn shared_kinds_join_through_a_third_controller() {
        check(
            &[
                input("c", &["Pod", "Node"], None),
                input("a", &["Deployment"], None),
                input("b", &["Deployment", "Pod"], None),
                input("d", &["Secret"], None),
            ],
            "a=a b=a c=a d=d",
        );
    }

    #[test]
    fn what_joins_a_group_is_each_kind_that_several_watch() {
        let inputs = [
            input("c", &["Pod", "Node"], None),
            input("a", &["Deployment"], None),
            input("b", &["Deployment", "Pod"], None),
            input("d", &["Secret"], None),
            input("e", &["Pod"], Some("own")),
        ];
        let text = |(group, kinds): (GroupName, BTreeMap<String, Vec<ControllerName>>)| {
            let kinds = kinds.iter().map(|(kind, names)| {
                let names: Vec<_> = names.iter().map(ControllerName::as_str).collect();
                format!(" {kind}={}", names.join(","))
            });
            format!("{group}:{}", kinds.collect::<String>())
        };
        let found: Vec<_> = joined(&inputs).into_iter().map(text).collect();
        assert_eq!(found, ["a: Deployment=a,b Pod=c,b", "d:", "own:"]);
    }

    #[test]
    fn a_group_watches_the_kinds_of_all_and_has_the_strictest_scope() {
        let whole = GroupInput { scope: GroupScope::Cluster, ..input("b", &["Pod", "Node"], None) };
        let traits = traits(&[input("a", &["Pod"], None), whole, input("c", &["Secret"], None)]);
        let group = |name: &str| &traits[&name.parse::<GroupName>().unwrap()];
        assert_eq!(group("a").scope, GroupScope::Cluster);
        assert_eq!(group("a").kinds.iter().collect::<Vec<_>>(), ["Node", "Pod"]);
        let controllers = group("a").controllers.iter().map(ControllerName::as_str);
        assert_eq!(controllers.collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(group("c").scope, GroupScope::Object);
    }

    #[test]
    fn a_named_group_stands_apart() {
        check(&[input("a", &["Pod"], None), input("b", &["Pod"], Some("own"))], "a=a b=own");
    }
}
