//! What policies say of shards and members.

use super::*;
use crate::api::{MoveLimits, ShardSelector};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn shards(clusters: &[&str], groups: &[&str], named: &[&str]) -> Option<ShardSelector> {
    let (clusters, groups, names) = (names(clusters), names(groups), names(named));
    Some(ShardSelector { clusters, groups, names })
}

fn record(name: &str, spec: FleetPolicySpec) -> PolicyRecord {
    PolicyRecord { name: name.to_owned(), spec: Ok(spec) }
}

fn pause(name: &str, shards: Option<ShardSelector>) -> PolicyRecord {
    record(name, FleetPolicySpec { shards, pause: Some(true), ..FleetPolicySpec::default() })
}

fn shard(text: &str) -> ShardId {
    text.parse().unwrap()
}

fn member(identity: &str, zone: Option<&str>) -> MemberSpec {
    MemberSpec { zone: zone.map(str::to_owned), ..MemberSpec::new(identity, Vec::new()) }
}

#[test]
fn shards_are_selected_by_cluster_group_or_name() {
    for (selector, expect) in [
        (None, [true, true, true, true]),
        (shards(&["east"], &[], &[]), [true, true, true, false]),
        (shards(&[], &["g"], &[]), [true, true, false, true]),
        (shards(&["east"], &["g"], &[]), [true, true, false, false]),
        (shards(&["east", "west"], &["h"], &[]), [false, false, true, false]),
        // The half that was named, and the whole of which it is.
        (shards(&[], &[], &["east/g/0/2"]), [true, false, false, false]),
        (shards(&[], &[], &["east/g/0/1"]), [true, true, false, false]),
        (shards(&[], &["h"], &["west/g/0/1"]), [false, false, true, true]),
    ] {
        let policies = Policies::read(vec![pause("p", selector.clone())]);
        let all = ["east/g/0/2", "east/g/1/2", "east/h/0/1", "west/g/0/1"];
        let paused = all.map(|name| policies.pause_of(&shard(name)).is_some());
        assert_eq!(paused, expect, "{selector:?}");
    }
}

#[test]
fn a_policy_that_cannot_be_read_or_selects_nothing_is_told_and_undoes_no_other() {
    let odd = PolicyRecord { name: "odd".into(), spec: Err("unknown variant".into()) };
    let policies = Policies::read(vec![
        odd,
        pause("east", shards(&["east"], &[], &[])),
        pause("typo", shards(&["eats"], &[], &[])),
        pause("wrong", shards(&["EAST"], &[], &[])),
    ]);
    let here = [shard("east/g/0/1")];
    assert_eq!(policies.pause_of(&here[0]), Some("east"));
    let problems = policies.problems(here.iter());
    assert_eq!(problems.len(), 3, "{problems:#?}");
    for (name, cause) in [
        ("odd", "unknown variant"),
        ("wrong", "shards.clusters"),
        ("typo", "selects no shard that there is"),
    ] {
        let told = problems.iter().find(|text| text.contains(&format!(".dev {name} ")));
        assert!(told.is_some_and(|text| text.contains(cause)), "{name}: {problems:#?}");
    }
}

#[test]
fn more_policies_than_count_are_told_and_the_first_ones_count() {
    let all = (0..=MAX_POLICIES).map(|n| pause(&format!("p-{n:04}"), None)).collect();
    let policies = Policies::read(all);
    assert_eq!(policies.policies.len(), MAX_POLICIES);
    let problems = policies.problems(std::iter::empty());
    assert!(problems[0].contains("p-0256 does not count: there are more than 256"), "{problems:?}");
}

