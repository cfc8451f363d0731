//! Maps that are absent, and of which the coordinator does not know for certain how they were.

use super::*;
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

#[test]
fn of_a_map_that_may_have_changed_unseen_only_former_owners_get_shards_at_once() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map_of("east", &[("g/0/2", "m-1@4"), ("g/1/2", "@6")]);
    scene.world.remove(&Target { kind: Kind::Map, name: "east".into() }, None);
    scene.check(&["create east v: g/0/2 m-1@7, g/1/2 @7"]);
    scene.map_of("east", &[("g/0/2", "m-1@7"), ("g/1/2", "@7")]);
    scene.check(&[]);
    scene.pass_and_renew(silence() - Duration::from_millis(1));
    scene.check(&[]);
    scene.pass_and_renew(Duration::from_millis(1));
    scene.check(&["update east v6: g/0/2 m-1@7, g/1/2 m-0@8"]);
}
