//! What policies say of shards and members.

use super::*;
use crate::api::{MemberRule, MoveLimits, ShardSelector};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn shards(clusters: &[&str], groups: &[&str], named: &[&str]) -> Option<ShardSelector> {
    let (clusters, groups, names) = (names(clusters), names(groups), names(named));
    Some(ShardSelector { clusters, groups, names })
}

fn record(name: &str, spec: FleetPolicySpec) -> PolicyRecord {
    PolicyRecord::new(name, spec)
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
    let cause = "unknown variant".to_owned();
    let odd = PolicyRecord {
        spec: Err(Unread { cause, pause: None }),
        ..record("odd", FleetPolicySpec::default())
    };
    let policies = Policies::read(vec![
        odd,
        pause("east", shards(&["east"], &[], &[])),
        pause("typo", shards(&["eats"], &[], &[])),
        pause("wrong", shards(&["EAST"], &[], &[])),
    ]);
    let here = [shard("east/g/0/1")];
    assert_eq!(policies.pause_of(&here[0]), Some("east"));
    let problems = policies.problems(here.iter());
    assert_eq!(problems.len(), 4, "{problems:#?}");
    for (name, cause) in [
        ("odd", "unknown variant"),
        ("wrong", "shards.clusters"),
        ("typo", "selects no shard that there is"),
    ] {
        let told = problems.iter().find(|text| text.contains(&format!(".dev {name} ")));
        assert!(told.is_some_and(|text| text.contains(cause)), "{name}: {problems:#?}");
    }
}

/// What was paused stays so when somebody adds a name that no cluster can have.
#[test]
fn a_name_that_cannot_be_selects_nothing_and_undoes_nothing() {
    for (selector, paused) in [
        (shards(&["east", "WEST"], &[], &[]), true),
        (shards(&["east"], &["g", "G/2"], &[]), true),
        (shards(&[], &["g", "G/2"], &[]), true),
        (shards(&[], &[], &["east/g/0/1", "east/g/7/1"]), true),
        // It must not select more than before either.
        (shards(&["WEST"], &["g"], &[]), false),
        (shards(&["east"], &["G/2"], &[]), false),
        (shards(&["WEST"], &[], &[]), false),
    ] {
        let policies = Policies::read(vec![pause("p", selector.clone())]);
        let here = [shard("east/g/0/1"), shard("west/h/0/1")];
        assert_eq!(policies.pause_of(&here[0]).is_some(), paused, "{selector:?}");
        assert_eq!(policies.pause_of(&here[1]), None, "{selector:?}");
        let problems = policies.problems(here.iter());
        let told = problems.iter().filter(|text| text.contains("selects nothing by")).count();
        assert_eq!(told, 1, "{selector:?}: {problems:#?}");
    }
}

/// Whoever misspells one of several clusters must not believe that it is paused.
#[test]
fn a_name_of_which_there_is_nothing_is_told_although_others_select_something() {
    let here = [shard("east/g/0/2"), shard("east/g/1/2"), shard("west/h/0/1")];
    for (selector, expect) in [
        (shards(&["east", "wset"], &[], &[]), Some("the cluster wset, of which")),
        (shards(&["east", "west"], &["g", "hh"], &[]), Some("the controller group hh, of which")),
        (shards(&["east"], &[], &["west/g/0/1"]), Some("the shard west/g/0/1, of which")),
        (shards(&["east", "west"], &["g", "h"], &["west/h/1/2"]), None),
        (shards(&[], &[], &["east/g/0/1", "east/g/1/4"]), None),
        // It is told once, and that it is no name.
        (shards(&["east", "WEST"], &[], &[]), Some("selects nothing by 1 of its names")),
        (shards(&["wset"], &[], &[]), Some("selects no shard that there is; fix: ")),
        (None, None),
    ] {
        let policies = Policies::read(vec![pause("p", selector.clone())]);
        let problems = policies.problems(here.iter());
        assert_eq!(problems.len(), usize::from(expect.is_some()), "{selector:?}: {problems:?}");
        let told = problems.iter().zip(expect).all(|(problem, expect)| problem.contains(expect));
        assert!(told, "{selector:?}: {problems:?}");
    }
}

#[test]
fn policies_that_do_not_count_are_not_all_that_there_are() {
    let many =
        |count: usize| -> Vec<_> { (0..count).map(|n| pause(&format!("p{n:03}"), None)).collect() };
    let odd = object(serde_json::json!({"pause": "yes"}));
    for (records, may_lack) in
        [(many(MAX_POLICIES), false), (many(MAX_POLICIES + 1), true), (vec![odd], true)]
    {
        let count = records.len();
        assert_eq!(Policies::read(records).may_lack(), may_lack, "{count}");
    }
}

