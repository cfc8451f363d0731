//! Laws about what shards weigh.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::api::ShardLoad;

fn id(name: &str) -> MemberId {
    name.parse().unwrap()
}

fn at(s: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(s))
}

fn load(shard: &str, busy: u32) -> ShardLoad {
    ShardLoad {
        shard: shard.parse().unwrap(),
        busy,
        heaviest: Some(0),
        events: 0,
        cached: 0,
        waiting: 0,
    }
}

/// Weighs shards, given as `shard owner` with `-` for none, by what members report.
fn weigh(
    history: &mut LoadHistory,
    shards: &[&str],
    reported: &[(&str, &[ShardLoad])],
    s: u64,
) -> String {
    let owners: Vec<Option<MemberId>> =
        shards.iter().map(|text| text.split_once(' ').unwrap().1.parse().ok()).collect();
    let owned = shards.iter().zip(&owners).map(|(text, owner)| OwnedShard {
        shard: text.split_once(' ').unwrap().0.parse().unwrap(),
        owner: owner.as_ref(),
        can_report: owner
            .as_ref()
            .is_some_and(|owner| reported.iter().any(|t| t.0 == owner.as_str())),
    });
    let members: Vec<MemberId> = reported.iter().map(|(member, _)| id(member)).collect();
    let reported = members
        .iter()
        .zip(reported)
        .map(|(member, (_, shards))| (member, Reported { shards, ..Reported::default() }))
        .collect();
    let points = history.weigh(&owned.collect::<Vec<_>>(), &reported, at(s));
    let texts: Vec<_> = points.iter().map(|points| points.all.to_string()).collect();
    texts.join(" ")
}

const TWO: [&str; 2] = ["c0/g/0/1 a", "c1/g/0/1 b"];

#[test]
fn without_reports_all_weigh_alike() {
    assert_eq!(weigh(&mut LoadHistory::default(), &TWO, &[("a", &[]), ("b", &[])], 0), "0 0");
}

#[test]
fn work_events_and_cache_add_up() {
    let all = ShardLoad { events: 40_000, cached: 24 * 1024, ..load("c0/g/0/1", 20) };
    assert_eq!(weigh(&mut LoadHistory::default(), &TWO, &[("a", &[all])], 0), "256 0");
}

#[test]
fn only_four_binary_digits_count() {
    for (points, expect) in
        [(0, 0), (15, 15), (16, 16), (17, 18), (100, 104), (1_000, 1_024), (1_100, 1_152)]
    {
        assert_eq!(rounded(points), expect, "{points}");
    }
}

#[test]
fn what_waits_counts_until_nobody_reports_it_and_hides_no_load_that_is_forgotten_later() {
    let mut history = LoadHistory::default();
    let waits = [ShardLoad { waiting: 80, ..load("c0/g/0/1", 80) }];
    assert_eq!(weigh(&mut history, &TWO, &[("a", &waits), ("b", &[])], 0), "1664 0");
    assert_eq!(weigh(&mut history, &TWO, &[("a", &[]), ("b", &[])], 59), "1664 0");
    assert_eq!(history.forgets(at(59)), Some(at(0) + QUIET));
    assert_eq!(weigh(&mut history, &TWO, &[("a", &[]), ("b", &[])], 100), "832 0");
    assert_eq!(history.forgets(at(100)), Some(at(100) + MEMORY));
}

#[test]
fn a_shard_keeps_its_load_until_its_next_owner_has_measured() {
    let mut history = LoadHistory::default();
    let (from_a, from_b) = ([load("c0/g/0/1", 80)], [load("c0/g/0/1", 40)]);
    let moved = ["c0/g/0/1 b"];
    assert_eq!(weigh(&mut history, &["c0/g/0/1 a"], &[("a", &from_a)], 0), "832");
    assert_eq!(weigh(&mut history, &moved, &[("a", &[]), ("b", &[])], 100), "832");
    assert_eq!(history.forgets(at(100)), Some(at(100) + MEMORY));
    let mut anew = history.clone();
    assert_eq!(weigh(&mut history, &moved, &[("b", &[])], 219), "832");
    assert_eq!(weigh(&mut history, &moved, &[("b", &[])], 220), "0", "it seems idle");
    assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 130), "832", "the peak");
    assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 599), "832");
    assert_eq!(weigh(&mut anew, &moved, &[("b", &from_b)], 600), "416");
}

