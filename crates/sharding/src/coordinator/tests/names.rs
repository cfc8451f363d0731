//! Names of clusters: one map for each cluster.

use model::{ClusterUid, Identity};
use std::sync::Arc;

use super::policy::{pause, pauses};
use super::*;
use crate::api::{ConfiguredClusters, NamedCluster};

impl Scene {
    /// The coordinator's own clusters told who they are: `east=u1`, in the order of the configuration.
    fn identify(&mut self, names: &[&str]) {
        let one = |(place, text): (usize, &&str)| {
            let (name, uid) = text.split_once('=').unwrap();
            let identity = Identity { uid: uid.parse().unwrap(), origin: "a file".into(), place };
            (name.parse().unwrap(), Arc::new(identity))
        };
        self.identities = names.iter().enumerate().map(one).collect();
        self.clusters = self.identities.keys().cloned().collect();
    }

    fn stands(&mut self, cluster: &str, uid: &str, shard: &str) {
        let map = MapRecord { cluster_uid: uid.parse().ok(), ..Self::map_record(cluster, shard) };
        self.apply(Object::Map(map));
    }

    /// The cluster u1 was paused as `east`, and is called `west` by now.
    fn renamed_while_paused() -> Self {
        let mut scene = Self::new(&["m-0"], &[]);
        scene.stands("east", "u1", "@7");
        scene.policies = pause(&["east"]);
        scene.identify(&["west=u1"]);
        scene.expect(&["west= @7", "delete east", "west=u1 @7"]);
        scene
    }

    /// One line in each of the next steps, and nothing in the one after them.
    fn expect(&mut self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.carry_out(), [*line]);
        }
        assert_eq!(self.carry_out(), [""; 0]);
    }

    /// Carries out what the next step writes to maps, and says it: `east=u1 m-0@1`.
    fn carry_out(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let plan = self.plan();
        for write in plan.writes {
            match write {
                Write::Create(Object::Map(map)) | Write::Replace(Object::Map(map)) => {
                    let entries: Vec<_> = map.entries.values().map(show).collect();
                    let uid = map.cluster_uid.as_ref().map_or("", ClusterUid::as_str);
                    lines.push(format!("{}={uid} {}", map.cluster, entries.join(" ")));
                    self.apply(Object::Map(map));
                }
                Write::Delete(ref target, _) if target.kind == Kind::Map => {
                    lines.push(format!("delete {}", target.name));
                    self.world.deleted_by(&write);
                }
                _ => {}
            }
        }
        self.raise_floor(plan.floor);
        lines
    }

    /// Time passes, and the members renew.
    fn wait(&mut self, time: Duration) {
        self.pass(time);
        let members: Vec<MemberId> = self.world.members().keys().cloned().collect();
        members.iter().for_each(|member| self.renew(member.as_str()));
    }

    fn raise_floor(&mut self, floor: Epoch) {
        let mut record = LeaseRecord::new(
            lease::COORDINATOR.to_owned(),
            &id("m-0"),
            LeaseTimings::default().duration,
        );
        record.floor = crate::floor::Floor::Known(floor.max(self.world.highest_floor()));
        self.apply(Object::Lease(record));
    }

    /// The member says that it has drained a shard.
    fn acknowledge(&mut self, member: &str, cluster: &str, epoch: u64) {
        let shard = format!("{cluster}/g/0/1").parse().unwrap();
        let drain = AcknowledgedDrain { shard, epoch: Epoch(epoch) };
        self.member(member, |spec| spec.acknowledged_drains = vec![drain.clone()]);
    }
}

