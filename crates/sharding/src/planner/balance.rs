//! Moves from members that carry more than their share to members that carry less.

use std::collections::BTreeSet;

use model::MemberId;

use super::board::{Board, Stance};
use super::level::Level;
use super::{Move, Reason, Role};

/// What balancing comes to.
pub(super) struct Balancing {
    pub(super) moves: Vec<Move>,
    pub(super) share: u64,
    pub(super) pressed: Vec<MemberId>,
}

/// How far out of its share a member must be for a move to begin.
#[derive(Clone, Copy)]
struct Bounds {
    /// More than this, in thousandths of its share, and it gives.
    give_permille: u32,
    /// Less than this, and it takes from whoever carries more than a whole share.
    take_permille: u32,
}

struct Balance<'b, 'a> {
    board: &'b mut Board<'a>,
    level: Level,
    /// Per seat: the parcels that may move from it, by weight.
    movable: Vec<BTreeSet<(u64, usize)>>,
    /// Per seat: the heaviest parcel that may not.
    fixed: Vec<u64>,
    /// The seats that take part.
    open: Vec<usize>,
}

/// Plans the moves that balance, and says whom none would help.
pub(super) fn balance(board: &mut Board<'_>) -> Balancing {
    let open: Vec<usize> =
        (0..board.seats.len()).filter(|&s| board.seats[s].role == Role::Open).collect();
    let capacity: u64 = open.iter().map(|&s| u64::from(board.seats[s].capacity)).sum();
    let mean = u32::try_from(capacity / open.len().max(1) as u64).unwrap_or(1);
    let (level, fine) = (board.level(false, false), board.level(false, true));
    let share = fine.share(mean, 1000);
    let outer = Bounds {
        give_permille: board.limits.overload_permille,
        take_permille: board.limits.idle_permille,
    };
    // Most plans end here: without the parcels sorted.
    let out = |&s: &usize| {
        let (load, capacity) = (board.seats[s].load, board.seats[s].capacity);
        level.exceeded_by(load, capacity, outer.give_permille)
            || fine.exceeded_by(load, capacity, outer.give_permille)
            || level.missed_by(load, capacity, outer.take_permille)
    };
    if open.len() < 2 || !(board.rebalancing || open.iter().any(out)) {
        return Balancing { moves: Vec::new(), share, pressed: Vec::new() };
    }
    let mut balance = Balance::new(board, level, open);
    let moves = balance.run(outer);
    let pressed = balance.pressed(fine, outer.give_permille);
    Balancing { moves, share, pressed }
}

impl<'b, 'a> Balance<'b, 'a> {
    fn new(board: &'b mut Board<'a>, level: Level, open: Vec<usize>) -> Self {
        let mut movable = vec![BTreeSet::new(); board.seats.len()];
        let mut fixed = vec![0; board.seats.len()];
        for (i, parcel) in board.parcels.iter().enumerate() {
            let Some(seat) = parcel.at else { continue };
            if parcel.stance == Stance::Settled(seat) {
                movable[seat].insert((parcel.weight, i));
            } else {
                fixed[seat] = parcel.weight.max(fixed[seat]);
            }
        }
        Self { board, level, movable, fixed, open }
    }

    fn run(&mut self, outer: Bounds) -> Vec<Move> {
        let calm_permille = self.board.limits.calm_permille;
        let inner = Bounds { give_permille: calm_permille, take_permille: 2000 - calm_permille };
        let mut bounds = if self.board.rebalancing { inner } else { outer };
        let mut moves = Vec::new();
        while let Some((parcel, from, to)) = self.exchange(bounds) {
            moves.extend(self.board.moves(parcel, Some(to), Reason::Balance));
            self.movable[from].remove(&(self.board.parcels[parcel].weight, parcel));
            self.fixed[to] = self.board.parcels[parcel].weight.max(self.fixed[to]);
            self.board.put(parcel, to);
            self.board.take_off(Some(from), Some(to));
            bounds = inner;
        }
        moves
    }