#[test]
fn nothing_is_forgotten_while_nobody_is_alive_to_report_it() {
    let mut history = LoadHistory::default();
    let loads = [load("c0/g/0/1", 80)];
    assert_eq!(weigh(&mut history, &["c0/g/0/1 a"], &[("a", &loads)], 0), "832");
    // The home cluster is away for an hour; then all members join again.
    for s in [1, 1_800, 3_600] {
        assert_eq!(weigh(&mut history, &["c0/g/0/1 a"], &[], s), "832");
        assert_eq!(weigh(&mut history, &["c0/g/0/1 -"], &[], s), "832");
    }
    assert_eq!(weigh(&mut history, &["c0/g/0/1 b"], &[("b", &[])], 3_700), "832");
    assert_eq!(weigh(&mut history, &["c0/g/0/1 b"], &[("b", &[])], 3_820), "0");
}

#[test]
fn a_new_coordinator_uses_reports_of_the_dead_in_proportion() {
    let (of_a, of_b) = ([load("c0/g/0/1", 600), load("c1/g/0/1", 200)], [load("c2/g/0/1", 800)]);
    let shards = ["c0/g/0/1 x", "c1/g/0/1 x", "c2/g/0/1 y"];
    let reported: [(&str, &[ShardLoad]); 4] = [("a", &of_a), ("b", &of_b), ("x", &[]), ("y", &[])];
    // No live member has reported anything: the median member carries its one shard.
    assert_eq!(weigh(&mut LoadHistory::default(), &shards, &reported, 0), "1152 416 1664");
}

#[test]
fn small_loads_weigh_nothing_and_high_ones_count_in_full() {
    let check = |points: &[u32], expect: &[u32]| {
        let divisible = |&all: &u32| Points { all, divisible: all, waited: false };
        let points: Vec<Points> = points.iter().map(divisible).collect();
        let weights = weights(&points, 2);
        assert_eq!(weights.iter().map(|weight| weight.all).collect::<Vec<_>>(), expect);
        assert!(weights.iter().all(|weight| weight.divisible == weight.all - BASE));
    };
    check(&[], &[]);
    check(&[0, 0], &[100, 100]);
    check(&[1_000, 900], &[100, 100]);
    check(&[1_500, 500], &[850, 350]);
    check(&[300_000, 1_000], &[300_100, 1_100]);
    check(&[u32::MAX - BASE, 0], &[u32::MAX, 100]);
    // One heavy shard of a thousand counts, and so do many light ones together.
    check(&[250; 16], &[350; 16]);
    check(&[100; 16], &[100; 16]);
}

#[test]
fn loads_that_may_be_the_same_count_alike_if_nearly_all_are_such() {
    let half = |&all: &u32| Points { all, divisible: all / 2, waited: false };
    let of = |loads: &[u32], range: Range| -> Vec<Points> {
        let points: Vec<Points> = loads.iter().map(half).collect();
        levelled(&points, std::iter::repeat(range))
    };
    let check = |loads: &[u32], expect: &[u32]| {
        let loads = of(loads, Range::WHOLE);
        assert_eq!(loads.iter().map(|points| points.all).collect::<Vec<_>>(), expect);
    };
    check(&[], &[]);
    check(&[0, 100, 0], &[0, 100, 0]);
    check(&[100, 150], &[125, 125]);
    check(&[151, 100], &[151, 100]);
    check(&[u32::MAX, 1], &[u32::MAX, 1]);
    let unlike = [90, 90, 90, 90, 90, 110, 110, 110, 110, 990];
    check(&unlike, &[98, 98, 98, 98, 98, 98, 98, 98, 98, 990]);
    let mixed = [90, 90, 90, 90, 110, 110, 110, 110, 330, 990];
    check(&mixed, &mixed);
    let divisible: Vec<u32> =
        of(&[100, 150], Range::WHOLE).iter().map(|points| points.divisible).collect();
    assert_eq!(divisible, [62, 62]);
    let halves = [100, 150];
    assert_eq!(of(&halves, "0/2".parse().unwrap()), halves.iter().map(half).collect::<Vec<_>>());
}

