//! Maps that are absent, and of which the coordinator does not know for certain how they were.

use super::*;
use crate::floor::Floor;
use crate::lease::COORDINATOR;
use crate::record::Observation;

impl Scene {
    /// `m-0` has the coordinator's Lease, whose holder changed that often.
    fn coordinates(&mut self, transitions: i32) {
        let name = COORDINATOR.to_owned();
        let record = LeaseRecord::new(name, &id("m-0"), LeaseTimings::default().duration);
        self.apply(Object::Lease(LeaseRecord { transitions, ..record }));
    }

    /// It lists all maps.
    fn list_maps(&mut self, maps: &[(&str, &str)]) {
        self.revision += 1;
        let version = ObjectVersion { uid: "u".into(), resource: self.revision.to_string() };
        let objects = maps.iter().map(|(cluster, shard)| {
            Object::Map(MapRecord { version: version.clone(), ..Self::map_record(cluster, shard) })
        });
        let list = Observation::Listed(Kind::Map, version.resource.clone(), objects.collect());
        self.world.observe(list, self.now);
    }

    /// `m-0` has taken office after another, and has just read home.
    fn taken_over(clusters: &[&str], maps: &[(&str, &str)]) -> Self {
        let mut scene = Self::new(&["m-0", "m-1"], clusters);
        scene.coordinates(1);
        scene.list_maps(maps);
        scene
    }

    fn pass_and_renew(&mut self, time: Duration) {
        self.pass(time);
        ["m-0", "m-1"].iter().for_each(|member| self.renew(member));
    }
}

fn silence() -> Duration {
    LeaseTimings::default().silence()
}

#[test]
fn a_map_that_the_first_list_lacks_is_made_after_one_silence() {
    let mut scene = Scene::taken_over(&["east", "west"], &[("west", "m-1@4")]);
    let plan = scene.plan();
    assert_eq!((plan.writes, plan.wake), (Vec::new(), Some(scene.now + silence())));
    scene.pass_and_renew(silence() - Duration::from_millis(1));
    scene.check(&[]);
    scene.pass_and_renew(Duration::from_millis(1));
    scene.check(&["create east v: g/0/1 m-0@1"]);
}

#[test]
fn a_cluster_that_comes_later_does_not_wait() {
    let mut scene = Scene::taken_over(&[], &[]);
    scene.pass_and_renew(silence());
    scene.clusters.insert("east".parse().unwrap());
    assert_eq!(scene.writes().len(), 1);
}

#[test]
fn nobody_waits_where_no_former_owner_can_be() {
    // The fleet begins with this coordinator, or home had maps before.
    for (maps, is_new) in [(&[][..], true), (&[("west", "m-1@4")], false)] {
        let mut scene = Scene::new(&["m-0", "m-1"], &["east", "west"]);
        scene.coordinates(0);
        scene.list_maps(maps);
        assert_eq!(!scene.writes().is_empty(), is_new);
    }
    // There is nobody else.
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.coordinates(1);
    scene.list_maps(&[]);
    scene.check(&["create east v: g/0/1 m-0@1"]);
    // The other one has ended. Before it was taken, the Lease that it has lost proved nothing.
    let mut scene = Scene::taken_over(&["east"], &[]);
    let lease = scene.world.lease_of(&id("m-1")).unwrap().record.clone();
    scene.apply(Object::Lease(LeaseRecord { holder: None, ..lease }));
    scene.check(&[]);
    scene.lease("m-1", Some("m-0"));
    scene.check(&["create east v: g/0/1 m-0@1"]);
}

fn east() -> Target {
    Target { kind: Kind::Map, name: "east".into() }
}

/// Another member may have got a shard of it unseen, and may not have noticed that the map is gone.
#[test]
fn a_map_that_may_have_changed_unseen_is_made_after_one_silence() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map_of("east", &[("g/0/2", "m-1@4"), ("g/1/2", "@6")]);
    scene.world.remove(&east(), None);
    scene.check(&[]);
    scene.pass_and_renew(silence() - Duration::from_millis(1));
    scene.check(&[]);
    scene.pass_and_renew(Duration::from_millis(1));
    // Whoever may act all the same, because its watch is later than that, has most probably been the owner.
    scene.check(&["create east v: g/0/2 m-1@7, g/1/2 m-0@8"]);
}

#[test]
fn former_owners_have_their_shards_again_above_all_epochs() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.floor(Floor::Known(Epoch(9)));
    // Of the last one nobody knows whether it lives.
    for (before, after) in [("m-1@4", "m-1@10"), ("m-1>m-0@12", "m-1@13"), ("m-9@14", "m-9@15")] {
        scene.map("east", before);
        scene.check(&[]);
        scene.world.remove(&east(), None);
        scene.check(&[]);
        scene.pass_and_renew(silence());
        scene.check(&[&format!("create east v: g/0/1 {after}")]);
    }
}

/// It had no owners when it was seen last. The member before this coordinator gave it some, and then somebody deleted it.
#[test]
fn a_map_without_owners_that_went_unseen_may_have_got_some() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.floor(Floor::Known(Epoch(9)));
    scene.map("east", "@4");
    scene.world.remove(&east(), None);
    scene.check(&[]);
    scene.pass_and_renew(silence());
    assert_eq!(scene.writes().len(), 1);
    // The coordinator itself deleted it: nobody has a shard of it.
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.floor(Floor::Known(Epoch(9)));
    scene.map("east", "@4");
    let version = scene.world.version_of(&east()).unwrap().clone();
    scene.world.deleted_by(&Write::Delete(east(), version));
    assert_eq!(scene.writes().len(), 1);
}

/// Others could read it.
#[test]
fn a_map_that_this_coordinator_could_never_read_may_have_owners() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    let record = Scene::map_record("east", "m-1@4");
    scene.apply(Object::Map(MapRecord { protocol: 2, ..record }));
    scene.check(&[]);
    scene.world.remove(&east(), None);
    scene.check(&[]);
    scene.pass_and_renew(silence());
    assert_eq!(scene.writes().len(), 1);
}
