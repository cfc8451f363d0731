//! The planner's laws. Cases to read are in `tests/golden`.

mod backlog;
mod cases;
mod churn;
mod laws;
mod objects;
mod pipeline;
mod policy;
mod reach;

use model::{GroupScope, ShardId, uid_hash};

use super::*;

const GROUP: &str = "tdset";

/// The score of a shard on a member, as the board computes it. The highest wins a tie.
fn rendezvous(member: &MemberId, shard: &ShardId) -> u64 {
    mix(uid_hash(member.as_str()) ^ mix(uid_hash(&shard.to_string())))
}

fn id(n: usize) -> MemberId {
    format!("m-{n}").parse().unwrap()
}

fn member(role: Role) -> PlanMember {
    let groups = BTreeSet::from([GROUP.parse().unwrap()]);
    PlanMember { role, capacity: 100, groups, reach: Reach::default(), max_shards: None }
}

fn open(members: usize) -> BTreeMap<MemberId, PlanMember> {
    (0..members).map(|n| (id(n), member(Role::Open))).collect()
}

fn shard(n: usize, weight: u32, placement: Placement) -> PlanShard {
    let id = format!("c{n}/{GROUP}/0/1").parse().unwrap();
    PlanShard {
        id,
        weight,
        divisible: weight,
        placement,
        rests: false,
        before: None,
        preferences: None,
    }
}

fn unowned(shards: usize) -> Vec<PlanShard> {
    (0..shards).map(|n| shard(n, 1, Placement::Unowned)).collect()
}

fn scoped(scope: GroupScope) -> BTreeMap<GroupName, GroupTraits> {
    let traits = GroupTraits { scope, ..GroupTraits::default() };
    BTreeMap::from([(GROUP.parse().unwrap(), traits)])
}

fn planned(members: &BTreeMap<MemberId, PlanMember>, shards: &[PlanShard]) -> Vec<Move> {
    plan(members, &BTreeMap::new(), shards, &Limits::default()).moves
}

/// Plans and lets every drain end, until nothing moves. Returns all moves.
fn settle(members: &BTreeMap<MemberId, PlanMember>, shards: &mut [PlanShard]) -> Vec<Move> {
    settle_groups(members, &BTreeMap::new(), shards)
}

fn settle_groups(
    members: &BTreeMap<MemberId, PlanMember>,
    groups: &BTreeMap<GroupName, GroupTraits>,
    shards: &mut [PlanShard],
) -> Vec<Move> {
    let mut all = Vec::new();
    loop {
        let moves = plan(members, groups, shards, &Limits::default()).moves;
        if moves.is_empty() {
            return all;
        }
        assert!(all.len() <= shards.len() * 4, "it never settles: {moves:?}");
        for step in &moves {
            let shard = shards.iter_mut().find(|shard| shard.id == step.shard).unwrap();
            shard.placement = step.to.clone().map_or(Placement::Unowned, Placement::Settled);
        }
        all.extend(moves);
    }
}

/// What each member carries, or will carry when its moves end.
fn loads(members: &BTreeMap<MemberId, PlanMember>, shards: &[PlanShard]) -> Vec<u32> {
    let of = |id: &MemberId| {
        let its = shards.iter().filter(|shard| shard.placement == Placement::Settled(id.clone()));
        its.map(|shard| shard.weight).sum()
    };
    members.keys().map(of).collect()
}
