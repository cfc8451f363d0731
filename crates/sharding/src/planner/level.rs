//! The level: the load per capacity if all load were spread evenly.
//!
//! A unit heavier than a whole share cannot be spread. It does not count, and neither does the capacity
//! of one member: it would raise the level for the others.

/// Load per capacity, as an exact fraction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    load: u128,
    capacity: u128,
}

impl Level {
    /// The level of units, each given by its weight and whether it must stay in one piece.
    pub(super) fn of(
        units: impl Iterator<Item = (u64, bool)> + Clone,
        capacities: impl Iterator<Item = u32> + Clone,
    ) -> Self {
        let members = capacities.clone().count() as u128;
        let largest = capacities.clone().max().unwrap_or(1);
        let total: u128 = capacities.map(u128::from).sum();
        let all: u128 = units.clone().map(|(weight, _)| u128::from(weight)).sum();
        // Fractions of a capacity do not matter here, because it is scaled up before it is divided.
        let mut level = Self { load: all, capacity: total.max(1) };
        loop {
            let too_big = |weight: u64| level.exceeded_by(weight, largest, 1000);
            let big = units.clone().filter(|&(weight, whole)| whole && too_big(weight));
            let (count, load) = big.fold((0u128, 0u128), |(count, load), (weight, _)| {
                (count + 1, load + u128::from(weight))
            });
            let next = Self {
                load: all - load,
                capacity: (total - (total * count / members.max(1)).min(total)).max(1),
            };
            if count >= members || next.load * level.capacity >= level.load * next.capacity {
                return level;
            }
            level = next;
        }
    }

    /// Whether a load is more than that many thousandths of the share of a capacity.
    pub(super) fn exceeded_by(self, load: u64, capacity: u32, permille: u32) -> bool {
        u128::from(load) * self.capacity * 1000 > self.scaled(capacity, permille)
    }

    /// Whether a load is less than that many thousandths of the share of a capacity.
    pub(super) fn missed_by(self, load: u64, capacity: u32, permille: u32) -> bool {
        u128::from(load) * self.capacity * 1000 < self.scaled(capacity, permille)
    }

    /// That many thousandths of the share of a capacity, rounded down.
    pub(super) fn share(self, capacity: u32, permille: u32) -> u64 {
        let share = self.scaled(capacity, permille) / (self.capacity * 1000);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn scaled(self, capacity: u32, permille: u32) -> u128 {
        self.load * u128::from(capacity) * u128::from(permille)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(weights: &[u64], capacities: &[u32], expect: u64) {
        let units = weights.iter().map(|&weight| (weight, true));
        let level = Level::of(units, capacities.iter().copied());
        assert_eq!(level.share(100, 1000), expect, "{weights:?} on {capacities:?}");
    }

    #[test]
    fn what_cannot_be_spread_does_not_count() {
        check(&[10, 10, 10, 10], &[100, 100], 20);
        check(&[60, 10, 10, 10, 10], &[100; 5], 10);
        check(&[600, 60, 10, 10, 10], &[100; 5], 10);
        check(&[60, 60], &[100, 100, 100], 0);
        check(&[], &[100], 0);
    }

    #[test]
    fn what_can_be_split_counts_in_full() {
        let units = [(60, false), (10, true), (10, true), (10, true), (10, true)].into_iter();
        assert_eq!(Level::of(units, [100; 5].into_iter()).share(100, 1000), 20);
    }
}
