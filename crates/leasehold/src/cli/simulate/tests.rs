//! The figures of a simulation, and the forms of its report.

use model::{ClusterName, Epoch};
use sharding::api::ConfiguredClusters;
use sharding::handover::Entry;
use sharding::record::MapRecord;

use super::report::{Counts, Standing};
use super::scenario::{Load, Shape};
use super::*;

fn shape(members: u16, clusters: u16, groups: u16, load: Load) -> Shape {
    Shape { members, clusters, groups, load }
}

fn simulate(shape: &Shape, change: Change) -> Report {
    play(Scenario::invent(shape, 1), change, Vec::new(), 1).unwrap()
}

#[test]
fn a_join_moves_only_onto_the_newcomer_and_no_more_than_its_share() {
    let report = simulate(&shape(9, 100, 1, Load::Uniform), Change::Join(1));
    assert_eq!((report.after.members, report.counts.excess), (10, 0));
    assert!((1..=10).contains(&report.counts.moves), "{report}");
}

#[test]
fn a_hot_cluster_is_divided_into_ranges() {
    let report = simulate(&shape(5, 20, 1, Load::OneHot), Change::Nothing);
    assert!(report.after.max_over_mean <= 1.15, "{report}");
    assert!(report.after.shards > 20, "{report}");
}

/// What the laws say, over fleets of all sorts: whichever member changes, none ends with much more than
/// the mean, and shards move for others than leavers and newcomers only where that was needed.
#[test]
fn fleets_of_all_sorts_stay_even() {
    let shapes = [3, 5, 10].into_iter().flat_map(|members| {
        let of = move |clusters, load| shape(members, clusters, 1, load);
        let sorts = [Load::Uniform, Load::Zipf, Load::OneHot];
        sorts.into_iter().flat_map(move |load| [of(10, load), of(100, load)])
    });
    for shape in shapes {
        for change in [Change::Join(1), Change::Join(2), Change::Leave(1), Change::Leave(2)] {
            let report = simulate(&shape, change);
            let even = |standing: Standing| standing.max_over_mean <= 1.15;
            assert!(even(report.before) && even(report.after), "{shape:?}\n{report}");
            assert_eq!(report.counts.merges, 0, "{shape:?}\n{report}");
            assert!(report.settled_after_seconds <= 300, "{shape:?}\n{report}");
        }
    }
}

#[test]
fn of_many_clusters_of_all_sizes_a_leave_moves_hardly_any_but_the_leavers() {
    for members in [5, 10] {
        let report = simulate(&shape(members, 100, 1, Load::Zipf), Change::Leave(1));
        let Counts { moves, excess, .. } = report.counts;
        assert!(excess * 2 <= moves, "{report}");
    }
}

#[test]
fn arguments_that_do_not_go_together_are_refused_with_a_remedy() {
    use clap::Parser as _;
    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: SimulateArgs,
    }
    let refused = |line: &str| -> String {
        let words = std::iter::once("simulate").chain(line.split_whitespace());
        match Line::try_parse_from(words) {
            Ok(line) => line.args.check().unwrap_err().to_string(),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        }
    };
    for (line, expect) in [
        (
            "--leave 1 --join 2",
            "--leave 1 and --join 2 are two events; fix: simulate one at a time",
        ),
        (
            "--members 3 --namespace ours",
            "--namespace ours is of a live fleet, and this one is invented; fix: add --from-live KUBECONFIG or --config FILE, or leave --namespace out",
        ),
        (
            "--members 0",
            "error: invalid value '0' for '--members <N>': give a whole number from 1 to 1000",
        ),
        (
            "--leave none",
            "error: invalid value 'none' for '--leave <N>': give a whole number from 1 to 999",
        ),
        ("--load spiky", "error: invalid value 'spiky' for '--load <LOAD>'"),
        (
            "--from-live home --members 3",
            "error: the argument '--from-live <KUBECONFIG>' cannot be used with '--members <N>'",
        ),
    ] {
        assert_eq!(refused(line), expect, "{line}");
    }
}

