//! Members with different clusters, and clusters that some do not reach.

use super::policy::pause;
use super::*;
use crate::api::ConfiguredClusters;
use crate::coordinator::rest::{FIRST_REST, GRACE};
use crate::reach::Report;

impl Scene {
    /// The coordinator `m-0` has the first clusters configured, and says so as all others do.
    fn reaching(clusters: &[&str], others: &[(&str, &[&str])]) -> Self {
        let mut scene = Scene::new(&["m-0"], clusters);
        scene.says("m-0", clusters, &[]);
        for (member, clusters) in others {
            scene.renew(member);
            scene.says(member, clusters, &[]);
        }
        scene
    }

    /// A member has these clusters configured and fails to reach those.
    fn says(&mut self, member: &str, clusters: &[&str], fails: &[&str]) {
        let said = self.report(clusters, fails);
        self.member(member, |spec| spec.clusters = Some(said.clone()));
    }

    fn report(&self, clusters: &[&str], fails: &[&str]) -> ConfiguredClusters {
        let own: BTreeSet<ClusterName> =
            clusters.iter().map(|name| name.parse().unwrap()).collect();
        let fails: Vec<ClusterName> = fails.iter().map(|name| name.parse().unwrap()).collect();
        let mut report = Report::default();
        report.configured(&own, &self.world);
        report.follow(&own, &self.world, &fails.iter().collect::<Vec<_>>());
        report.said().unwrap()
    }

    /// All live ones renew, and time passes.
    fn later(&mut self, members: &[&str], time: Duration) {
        self.pass(time);
        for member in members {
            self.renew(member);
        }
    }

    fn problems(&mut self) -> Vec<String> {
        self.plan().problems
    }
}

#[test]
fn clusters_that_only_others_have_get_maps_and_go_to_those() {
    let mut scene = Scene::reaching(&["east"], &[("m-1", &["east", "north", "west"])]);
    scene.check(&[
        "create east v: g/0/1 m-0@1",
        "create north v: g/0/1 m-1@1",
        "create west v: g/0/1 m-1@1",
    ]);
}

#[test]
fn a_member_of_the_previous_release_counts_as_having_what_the_coordinator_has() {
    let mut scene = Scene::reaching(&["east"], &[("m-1", &["east", "west"])]);
    scene.renew("m-2");
    scene.member("m-2", |_| {});
    scene.map("west", "m-2@4");
    scene.map("east", "m-0@4");
    scene.check(&[]);
    scene.later(&["m-0", "m-1", "m-2"], GRACE);
    scene.check(&["update west v8: g/0/1 m-2>m-1@4"]);
}

#[test]
fn a_member_whose_clusters_are_not_known_keeps_what_it_has_and_gets_nothing() {
    let mut scene = Scene::reaching(&["east", "west"], &[("m-1", &[])]);
    let unknown = ConfiguredClusters { count: 7, digest: "0".into(), ..Default::default() };
    scene.member("m-1", |spec| spec.clusters = Some(unknown.clone()));
    scene.map("east", "m-1@4");
    scene.check(&["create west v: g/0/1 m-0@1"]);
    // And no map goes that it may have configured.
    scene.map("west", "m-0@1");
    scene.map("north", "m-0@1");
    scene.later(&["m-0", "m-1"], LONG_GRACE * 2);
    scene.check(&[]);
    scene.says("m-1", &["east", "west"], &[]);
    scene.check(&[]);
    scene.later(&["m-0", "m-1"], REMOVAL_GRACE);
    scene.check(&["update north v9: g/0/1 m-0>@1"]);
}

#[test]
fn an_owner_that_does_not_reach_a_cluster_loses_it_to_one_that_does_and_then_it_rests() {
    let both: &[&str] = &["east"];
    let mut scene = Scene::reaching(both, &[("m-1", both)]);
    scene.map("east", "m-1@4");
    scene.check(&[]);
    scene.says("m-1", both, both);
    scene.check(&[]);
    scene.later(&["m-0", "m-1"], GRACE);
    scene.check(&["update east v6: g/0/1 m-1>m-0@4"]);
    // The next owner fails as well, and the first seems to reach it again.
    scene.map("east", "m-0@5");
    scene.says("m-0", both, both);
    scene.says("m-1", both, &[]);
    scene.check(&[]);
    scene.later(&["m-0", "m-1"], FIRST_REST);
    scene.check(&["update east v10: g/0/1 m-0>m-1@5"]);
    scene.map("east", "m-1@6");
    scene.says("m-1", both, both);
    scene.later(&["m-0", "m-1"], FIRST_REST);
    scene.says("m-0", both, &[]);
    scene.check(&[]);
    scene.later(&["m-0", "m-1"], FIRST_REST);
    assert_eq!(scene.writes().len(), 1, "each time it rests for longer");
}

