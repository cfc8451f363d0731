//! Members that lack clusters or do not reach them (S7).

use std::sync::Arc;

use model::ClusterName;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn cluster(n: usize) -> ClusterName {
    format!("c{n}").parse().unwrap()
}

/// An open member that stands so with the first clusters, and with all others as `otherwise` says.
fn reaching(otherwise: Fit, fits: &[Fit]) -> PlanMember {
    let named = fits.iter().enumerate().map(|(n, fit)| (cluster(n), *fit)).collect();
    PlanMember { reach: Reach { otherwise, named: Arc::new(named) }, ..member(Role::Open) }
}

fn fleet(members: &[PlanMember]) -> BTreeMap<MemberId, PlanMember> {
    members.iter().enumerate().map(|(n, member)| (id(n), member.clone())).collect()
}

fn moved(members: &[PlanMember], placement: Placement) -> Vec<(Option<MemberId>, Reason)> {
    let moves = planned(&fleet(members), &[shard(0, 1, placement)]);
    moves.into_iter().map(|step| (step.to, step.reason)).collect()
}

#[test]
fn a_shard_without_an_owner_goes_to_one_that_serves_else_to_one_that_could() {
    use Fit::{Doubtful, Fails, Lacks, Serves, Unknown};
    for (fits, expect) in [
        ([Lacks, Unknown, Fails, Serves], Some(3)),
        ([Doubtful, Unknown, Fails, Serves], Some(3)),
        ([Lacks, Doubtful, Fails, Fails], Some(1)),
        ([Lacks, Unknown, Fails, Fails], None),
        ([Lacks, Fails, Unknown, Lacks], Some(1)),
    ] {
        let members = fits.map(|fit| reaching(Fit::Serves, &[fit]));
        let to = moved(&members, Placement::Unowned);
        match expect {
            Some(expect) => assert_eq!(to, [(Some(id(expect)), Reason::Unowned)], "{fits:?}"),
            None => assert!(to[0].0 == Some(id(2)) || to[0].0 == Some(id(3)), "{fits:?}"),
        }
    }
    let nobody = [Lacks, Unknown].map(|fit| reaching(Fit::Serves, &[fit]));
    assert_eq!(
        moved(&nobody, Placement::Unowned),
        [],
        "better no owner than one that cannot serve"
    );
}

#[test]
fn an_owner_that_lacks_or_does_not_reach_a_cluster_loses_it_to_one_that_does() {
    use Fit::{Doubtful, Fails, Lacks, Serves, Unknown};
    let settled = || Placement::Settled(id(0));
    for (owner, other, expect) in [
        (Doubtful, Serves, false),
        (Fails, Doubtful, false),
        (Lacks, Serves, true),
        (Fails, Serves, true),
        (Unknown, Serves, false),
        (Serves, Serves, false),
        (Lacks, Fails, false),
        (Fails, Fails, false),
        (Fails, Unknown, false),
        (Lacks, Lacks, false),
    ] {
        let members = [owner, other].map(|fit| reaching(Serves, &[fit]));
        let expect: &[_] = if expect { &[(Some(id(1)), Reason::Unreached)] } else { &[] };
        assert_eq!(moved(&members, settled()), expect, "{owner:?} {other:?}");
    }
    // It has just moved, or its owner has lacked it for a moment only.
    for owner in [Fails, Lacks] {
        let members = fleet(&[owner, Serves].map(|fit| reaching(Serves, &[fit])));
        let resting = [PlanShard { rests: true, ..shard(0, 1, settled()) }];
        assert_eq!(planned(&members, &resting), [], "{owner:?}");
    }
}

#[test]
fn a_drain_for_one_that_lacks_the_cluster_finds_another() {
    use Fit::{Fails, Lacks, Serves, Unknown};
    let moving = || Placement::Moving { from: id(0), to: Some(id(1)) };
    for (target, expect) in [(Lacks, 1), (Unknown, 0), (Fails, 0), (Serves, 0)] {
        let members = [Fails, target, Serves].map(|fit| reaching(Serves, &[fit]));
        let moves = moved(&members, moving());
        assert_eq!(moves.len(), expect, "{target:?}: {moves:?}");
        assert!(moves.iter().all(|step| *step == (Some(id(2)), Reason::TargetLost)));
    }
}