#[test]
fn the_text_and_the_json() {
    let report = simulate(&shape(10, 100, 1, Load::Uniform), Change::Leave(1));
    insta::assert_snapshot!(report, @r"
    fleet: invented, uniform load, seed 1
    event: 1 member leaves

                        BEFORE   AFTER
    members                 10       9
    clusters               100     100
    shards                 100     100
      without an owner       0       0
    cache copies           100     100
    max/mean load        1.000   1.080

    moves                         10
      of members that left        10
      to relieve the overloaded    0
    splits                         0
    merges                         0
    seconds until settled         10
    ");
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap(), @r#"
    {
      "fleet": "invented, uniform load, seed 1",
      "seed": 1,
      "leave": 1,
      "join": 0,
      "policies": 0,
      "before": {
        "members": 10,
        "clusters": 100,
        "shards": 100,
        "unowned": 0,
        "maxOverMean": 1.0,
        "caches": 100
      },
      "after": {
        "members": 9,
        "clusters": 100,
        "shards": 100,
        "unowned": 0,
        "maxOverMean": 1.08,
        "caches": 100
      },
      "moves": 10,
      "excess": 0,
      "splits": 0,
      "merges": 0,
      "settledAfterSeconds": 10
    }
    "#);
}

#[test]
fn somebody_must_stay() {
    let scenario = Scenario::invent(&shape(2, 1, 1, Load::Uniform), 1);
    let error = play(scenario, Change::Leave(2), Vec::new(), 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2 members cannot leave: the fleet has 2, and one must stay; fix: --leave 1 at most, or more --members"
    );
    let nobody = play(Scenario::default(), Change::Nothing, Vec::new(), 1).unwrap_err();
    assert_eq!(nobody, fleet::SimulationError::NoMembers);
}

/// What only some members have configured moves to nobody else, and the coordinator is the fleet's.
#[test]
fn members_with_different_clusters_keep_what_only_they_have() {
    let all: Vec<ClusterName> = (1..7).map(|n| format!("c{n}").parse().unwrap()).collect();
    // The digests as such members say them.
    let says = |number: u16, clusters: &[ClusterName], digest: &str| {
        let mut member = scenario::member(number, &["g".parse().unwrap()]);
        let (only, digest) = (clusters.to_vec().into(), digest.to_owned());
        let count = clusters.len().try_into().unwrap();
        let said = ConfiguredClusters { count, digest, only, ..ConfiguredClusters::default() };
        member.spec.clusters = Some(said);
        member
    };
    let members = vec![says(1, &all[..1], "3dad38d96cd8adb9"), says(2, &all, "331e1b8af10fddb8")];
    let maps = || {
        let owner = members[1].id.clone();
        all.iter().map(move |cluster| {
            let mut map = MapRecord::new(cluster.clone());
            let entry = Entry::Owned { owner: owner.clone(), epoch: Epoch(1) };
            map.entries_mut().insert("g/0/1".parse().unwrap(), entry);
            map
        })
    };
    for coordinator in [None, Some(members[1].id.clone())] {
        let (maps, members) = (maps().collect(), members.clone());
        let scenario = Scenario { members, maps, coordinator, ..Scenario::default() };
        let mut fleet = Fleet::new(scenario);
        let next = fleet.next().unwrap();
        assert!(next.iter().all(|line| line.starts_with("c1/")), "{next:?}");
        fleet.settle().unwrap();
        assert_eq!(fleet.standing().unowned, 0);
        let lost = fleet.problems();
        assert!(lost.is_empty(), "{lost:?}");
    }
}

/// The coordinator knows by now which shards are idle.
#[test]
fn halves_that_are_idle_are_about_to_be_merged() {
    let member = scenario::member(1, &["g".parse().unwrap()]);
    let mut map = MapRecord::new("c1".parse().unwrap());
    for half in ["g/0/2", "g/1/2"] {
        let entry = Entry::Owned { owner: member.id.clone(), epoch: Epoch(1) };
        map.entries_mut().insert(half.parse().unwrap(), entry);
    }
    let scenario = Scenario { members: vec![member], maps: vec![map], ..Scenario::default() };
    let next = Fleet::new(scenario).next().unwrap();
    let merged = |half| format!("c1/g/{half}/2: member-1 drains for itself: it was merged");
    assert_eq!(next, [merged(0), merged(1)]);
}

/// Nobody runs what people have removed: its shards go, and then are no more.
#[test]
fn shards_of_a_group_that_nobody_runs_are_about_to_go() {
    let member = scenario::member(1, &["g".parse().unwrap()]);
    let mut map = MapRecord::new("c1".parse().unwrap());
    let owner = member.id.clone();
    for (path, entry) in [
        ("g/0/1", Entry::Owned { owner: owner.clone(), epoch: Epoch(1) }),
        ("h/0/1", Entry::Unowned { epoch: Epoch(1) }),
        ("i/0/1", Entry::Owned { owner, epoch: Epoch(1) }),
    ] {
        map.entries_mut().insert(path.parse().unwrap(), entry);
    }
    let scenario = Scenario { members: vec![member], maps: vec![map], ..Scenario::default() };
    let next = Fleet::new(scenario).next().unwrap();
    let drains = "c1/i/0/1: member-1 drains for nobody: nobody runs its group or has its cluster";
    assert_eq!(next, [drains, "c1/h/0/1: is no more"]);
}

/// What policies of this spec do to a fleet of three members and six clusters.
fn under(spec: &str) -> Report {
    let text = format!(
        "apiVersion: leasehold.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {{name: p}}\nspec: {spec}\n"
    );
    let policies = policies::parse(&text, None).unwrap();
    let scenario = Scenario::invent(&shape(3, 6, 1, Load::Uniform), 1);
    play(scenario, Change::Nothing, policies, 1).unwrap()
}

#[test]
fn shards_that_a_policy_leaves_without_an_owner_are_counted() {
    for spec in ["{pause: true}", "{pin: {required: true, zones: [nowhere]}}"] {
        let report = under(spec);
        assert_eq!((report.before.unowned, report.after.unowned), (0, 6), "{spec}\n{report}");
        assert_eq!((report.after.shards, report.after.caches), (6, 0), "{spec}\n{report}");
        assert!(report.to_string().contains("  without an owner       0       6\n"), "{report}");
        assert!(report.to_string().contains("event: people write 1 FleetPolicy\n"), "{report}");
    }
    let some = under("{pause: true, shards: {clusters: [cluster-0, cluster-1]}}");
    assert_eq!(some.after.unowned, 2, "{some}");
}

#[test]
fn what_the_coordinator_finds_wrong_with_a_policy_is_told() {
    let report = under("{pause: true, shards: {clusters: [elsewhere]}}");
    assert_eq!(report.after.unowned, 0);
    let expect = "fleetpolicies.leasehold.dev p selects no shard that there is";
    assert!(report.problems.iter().any(|problem| problem.starts_with(expect)), "{report:?}");
}