#[test]
fn a_cluster_that_nobody_reaches_stays_where_it_is() {
    let both: &[&str] = &["east", "west"];
    let mut scene = Scene::reaching(both, &[("m-1", both)]);
    scene.map("east", "m-1@4");
    for member in ["m-0", "m-1"] {
        scene.says(member, both, both);
    }
    scene.check(&["create west v: g/0/1 m-0@1"]);
}

#[test]
fn a_member_that_fails_to_reach_more_than_it_can_name_gets_nothing() {
    let both: &[&str] = &["east", "west"];
    let mut scene = Scene::reaching(both, &[("m-1", both)]);
    let said = ConfiguredClusters { failing: 9, ..scene.report(both, &[]) };
    scene.member("m-1", |spec| spec.clusters = Some(said.clone()));
    scene.map("east", "m-1@4");
    scene.check(&["create west v: g/0/1 m-0@1"]);
}

/// More clusters are down than any Member can name: the shards of the others must have owners all the same.
#[test]
fn where_nobody_can_name_all_that_it_fails_to_reach_every_shard_has_an_owner() {
    let both: &[&str] = &["east", "west"];
    let mut scene = Scene::reaching(both, &[("m-1", both)]);
    for member in ["m-0", "m-1"] {
        let said = ConfiguredClusters { failing: 9, ..scene.report(both, &[]) };
        scene.member(member, |spec| spec.clusters = Some(said.clone()));
    }
    scene.map("east", "m-1@4");
    scene.map("west", "@4");
    scene.check(&["update west v9: g/0/1 m-0@5"]);
    scene.map("west", "m-0@5");
    // Nothing moves because of the doubt, and no map goes.
    scene.later(&["m-0", "m-1"], LONG_GRACE);
    scene.check(&[]);
    scene.member("m-1", |spec| spec.state = MemberState::Leaving);
    scene.check(&["update east v8: g/0/1 m-1>m-0@4"]);
}

/// Six clusters, all of which `m-1` has configured, and three `m-0`. When `m-1` dies, its three stay.
#[test]
fn the_maps_of_a_member_that_died_stay_and_people_are_told() {
    let mut scene = Scene::reaching(&["c0", "c1", "c2"], &[("m-1", &["c3", "c4", "c5"])]);
    for n in 0..6 {
        scene.map(&format!("c{n}"), if n < 3 { "m-0@1" } else { "m-1@1" });
    }
    scene.lease("m-1", Some("m-0"));
    let freed = scene.writes();
    assert_eq!(freed.len(), 3, "{freed:?}");
    assert!(freed.iter().all(|write| write.ends_with("g/0/1 @1")), "{freed:?}");
    for n in 3..6 {
        scene.map(&format!("c{n}"), "@1");
    }
    scene.check(&[]);
    scene.later(&["m-0"], REMOVAL_GRACE);
    scene.check(&[]);
    let problems = scene.problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("shardmaps.leasehold.dev c3 (and 2 more)"), "{problems:?}");
    // Its process returns.
    scene.renew("m-2");
    scene.says("m-2", &["c3", "c4", "c5"], &[]);
    assert!(scene.writes().iter().all(|write| write.ends_with("g/0/1 m-2@2")));
    assert!(scene.problems().is_empty());
}

#[test]
fn a_map_goes_when_no_live_member_has_its_cluster_and_its_owner_said_so() {
    let (before, after): (&[&str], &[&str]) = (&["east", "west"], &["east"]);
    let mut scene = Scene::reaching(before, &[("m-1", before)]);
    scene.map("east", "m-0@1");
    scene.map("west", "m-1@1");
    scene.clusters.remove(&"west".parse().unwrap());
    scene.says("m-0", after, &[]);
    scene.later(&["m-0", "m-1"], LONG_GRACE * 2);
    scene.check(&[]);
    scene.says("m-1", after, &[]);
    scene.check(&[]);
    scene.later(&["m-0", "m-1"], REMOVAL_GRACE);
    scene.check(&["update west v7: g/0/1 m-1>@1"]);
}