#[test]
fn a_drain_that_nobody_could_end_ends_at_its_owner() {
    let members = [Fit::Lacks; 3].map(|fit| reaching(Fit::Serves, &[fit]));
    let moving = Placement::Moving { from: id(0), to: Some(id(1)) };
    assert_eq!(moved(&members, moving), [(Some(id(0)), Reason::TargetLost)]);
}

#[test]
fn what_rests_does_not_move_for_balance_either() {
    let resting = |n| PlanShard { rests: true, ..shard(n, 1, Placement::Settled(id(0))) };
    assert_eq!(planned(&open(2), &[resting(0), resting(1)]), []);
}

#[test]
fn shards_of_clusters_that_are_down_everywhere_are_balanced_like_others() {
    use Fit::{Fails, Lacks, Serves};
    for (other, expect) in [(Fails, 2), (Lacks, 0)] {
        let members = fleet(&[Fails, other].map(|fit| reaching(Serves, &[fit; 4])));
        let mut shards: Vec<_> = (0..4).map(|n| shard(n, 1, Placement::Settled(id(0)))).collect();
        settle(&members, &mut shards);
        assert_eq!(loads(&members, &shards), [4 - expect, expect], "{other:?}");
    }
}

#[test]
fn a_cordoned_owner_gives_a_shard_only_to_one_that_serves_as_well() {
    use Fit::{Fails, Lacks, Serves};
    for (other, expect) in [(Serves, 1), (Fails, 0), (Lacks, 0)] {
        let mut members = fleet(&[Serves, other].map(|fit| reaching(Serves, &[fit])));
        members.insert(id(0), member(Role::Cordoned));
        let moves = planned(&members, &[shard(0, 1, Placement::Settled(id(0)))]);
        assert_eq!(moves.len(), expect, "{other:?}");
    }
}

#[test]
fn a_group_of_scope_fleet_goes_to_the_member_that_serves_most_of_it() {
    use Fit::{Fails, Lacks, Serves};
    let members = fleet(&[
        reaching(Serves, &[Lacks, Lacks, Serves]),
        reaching(Serves, &[Lacks, Serves, Fails]),
        reaching(Serves, &[Serves, Fails, Serves]),
    ]);
    let mut shards = unowned(3);
    settle_groups(&members, &scoped(GroupScope::Fleet), &mut shards);
    assert_eq!(loads(&members, &shards), [0, 0, 3]);
}

/// A part of the group was on its way to a member that now loses all of it: then nothing arrives there.
#[test]
fn a_group_of_scope_fleet_that_arrives_may_go_elsewhere() {
    use Fit::{Lacks, Serves};
    let lacks = [Serves, Lacks];
    let members = fleet(&[&[], &lacks[..], &[]].map(|fits| reaching(Serves, fits)));
    let moving = Placement::Moving { from: id(0), to: Some(id(1)) };
    let shards = [shard(0, 5, Placement::Settled(id(1))), shard(1, 5, moving)];
    let moves = plan(&members, &scoped(GroupScope::Fleet), &shards, &Limits::default()).moves;
    assert_eq!(moves.len(), 2, "{moves:?}");
    assert!(moves.iter().all(|step| step.to != Some(id(1))), "{moves:?}");
}

#[test]
fn what_only_one_member_serves_is_not_split_for_the_others() {
    let members = fleet(&[member(Role::Open), reaching(Fit::Lacks, &[])]);
    let shards: Vec<_> = (0..4).map(|n| shard(n, 100, Placement::Settled(id(0)))).collect();
    let proposal = plan(&members, &BTreeMap::new(), &shards, &Limits::default());
    assert_eq!((proposal.moves, proposal.confined.len()), (Vec::new(), 4));
}

