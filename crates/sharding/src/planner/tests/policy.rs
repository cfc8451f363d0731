//! What people want: pins, avoidances, and the most shards that a member may have.

use proptest::prelude::*;

use super::*;

fn wanted(fits: &[Fit]) -> Option<Arc<Preferences>> {
    let fits = fits.iter().enumerate().map(|(n, fit)| (id(n), *fit));
    Some(Arc::new(fits.filter(|(_, fit)| *fit != Fit::Serves).collect()))
}

fn at(shards: &[PlanShard], n: usize) -> Option<&MemberId> {
    shards[n].placement.owner()
}

#[test]
fn a_pinned_shard_goes_where_it_is_wanted_and_elsewhere_while_nobody_is_there() {
    let pinned = |placement| PlanShard {
        preferences: wanted(&[Fit::Unwanted, Fit::Serves, Fit::Unwanted]),
        ..shard(0, 1, placement)
    };
    let mut members = open(3);
    let mut shards = [pinned(Placement::Settled(id(0)))];
    let moves = settle(&members, &mut shards);
    assert_eq!((moves.len(), moves[0].reason), (1, Reason::Policy));
    assert_eq!(at(&shards, 0), Some(&id(1)));
    members.get_mut(&id(1)).unwrap().role = Role::Leaving;
    settle(&members, &mut shards);
    assert_ne!(at(&shards, 0), Some(&id(1)));
    members.get_mut(&id(1)).unwrap().role = Role::Open;
    settle(&members, &mut shards);
    assert_eq!(at(&shards, 0), Some(&id(1)), "and back");
}

#[test]
fn a_shard_leaves_a_member_that_people_rule_out_even_for_nobody() {
    let ruled_out = |placement| PlanShard {
        preferences: wanted(&[Fit::Lacks, Fit::Serves]),
        ..shard(0, 1, placement)
    };
    let mut members = open(2);
    members.get_mut(&id(1)).unwrap().role = Role::Suspect;
    let mut shards = [ruled_out(Placement::Settled(id(0)))];
    let moves = planned(&members, &shards);
    assert_eq!((moves[0].to.as_ref(), moves[0].reason), (None, Reason::Policy));
    shards[0].placement = Placement::Moving { from: id(0), to: None };
    assert_eq!(planned(&members, &shards), [], "and does not turn back");
    shards[0].placement = Placement::Unowned;
    members.get_mut(&id(1)).unwrap().role = Role::Open;
    settle(&members, &mut shards);
    assert_eq!(at(&shards, 0), Some(&id(1)));
}

#[test]
fn a_member_that_fails_to_reach_a_cluster_is_worse_than_one_that_is_not_wanted() {
    let mut members = open(2);
    let fails = BTreeMap::from([("c0".parse().unwrap(), Fit::Fails)]);
    members.get_mut(&id(1)).unwrap().reach =
        Reach { otherwise: Fit::Serves, named: Arc::new(fails) };
    let mut shards = [PlanShard {
        preferences: wanted(&[Fit::Unwanted, Fit::Serves]),
        ..shard(0, 1, Placement::Settled(id(1)))
    }];
    settle(&members, &mut shards);
    assert_eq!(at(&shards, 0), Some(&id(0)));
}

#[test]
fn the_lightest_shards_beyond_a_limit_move_and_wait_where_nobody_has_a_place() {
    let mut members = open(2);
    members.get_mut(&id(0)).unwrap().max_shards = Some(2);
    let mut shards: Vec<PlanShard> = [4, 3, 2, 1]
        .iter()
        .enumerate()
        .map(|(n, &weight)| shard(n, weight, Placement::Settled(id(0))))
        .collect();
    settle(&members, &mut shards);
    let has = |member: usize, shards: &[PlanShard]| {
        shards.iter().filter(|shard| shard.placement.owner() == Some(&id(member))).count()
    };
    assert!(has(0, &shards) <= 2);
    assert_eq!(has(0, &shards) + has(1, &shards), 4);
    let mut many = unowned(5);
    for member in members.values_mut() {
        member.max_shards = Some(2);
    }
    settle(&members, &mut many);
    assert_eq!((has(0, &many), has(1, &many)), (2, 2));
}

#[test]
fn with_no_moves_allowed_nothing_is_balanced_and_what_has_no_owner_gets_one() {
    let limits = Limits { moves_per_member: 0, moves_in_fleet: 0, ..Limits::default() };
    let mut shards: Vec<PlanShard> =
        (0..6).map(|n| shard(n, 1, Placement::Settled(id(0)))).collect();
    shards.push(shard(6, 1, Placement::Unowned));
    let moves = plan(&open(2), &BTreeMap::new(), &shards, &limits).moves;
    assert_eq!((moves.len(), moves[0].reason), (1, Reason::Unowned));
}

proptest! {
    /// Nobody has what people rule out or more than it may, everybody is where it is wanted if there is a
    /// place, and the fleet comes to rest.
    #[test]
    fn what_people_want_is_done_and_then_nothing_moves(
        fits in prop::collection::vec(prop::collection::vec(0..3usize, 3), 1..12),
        owners in prop::collection::vec(prop::option::of(0..3usize), 12),
        max in prop::collection::vec(prop::option::of(0..6u32), 3),
    ) {
        let mut members = open(3);
        for (member, max) in members.values_mut().zip(&max) {
            member.max_shards = *max;
        }
        let kinds = [Fit::Lacks, Fit::Unwanted, Fit::Serves];
        let mut shards: Vec<PlanShard> = fits
            .iter()
            .zip(&owners)
            .enumerate()
            .map(|(n, (fits, owner))| {
                let fits: Vec<Fit> = fits.iter().map(|&fit| kinds[fit]).collect();
                let placement = owner.map_or(Placement::Unowned, |n| Placement::Settled(id(n)));
                PlanShard { preferences: wanted(&fits), ..shard(n, 1, placement) }
            })
            .collect();
        settle(&members, &mut shards);
        prop_assert!(planned(&members, &shards).is_empty());
        let has = |member: &MemberId| {
            shards.iter().filter(|shard| shard.placement.owner() == Some(member)).count()
        };
        // Nobody has more than it may have because of what it got.
        let began = |n: usize| owners[..fits.len()].iter().filter(|&&at| at == Some(n)).count();
        for (n, member) in members.values().enumerate() {
            let most = member.max_shards.map_or(usize::MAX, |max| began(n).max(max as usize));
            prop_assert!(has(&id(n)) <= most, "m-{n} has {} of {most}", has(&id(n)));
        }
        let room: Vec<bool> = members
            .iter()
            .map(|(id, member)| member.max_shards.is_none_or(|max| has(id) < max as usize))
            .collect();
        for shard in &shards {
            let preferences = shard.preferences.as_ref().unwrap();
            let fit = |n: usize| preferences.get(&id(n)).copied().unwrap_or(Fit::Serves);
            let at = (0..3).find(|&n| shard.placement.owner() == Some(&id(n)));
            let here = at.map_or(Fit::Lacks, fit);
            prop_assert!(at.is_none() || here != Fit::Lacks);
            for other in (0..3).filter(|&n| room[n]) {
                prop_assert!(fit(other) <= here, "{:?} could be at m-{other}", shard.id);
            }
            // Who has too many gives them to whoever has a place for them.
            let is_over = at.is_some_and(|n| {
                let max = members[&id(n)].max_shards;
                max.is_some_and(|max| has(&id(n)) > max as usize)
            });
            for other in (0..3).filter(|&n| room[n] && is_over) {
                prop_assert!(fit(other) == Fit::Lacks, "m-{other} has a place for {:?}", shard.id);
            }
        }
    }
}
