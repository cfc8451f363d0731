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
    if !board.alike {
        // What few members serve comes first: the others are left for what any member serves.
        unassigned.sort_by_cached_key(|&(reason, _, unit)| (reason, takers(board, unit)));
    }
    let level = board.level(true, false);
    for (reason, _, unit) in unassigned {
        moves.extend(assign_unit(board, level, unit, reason));
    }
    moves.sort_by_key(|step| step.reason);
    moves
}

fn assign_unit(board: &mut Board<'_>, level: Level, unit: usize, reason: Reason) -> Vec<Move> {
    let from = owner(board, unit);
    let must_leave = from.is_some_and(|member| board.is_ruled_out(member, unit));
    let bounded = match reason {
        Reason::Maintenance => true,
        Reason::Policy => !must_leave,
        _ => false,
    };
    if bounded && from.is_some_and(|member| !board.is_free(member)) {
        return Vec::new();
    }
    // If nobody could serve it, a drain under way ends at its owner: it is as good there as anywhere.
    let may_return = |&member: &usize| board.is_open_to(member, unit) && !must_leave;
    let back = from.filter(may_return).filter(|_| reason == Reason::TargetLost);
    let to = best(board, level, unit, bounded).or(back);
    if to.is_none() && (bounded || reason == Reason::Unreached) {
        // It stays where it is.
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

/// The member whose process had it last.
fn former(board: &Board<'_>, unit: usize) -> Option<usize> {
    board.index_of(board.units[unit].shards.first().before.as_ref()?)
}

/// The member for a unit: of those that serve most of it, the one that had it or one that has the caches it
/// needs, if that leaves it calm; else the one that would carry least.
fn best(board: &Board<'_>, level: Level, unit: usize, bounded: bool) -> Option<usize> {
    let surplus_of = owner(board, unit).filter(|_| board.units[unit].is_surplus);
    let could = |member: usize| {
        board.is_open_to(member, unit)
            && (!bounded || board.is_free(member))
            && surplus_of != Some(member)
    };
    let most = most_merit(board, unit, bounded && surplus_of.is_none(), could)?;
    let open =
        |&member: &usize| could(member) && (board.alike || board.merit(member, unit) == most);
    let weight = board.units[unit].weight;
    let calm = |&member: &usize| {
        let member = &board.members[member];
        !level.exceeded_by(member.load + weight, member.capacity, board.limits.calm_permille)
    };
    let near = board.locality.members(unit, |other| board.units[other].at);
    let back = owner(board, unit).or(former(board, unit)).map(|member| (u32::MAX, member));
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

/// How many members take a unit.
fn takers(board: &Board<'_>, unit: usize) -> usize {
    (0..board.members.len()).filter(|&member| board.takes(member, unit)).count()
}

/// The most that one of these members serves of a unit; `None` if none serves or could serve any of it,
/// or if less than its owner does, which may keep it.
fn most_merit(
    board: &Board<'_>,
    unit: usize,
    may_stay: bool,
    could: impl Fn(usize) -> bool,
) -> Option<u64> {
    if board.alike {
        return Some(0);
    }
    let of = |member: usize| board.merit(member, unit);
    let least = owner(board, unit).filter(|_| may_stay).map_or(1, of);
    let most = (0..board.members.len()).filter(|&member| could(member)).map(of).max();
    most.filter(|&most| most >= least.max(1))
}

impl Unit<'_> {
    /// Whether its shards are not all placed alike.
    fn is_scattered(&self) -> bool {
        let first: &Placement = &self.shards.first().placement;
        self.shards.iter().any(|shard| shard.placement != *first)
    }
}