#[test]
fn a_load_that_swings_weighs_its_peak_until_that_is_long_past() {
    let mut history = LoadHistory::default();
    let weights: Vec<String> = (0..40)
        .map(|n| {
            // Sixty or thirty in turns for a while, then less.
            let busy = if n >= 20 { 20 } else { 60 / (1 + n % 2) };
            weigh(&mut history, &["c0/g/0/1 a"], &[("a", &[load("c0/g/0/1", busy)])], n as u64 * 60)
        })
        .collect();
    // The last peak was at 18.
    assert!(weights[..28].iter().all(|weight| weight == "576"), "{weights:?}");
    assert!(weights[28..38].iter().all(|weight| weight == "288"), "{weights:?}");
    assert!(weights[38..].iter().all(|weight| weight == "208"), "{weights:?}");
}

#[test]
fn halves_inherit_and_so_do_merged_shards() {
    let mut history = LoadHistory::default();
    let loads = [load("c0/g/0/1", 80)];
    weigh(&mut history, &["c0/g/0/1 a"], &[("a", &loads)], 0);
    let halves = ["c0/g/0/2 a", "c0/g/1/2 b"];
    assert_eq!(weigh(&mut history, &halves, &[("a", &[])], 1), "416 416");
    let quarters = ["c0/g/1/2 b", "c0/g/0/4 a", "c0/g/1/4 a"];
    assert_eq!(weigh(&mut history, &quarters, &[("a", &[])], 2), "416 208 208");
    let measured = [load("c0/g/0/4", 10), load("c0/g/1/4", 30)];
    weigh(&mut history, &quarters, &[("a", &measured)], 3);
    let merged = ["c0/g/0/2 a", "c0/g/1/2 b"];
    // The whole is long forgotten; the quarters were reported until now.
    let both: [(&str, &[ShardLoad]); 2] = [("a", &[]), ("b", &[])];
    weigh(&mut history, &quarters, &both, 4);
    assert_eq!(weigh(&mut history, &merged, &both, 5), "416 416");
    assert_eq!(weigh(&mut history, &merged, &both, 200), "0 0");
}

/// The whole was busy; its halves are known to be idle. It may not be busy again when they merge.
#[test]
fn a_merged_shard_has_the_load_of_its_halves_and_not_that_of_long_ago() {
    let mut history = LoadHistory::default();
    weigh(&mut history, &["c0/g/0/1 a"], &[("a", &[load("c0/g/0/1", 900)])], 0);
    let (halves, idle) = (["c0/g/0/2 a", "c0/g/1/2 a"], [load("c0/g/0/2", 2), load("c0/g/1/2", 2)]);
    assert_eq!(weigh(&mut history, &halves, &[("a", &[])], 1), "4608 4608");
    assert_eq!(weigh(&mut history, &halves, &[("a", &idle)], 60), "20 20");
    assert_eq!(weigh(&mut history, &["c0/g/0/1 a"], &[("a", &idle)], 61), "40");
    assert_eq!(weigh(&mut history, &halves, &[("a", &[])], 62), "20 20");
}