#[test]
fn the_map_of_members_that_left_goes_a_little_later() {
    let mut scene = Scene::reaching(&["east"], &[("m-1", &["west"])]);
    scene.map("east", "m-0@1");
    scene.map("west", "m-1@1");
    let said = scene.report(&["west"], &[]);
    scene.member("m-1", |spec| {
        spec.clusters = Some(said.clone());
        spec.state = MemberState::Leaving;
    });
    scene.check(&["update west v7: g/0/1 m-1>@1"]);
    scene.map("west", "@1");
    scene.lease("m-1", None);
    scene.world.remove(&Target { kind: Kind::Member, name: "m-1".into() }, None);
    scene.check(&[]);
    scene.later(&["m-0"], LEFT_GRACE - Duration::from_secs(1));
    assert_eq!((scene.plan().floor, scene.problems().len()), (Epoch(0), 0));
    scene.later(&["m-0"], Duration::from_secs(1));
    assert_eq!(scene.plan().floor, Epoch(1), "its epochs are to outlive it");
}

/// It may come back under another name, and the map is all that tells which one it was.
#[test]
fn the_map_of_a_paused_cluster_stays_for_a_while_and_while_it_may_be_one_that_has_not_told() {
    for (uid, stays) in [("u1", true), ("", false)] {
        let mut scene = Scene::new(&["m-0"], &["east"]);
        scene.policies = pause(&["west"]);
        scene.map("east", "m-0@1");
        let west = MapRecord { cluster_uid: uid.parse().ok(), ..Scene::map_record("west", "@4") };
        scene.apply(Object::Map(west.clone()));
        scene.says("m-0", &["east"], &[]);
        scene.check(&[]);
        scene.later(&["m-0"], LEFT_GRACE);
        let told = scene.problems().join("\n");
        assert!(told.contains("the FleetPolicy p pauses it: the map stays"), "{told}");
        assert_eq!(scene.plan().floor, Epoch(0));
        // The other one never tells which it is.
        scene.later(&["m-0"], LONG_GRACE);
        assert_eq!(scene.plan().floor, Epoch(if stays { 0 } else { 4 }), "{uid}");
        let east =
            MapRecord { cluster_uid: "u2".parse().ok(), ..Scene::map_record("east", "m-0@1") };
        scene.apply(Object::Map(east));
        assert_eq!(scene.plan().floor, Epoch(4), "its epochs are to outlive it");
        assert!(scene.problems().is_empty());
    }
}

#[test]
fn a_map_that_only_a_member_with_an_open_source_may_have_stays_and_is_told() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-1@1");
    scene.map("west", "m-0@1");
    scene.says("m-0", &["east"], &[]);
    let said =
        ConfiguredClusters { open: vec![String::new()].into(), ..scene.report(&["east"], &[]) };
    scene.member("m-1", |spec| spec.clusters = Some(said.clone()));
    for _ in 0..2 {
        let told = scene.problems().join("\n");
        assert!(told.contains("shardmaps.leasehold.dev west of the home cluster"), "{told}");
        assert!(told.contains("m-1 cannot read one of its sources"), "{told}");
        scene.later(&["m-0", "m-1"], LONG_GRACE);
    }
    scene.check(&[]);
    scene.says("m-1", &["east"], &[]);
    assert!(scene.problems().is_empty());
}

/// Who writes the files of a folder with a prefix holds up no cluster of another one.
#[test]
fn a_source_that_cannot_be_read_keeps_only_maps_of_its_own_names() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-1@1");
    scene.map("team-a.west", "m-0@1");
    scene.map("west", "m-0@1");
    scene.says("m-0", &["east"], &[]);
    let open = vec!["team-a.".to_owned()].into();
    let said = ConfiguredClusters { open, ..scene.report(&["east"], &[]) };
    scene.member("m-1", |spec| spec.clusters = Some(said.clone()));
    scene.check(&[]);
    scene.later(&["m-0", "m-1"], LONG_GRACE);
    scene.check(&["update west v7: g/0/1 m-0>@1"]);
    let told = scene.problems().join("\n");
    assert!(told.contains("shardmaps.leasehold.dev team-a.west of the home cluster"), "{told}");
}

