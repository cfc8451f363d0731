//! Finds members for unassigned units: those without an owner and those that must move.

use std::cmp::Reverse;

use super::board::{Board, Unit, UnitState};
use super::level::Level;
use super::{Move, Placement, Reason};

/// Assigns them, the most urgent and the heaviest first.
pub(super) fn assign(board: &mut Board<'_>) -> Vec<Move> {
    let mut unassigned: Vec<(Reason, Reverse<u64>, usize)> = Vec::new();
    let mut moves = Vec::new();
    for (i, unit) in board.units.iter().enumerate() {
        match unit.state {
            UnitState::Unassigned(reason) => unassigned.push((reason, Reverse(unit.weight), i)),
            // Moves those of its shards that are not there yet.
            UnitState::Bound(member) | UnitState::Settled(member) if unit.is_scattered() => {
                moves.extend(board.moves(i, Some(member), Reason::Together));
            }
            _ => {}
        }
    }
    if unassigned.is_empty() {
        return moves;
    }
    unassigned.sort_unstable();
    let level = board.level(true, false);
    for (reason, _, unit) in unassigned {
        moves.extend(assign_unit(board, level, unit, reason));
    }
    moves.sort_by_key(|step| step.reason);
    moves
}

fn assign_unit(board: &mut Board<'_>, level: Level, unit: usize, reason: Reason) -> Vec<Move> {
    let bounded = reason == Reason::Maintenance;
    let from = owner(board, unit);
    if bounded && from.is_some_and(|member| !board.is_free(member)) {
        return Vec::new();
    }
    let to = best(board, level, unit, bounded);
    if bounded && to.is_none() {
        // It stays where it is and is served there.
        return Vec::new();
    }
    let moves = board.moves(unit, to, reason);
    if let Some(member) = to {
        board.put(unit, member);
    }
    if !moves.is_empty() && from.is_some() && reason != Reason::TargetLost {
        board.start_move(from, to);
    }
    moves
}

/// The member that has the unit now.
fn owner(board: &Board<'_>, unit: usize) -> Option<usize> {
    board.index_of(board.units[unit].shards.iter().find_map(|shard| shard.placement.owner())?)
}

/// The member for a unit: one that has the caches it needs, if that leaves it calm; else the one that
/// would carry least.
fn best(board: &Board<'_>, level: Level, unit: usize, bounded: bool) -> Option<usize> {
    let open = |&member: &usize| board.takes(member, unit) && (!bounded || board.is_free(member));
    let weight = board.units[unit].weight;
    let calm = |&member: &usize| {
        let member = &board.members[member];
        !level.exceeded_by(member.load + weight, member.capacity, board.limits.calm_permille)
    };
    let near = board.locality.members(unit, |other| board.units[other].at);
    let back = owner(board, unit).map(|member| (u32::MAX, member));
    let near = near.into_iter().map(|member| (board.shared(unit, member), member)).chain(back);
    let near = near.filter(|(_, member)| open(member) && calm(member));
    if let Some((_, member)) =
        near.max_by_key(|&(shared, member)| (shared, board.score(member, unit)))
    {
        return Some(member);
    }
    (0..board.members.len()).filter(open).min_by(|&a, &b| {
        board.compare(a, b, weight).then_with(|| board.score(b, unit).cmp(&board.score(a, unit)))
    })
}

impl Unit<'_> {
    /// Whether its shards are not all placed alike.
    fn is_scattered(&self) -> bool {
        let first: &Placement = &self.shards.first().placement;
        self.shards.iter().any(|shard| shard.placement != *first)
    }
}
