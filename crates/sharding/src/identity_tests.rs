use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::record::{Kind, Observation};

/// `east=u1@2` is a configured cluster: its name, its uid and its place.
fn own(names: &[&str]) -> Identities {
    let one = |text: &&str| {
        let (name, rest) = text.split_once('=').unwrap();
        let (uid, place) = rest.split_once('@').unwrap();
        let origin = format!("file {name}").into();
        let identity =
            Identity { uid: uid.parse().unwrap(), origin, place: place.parse().unwrap() };
        (name.parse().unwrap(), Arc::new(identity))
    };
    names.iter().map(one).collect()
}

/// `east=u1` is a map that stands for a cluster, `east=` one that does not say it.
fn map(text: &str) -> MapRecord {
    let (name, uid) = text.split_once('=').unwrap();
    MapRecord { cluster_uid: uid.parse().ok(), ..MapRecord::new(name.parse().unwrap()) }
}

fn observe(names: &mut Names, maps: &[&str]) {
    maps.iter().map(|text| map(text)).for_each(|map| names.observe(&map.cluster, Some(&map)));
}

fn refused(names: &Names) -> Vec<String> {
    let text = |(name, (why, _)): (&ClusterName, &(Refusal, Moment))| match why {
        Refusal::Another(uid) => format!("{name} is not {uid}"),
        Refusal::Second(first) => format!("{name} is {first}"),
    };
    names.refused.iter().map(text).collect()
}

fn synced() -> World {
    let mut world = World::default();
    for kind in [Kind::Lease, Kind::Member, Kind::Map] {
        world.observe(Observation::Listed(kind, "1".into(), Vec::new()), Moment::default());
    }
    world
}

fn check(configured: &[&str], mapped: &[&str], expect: &[&str]) {
    let mut names = Names::default();
    names.learn(own(configured));
    observe(&mut names, mapped);
    names.follow(&World::default(), Moment::default());
    assert_eq!(refused(&names), expect, "{configured:?} {mapped:?}");
}

proptest! {
    /// What is refused does not depend on how it came to be known.
    #[test]
    fn names_are_judged_as_if_all_had_been_known_at_once(
        steps in vec((any::<bool>(), 0..4usize, 0..4usize, 0..2usize), 1..20),
    ) {
        let (mut names, world) = (Names::default(), synced());
        let (mut configured, mut mapped) = (BTreeMap::new(), BTreeMap::new());
        for (is_map, name, uid, place) in steps {
            let name = ["a", "b", "c", "d"][name];
            // Of cluster 0 there is none.
            match is_map {
                true => drop(mapped.insert(name, if uid == 0 { format!("{name}=") } else { format!("{name}=u{uid}") })),
                false if uid == 0 => drop(configured.remove(name)),
                false => drop(configured.insert(name, format!("{name}=u{uid}@{place}"))),
            }
            let configured: Vec<&str> = configured.values().map(String::as_str).collect();
            let mapped: Vec<&str> = mapped.values().map(String::as_str).collect();
            names.learn(own(&configured));
            observe(&mut names, &mapped);
            let before = refused(&names);
            let changed = names.follow(&world, Moment::default());
            let mut anew = Names::default();
            observe(&mut anew, &mapped);
            anew.learn(own(&configured));
            anew.follow(&world, Moment::default());
            prop_assert_eq!(refused(&names), refused(&anew));
            prop_assert_eq!(before != refused(&names), !changed.is_empty());
        }
    }
}

#[test]
fn a_cluster_has_one_name() {
    check(&["east=u1@0", "west=u2@0"], &["east=u1", "west=u2"], &[]);
    // The map decides, whatever the order; also if this member does not know the first name.
    check(&["a=u1@0", "east=u1@1"], &["east=u1", "a="], &["a is east"]);
    check(&["a=u1@0"], &["east=u1"], &["a is east"]);
    check(&["a=u1@0", "east=u1@1"], &["a=u1", "east=u1"], &["east is a"]);
    // Before there is a map, the order of the configuration.
    check(&["a=u1@1", "east=u1@0"], &["a=", "east="], &["a is east"]);
    check(&["a=u1@0", "b=u1@0", "c=u1@0"], &[], &["b is a", "c is a"]);
}

#[test]
fn a_name_stands_for_one_cluster() {
    check(&["east=u2@0"], &["east=u1"], &["east is not u1"]);
    check(&["east=u2@0", "west=u1@0"], &["east=u1"], &["east is not u1", "west is east"]);
}

#[test]
fn what_nobody_says_refuses_nothing() {
    check(&[], &["east=u1", "west=u1"], &[]);
    check(&["east=u1@0"], &[], &[]);
    check(&["east=u1@0"], &["east=", "west="], &[]);
    check(&["east=u1@0"], &["east=u1", "west="], &[]);
}

#[test]
fn a_refusal_names_both_and_is_reported_when_it_lasts() {
    let (mut names, world) = (Names::default(), synced());
    let at = |s| Moment::from_origin(Duration::from_secs(s));
    names.learn(own(&["a=u1@0", "east=u1@1"]));
    names.observe(&"east".parse().unwrap(), Some(&map("east=u1")));
    assert_eq!(names.follow(&world, at(1)), ["a".parse().unwrap()]);
    assert_eq!(names.follow(&world, at(5)), []);
    assert_eq!(
        names.problems().collect::<Vec<_>>(),
        [
            "cluster a: it is the same cluster as east (the uid of its kube-system is u1), which keeps it: \
          east comes from file east, a comes from file a; fix: remove one of the two; to rename a \
          cluster, remove the old name from all replicas; of a cluster and its copy from a backup, give \
          one to another fleet"
        ]
    );
    names.follow(&world, at(10));
    assert_eq!(names.down().count(), 0);
    names.follow(&world, at(11));
    assert_eq!(names.down().count(), 1);
    names.observe(&"east".parse().unwrap(), None);
    names.observe(&"a".parse().unwrap(), Some(&map("a=u1")));
    assert_eq!(names.follow(&world, at(12)).len(), 2);
    assert_eq!(names.down().count(), 0, "now the other is refused, for a moment");
}

#[test]
fn a_member_says_what_the_maps_do_not() {
    let (mut names, world) = (Names::default(), synced());
    let at = |s| Moment::from_origin(Duration::from_secs(s));
    let said = |names: &Names| -> Vec<_> {
        names.said().iter().map(|named| format!("{}={}", named.name, named.uid)).collect()
    };
    names.learn(own(&["a=u1@0", "b=u2@0", "c=u3@0", "d=u4@0"]));
    for text in ["a=u1", "b=", "c=u9"] {
        let map = map(text);
        names.observe(&map.cluster, Some(&map));
    }
    names.follow(&World::default(), at(1));
    assert_eq!(said(&names), [""; 0], "before it has seen the maps");
    names.follow(&world, at(1));
    assert_eq!(said(&names), ["c=u3", "b=u2", "d=u4"], "the refused one first");
    names.observe(&"b".parse().unwrap(), Some(&map("b=u2")));
    names.follow(&world, at(2));
    assert_eq!(said(&names).len(), 3, "now and then");
    names.observe(&"a".parse().unwrap(), Some(&map("a=")));
    names.observe(&"z".parse().unwrap(), Some(&map("z=u1")));
    names.follow(&world, at(3));
    assert_eq!(said(&names), ["a=u1", "c=u3", "d=u4"], "at once why a name is refused");
    names.learn(own(&["e=u5@0"]));
    names.follow(&world, at(4));
    assert_eq!(said(&names), ["e=u5"], "at once when its clusters change");
}