#[test]
fn a_second_name_of_a_cluster_gets_no_map() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.identify(&["east=u1", "west=u2", "a=u1"]);
    assert_eq!(scene.carry_out(), ["east=u1 m-0@1", "west=u2 m-0@1"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    // Whoever comes later takes nothing from it, wherever it stands in the configuration.
    scene.identify(&["a=u1", "east=u1", "west=u2"]);
    assert_eq!(scene.carry_out(), [""; 0]);
}

#[test]
fn of_two_maps_of_an_earlier_release_one_drains_and_goes() {
    let mut scene = Scene::new(&["m-0", "m-1"], &[]);
    scene.map("east", "m-0@3");
    scene.map("east-2", "m-1@4");
    scene.identify(&["east=u1", "east-2=u1"]);
    assert_eq!(scene.carry_out(), ["east=u1 m-0@3", "east-2= m-1>@4"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.acknowledge("m-1", "east-2", 4);
    assert_eq!(scene.carry_out(), ["east-2= @4"]);
    assert_eq!(scene.carry_out(), [""; 0], "its epochs are durable first");
    assert_eq!(scene.carry_out(), ["delete east-2"]);
    assert_eq!(scene.carry_out(), [""; 0]);
}

#[test]
fn a_renamed_cluster_keeps_its_epochs_and_has_no_owner_under_two_names() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.stands("east", "u1", "m-0@7");
    scene.identify(&["east-2=u1"]);
    // Nobody waits for the grace of a cluster that is gone: this one is not.
    assert_eq!(scene.carry_out(), ["east=u1 m-0>@7", "east-2= @0"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.acknowledge("m-0", "east", 7);
    assert_eq!(scene.carry_out(), ["east=u1 @7", "east-2= @7"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    assert_eq!(scene.carry_out(), ["delete east"]);
    assert_eq!(scene.carry_out(), ["east-2=u1 m-0@8"]);
}

#[test]
fn a_rename_keeps_the_splits() {
    let mut scene = Scene::new(&["m-0"], &[]);
    let mut map = MapRecord { cluster_uid: "u1".parse().ok(), ..Scene::map_record("east", "@3") };
    *map.entries_mut() = [("g/0/2", "@3"), ("g/1/2", "@5")]
        .map(|(path, text)| (path.parse().unwrap(), entry(text)))
        .into();
    scene.apply(Object::Map(map));
    scene.identify(&["east-2=u1"]);
    assert_eq!(scene.carry_out(), ["east-2= @3 @5"]);
    assert_eq!(scene.carry_out(), ["delete east"]);
    // Above the floor, which is the highest epoch of the map that went.
    assert_eq!(scene.carry_out(), ["east-2=u1 m-0@6 m-0@6"]);
}

#[test]
fn a_name_stands_for_another_cluster_when_nobody_acts_for_the_one_before() {
    let mut scene = Scene::new(&["m-0", "m-1"], &[]);
    scene.stands("east", "u1", "m-1@7");
    scene.identify(&["east=u2"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    let drained = |spec: &mut MemberSpec| {
        let shard = "east/g/0/1".parse().unwrap();
        spec.acknowledged_drains = vec![AcknowledgedDrain { shard, epoch: Epoch(7) }];
        spec.state = MemberState::Leaving;
    };
    scene.member("m-1", drained);
    assert_eq!(scene.carry_out(), ["east=u1 @7"]);
    // It has the first one, as far as anybody knows, until it says something else. It cannot get the shards.
    scene.wait(LONG_GRACE * 2);
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.member("m-1", |spec| {
        let (name, uid) = ("east".parse().unwrap(), "u2".parse().unwrap());
        spec.named_clusters = vec![NamedCluster { name, uid }];
    });
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.wait(REMOVAL_GRACE - Duration::from_secs(1));
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.wait(Duration::from_secs(1));
    assert_eq!(scene.carry_out(), ["east= @7"]);
    let next = scene.carry_out();
    assert!(next[0].starts_with("east=u2 m-") && next[0].ends_with("@8"), "{next:?}");
}

/// A replica whose file of that name leads elsewhere, here the coordinator, takes nothing from a fleet that has
/// the cluster: not even while no shard of it has an owner.
#[test]
fn who_has_another_cluster_of_a_name_takes_nothing_from_those_who_have_the_first() {
    let mut scene = Scene::new(&["m-0", "m-1"], &[]);
    scene.stands("east", "u1", "@7");
    scene.identify(&["east=u2"]);
    let said = |fails: bool| {
        move |spec: &mut MemberSpec| {
            let name: ClusterName = "east".parse().unwrap();
            let (count, digest) = (1, crate::tally::Tally::of([&name]).digest());
            let only = vec![name.clone()].into();
            let fails = if fails { vec![name] } else { Vec::new() }.into();
            let said = ConfiguredClusters { count, digest, only, fails, ..Default::default() };
            spec.clusters = Some(said);
        }
    };
    scene.member("m-0", said(true));
    scene.member("m-1", said(false));
    assert_eq!(scene.carry_out(), ["east=u1 m-1@8"], "it goes to one that has it");
    // Nobody reaches it for a while, and it has no owner: it still is what it was.
    scene.stands("east", "u1", "@8");
    scene.member("m-1", said(true));
    for _ in 0..3 {
        assert_eq!(scene.carry_out(), [""; 0]);
        scene.wait(REMOVAL_GRACE * 2);
    }
    scene.member("m-1", said(false));
    assert_eq!(scene.carry_out(), ["east=u1 m-1@9"]);
    // In the end nobody can tell.
    scene.stands("east", "u1", "@9");
    scene.member("m-1", said(true));
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.wait(LONG_GRACE);
    assert_eq!(scene.carry_out(), ["east= @9"]);
}

#[test]
fn a_coordinator_learns_from_members_what_it_does_not_know() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "east-2"]);
    let named =
        |name: &str| NamedCluster { name: name.parse().unwrap(), uid: "u1".parse().unwrap() };
    scene.member("m-1", |spec| spec.named_clusters = vec![named("east-2"), named("east")]);
    let written = scene.carry_out();
    assert_eq!(written.len(), 1);
    assert!(written[0].starts_with("east=u1 "), "{written:?}");
}

#[test]
fn two_clusters_that_swap_their_names_are_served_in_the_end() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.stands("east", "u1", "@7");
    scene.stands("west", "u2", "@3");
    scene.identify(&["east=u2", "west=u1"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.wait(REMOVAL_GRACE);
    assert_eq!(scene.carry_out(), ["east= @7", "west= @3"]);
    assert_eq!(scene.carry_out(), ["east=u2 m-0@8", "west=u1 m-0@4"]);
}

/// A replica that cannot read another source of clusters may have the old name, but nobody says that it has it.
#[test]
fn an_old_name_that_nobody_is_known_to_have_delays_the_new_one_for_a_moment_only() {
    let mut scene = Scene::new(&["m-0", "m-1"], &[]);
    scene.stands("east", "u1", "m-0@7");
    scene.identify(&["east-2=u1"]);
    scene.member("m-1", |spec| {
        let only: Vec<ClusterName> = vec!["east-2".parse().unwrap()];
        let (count, digest) = (1, crate::tally::Tally::of(&only).digest());
        let (only, open) = (only.into(), vec![String::new()].into());
        spec.clusters =
            Some(ConfiguredClusters { count, digest, only, open, ..Default::default() });
    });
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.wait(REMOVAL_GRACE - Duration::from_secs(1));
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.wait(Duration::from_secs(1));
    assert_eq!(scene.carry_out(), ["east=u1 m-0>@7", "east-2= @0"]);
    scene.acknowledge("m-0", "east", 7);
    assert_eq!(scene.carry_out(), ["east=u1 @7", "east-2= @7"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    assert_eq!(scene.carry_out(), ["delete east"]);
    let next = scene.carry_out();
    assert!(next[0].starts_with("east-2=u1 m-") && next[0].ends_with("@8"), "{next:?}");
}

/// People have paused the cluster, not a name.
#[test]
fn a_renamed_cluster_stays_paused_by_its_old_names() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.stands("east", "u1", "@7");
    scene.policies = pause(&["east"]);
    for (name, before) in [("west", "east"), ("north", "west")] {
        scene.identify(&[&format!("{name}=u1")]);
        assert_eq!(scene.carry_out(), [format!("{name}= @7")]);
        assert_eq!(scene.carry_out(), [format!("delete {before}")]);
        assert_eq!(scene.carry_out(), [format!("{name}=u1 @7")]);
        for _ in 0..3 {
            assert_eq!(scene.carry_out(), [""; 0]);
            scene.wait(LONG_GRACE);
        }
        let problems = scene.plan().problems.join("\n");
        let told =
            format!("{name} is the cluster east under a new name, and what the FleetPolicy p");
        assert!(problems.contains(&told), "{problems}");
        assert!(!problems.contains("selects no shard"), "{problems}");
    }
    // The new name is paused too, then neither.
    scene.policies = pause(&["east", "north"]);
    assert_eq!(scene.carry_out(), ["north=u1 @7"], "the old name is forgotten");
    scene.policies = pause(&["north"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    scene.policies = Policies::default();
    assert_eq!(scene.carry_out(), ["north=u1 m-0@8"]);
}

/// A maintenance window, before or after the rename, is over at its end. What is paused besides is not.
#[test]
fn another_pause_that_ends_ends_no_pause_by_a_former_name() {
    let (one, both) = ([("p", &["east"][..])], [("p", &["east"][..]), ("q", &["east", "west"])]);
    for is_later in [true, false] {
        let mut scene = Scene::new(&["m-0"], &[]);
        scene.stands("east", "u1", "@7");
        scene.policies = if is_later { pauses(&one) } else { pauses(&both) };
        scene.identify(&["west=u1"]);
        scene.expect(&["west= @7", "delete east", "west=u1 @7"]);
        scene.policies = pauses(&both);
        scene.expect(&[]);
        scene.policies = pauses(&one);
        scene.expect(&[]);
        scene.policies = Policies::default();
        scene.expect(&["west=u1 m-0@8"]);
    }
}

/// Home was emptied, or somebody deleted the map.
#[test]
fn a_map_that_is_made_anew_knows_the_former_names_of_its_cluster() {
    for is_emptied in [true, false] {
        let mut scene = Scene::renamed_while_paused();
        if is_emptied {
            scene.world.forget();
            scene.renew("m-0");
            scene.member("m-0", |_| {});
        } else {
            scene.raise_floor(Epoch(9));
            let west = scene.world.maps().values().next().unwrap().clone();
            let target = Target { kind: Kind::Map, name: "west".to_owned() };
            scene.world.remove(&target, Some(&Object::Map(west)));
        }
        let made = scene.carry_out();
        assert!(made.len() == 1 && made[0].starts_with("west=u1 @"), "{made:?}");
        scene.expect(&[]);
    }
}

/// One edit of the kubeconfig: the new cluster gets the name by which people have paused the old one.
#[test]
fn a_cluster_whose_name_another_one_gets_stays_paused() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.stands("prod", "u1", "@7");
    scene.policies = pause(&["prod"]);
    scene.identify(&["prod=u2", "prod-old=u1"]);
    scene.expect(&["prod-old= @0"]);
    scene.wait(REMOVAL_GRACE);
    assert_eq!(scene.carry_out(), ["prod= @7"]);
    assert_eq!(scene.carry_out(), ["prod=u2 @7", "prod-old=u1 @0"]);
    scene.expect(&["prod=u2 @7"]);
    // The policy says both names, and then only that of the new cluster.
    scene.policies = pause(&["prod", "prod-old"]);
    scene.expect(&["prod-old=u1 @0"]);
    scene.policies = pause(&["prod"]);
    let freed = scene.carry_out();
    assert!(freed.len() == 1 && freed[0].starts_with("prod-old=u1 m-0@"), "{freed:?}");
}

#[test]
fn clusters_that_swap_their_names_stay_paused_both() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.stands("east", "u1", "@7");
    scene.stands("west", "u2", "@3");
    scene.policies = pause(&["east"]);
    scene.identify(&["east=u2", "west=u1"]);
    scene.expect(&[]);
    scene.wait(REMOVAL_GRACE);
    assert_eq!(scene.carry_out(), ["east= @7", "west= @3"]);
    assert_eq!(scene.carry_out(), ["east=u2 @7", "west=u1 @3"]);
    scene.expect(&["east=u2 @7"]);
}

#[test]
fn who_gets_the_name_of_a_renamed_cluster_is_not_paused_by_its_former_names() {
    let mut scene = Scene::renamed_while_paused();
    scene.identify(&["west=u5"]);
    scene.expect(&[]);
    scene.wait(REMOVAL_GRACE);
    scene.expect(&["west= @7", "west=u5 m-0@8"]);
    // The one before comes back under a third name.
    scene.identify(&["west=u5", "north=u1"]);
    let back = scene.carry_out();
    assert!(back.len() == 1 && back[0].starts_with("north=u1 @"), "{back:?}");
    scene.expect(&["west=u5 m-0@8"]);
}

/// Home refused to list policies for a while.
#[test]
fn policies_that_cannot_be_listed_erase_no_former_name() {
    let mut scene = Scene::renamed_while_paused();
    scene.policies = Policies::default().unlisted();
    scene.expect(&["west=u1 m-0@8"]);
    scene.policies = pause(&["east"]);
    scene.expect(&["west=u1 m-0>@8"]);
    scene.acknowledge("m-0", "west", 8);
    scene.expect(&["west=u1 @8"]);
}

#[test]
fn the_old_map_stays_while_the_new_one_is_only_being_written() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.stands("east", "u1", "@7");
    scene.raise_floor(Epoch(9));
    scene.policies = pause(&["east"]);
    scene.identify(&["west=u1"]);
    let writes = scene.plan().writes;
    let [Write::Create(Object::Map(map))] = &writes[..] else { panic!("{writes:?}") };
    scene.pending = vec![map.clone()];
    assert_eq!(scene.plan().writes, []);
    scene.pending.clear();
    scene.apply(Object::Map(map.clone()));
    assert_eq!(scene.carry_out(), ["delete east"]);
}

#[test]
fn of_a_renamed_cluster_only_what_is_paused_waits() {
    let mut scene = Scene::new(&["m-0"], &[]);
    let groups = || ["g", "h"].map(|name| name.parse().unwrap()).to_vec();
    scene.member("m-0", |spec| spec.groups = groups());
    let mut map = MapRecord { cluster_uid: "u1".parse().ok(), ..Scene::map_record("east", "@7") };
    map.entries_mut().insert("h/0/1".parse().unwrap(), entry("m-0@3"));
    scene.apply(Object::Map(map));
    let mut of_g = crate::api::FleetPolicySpec { pause: Some(true), ..Default::default() };
    of_g.shards = Some(crate::api::ShardSelector {
        clusters: vec!["east".to_owned()],
        groups: vec!["g".to_owned()],
        names: Vec::new(),
    });
    scene.policies = Policies::read(vec![crate::policy::PolicyRecord::new("p", of_g)]);
    scene.identify(&["west=u1"]);
    assert_eq!(scene.carry_out(), ["east=u1 @7 m-0>@3", "west= @0 @0"]);
    let drain = AcknowledgedDrain { shard: "east/h/0/1".parse().unwrap(), epoch: Epoch(3) };
    scene.member("m-0", |spec| {
        spec.groups = groups();
        spec.acknowledged_drains = vec![drain.clone()];
    });
    assert_eq!(scene.carry_out(), ["east=u1 @7 @3", "west= @7 @3"]);
    assert_eq!(scene.carry_out(), [""; 0]);
    assert_eq!(scene.carry_out(), ["delete east"]);
    assert_eq!(scene.carry_out(), ["west=u1 @7 m-0@8"]);
}

#[test]
fn a_deleted_map_says_nothing_about_its_name() {
    let mut scene = Scene::new(&["m-0"], &[]);
    scene.stands("east", "u1", "@7");
    let target = Target { kind: Kind::Map, name: "east".to_owned() };
    scene.world.remove(&target, None);
    scene.stands("east-2", "u1", "m-0@9");
    scene.identify(&["east-2=u1", "east=u5"]);
    let written = scene.carry_out();
    assert!(written.len() == 1 && written[0].starts_with("east=u5 m-0@"), "{written:?}");
}
