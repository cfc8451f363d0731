//! What a member says about its clusters is read back exactly, or known not to be.

use model::Moment;
use proptest::collection::btree_set;
use proptest::prelude::*;

use super::*;
use crate::api::{MAX_NAMED, ObjectVersion};
use crate::record::{MapRecord, Object};

fn name(n: usize) -> ClusterName {
    format!("cluster-{n}").parse().unwrap()
}

fn names(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<ClusterName> {
    numbers.into_iter().map(name).collect()
}

fn world(maps: &BTreeSet<ClusterName>) -> World {
    let mut world = World::default();
    let fleet = single::fleet_cluster();
    for (n, cluster) in maps.iter().chain([&fleet]).enumerate() {
        let mut map = MapRecord::new(cluster.clone());
        map.version = ObjectVersion { uid: "u".into(), resource: (n + 1).to_string() };
        world.apply(Object::Map(map), Moment::default());
    }
    world
}

fn said(own: &BTreeSet<ClusterName>, world: &World) -> (ConfiguredClusters, Report) {
    let mut report = Report::default();
    report.configured(own, world);
    report.follow(own, world, &[]);
    (report.said().unwrap(), report)
}

/// The clusters that a reader with these maps knows a member to have; none if it does not know.
fn read_by(
    said: &ConfiguredClusters,
    maps: &BTreeSet<ClusterName>,
) -> Option<BTreeSet<ClusterName>> {
    let world = world(maps);
    match read(said, &world) {
        Known::Only(names) => Some(names.into_iter().cloned().collect()),
        Known::But { lacks, adds } => {
            let has = maps.iter().filter(|name| !lacks.contains(name));
            Some(has.chain(adds).cloned().collect())
        }
        Known::InPart { .. } => None,
    }
}

#[test]
fn most_members_of_a_large_fleet_need_no_names() {
    let all = names(0..10_000);
    let (said, report) = said(&all, &world(&all));
    assert_eq!((said.count, said.digest.len()), (10_000, 16));
    assert!(said.lacks.is_empty() && said.adds.is_empty() && said.only.is_empty());
    assert!(!report.is_too_different());
    assert_eq!(read_by(&said, &all), Some(all));
}

#[test]
fn a_member_with_few_clusters_names_them_whatever_others_have() {
    let (own, all) = (names(0..30), names(10..10_000));
    let (said, _) = said(&own, &world(&all));
    assert_eq!((said.only.len(), said.lacks.len()), (30, 0));
    assert_eq!(read_by(&said, &BTreeSet::new()), Some(own.clone()));
    assert_eq!(read_by(&said, &all), Some(own));
    let none = BTreeSet::new();
    assert_eq!(read_by(&super::tests::said(&none, &world(&all)).0, &all), Some(none));
}

#[test]
fn a_difference_that_is_too_long_is_known_not_to_be_known() {
    let (own, all) = (names(0..5_000), names(4_000..10_000));
    let (said, report) = said(&own, &world(&all));
    assert!(report.is_too_different());
    assert_eq!((said.lacks.len(), said.adds.len()), (MAX_NAMED, MAX_NAMED));
    assert_eq!(read_by(&said, &all), None);
}

#[test]
fn a_report_that_is_still_true_is_not_written_again() {
    let (own, mut maps) = (names(0..100), names(1..100));
    let (first, mut report) = said(&own, &world(&maps));
    assert_eq!(*first.adds, [name(0)]);
    maps.insert(name(0));
    report.maps_changed(&names([0]), &own, &world(&maps));
    report.follow(&own, &world(&maps), &[]);
    assert_eq!(report.said().unwrap(), first, "others read it as before");
    maps.insert(name(100));
    report.maps_changed(&names([100]), &own, &world(&maps));
    report.follow(&own, &world(&maps), &[]);
    assert_eq!(*report.said().unwrap().lacks, [name(100)]);
}

#[test]
fn what_fails_is_named_as_far_as_there_is_room_and_then_counted() {
    let own = names(0..1_000);
    let (_, mut report) = said(&own, &world(&own));
    let fails: Vec<&ClusterName> = own.iter().collect();
    report.follow(&own, &world(&own), &fails);
    let said = report.said().unwrap();
    assert_eq!((said.fails.len(), said.failing), (MAX_NAMED, 1_000));
    let bytes = serde_json::to_vec(&said.fails).unwrap().len();
    assert!(bytes <= crate::api::MAX_NAMED_BYTES + "[]".len(), "{bytes}");
    report.follow(&own, &world(&own), &fails[..2]);
    let said = report.said().unwrap();
    assert_eq!((said.fails.len(), said.failing), (2, 0));
}

proptest! {
    /// A report that followed each change is as one made anew.
    #[test]
    fn a_report_follows_maps_as_they_come_and_go(
        own in btree_set(0..40usize, 0..40),
        steps in prop::collection::vec(btree_set(0..40usize, 0..40), 1..4),
    ) {
        let (own, mut before) = (names(own), BTreeSet::new());
        let mut report = Report::default();
        report.configured(&own, &world(&before));
        for maps in steps.into_iter().map(names) {
            let changed = before.symmetric_difference(&maps).cloned().collect();
            report.maps_changed(&changed, &own, &world(&maps));
            let mut anew = Report::default();
            anew.configured(&own, &world(&maps));
            prop_assert_eq!((&report.lacks, &report.adds), (&anew.lacks, &anew.adds));
            before = maps;
        }
    }

    /// Whatever the two have seen, the reader knows the member's clusters exactly or knows that it does
    /// not; and what the lists name is always true.
    #[test]
    fn a_reader_is_never_wrong(
        own in btree_set(0..80usize, 0..60),
        seen in btree_set(0..80usize, 0..60),
        reads in btree_set(0..80usize, 0..60),
    ) {
        let (own, seen, reads) = (names(own), names(seen), names(reads));
        let (said, _) = said(&own, &world(&seen));
        prop_assert!(said.lacks.iter().all(|name| !own.contains(name)));
        prop_assert!(said.adds.iter().chain(&said.only).all(|name| own.contains(name)));
        if let Some(known) = read_by(&said, &reads) {
            prop_assert_eq!(&known, &own);
        }
        prop_assert_eq!(read_by(&said, &seen), Some(own), "after it has caught up");
    }
}
