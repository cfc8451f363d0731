//! Which resources are served, by group, version and plural: the built-in kinds and those of
//! established definitions.
//!
//! A [`Catalog`] is a value; the server replaces it whole when a definition changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::crd;
use crate::kinds::{self, KindInfo};
use crate::resource::Resource;

/// The served versions of a group; the first is preferred.
#[derive(Debug)]
pub struct Group {
    /// Group name; empty for the core group.
    pub name: String,
    /// The versions' names with their resources.
    pub versions: Vec<(String, Vec<Arc<Resource>>)>,
}

/// Everything that is served.
#[derive(Debug)]
pub struct Catalog {
    by_path: HashMap<(String, String, String), Arc<Resource>>,
    groups: Vec<Group>,
}

// === impl Catalog ===

impl Catalog {
    /// The built-in kinds, and those of the established definitions among `definitions`.
    pub fn build<'a>(definitions: impl Iterator<Item = &'a Value>) -> Self {
        let builtin = kinds::builtin().into_iter().map(Resource::builtin);
        let custom = definitions.filter(|d| crd::established(d)).flat_map(crd::resources);
        let mut groups: Vec<(String, Ranked)> = Vec::new();
        let mut by_path = HashMap::new();
        for resource in builtin.chain(custom).map(Arc::new) {
            let info = &resource.info;
            let path = (info.group.clone(), info.version.clone(), info.plural.clone());
            by_path.insert(path, resource.clone());
            let at = groups.iter().position(|(name, _)| *name == info.group).unwrap_or_else(|| {
                groups.push((info.group.clone(), BTreeMap::new()));
                groups.len() - 1
            });
            groups[at].1.entry(VersionRank::of(&info.version)).or_default().push(resource);
        }
        let groups = groups
            .into_iter()
            .map(|(name, versions)| Group {
                name,
                versions: versions.into_iter().map(|(rank, list)| (rank.name, list)).collect(),
            })
            .collect();
        Self { by_path, groups }
    }

    /// The resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The groups, core first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The resources of a group's version.
    pub fn version(&self, group: &str, version: &str) -> Option<&[Arc<Resource>]> {
        let group = self.groups.iter().find(|g| g.name == group)?;
        group.versions.iter().find(|(name, _)| name == version).map(|(_, list)| list.as_slice())
    }

    /// The kind that already has a name in a group, as plural, singular or short name.
    pub fn holder(&self, group: &str, name: &str) -> Option<&KindInfo> {
        self.by_path.values().map(|r| &r.info).find(|info| {
            info.group == group
                && (info.plural == name
                    || info.singular == name
                    || info.short_names.iter().any(|s| s == name))
        })
    }
}

/// The versions of a group, preferred first.
type Ranked = BTreeMap<VersionRank, Vec<Arc<Resource>>>;

/// Order of versions: stable before beta before alpha, newer before older, others last.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct VersionRank {
    stage: u8,
    major: std::cmp::Reverse<u32>,
    minor: std::cmp::Reverse<u32>,
    name: String,
}

impl VersionRank {
    fn of(name: &str) -> Self {
        let (stage, major, minor) = Self::parse(name).unwrap_or((3, 0, 0));
        Self {
            stage,
            major: std::cmp::Reverse(major),
            minor: std::cmp::Reverse(minor),
            name: name.to_owned(),
        }
    }

    fn parse(name: &str) -> Option<(u8, u32, u32)> {
        let rest = name.strip_prefix('v')?;
        for (word, stage) in [("alpha", 2), ("beta", 1)] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some((stage, major.parse().ok()?, minor.parse().ok()?));
            }
        }
        Some((0, rest.parse().ok()?, 0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_ranked_as_kubernetes_ranks_them() {
        let mut names = ["foo", "v1alpha1", "v2", "v1beta2", "v10", "v1beta10", "v1"];
        names.sort_by_key(|name| VersionRank::of(name));
        assert_eq!(names, ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }

    #[test]
    fn events_are_one_thing_under_two_names() {
        let catalog = Catalog::build(std::iter::empty());
        let new = catalog.find("events.k8s.io", "v1", "events").unwrap();
        let old = catalog.find("", "v1", "events").unwrap();
        assert_eq!(new.table, old.table);
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n", "regarding": {"name": "x"}});
        let stored = new.stored(event.clone());
        assert_eq!(stored["message"], "n");
        assert_eq!(stored["involvedObject"]["name"], "x");
        assert_eq!(new.served(stored), event);
    }
}