#[test]
fn what_one_object_takes_is_not_divisible() {
    let mut history = LoadHistory::default();
    let mut divisible = |shards: &[&str], heaviest: Option<u32>, s: u64| -> Vec<u32> {
        let a = id("a");
        let owned: Vec<OwnedShard<'_>> = shards
            .iter()
            .map(|shard| OwnedShard {
                shard: shard.parse().unwrap(),
                owner: Some(&a),
                can_report: true,
            })
            .collect();
        let loads = [ShardLoad { heaviest, ..load(shards[0], 1_000) }];
        let reported = Reported { shards: &loads, ..Reported::default() };
        let points = history.weigh(&owned, &BTreeMap::from([(&a, reported)]), at(s));
        points.iter().map(|points| points.divisible).collect()
    };
    assert_eq!(divisible(&["c0/g/0/1"], None, 0), [0], "it is not measured");
    assert_eq!(divisible(&["c1/g/0/1"], Some(1_000), 0), [0]);
    assert_eq!(divisible(&["c1/g/0/1"], Some(5_000), 0), [0]);
    assert_eq!(divisible(&["c2/g/0/1"], Some(950), 0), [512], "half a thousand");
    assert_eq!(divisible(&["c3/g/0/1"], Some(0), 0), [10_240]);
    // Either half may have the object.
    assert_eq!(divisible(&["c4/g/0/1"], Some(300), 0), [7_168]);
    assert_eq!(divisible(&["c0/g/0/1", "c4/g/0/2", "c4/g/1/2"], None, 1)[1..], [2_048; 2]);
    // For as long as a load counts.
    assert_eq!(divisible(&["c3/g/0/1"], Some(900), 1), [1_024]);
    assert_eq!(divisible(&["c3/g/0/1"], Some(0), 2), [1_024]);
    assert_eq!(divisible(&["c3/g/0/1"], Some(0), 601), [10_240]);
}

#[test]
fn reports_of_others_count_while_the_owner_is_silent_and_within_bounds() {
    let stale = [load("c0/g/0/1", 100_000)];
    let reported: [(&str, &[ShardLoad]); 3] = [("z", &stale), ("a", &[]), ("b", &[])];
    let shards = ["c0/g/0/1 a", "c1/g/0/1 a", "c2/g/0/1 b", "c3/g/0/1 b"];
    // The median member carries two shards: sixteen times that, and no more.
    assert_eq!(weigh(&mut LoadHistory::default(), &shards, &reported, 0), "3328 0 0 0");
    let owner: [(&str, &[ShardLoad]); 3] =
        [("z", &stale), ("a", &[load("c0/g/0/1", 5)]), ("b", &[])];
    assert_eq!(weigh(&mut LoadHistory::default(), &shards, &owner, 0), "52 0 0 0");
}

proptest! {
    /// Whatever one member reports counts for at most so much more than the others' loads.
    #[test]
    fn absurd_numbers_are_bounded(
        busy in vec(any::<u32>(), 4), events in any::<u64>(), cached in any::<u64>(),
    ) {
        let shards = ["c0/g/0/1 a", "c1/g/0/1 a", "c2/g/0/1 b", "c3/g/0/1 c"];
        let report = |(n, &busy): (usize, &u32)| {
            ShardLoad { events, cached, ..load(&format!("c{n}/g/0/1"), busy) }
        };
        let absurd: Vec<ShardLoad> = busy.iter().enumerate().map(report).collect();
        let honest = [load("c2/g/0/1", 10)];
        let reported: [(&str, &[ShardLoad]); 3] = [("a", &absurd), ("b", &honest), ("c", &[])];
        let points = weigh(&mut LoadHistory::default(), &shards, &reported, 0);
        let points: Vec<u64> = points.split(' ').map(|text| text.parse().unwrap()).collect();
        // The median member is b, with a hundred points and as much for its shard.
        prop_assert!(points[0] + points[1] <= 200 * MAX_OVER_MEDIAN * 17 / 16);
        prop_assert_eq!(points[2], 104);
        prop_assert!(points[3] <= 200 * MAX_OVER_MEDIAN * 17 / 16, "what a reports about c's shard");
    }

    /// Noise of a thirtieth about a rounded value changes nothing.
    #[test]
    fn small_noise_is_not_seen(points in 16..1_000_000u64, noise in -30..=30i64) {
        let centre = u64::from(rounded(points));
        let moved = centre.saturating_add_signed(centre as i64 * noise / 1000);
        prop_assert_eq!(u64::from(rounded(moved)), centre);
    }
}