fn object(spec: serde_json::Value) -> PolicyRecord {
    let object = serde_json::json!({"metadata": {"name": "p"}, "spec": spec});
    PolicyRecord::of(&serde_json::from_value(object).unwrap())
}

/// Whoever edits a pause so that nobody can read it does not end it, also if a replica begins meanwhile.
#[test]
fn what_cannot_be_read_holds_as_it_was_and_a_pause_is_a_pause() {
    let told = |policies: &Policies, what: &str| {
        let problems = policies.problems([shard("east/g/0/1")].iter());
        assert!(problems.iter().any(|text| text.contains(what)), "{problems:#?}");
    };
    let east = shards(&["east"], &[], &[]);
    let odd = |shards: serde_json::Value, pause: serde_json::Value| {
        object(serde_json::json!({"shards": shards, "pause": pause, "busy": "much"}))
    };
    let paused = |policies: &Policies| {
        ["east/g/0/1", "west/g/0/1"].map(|name| policies.pause_of(&shard(name)).is_some())
    };
    let of_east = serde_json::json!({"clusters": ["east"]});
    for (spec, before, now, what) in [
        (odd(of_east.clone(), true.into()), [true, false], [true, false], "as a pause of what it"),
        (odd(of_east.clone(), "yes".into()), [true, false], [true, false], "as a pause of what it"),
        (odd("east".into(), true.into()), [true, false], [true, true], "as a pause of all shards"),
        (odd(of_east, false.into()), [true, false], [false, false], "does not count"),
    ] {
        let read = Policies::read(vec![pause("p", east.clone())]);
        let again = read.read_again(vec![spec.clone()]);
        assert_eq!(paused(&again), before, "{spec:?}");
        told(&again, "p holds as it was before, because it cannot be read: ");
        assert_eq!(paused(&again.read_again(vec![spec.clone()])), before, "{spec:?}");
        let first = Policies::read(vec![spec.clone()]);
        assert_eq!(paused(&first), now, "{spec:?}");
        told(&first, what);
        // Whoever deletes it ends it.
        assert_eq!(paused(&again.read_again(Vec::new())), [false, false]);
    }
}

/// Whoever restores home from an older backup does not end a pause.
#[test]
fn a_pause_that_home_forgets_holds_until_it_is_written_again() {
    let east = || pause("p", shards(&["east"], &[], &[]));
    let pin = record("q", FleetPolicySpec { busy: Some(5), ..FleetPolicySpec::default() });
    let paused = |policies: &Policies| policies.pause_of(&shard("east/g/0/1")).is_some();
    let mut read = Policies::read(vec![east(), pin]);
    read.outlive_history();
    // Several times, and over another change.
    for _ in 0..2 {
        read = read.read_again(Vec::new());
        assert!(paused(&read));
        assert_eq!(read.busy_of(&shard("east/g/0/1")), None, "only pauses hold");
        let told: Vec<String> = read.missed().collect();
        assert!(told[0].contains("p was lost when the home cluster was restored"), "{told:?}");
        read.outlive_history();
    }
    let written = read.read_again(vec![east()]);
    assert!(paused(&written) && written.missed().next().is_none());
    assert!(!paused(&written.read_again(Vec::new())), "whoever deletes it ends it");
}

/// A backup has an earlier version of the policy.
#[test]
fn a_policy_that_a_restore_brings_back_is_not_written_again() {
    let night = |clusters: &[&str], version: u64| {
        let resource = version.to_string();
        let version = ObjectVersion { uid: "u".into(), resource };
        PolicyRecord { version, ..pause("night", shards(clusters, &[], &[])) }
    };
    let paused = |policies: &Policies| {
        ["east/g/0/1", "west/g/0/1"].map(|name| policies.pause_of(&shard(name)).is_some())
    };
    let restored = || {
        let mut read = Policies::read(vec![night(&["east", "west"], 9)]);
        read.outlive_history();
        read.read_again(vec![night(&["east"], 5)])
    };
    let read = restored().read_again(vec![night(&["east"], 5)]);
    assert_eq!((paused(&read), read.missed().count()), ([true, true], 1));
    // Whoever writes it means it, and whoever deletes it does not know of what home forgot.
    let written = read.read_again(vec![night(&["east"], 12)]);
    assert_eq!((paused(&written), written.missed().count()), ([true, false], 0));
    assert_eq!(paused(&read.read_again(Vec::new())), [true, true]);
    // The same is no loss.
    let mut read = Policies::read(vec![night(&["east"], 9)]);
    read.outlive_history();
    let same = read.read_again(vec![night(&["east"], 5)]);
    assert_eq!((paused(&same), same.missed().count()), ([true, false], 0));
    assert_eq!(paused(&same.read_again(Vec::new())), [false, false]);
}