    /// The next parcel to move, from where, to where. Looks at the lightest taker first and at its
    /// givers from the heaviest down.
    fn exchange(&self, bounds: Bounds) -> Option<(usize, usize, usize)> {
        let mut free: Vec<usize> =
            self.open.iter().copied().filter(|&seat| self.board.is_free(seat)).collect();
        free.sort_by(|&a, &b| self.board.compare(a, b, 0).then(a.cmp(&b)));
        for &to in &free {
            for &from in free.iter().rev() {
                if self.board.compare(from, to, 0).is_le() {
                    break;
                }
                if !self.is_due(from, to, bounds) {
                    continue;
                }
                if let Some(parcel) = self.pick(from, to) {
                    return Some((parcel, from, to));
                }
            }
        }
        None
    }

    fn is_due(&self, from: usize, to: usize, bounds: Bounds) -> bool {
        let (giver, taker) = (&self.board.seats[from], &self.board.seats[to]);
        self.exceeds(from, bounds.give_permille)
            || (self.level.missed_by(taker.load, taker.capacity, bounds.take_permille)
                && self.level.exceeded_by(giver.load, giver.capacity, 1000))
    }

    /// Whether a seat carries more than that many thousandths of its share, which is one parcel if
    /// that is heavier.
    fn exceeds(&self, seat: usize, permille: u32) -> bool {
        let movable = self.movable[seat].last().map_or(0, |&(weight, _)| weight);
        let heaviest = u128::from(movable.max(self.fixed[seat]));
        let Self { level, board, .. } = self;
        let load = board.seats[seat].load;
        level.exceeded_by(load, board.seats[seat].capacity, permille)
            && u128::from(load) * 1000 > heaviest * u128::from(permille)
    }

    /// The parcel that `to` may take without becoming the heavier of the two: the lightest that
    /// leaves `from` calm, else the heaviest. Of several alike, the one that parts the fewest caches.
    fn pick(&self, from: usize, to: usize) -> Option<usize> {
        let (giver, taker) = (&self.board.seats[from], &self.board.seats[to]);
        let (theirs, ours) = (u128::from(taker.capacity), u128::from(giver.capacity));
        let gap = (u128::from(giver.load) * theirs).checked_sub(u128::from(taker.load) * ours)?;
        let most = u64::try_from(gap / (theirs + ours)).unwrap_or(u64::MAX);
        let calm = self.level.share(giver.capacity, self.board.limits.calm_permille);
        let needed = giver.load.saturating_sub(calm);
        let movable = &self.movable[from];
        let fits = |&&(_, parcel): &&(u64, usize)| self.board.takes(to, parcel);
        // A newcomer is filled with as few moves as will do.
        let idle = self.board.limits.idle_permille;
        let newcomer = self.level.missed_by(taker.load, taker.capacity, idle);
        let enough = (!newcomer && 0 < needed && needed <= most)
            .then(|| movable.range((needed, 0)..=(most, usize::MAX)).find(fits))
            .flatten();
        let &(weight, _) =
            enough.or_else(|| movable.range(..=(most, usize::MAX)).rev().find(fits))?;
        let alike = movable.range((weight, 0)..=(weight, usize::MAX)).filter(fits);
        alike.map(|&(_, parcel)| parcel).max_by_key(|&parcel| {
            let gained = i64::from(self.board.shared(parcel, to));
            (gained - i64::from(self.board.shared(parcel, from)), self.board.score(to, parcel))
        })
    }

    /// The seats that carry too much, have nothing in flight and cannot be relieved by any move,
    /// whatever the bounds in flight.
    fn pressed(&self, level: Level, permille: u32) -> Vec<MemberId> {
        let Self { board, open, .. } = self;
        let stuck = |&from: &usize| {
            let seat = &board.seats[from];
            seat.in_flight == 0
                && level.exceeded_by(seat.load, seat.capacity, permille)
                && !open.iter().any(|&to| to != from && self.pick(from, to).is_some())
        };
        let mut pressed: Vec<usize> = open.iter().copied().filter(stuck).collect();
        pressed.sort_by(|&a, &b| board.compare(b, a, 0).then(a.cmp(&b)));
        pressed.into_iter().map(|seat| board.seats[seat].id.clone()).collect()
    }
}
