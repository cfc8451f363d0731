//! Moves from members that carry more than their share to members that carry less.

use std::collections::BTreeSet;

use model::{MemberId, ShardId};

use super::board::{Board, BoardMember, UnitState};
use super::level::Level;
use super::{Move, Reason, Role};

/// As many units of the same weight are compared before one of them moves. Those of a cluster are neighbours, so that
/// they move one after another.
const COMPARED: usize = 256;

/// The result of balancing.
pub(super) struct Balancing {
    pub(super) moves: Vec<Move>,
    pub(super) share: u64,
    pub(super) stuck: Vec<MemberId>,
    pub(super) confined: BTreeSet<ShardId>,
}

struct Balance<'b, 'a> {
    board: &'b mut Board<'a>,
    level: Level,
    /// Per member: the units that may move away, by weight.
    movable: Vec<BTreeSet<(u64, usize)>>,
    /// Per member: the heaviest unit that may not move away.
    fixed: Vec<u64>,
    /// Per member: the heaviest part of a unit that no split could divide.
    rigid: Vec<u64>,
    /// Per member: whether it carried more than the bound. It gives units away until it is calm.
    overloaded: Vec<bool>,
    /// The open members.
    open: Vec<usize>,
    /// The number of units at the members that share the load, and the capacity of these members.
    units: u64,
    capacity: u64,
}

/// Plans the moves that balance, and finds the members that no move would help.
pub(super) fn balance(board: &mut Board<'_>) -> Balancing {
    let open: Vec<usize> =
        (0..board.members.len()).filter(|&m| board.members[m].role == Role::Open).collect();
    let capacity: u64 = open.iter().map(|&m| u64::from(board.members[m].capacity)).sum();
    let mean = u32::try_from(capacity / open.len().max(1) as u64).unwrap_or(1);
    let (level, fine) = (board.level(false, false), board.level(false, true));
    let share = fine.share(mean, 1000);
    let sharing = || board.members.iter().filter(|member| member.shares());
    let mut balance = Balance {
        units: sharing().map(|member| member.units as u64).sum(),
        capacity: sharing().map(|member| u64::from(member.capacity)).sum::<u64>().max(1),
        level,
        movable: Vec::new(),
        fixed: Vec::new(),
        rigid: Vec::new(),
        overloaded: vec![false; board.members.len()],
        open,
        board,
    };
    // Most plans end here, before the units are sorted.
    if balance.open.len() < 2 || !balance.is_off(fine) {
        let (moves, stuck) = (Vec::new(), Vec::new());
        return Balancing { moves, share, stuck, confined: BTreeSet::new() };
    }
    balance.sort_units();
    let moves = balance.run();
    let stuck = balance.stuck(fine);
    let confined = balance.confined(&stuck);
    let stuck = stuck.into_iter().map(|member| balance.board.members[member].id.clone()).collect();
    Balancing { moves, share, stuck, confined }
}

impl Balance<'_, '_> {
    /// Whether some member seems to carry too much or too little.
    fn is_off(&self, fine: Level) -> bool {
        let limits = self.board.limits;
        self.open.iter().any(|&member| {
            let BoardMember { load, capacity, .. } = self.board.members[member];
            self.level.exceeded_by(load, capacity, limits.overload_permille)
                || fine.exceeded_by(load, capacity, limits.overload_permille)
                || self.is_newcomer(member)
        })
    }

    fn sort_units(&mut self) {
        // Sorted at once, which costs less than one by one.
        let mut movable = vec![Vec::new(); self.board.members.len()];
        self.fixed = vec![0; self.board.members.len()];
        self.rigid = vec![0; self.board.members.len()];
        for (i, unit) in self.board.units.iter().enumerate() {
            let Some(member) = unit.at else { continue };
            self.rigid[member] = self.rigid[member].max(unit.weight - unit.divisible);
            if unit.state == UnitState::Settled(member) && !unit.rests() {
                movable[member].push((unit.weight, i));
            } else {
                self.fixed[member] = unit.weight.max(self.fixed[member]);
            }
        }
        self.movable = movable.into_iter().map(BTreeSet::from_iter).collect();
    }

    fn run(&mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        while let Some((unit, from, to)) = self.exchange() {
            self.overloaded[from] |= self.exceeds(from, self.board.limits.overload_permille);
            moves.extend(self.board.moves(unit, Some(to), Reason::Balance));
            self.movable[from].remove(&(self.board.units[unit].weight, unit));
            self.fixed[to] = self.board.units[unit].weight.max(self.fixed[to]);
            self.board.put(unit, to);
            self.board.members[to].arriving += self.board.units[unit].weight;
            self.board.start_move(Some(from), Some(to));
        }
        moves
    }