#[test]
fn more_policies_than_count_are_told_and_the_first_ones_count() {
    let all = (0..=MAX_POLICIES).map(|n| pause(&format!("p-{n:04}"), None)).collect();
    let policies = Policies::read(all);
    assert_eq!(policies.policies.len(), MAX_POLICIES);
    let problems = policies.problems(std::iter::empty());
    assert!(problems[0].contains("p-0256 does not count: there are more than 256"), "{problems:?}");
}

/// Whoever writes more policies than count, under whatever names, does not end a pause.
#[test]
fn a_pause_counts_before_what_is_no_pause() {
    let weigh = |n: usize| FleetPolicySpec {
        shards: shards(&["west"], &[], &[]),
        busy: u32::try_from(n).ok(),
        ..FleetPolicySpec::default()
    };
    let weights = (0..=MAX_POLICIES).map(|n| record(&format!("a-{n:04}"), weigh(n)));
    let mut all: Vec<PolicyRecord> = weights.collect();
    all.push(pause("z", shards(&["east"], &[], &[])));
    all.push(PolicyRecord { name: "zz".to_owned(), ..object(serde_json::json!({"pause": "yes"})) });
    let policies = Policies::read(all);
    assert_eq!(policies.pause_of(&shard("east/g/0/1")), Some("z"));
    assert_eq!(policies.pause_of(&shard("west/g/0/1")), Some("zz"));
    assert_eq!(policies.policies.len(), MAX_POLICIES);
    assert!(policies.may_lack());
    let problems: Vec<&String> = policies.unfit().collect();
    for (problem, name) in problems.iter().zip(["a-0254", "a-0255", "a-0256"]) {
        let expect = format!("{name} does not count: there are more than 256");
        assert!(problem.contains(&expect), "{problems:?}");
    }
}

#[test]
fn what_no_member_can_be_called_is_told() {
    let policies = |names_: &[&str], zones: &[&str]| {
        let select = MemberSelector { names: names(names_), zones: names(zones) };
        let pin = Some(MemberPreference { select: select.clone(), required: false });
        let members = Some(MemberRule { select, cordon: Some(true), ..MemberRule::default() });
        let spec = FleetPolicySpec { pin, members, ..FleetPolicySpec::default() };
        Policies::read(vec![record("p", spec)])
    };
    for (names, zones) in
        [(&["m-0", "m-*", "*"][..], &["eu-1a"][..]), (&[], &["eu"]), (&["a.b-c"], &[])]
    {
        assert_eq!(policies(names, zones).unfit().count(), 0, "{names:?} {zones:?}");
    }
    for (names, zones, text) in [
        (&["m-0", "m-*-0"][..], &[][..], "have the name \"m-*-0\""),
        (&["m-?*"], &[], "have the name \"m-?*\""),
        (&["M-0"], &["eu*"], "have the name \"M-0\""),
        (&["m-0"], &["eu", "eu*"], "be in the zone \"eu*\""),
        (&[], &["^eu"], "be in the zone \"^eu\""),
    ] {
        let policies = policies(names, zones);
        let told: Vec<&String> = policies.unfit().collect();
        assert_eq!(told.len(), 2, "of the pin and of the rule: {told:?}");
        assert!(told.iter().all(|problem| problem.contains(text)), "{text}: {told:?}");
    }
}

