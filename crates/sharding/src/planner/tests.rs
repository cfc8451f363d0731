//! The planner's laws. Cases to read are in `tests/golden`.

mod cases;
mod churn;
mod laws;
mod pipeline;

use model::GroupScope;

use super::*;

const GROUP: &str = "tdset";

fn id(n: usize) -> MemberId {
    format!("m-{n}").parse().unwrap()
}

fn member(role: Role) -> PlanMember {
    PlanMember { role, capacity: 100, groups: BTreeSet::from([GROUP.parse().unwrap()]) }
}

fn open(members: usize) -> BTreeMap<MemberId, PlanMember> {
    (0..members).map(|n| (id(n), member(Role::Open))).collect()
}

fn unit(n: usize, weight: u32, place: Place) -> Unit {
    Unit { shard: format!("c{n}/{GROUP}/0/1").parse().unwrap(), weight, place }
}

fn unowned(shards: usize) -> Vec<Unit> {
    (0..shards).map(|n| unit(n, 1, Place::Unowned)).collect()
}

fn scoped(scope: GroupScope) -> BTreeMap<GroupName, GroupTraits> {
    let traits = GroupTraits { scope, kinds: BTreeSet::new() };
    BTreeMap::from([(GROUP.parse().unwrap(), traits)])
}

fn planned(members: &BTreeMap<MemberId, PlanMember>, units: &[Unit]) -> Vec<Move> {
    plan(members, &BTreeMap::new(), units, &Limits::default()).moves
}

/// Plans and lets every drain end, until nothing moves; gives all moves.
fn settle(members: &BTreeMap<MemberId, PlanMember>, units: &mut [Unit]) -> Vec<Move> {
    settle_groups(members, &BTreeMap::new(), units)
}

fn settle_groups(
    members: &BTreeMap<MemberId, PlanMember>,
    groups: &BTreeMap<GroupName, GroupTraits>,
    units: &mut [Unit],
) -> Vec<Move> {
    let mut all = Vec::new();
    loop {
        let moves = plan(members, groups, units, &Limits::default()).moves;
        if moves.is_empty() {
            return all;
        }
        assert!(all.len() <= units.len() * 4, "it never settles: {moves:?}");
        for step in &moves {
            let unit = units.iter_mut().find(|unit| unit.shard == step.shard).unwrap();
            unit.place = step.to.clone().map_or(Place::Unowned, Place::Settled);
        }
        all.extend(moves);
    }
}

/// What each member carries or is to carry.
fn loads(members: &BTreeMap<MemberId, PlanMember>, units: &[Unit]) -> Vec<u32> {
    let of = |id: &MemberId| {
        let its = units.iter().filter(|unit| unit.place == Place::Settled(id.clone()));
        its.map(|unit| unit.weight).sum()
    };
    members.keys().map(of).collect()
}
