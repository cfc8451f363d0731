//! The figures, and the forms of the answer.

use super::scenario::{Load, Shape};
use super::*;

fn shape(members: u16, clusters: u16, groups: u16, load: Load) -> Shape {
    Shape { members, clusters, groups, load }
}

fn simulate(shape: &Shape, change: Change) -> Report {
    play(Scenario::invent(shape, 1), change, 1).unwrap()
}

#[test]
fn a_leave_moves_only_the_leavers_shards() {
    let report = simulate(&shape(10, 100, 1, Load::Uniform), Change::Leave(1));
    assert_eq!((report.counts.moves, report.counts.excess), (10, 0));
    assert!(report.after.max_over_mean <= 1.1, "{report}");
}

#[test]
fn a_join_moves_only_onto_the_newcomer_and_no_more_than_its_share() {
    let report = simulate(&shape(9, 100, 1, Load::Uniform), Change::Join(1));
    assert_eq!((report.after.members, report.counts.excess), (10, 0));
    assert!((1..=10).contains(&report.counts.moves), "{report}");
}

#[test]
fn a_hundred_units_on_ten_members_are_even() {
    let report = simulate(&shape(10, 100, 1, Load::Uniform), Change::Nothing);
    assert!(report.after.max_over_mean <= 1.1, "{report}");
}

#[test]
fn the_text_and_the_json() {
    let report = simulate(&shape(10, 100, 1, Load::Uniform), Change::Leave(1));
    insta::assert_snapshot!(report, @r"
    fleet: invented, uniform load, seed 1
    event: a member leaves

                      BEFORE   AFTER
    members               10       9
    clusters             100     100
    shards               100     100
    cache copies         100     100
    max/mean load      1.000   1.080

    moves: 10, of them 0 beyond the leavers' and the newcomers'
    splits: 0, merges: 0
    ");
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap(), @r#"
    {
      "fleet": "invented, uniform load, seed 1",
      "seed": 1,
      "leave": 1,
      "join": 0,
      "before": {
        "members": 10,
        "clusters": 100,
        "shards": 100,
        "maxOverMean": 1.0,
        "caches": 100
      },
      "after": {
        "members": 9,
        "clusters": 100,
        "shards": 100,
        "maxOverMean": 1.08,
        "caches": 100
      },
      "moves": 10,
      "excess": 0,
      "splits": 0,
      "merges": 0
    }
    "#);
}

#[test]
fn somebody_must_stay() {
    let scenario = Scenario::invent(&shape(2, 1, 1, Load::Uniform), 1);
    let error = play(scenario, Change::Leave(2), 1).unwrap_err();
    assert_eq!(error.to_string(), "2 members cannot leave: the fleet has 2, and one must stay");
    let nobody = play(Scenario::default(), Change::Nothing, 1).unwrap_err();
    assert_eq!(nobody, fleet::Error::NoMembers);
}