fn any_fit() -> impl Strategy<Value = Fit> {
    prop_oneof![
        4 => Just(Fit::Serves),
        1 => Just(Fit::Fails),
        1 => Just(Fit::Lacks),
        1 => Just(Fit::Unknown),
        1 => Just(Fit::Doubtful),
    ]
}

proptest! {
    /// Whatever members lack and reach, planning ends, and then every shard that some open member serves
    /// is with one that does. One that nobody serves stays where it is as well off, or goes to one that
    /// could.
    #[test]
    fn every_shard_ends_where_it_is_served(
        fits in vec(vec(any_fit(), 12), 1..6),
        drawn in vec((1..20u32, 0..7usize), 12),
    ) {
        let members: Vec<PlanMember> =
            fits.iter().map(|fits| reaching(Fit::Serves, fits)).collect();
        let members = fleet(&members);
        let place = |(n, (weight, at)): (usize, &(u32, usize))| {
            let owned = fits.get(*at).map(|_| Placement::Settled(id(*at)));
            shard(n, *weight, owned.unwrap_or(Placement::Unowned))
        };
        let mut shards: Vec<PlanShard> = drawn.iter().enumerate().map(place).collect();
        let before: Vec<_> = shards.iter().map(|shard| shard.placement.clone()).collect();
        let moves = settle(&members, &mut shards);
        for step in &moves {
            let of = |to: &MemberId| members[to].reach.of(&step.shard.cluster);
            let best = members.keys().map(of).max().unwrap();
            // What stays where it may not be reached is balanced among such members.
            let could = |to| (Fit::Fails..=Fit::Doubtful).contains(&of(to));
            let is_right =
                |to| of(to) == best || (step.reason == Reason::Balance && could(to));
            prop_assert!(step.to.as_ref().is_some_and(is_right), "{step:?}");
        }
        for (n, shard) in shards.iter().enumerate() {
            let column: Vec<Fit> = fits.iter().map(|fits| fits[n]).collect();
            let at = shard.placement.owner().map(|owner| members[owner].reach.of(&cluster(n)));
            let known = !matches!(at, Some(Fit::Unknown | Fit::Doubtful));
            if known && column.contains(&Fit::Serves) {
                prop_assert_eq!(at, Some(Fit::Serves), "{:?}", shard);
            } else if let Placement::Settled(owner) = &before[n] {
                let was = members[owner].reach.of(&cluster(n));
                let stays = shard.placement == before[n];
                let could = (Fit::Fails..=Fit::Doubtful).contains(&was);
                prop_assert!(stays || (could && at >= Some(was)), "{:?}", shard);
            }
        }
        prop_assert_eq!(planned(&members, &shards), []);
    }

    /// A member that comes to lack some clusters, or to fail to reach them, loses those, and others move
    /// only for balance.
    #[test]
    fn only_what_is_not_reached_moves_for_that(
        members in 2..8usize, count in 1..60usize, who in 0..8usize, off in vec(0..60usize, 0..20),
        lacks in any::<bool>(),
    ) {
        let (mut fleet, mut shards) = (open(members), unowned(count));
        settle(&fleet, &mut shards);
        let (who, fit) = (id(who % members), if lacks { Fit::Lacks } else { Fit::Fails });
        let named = off.iter().map(|n| (cluster(n % count), fit)).collect();
        fleet.get_mut(&who).unwrap().reach.named = Arc::new(named);
        let is_off = |shard: &ShardId| fleet[&who].reach.of(&shard.cluster) == fit;
        let mut due: Vec<_> = shards
            .iter()
            .filter(|s| s.placement.owner() == Some(&who) && is_off(&s.id))
            .map(|s| s.id.clone())
            .collect();
        let moves = plan(&fleet, &BTreeMap::new(), &shards, &Limits::default()).moves;
        let mut moved: Vec<_> = moves
            .into_iter()
            .filter(|step| step.reason == Reason::Unreached)
            .map(|step| step.shard)
            .collect();
        due.sort();
        moved.sort();
        prop_assert_eq!(moved, due);
    }
}