#[test]
fn that_no_shard_moves_is_said_by_the_policy_that_counts() {
    let moves = |name: &str, per_member, in_fleet| {
        let moves = Some(MoveLimits { per_member, in_fleet });
        record(name, FleetPolicySpec { moves, ..FleetPolicySpec::default() })
    };
    for (records, expect) in [
        (vec![], None),
        (vec![moves("a", Some(1), None)], None),
        (vec![moves("a", Some(0), None)], Some("a")),
        (vec![moves("a", Some(0), Some(9)), moves("b", Some(1), None)], None),
        (vec![moves("a", None, Some(0)), moves("b", Some(1), None)], Some("a")),
    ] {
        let policies = Policies::read(records);
        assert_eq!(policies.halted_by(), expect, "{policies:?}");
        let Limits { moves_per_member, moves_in_fleet, .. } = policies.limits(100, 3);
        assert_eq!(moves_per_member == 0 || moves_in_fleet == 0, expect.is_some());
    }
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
        rule("a-m-3", select(&["m-3"], &[]), Some(70), None),
        rule("c", select(&["m-1"], &["far"]), Some(90), None),
        rule("z", select(&[], &["far"]), Some(30), None),
    ]);
    for (identity, zone, capacity) in [
        ("x", None, 10),
        ("x", Some("far"), 30),
        ("m-1", None, 50),
        ("m-1", Some("far"), 90),
        ("m-2", Some("far"), 50),
        // By its whole name, although the policy for all that begin so comes later.
        ("m-3", None, 70),
        ("m-3", Some("far"), 70),
        ("m-31", None, 50),
    ] {
        let member = member(identity, zone);
        assert_eq!(policies.capacity_of(&member), capacity, "{identity} in {zone:?}");
        let terms = policies.terms_of(&member);
        let expect =
            MemberTerms { capacity: Some(capacity), max_shards: Some(7), is_cordoned: false };
        assert_eq!(terms, expect, "{identity} in {zone:?}");
    }
}

#[test]
fn the_policy_that_cordons_a_member_is_the_one_whose_word_counts() {
    let rule = |name: &str, identities: &[&str], cordon| {
        let select = MemberSelector { names: names(identities), zones: Vec::new() };
        let members = Some(MemberRule { select, cordon, ..MemberRule::default() });
        record(name, FleetPolicySpec { members, ..FleetPolicySpec::default() })
    };
    let policies = Policies::read(vec![
        rule("a", &[], Some(true)),
        rule("b", &[], None),
        rule("c", &["m-1", "m-2"], Some(true)),
        rule("d", &["m-2"], Some(false)),
    ]);
    for (identity, expect) in [("m-0", Some("a")), ("m-1", Some("c")), ("m-2", None)] {
        let member = member(identity, None);
        assert_eq!(policies.cordon_of(&member), expect, "{identity}");
        assert_eq!(policies.terms_of(&member).is_cordoned, expect.is_some(), "{identity}");
    }
}

#[test]
fn the_policy_by_which_a_member_gets_no_more_is_named() {
    let rule = |name: &str, identities: &[&str], max_shards, cordon| {
        let select = MemberSelector { names: names(identities), zones: Vec::new() };
        let members = Some(MemberRule { select, max_shards, cordon, capacity: None });
        record(name, FleetPolicySpec { members, ..FleetPolicySpec::default() })
    };
    let policies = Policies::read(vec![
        rule("all", &[], Some(3), None),
        rule("one", &["m-1"], Some(5), None),
        rule("out", &["m-2"], None, Some(true)),
    ]);
    for (identity, has, expect) in [
        ("m-0", 2, None),
        ("m-0", 3, Some("all")),
        ("m-1", 4, None),
        ("m-1", 6, Some("one")),
        ("m-2", 0, Some("out")),
    ] {
        assert_eq!(policies.closing(&member(identity, None), has), expect, "{identity}: {has}");
    }
    assert_eq!(Policies::default().closing(&member("m-0", None), 1_000), None);
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
        (
            vec![pin("a", &["m-9"], true), avoid("b", &["m-0"], true), pin("c", &["m-1"], false)],
            [Fit::Lacks, Fit::Lacks, Fit::Lacks],
        ),
    ] {
        let policies = Policies::read(records);
        let mut placing = policies.placing(members.iter());
        let preferences = placing.of(&shard("east/g/0/1")).unwrap();
        let fits: Vec<Fit> =
            members.keys().map(|id| preferences.get(id).copied().unwrap_or(Fit::Serves)).collect();
        assert_eq!(fits, expect, "{policies:?}");
        let all_out = expect.iter().all(|fit| *fit == Fit::Lacks);
        let open: Vec<_> = members.values().map(|spec| (spec, None)).collect();
        let by = policies.ruling_out(&shard("east/g/0/1"), &open);
        assert_eq!(by, if all_out { vec!["a", "b"] } else { Vec::new() });
        let again = placing.of(&shard("west/g/0/1")).unwrap();
        assert!(Arc::ptr_eq(&preferences, &again), "shards under the same policies share it");
    }
    assert!(Policies::default().placing(members.iter()).of(&shard("east/g/0/1")).is_none());
}
