//! Moves from members that carry more than their share to members that carry less.

use std::collections::BTreeSet;

use model::MemberId;

use super::board::{Board, Seat, Stance};
use super::level::Level;
use super::{Move, Reason, Role};

/// What balancing comes to.
pub(super) struct Balancing {
    pub(super) moves: Vec<Move>,
    pub(super) share: u64,
    pub(super) pressed: Vec<MemberId>,
}

struct Balance<'b, 'a> {
    board: &'b mut Board<'a>,
    level: Level,
    /// Per seat: the parcels that may move from it, by weight.
    movable: Vec<BTreeSet<(u64, usize)>>,
    /// Per seat: the heaviest parcel that may not.
    fixed: Vec<u64>,
    /// Per seat: whether it was found to carry more than the bound. It is relieved until calm.
    overloaded: Vec<bool>,
    /// The seats that take part.
    open: Vec<usize>,
    /// How many parcels are on the seats that share the load, and what those can carry together.
    parcels: u64,
    capacity: u64,
}

/// Plans the moves that balance, and says whom none would help.
pub(super) fn balance(board: &mut Board<'_>) -> Balancing {
    let open: Vec<usize> =
        (0..board.seats.len()).filter(|&s| board.seats[s].role == Role::Open).collect();
    let capacity: u64 = open.iter().map(|&s| u64::from(board.seats[s].capacity)).sum();
    let mean = u32::try_from(capacity / open.len().max(1) as u64).unwrap_or(1);
    let (level, fine) = (board.level(false, false), board.level(false, true));
    let share = fine.share(mean, 1000);
    let sharing = || board.seats.iter().filter(|seat| seat.shares());
    let mut balance = Balance {
        parcels: sharing().map(|seat| seat.parcels as u64).sum(),
        capacity: sharing().map(|seat| u64::from(seat.capacity)).sum::<u64>().max(1),
        level,
        movable: Vec::new(),
        fixed: Vec::new(),
        overloaded: vec![false; board.seats.len()],
        open,
        board,
    };
    // Most plans end here: without the parcels sorted.
    if balance.open.len() < 2 || !balance.is_off(fine) {
        return Balancing { moves: Vec::new(), share, pressed: Vec::new() };
    }
    balance.sort_parcels();
    let moves = balance.run();
    let pressed = balance.pressed(fine);
    Balancing { moves, share, pressed }
}

impl Balance<'_, '_> {
    /// Whether anybody seems to carry too much or too little.
    fn is_off(&self, fine: Level) -> bool {
        let limits = self.board.limits;
        self.open.iter().any(|&seat| {
            let Seat { load, capacity, .. } = self.board.seats[seat];
            self.level.exceeded_by(load, capacity, limits.overload_permille)
                || fine.exceeded_by(load, capacity, limits.overload_permille)
                || self.is_newcomer(seat)
        })
    }

    fn sort_parcels(&mut self) {
        self.movable = vec![BTreeSet::new(); self.board.seats.len()];
        self.fixed = vec![0; self.board.seats.len()];
        for (i, parcel) in self.board.parcels.iter().enumerate() {
            let Some(seat) = parcel.at else { continue };
            if parcel.stance == Stance::Settled(seat) {
                self.movable[seat].insert((parcel.weight, i));
            } else {
                self.fixed[seat] = parcel.weight.max(self.fixed[seat]);
            }
        }
    }

    fn run(&mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        while let Some((parcel, from, to)) = self.exchange() {
            self.overloaded[from] |= self.exceeds(from, self.board.limits.overload_permille);
            moves.extend(self.board.moves(parcel, Some(to), Reason::Balance));
            self.movable[from].remove(&(self.board.parcels[parcel].weight, parcel));
            self.fixed[to] = self.board.parcels[parcel].weight.max(self.fixed[to]);
            self.board.put(parcel, to);
            self.board.seats[to].arriving += self.board.parcels[parcel].weight;
            self.board.take_off(Some(from), Some(to));
        }
        moves
    }

    /// The next parcel to move, from where, to where. Looks at the lightest taker first and at its
    /// givers from the heaviest down.
    ///
    /// A taker with room that has as much in flight as it may is waited for: the next best would
    /// get shards that a newcomer is to have.
    fn exchange(&self) -> Option<(usize, usize, usize)> {
        let mut by_load = self.open.clone();
        by_load.sort_by(|&a, &b| self.board.compare(a, b, 0).then(a.cmp(&b)));
        for &to in &by_load {
            if !self.board.is_free(to) {
                if self.has_room(to) {
                    return None;
                }
                continue;
            }
            for &from in by_load.iter().rev() {
                if self.board.compare(from, to, 0).is_le() {
                    break;
                }
                if self.board.is_free(from)
                    && self.is_due(from, to)
                    && let Some(parcel) = self.pick(from, to)
                {
                    return Some((parcel, from, to));
                }
            }
        }
        None
    }

    fn is_due(&self, from: usize, to: usize) -> bool {
        let limits = self.board.limits;
        let relieved = self.overloaded[from] && self.lacks_parcels(to);
        let give = if relieved { limits.calm_permille } else { limits.overload_permille };
        let Seat { load, capacity, .. } = self.board.seats[from];
        self.exceeds(from, give)
            || (self.is_to_be_filled(to) && self.level.exceeded_by(load, capacity, 1000))
    }

    /// Whether a seat has so little, what is on its way to it aside, that it must have come lately.
    fn is_newcomer(&self, seat: usize) -> bool {
        let Seat { load, capacity, arriving, .. } = self.board.seats[seat];
        self.level.missed_by(load - arriving, capacity, self.board.limits.idle_permille)
    }

    /// Whether a newcomer still lacks what makes up its share.
    fn is_to_be_filled(&self, seat: usize) -> bool {
        self.is_newcomer(seat) && self.has_room(seat) && self.lacks_parcels(seat)
    }

    fn has_room(&self, seat: usize) -> bool {
        let Seat { load, capacity, .. } = self.board.seats[seat];
        self.level.missed_by(load, capacity, 2000 - self.board.limits.calm_permille)
    }

    /// Whether a seat has fewer parcels than would be its part if all weighed alike.
    fn lacks_parcels(&self, seat: usize) -> bool {
        let Seat { parcels: its, capacity: of, .. } = self.board.seats[seat];
        (its as u64) < (self.parcels * u64::from(of)).div_ceil(self.capacity)
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
        let is_empty = self.level.missed_by(taker.load, taker.capacity, idle);
        let enough = (!is_empty && 0 < needed && needed <= most)
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

    /// The seats that carry too much, have nothing in flight and will not be relieved by any move,
    /// whatever the bounds in flight: there is none, or none that is due.
    fn pressed(&self, level: Level) -> Vec<MemberId> {
        let Self { board, open, .. } = self;
        let stuck = |&from: &usize| {
            let seat = &board.seats[from];
            seat.in_flight == 0
                && level.exceeded_by(seat.load, seat.capacity, board.limits.overload_permille)
                && !open
                    .iter()
                    .any(|&to| to != from && self.is_due(from, to) && self.pick(from, to).is_some())
        };
        let mut pressed: Vec<usize> = open.iter().copied().filter(stuck).collect();
        pressed.sort_by(|&a, &b| board.compare(b, a, 0).then(a.cmp(&b)));
        pressed.into_iter().map(|seat| board.seats[seat].id.clone()).collect()
    }
}