#[test]
fn of_two_numbers_the_more_precise_counts_or_else_the_last_in_the_alphabet() {
    let rule = |name: &str, select: MemberSelector, capacity, max_shards| {
        let members = Some(MemberRule { select, capacity, max_shards, cordon: None });
        record(name, FleetPolicySpec { members, ..FleetPolicySpec::default() })
    };
    let select = |names_: &[&str], zones: &[&str]| MemberSelector {
        names: names(names_),
        zones: names(zones),
    };
    let policies = Policies::read(vec![
        rule("b", select(&["m-*"], &[]), Some(50), None),
        rule("a", select(&[], &[]), Some(10), Some(7)),
        rule("c", select(&["m-1"], &["far"]), Some(90), None),
        rule("z", select(&[], &["far"]), Some(30), None),
    ]);
    for (identity, zone, capacity) in [
        ("x", None, 10),
        ("x", Some("far"), 30),
        ("m-1", None, 50),
        ("m-1", Some("far"), 90),
        ("m-2", Some("far"), 50),
    ] {
        let terms = policies.terms_of(&member(identity, zone));
        let expect =
            MemberTerms { capacity: Some(capacity), max_shards: Some(7), is_cordoned: false };
        assert_eq!(terms, expect, "{identity} in {zone:?}");
    }
}

#[test]
fn limits_of_moves_are_the_defaults_where_nothing_is_said() {
    let moves = |per_member, in_fleet| FleetPolicySpec {
        moves: Some(MoveLimits { per_member, in_fleet }),
        ..FleetPolicySpec::default()
    };
    let policies = Policies::read(vec![record("a", moves(Some(1), None))]);
    let expect = Limits { moves_per_member: 1, ..Limits::default() };
    assert_eq!(policies.limits(100, 3), expect);
    assert_eq!(Policies::default().limits(100, 3), Limits::default());
    // A large fleet may have more on the way, unless people say how many.
    let of_large = |policies: &Policies| {
        let Limits { moves_per_member, moves_in_fleet, .. } = policies.limits(200_000, 10);
        (moves_per_member, moves_in_fleet)
    };
    assert_eq!(of_large(&Policies::default()), (100, 400));
    assert_eq!(of_large(&policies), (1, 400));
}

#[test]
fn a_member_must_please_all_pins_and_avoidances() {
    let prefer = |names_: &[&str], required| {
        let select = MemberSelector { names: names(names_), zones: Vec::new() };
        Some(MemberPreference { select, required })
    };
    let pin = |name: &str, names: &[&str], required| {
        let pin = prefer(names, required);
        record(name, FleetPolicySpec { pin, ..FleetPolicySpec::default() })
    };
    let avoid = |name: &str, names: &[&str], required| {
        let avoid = prefer(names, required);
        record(name, FleetPolicySpec { avoid, ..FleetPolicySpec::default() })
    };
    let members: BTreeMap<MemberId, MemberSpec> = ["m-0", "m-1", "m-2"]
        .map(|identity| (format!("{identity}-x").parse().unwrap(), member(identity, None)))
        .into();
    for (records, expect) in [
        (vec![pin("a", &["m-1"], false)], [Fit::Unwanted, Fit::Serves, Fit::Unwanted]),
        (vec![pin("a", &["m-1"], true)], [Fit::Lacks, Fit::Serves, Fit::Lacks]),
        (vec![avoid("a", &["m-1", "m-2"], false)], [Fit::Serves, Fit::Unwanted, Fit::Unwanted]),
        (
            vec![pin("a", &["m-*"], true), avoid("b", &["m-0"], true), avoid("c", &["m-1"], false)],
            [Fit::Lacks, Fit::Unwanted, Fit::Serves],
        ),
    ] {
        let policies = Policies::read(records);
        let mut placing = policies.placing(members.iter());
        let preferences = placing.of(&shard("east/g/0/1")).unwrap();
        let fits: Vec<Fit> =
            members.keys().map(|id| preferences.get(id).copied().unwrap_or(Fit::Serves)).collect();
        assert_eq!(fits, expect, "{policies:?}");
        let again = placing.of(&shard("west/g/0/1")).unwrap();
        assert!(Arc::ptr_eq(&preferences, &again), "shards under the same policies share it");
    }
    assert!(Policies::default().placing(members.iter()).of(&shard("east/g/0/1")).is_none());
}
