//! How what home shows agrees with what a member holds: whether it contradicts it, or goes back.

use std::collections::BTreeSet;

use super::World;
use crate::api::ObjectVersion;
use crate::record::{Kind, MapRecord, Object, Target};

impl World {
    /// Whether a list contradicts what is held: it shows an object as it was before the version that the list has. A
    /// list says of which version it is, so it shows every object at least as it was then.
    pub(crate) fn is_contradicted_by(&self, resource: &str, objects: &[Object]) -> bool {
        let list = ObjectVersion { uid: String::new(), resource: resource.to_owned() };
        let newer = |version: &ObjectVersion| list.older_than(&version.resource);
        objects.iter().any(|object| {
            self.version_of(&object.target())
                .is_some_and(|held| !newer(held) && object.version().older_than(&held.resource))
        })
    }

    /// Whether an object is a map with shards at lower epochs than they had. No coordinator writes such a map: somebody
    /// put an earlier state of it back.
    pub(crate) fn goes_back(&self, object: &Object) -> bool {
        let Object::Map(map) = object else { return false };
        let former = || Some(&self.former_map(&map.cluster)?.map);
        let is_alike = |before: &&MapRecord| before.protocol == map.protocol;
        // While it cannot be read, what follows must go on from what could.
        let held = self.maps.get(&map.cluster).filter(is_alike);
        held.or_else(|| former().filter(is_alike))
            .is_some_and(|before| !self.holds_as_new(object) && !map.goes_on_from(before))
    }

    /// Whether a list lacks so much of what is held that it should be read once more: more than a fifth.
    pub(crate) fn loses_much(&self, kind: Kind, resource: &str, objects: &[Object]) -> bool {
        let listed: BTreeSet<String> = objects.iter().map(|object| object.target().name).collect();
        let held = self.targets(kind);
        let is_older =
            |target: &Target| self.version_of(target).is_some_and(|held| held.older_than(resource));
        let lost = held.iter().filter(|held| !listed.contains(&held.name) && is_older(held));
        lost.count() * 5 > held.len()
    }
}
