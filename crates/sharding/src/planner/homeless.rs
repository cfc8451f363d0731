//! Places for the shards that have none or must leave the one they have.

use std::cmp::Reverse;

use super::board::{Board, Parcel, Stance};
use super::level::Level;
use super::{Move, Place, Reason};

/// Finds places, the most urgent and the heaviest first.
pub(super) fn place(board: &mut Board<'_>) -> Vec<Move> {
    let mut homeless: Vec<(Reason, Reverse<u64>, usize)> = Vec::new();
    let mut moves = Vec::new();
    for (i, parcel) in board.parcels.iter().enumerate() {
        match parcel.stance {
            Stance::Homeless(reason) => homeless.push((reason, Reverse(parcel.weight), i)),
            // Those of its shards that are not there yet.
            Stance::Bound(seat) | Stance::Settled(seat) if parcel.is_scattered() => {
                moves.extend(board.moves(i, Some(seat), Reason::Together));
            }
            _ => {}
        }
    }
    if homeless.is_empty() {
        return moves;
    }
    homeless.sort_unstable();
    let level = board.level(true, false);
    for (reason, _, parcel) in homeless {
        moves.extend(rehome(board, level, parcel, reason));
    }
    moves.sort_by_key(|step| step.reason);
    moves
}

fn rehome(board: &mut Board<'_>, level: Level, parcel: usize, reason: Reason) -> Vec<Move> {
    let bounded = reason == Reason::Maintenance;
    let from = owner_seat(board, parcel);
    if bounded && from.is_some_and(|seat| !board.is_free(seat)) {
        return Vec::new();
    }
    let to = best(board, level, parcel, bounded);
    if bounded && to.is_none() {
        // It is served where it is.
        return Vec::new();
    }
    let moves = board.moves(parcel, to, reason);
    if let Some(seat) = to {
        board.put(parcel, seat);
    }
    if !moves.is_empty() && from.is_some() && reason != Reason::TargetLost {
        board.take_off(from, to);
    }
    moves
}

/// The seat that has the parcel now.
fn owner_seat(board: &Board<'_>, parcel: usize) -> Option<usize> {
    board.seat_of(board.parcels[parcel].units.iter().find_map(|unit| unit.place.owner())?)
}

/// The seat to put a parcel on: one that has what it needs, if that leaves it calm; else the one
/// that would carry least.
fn best(board: &Board<'_>, level: Level, parcel: usize, bounded: bool) -> Option<usize> {
    let open = |&seat: &usize| board.takes(seat, parcel) && (!bounded || board.is_free(seat));
    let weight = board.parcels[parcel].weight;
    let calm = |&seat: &usize| {
        let seat = &board.seats[seat];
        !level.exceeded_by(seat.load + weight, seat.capacity, board.limits.calm_permille)
    };
    let near = board.locality.seats(parcel, |other| board.parcels[other].at);
    let back = owner_seat(board, parcel).map(|seat| (u32::MAX, seat));
    let near = near.into_iter().map(|seat| (board.shared(parcel, seat), seat)).chain(back);
    let near = near.filter(|(_, seat)| open(seat) && calm(seat));
    if let Some((_, seat)) = near.max_by_key(|&(shared, seat)| (shared, board.score(seat, parcel)))
    {
        return Some(seat);
    }
    (0..board.seats.len()).filter(open).min_by(|&a, &b| {
        board
            .compare(a, b, weight)
            .then_with(|| board.score(b, parcel).cmp(&board.score(a, parcel)))
    })
}

impl Parcel<'_> {
    /// Whether its shards are not all in the same place.
    fn is_scattered(&self) -> bool {
        let first: &Place = &self.units.first().place;
        self.units.iter().any(|unit| unit.place != *first)
    }
}
