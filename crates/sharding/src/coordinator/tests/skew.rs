//! Members and maps of different versions of the protocol.

use super::*;
use crate::versions::ProtocolVersions;

const BOTH: ProtocolVersions = ProtocolVersions { oldest: 1, newest: 2 };

/// A scene whose coordinator `m-0` speaks both versions.
fn scene(members: &[&str], clusters: &[&str]) -> Scene {
    let mut scene = Scene::new(members, clusters);
    scene.coordinator = Coordinator::speaking(BOTH);
    scene.speaks("m-0", BOTH);
    scene
}

impl Scene {
    fn speaks(&mut self, member: &str, versions: ProtocolVersions) {
        self.member(member, |spec| {
            spec.protocol_version = versions.newest;
            spec.oldest_protocol_version = versions.reported_oldest();
        });
    }

    fn map_in(&mut self, protocol: u32, cluster: &str, shard: &str) {
        let map = Self::map_record(cluster, shard);
        self.apply(Object::Map(MapRecord { protocol, ..map }));
    }

    /// The maps of the next writes, with their versions.
    fn versions_written(&mut self) -> Vec<String> {
        let written = self.plan().writes.into_iter().filter_map(|write| match write {
            Write::Create(Object::Map(map)) | Write::Replace(Object::Map(map)) => {
                let shards: Vec<_> = map.entries.values().map(show).collect();
                Some(format!("{} in {}: {}", map.cluster, map.protocol, shards.join(", ")))
            }
            _ => None,
        });
        written.collect()
    }
}

#[test]
fn a_map_changes_its_version_when_all_owners_speak_the_next() {
    let mut scene = scene(&["m-0", "m-1"], &["east", "west"]);
    scene.map("east", "m-0@4");
    scene.map("west", "m-1@4");
    assert_eq!(scene.versions_written(), [""; 0], "m-1 speaks the first only");
    scene.speaks("m-1", BOTH);
    assert_eq!(scene.versions_written(), ["east in 2: m-0@4", "west in 2: m-1@4"]);
    scene.map_in(2, "east", "m-0@4");
    scene.map_in(2, "west", "m-1@4");
    assert_eq!(scene.versions_written(), [""; 0]);
    // Nothing is known about an owner without a Member.
    scene.map("west", "m-9@4");
    scene.renew("m-9");
    assert_eq!(scene.versions_written(), [""; 0]);
}

#[test]
fn maps_go_back_before_an_old_member_gets_shards() {
    let mut scene = scene(&["m-0"], &["east", "west"]);
    scene.map_in(2, "east", "m-0@4");
    scene.map_in(2, "west", "m-0@4");
    scene.renew("m-1");
    scene.speaks("m-1", ProtocolVersions::SPOKEN);
    let written = scene.versions_written();
    assert_eq!(written.len(), 2, "{written:?}");
    assert!(written.iter().all(|map| map.contains(" in 1: m-0")), "{written:?}");
}

#[test]
fn an_owner_that_does_not_speak_the_version_in_use_drains_first() {
    let mut scene = scene(&["m-0", "m-1", "m-2"], &["east", "west"]);
    scene.speaks("m-2", ProtocolVersions { oldest: 2, newest: 2 });
    scene.map("east", "m-1@4");
    scene.map_in(2, "west", "m-2@4");
    // Two coordinators that overlapped can cause this. The map keeps its version meanwhile.
    assert_eq!(scene.versions_written(), ["east in 1: m-1>m-0@4"]);
}

#[test]
fn a_map_of_an_unknown_version_is_left_alone() {
    for clusters in [&["east"][..], &[]] {
        let mut scene = Scene::new(&["m-0"], clusters);
        scene.map_in(2, "east", "@4");
        scene.check(&[]);
        scene.pass(REMOVAL_GRACE);
        scene.renew("m-0");
        scene.check(&[]);
    }
}
