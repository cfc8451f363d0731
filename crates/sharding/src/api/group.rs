//! What a member says of its controller groups.

use std::collections::BTreeMap;

use model::{ControllerName, GroupName, GroupScope, GroupTraits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most controllers and the most kinds of a group that are named.
const MAX_NAMED: usize = 64;

/// Details of a controller group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupDetail {
    /// The group.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub group: GroupName,
    /// Its controllers, for people; absent if it is one of the same name. No decision depends on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>", length(max = 64), inner(length(min = 1, max = 63)))]
    pub controllers: Vec<ControllerName>,
    /// How far the work of the group may be divided.
    #[serde(default)]
    #[schemars(with = "String", extend("enum" = ["Object", "Cluster", "Fleet"]))]
    pub scope: GroupScope,
    /// The kinds that both this group and another group of this member watch, as `group/Kind`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub shared_kinds: Vec<String>,
}

impl GroupDetail {
    /// What a Member reports about its groups.
    pub(crate) fn all_of(traits: &BTreeMap<GroupName, GroupTraits>) -> Vec<Self> {
        let is_shared = |kind: &&String| {
            traits.values().filter(|traits| traits.kinds.contains(kind.as_str())).count() > 1
        };
        let controllers = |group: &GroupName, of: &GroupTraits| {
            let all: Vec<_> = of.controllers.iter().take(MAX_NAMED).cloned().collect();
            let goes_without_saying =
                all.iter().all(|controller| controller.as_str() == group.as_str());
            if goes_without_saying { Vec::new() } else { all }
        };
        let details = traits.iter().map(|(group, traits)| Self {
            group: group.clone(),
            controllers: controllers(group, traits),
            scope: traits.scope,
            shared_kinds: traits.kinds.iter().filter(is_shared).take(MAX_NAMED).cloned().collect(),
        });
        let is_particular = |detail: &Self| {
            detail.scope != GroupScope::Object
                || !detail.shared_kinds.is_empty()
                || !detail.controllers.is_empty()
        };
        details.filter(is_particular).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_reports_only_groups_with_something_particular() {
        let traits = |scope, kinds: &[&str], controllers: &[&str]| GroupTraits {
            controllers: controllers.iter().map(|name| name.parse().unwrap()).collect(),
            scope,
            kinds: kinds.iter().map(|&kind| kind.to_owned()).collect(),
        };
        let object = GroupScope::Object;
        let groups = BTreeMap::from([
            ("a".parse().unwrap(), traits(object, &["/Pod", "/Secret"], &["a"])),
            ("b".parse().unwrap(), traits(object, &["/Node", "/Pod"], &[])),
            ("c".parse().unwrap(), traits(GroupScope::Fleet, &["apps/Deployment"], &["c"])),
            ("d".parse().unwrap(), traits(object, &["/Service"], &["d"])),
            ("e".parse().unwrap(), traits(object, &["/ConfigMap"], &["e", "tdset"])),
        ]);
        assert_eq!(
            serde_json::to_value(GroupDetail::all_of(&groups)).unwrap(),
            serde_json::json!([
                { "group": "a", "scope": "Object", "sharedKinds": ["/Pod"] },
                { "group": "b", "scope": "Object", "sharedKinds": ["/Pod"] },
                { "group": "c", "scope": "Fleet" },
                { "group": "e", "controllers": ["e", "tdset"], "scope": "Object" },
            ])
        );
    }
}