#[test]
fn a_mass_of_maps_does_not_go_soon() {
    let names: Vec<String> = (0..40).map(|n| format!("c{n:02}")).collect();
    for (left, held) in [(30, None), (29, Some(11)), (0, Some(40))] {
        let mut scene = Scene::new(&["m-0"], &[]);
        for name in &names {
            scene.map(name, "m-0@1");
        }
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let left = &all[..left];
        scene.clusters = left.iter().map(|name| name.parse().unwrap()).collect();
        scene.says("m-0", left, &[]);
        scene.check(&[]);
        scene.later(&["m-0"], REMOVAL_GRACE);
        let (drained, told) = (scene.writes().len(), scene.problems());
        let Some(held) = held else {
            assert_eq!((drained, told.len()), (10, 0));
            continue;
        };
        assert_eq!((drained, told.len()), (0, 1));
        assert!(told[0].contains(&format!("(and {} more)", held - 1)), "{told:?}");
        assert!(told[0].contains("Secret"), "{told:?}");
        scene.later(&["m-0"], LONG_GRACE);
        assert_eq!(scene.writes().len(), held, "it was meant");
    }
}

/// A small fleet whose Secret is emptied is one as well, also beside a cluster of another source; but who removes one
/// cluster means it, also the only one.
#[test]
fn most_maps_of_a_small_fleet_do_not_go_soon_either() {
    let all = ["a", "b", "c"];
    for (before, left, is_mass) in
        [(3, 0, true), (3, 1, true), (3, 2, false), (2, 0, true), (2, 1, false), (1, 0, false)]
    {
        let mut scene = Scene::new(&["m-0"], &[]);
        for name in &all[..before] {
            scene.map(name, "m-0@1");
        }
        // Work in no cluster has a map besides, which does not count.
        scene.map(model::single::FLEET, "m-0@1");
        scene.clusters = all[..left].iter().map(|name| name.parse().unwrap()).collect();
        scene.says("m-0", &all[..left], &[]);
        scene.writes();
        scene.later(&["m-0"], REMOVAL_GRACE);
        let of_clusters = |scene: &mut Scene| {
            let writes = scene.writes();
            writes.iter().filter(|write| !write.contains(model::single::FLEET)).count()
        };
        let gone = before - left;
        let expect = if is_mass { (0, 1) } else { (gone, 0) };
        let told = scene.problems().iter().filter(|text| text.contains("Secret")).count();
        assert_eq!((of_clusters(&mut scene), told), expect, "{left} of {before} are left");
        scene.later(&["m-0"], LONG_GRACE);
        assert_eq!(of_clusters(&mut scene), gone, "it was meant");
    }
}

/// An emptied Secret is filled again part by part: what is not back yet does not go sooner for that.
#[test]
fn what_went_with_a_mass_stays_while_others_return() {
    let all = ["a", "b", "c"];
    let mut scene = Scene::new(&["m-0"], &[]);
    for name in all {
        scene.map(name, "m-0@1");
    }
    for back in [0, 1, 2] {
        scene.clusters = all[..back].iter().map(|name| name.parse().unwrap()).collect();
        scene.says("m-0", &all[..back], &[]);
        scene.check(&[]);
        scene.later(&["m-0"], REMOVAL_GRACE);
        scene.check(&[]);
        assert!(scene.problems()[0].contains("Secret"), "{back} are back");
    }
    scene.later(&["m-0"], LONG_GRACE);
    assert_eq!(scene.writes().len(), 1, "it was meant");
}

/// Whoever coordinates next has not seen with how many others a cluster went that is missing: the Lease says it.
#[test]
fn what_went_with_a_mass_stays_when_another_coordinates() {
    for is_told in [true, false] {
        let mut scene = Scene::new(&["m-0"], &[]);
        for name in ["a", "b", "c"] {
            scene.map(name, "m-0@1");
        }
        scene.says("m-0", &[], &[]);
        scene.check(&[]);
        scene.later(&["m-0"], REMOVAL_GRACE);
        let plan = scene.plan();
        assert!(plan.mass && plan.writes.is_empty());
        let lease = LeaseRecord::new(lease::COORDINATOR.to_owned(), &id("m-0"), Duration::ZERO);
        scene.apply(Object::Lease(LeaseRecord { mass: is_told, ..lease }));
        scene.coordinator = Coordinator::default();
        scene.clusters = ["a", "b"].map(|name| name.parse().unwrap()).into();
        scene.says("m-0", &["a", "b"], &[]);
        assert_eq!(scene.plan().mass, is_told, "the Lease goes on to say it");
        scene.later(&["m-0"], REMOVAL_GRACE);
        assert_eq!(scene.writes().is_empty(), is_told);
        scene.later(&["m-0"], LONG_GRACE);
        assert_eq!(scene.writes().len(), 1, "it was meant");
        scene.clusters.insert("c".parse().unwrap());
        assert!(!scene.plan().mass);
    }
}