    /// The next unit to move, its giver and its taker. Looks at the lightest taker first, and at givers
    /// from the heaviest down.
    ///
    /// If a taker has room but reached its bound in flight, balancing waits for it: else the next best
    /// would get shards that a newcomer should get.
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
                    && let Some(unit) = self.pick(from, to)
                {
                    return Some((unit, from, to));
                }
            }
        }
        None
    }

    fn is_due(&self, from: usize, to: usize) -> bool {
        let limits = self.board.limits;
        let relieved = self.overloaded[from] && self.lacks_units(to);
        let give = if relieved { limits.calm_permille } else { limits.overload_permille };
        let BoardMember { load, capacity, .. } = self.board.members[from];
        self.exceeds(from, give)
            || (self.wants_more(to) && self.level.exceeded_by(load, capacity, 1000))
    }

    /// Whether a member has so little, without what is arriving, that it must have joined recently.
    fn is_newcomer(&self, member: usize) -> bool {
        let BoardMember { load, capacity, arriving, .. } = self.board.members[member];
        self.level.missed_by(load - arriving, capacity, self.board.limits.idle_permille)
    }

    /// Whether a member is a newcomer that has less than its share.
    fn wants_more(&self, member: usize) -> bool {
        self.is_newcomer(member) && self.has_room(member) && self.lacks_units(member)
    }

    fn has_room(&self, member: usize) -> bool {
        let BoardMember { load, capacity, .. } = self.board.members[member];
        self.level.missed_by(load, capacity, 2000 - self.board.limits.calm_permille)
    }

    /// Whether a member has fewer units than it would have if all weighed alike.
    fn lacks_units(&self, member: usize) -> bool {
        let BoardMember { units: its, capacity: of, .. } = self.board.members[member];
        (its as u64) < (self.units * u64::from(of)).div_ceil(self.capacity)
    }

    /// Whether a member carries more than that many thousandths of its share. If one of its units is
    /// heavier than its share, that unit is its share.
    fn exceeds(&self, member: usize, permille: u32) -> bool {
        let movable = self.movable[member].last().map_or(0, |&(weight, _)| weight);
        let heaviest = u128::from(movable.max(self.fixed[member]));
        let Self { level, board, .. } = self;
        let load = board.members[member].load;
        level.exceeded_by(load, board.members[member].capacity, permille)
            && u128::from(load) * 1000 > heaviest * u128::from(permille)
    }

    /// The unit that `to` may take without becoming the heavier of the two: the lightest that makes
    /// `from` calm, else the heaviest. Of several alike, the one whose move duplicates the fewest caches.
    fn pick(&self, from: usize, to: usize) -> Option<usize> {
        let (giver, taker) = (&self.board.members[from], &self.board.members[to]);
        let (theirs, ours) = (u128::from(taker.capacity), u128::from(giver.capacity));
        let gap = (u128::from(giver.load) * theirs).checked_sub(u128::from(taker.load) * ours)?;
        let most = u64::try_from(gap / (theirs + ours)).unwrap_or(u64::MAX);
        let calm = self.level.share(giver.capacity, self.board.limits.calm_permille);
        let needed = giver.load.saturating_sub(calm);
        let movable = &self.movable[from];
        let fits = |&&(_, unit): &&(u64, usize)| self.board.takes(to, unit);
        // A newcomer gets its share in as few moves as possible.
        let idle = self.board.limits.idle_permille;
        let is_empty = self.level.missed_by(taker.load, taker.capacity, idle);
        let enough = (!is_empty && 0 < needed && needed <= most)
            .then(|| movable.range((needed, 0)..=(most, usize::MAX)).find(fits))
            .flatten();
        let &(weight, _) =
            enough.or_else(|| movable.range(..=(most, usize::MAX)).rev().find(fits))?;
        let alike = movable.range((weight, 0)..=(weight, usize::MAX)).filter(fits).take(COMPARED);
        alike.map(|&(_, unit)| unit).max_by_key(|&unit| {
            let gained = i64::from(self.board.shared(unit, to));
            (gained - i64::from(self.board.shared(unit, from)), self.board.score(to, unit))
        })
    }

    /// The members that carry too much, have nothing in flight and that no move would relieve, whatever
    /// the bounds in flight: there is none, or none is due. If a part that cannot be divided is heavier
    /// than the share, that part is the share, as in `exceeds`.
    fn stuck(&self, level: Level) -> Vec<usize> {
        let Self { board, open, .. } = self;
        let is_stuck = |&from: &usize| {
            let member = &board.members[from];
            let permille = board.limits.overload_permille;
            let rigid = u128::from(self.rigid[from]) * u128::from(permille);
            member.in_flight == 0
                && u128::from(member.load) * 1000 > rigid
                && level.exceeded_by(member.load, member.capacity, permille)
                && !open
                    .iter()
                    .any(|&to| to != from && self.is_due(from, to) && self.pick(from, to).is_some())
        };
        let mut stuck: Vec<usize> = open.iter().copied().filter(is_stuck).collect();
        stuck.sort_by(|&a, &b| board.compare(b, a, 0).then(a.cmp(&b)));
        stuck
    }

    /// The shards of these members that no other member could take.
    fn confined(&self, members: &[usize]) -> BTreeSet<ShardId> {
        let Self { board, open, .. } = self;
        if board.alike {
            return BTreeSet::new();
        }
        let stuck = |unit: usize| board.units[unit].at.filter(|member| members.contains(member));
        let confined = (0..board.units.len()).filter(|&unit| {
            stuck(unit).is_some_and(|at| !open.iter().any(|&m| m != at && board.takes(m, unit)))
        });
        confined
            .flat_map(|unit| board.units[unit].shards.iter().map(|shard| shard.id.clone()))
            .collect()
    }
}
