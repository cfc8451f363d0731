//! When keys were last reconciled without a failure, for people who ask about one. Pure.
//!
//! A table of one size, 32 KiB: a key takes the slot of another one, so that of many keys only those that ended last
//! are known.

use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use model::{Moment, ObjectKey};

const SLOTS: usize = 1 << 12;

/// The successes of a queue, by the hashes of their keys.
#[derive(Debug, Default)]
pub(super) struct Successes {
    slots: Vec<Slot>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The part of the hash that does not say which slot it is.
    tag: u32,
    /// Seconds since the clock's origin, and one; 0 for nothing.
    at: u32,
}

impl Successes {
    /// A run of a key did not fail.
    pub(super) fn succeeded(&mut self, key: &ObjectKey, now: Moment) {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); SLOTS];
        }
        let (slot, tag) = self.slot(key);
        let seconds = now.since_origin().as_secs().saturating_add(1);
        self.slots[slot] = Slot { tag, at: u32::try_from(seconds).unwrap_or(u32::MAX) };
    }

    /// How long ago that was, if it is known.
    pub(super) fn of(&self, key: &ObjectKey, now: Moment) -> Option<Duration> {
        let (slot, tag) = self.slot(key);
        let known = self.slots.get(slot).filter(|known| known.tag == tag && known.at > 0)?;
        let at = Duration::from_secs(u64::from(known.at - 1));
        Some(now.since(Moment::from_origin(at)))
    }

    fn slot(&self, key: &ObjectKey) -> (usize, u32) {
        let hash = self.hasher.hash_one(key);
        let slot = usize::try_from(hash % SLOTS as u64).expect("fewer than SLOTS");
        (slot, u32::try_from(hash >> 32).expect("half of it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("east".parse().unwrap(), Some("ns"), name)
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn the_last_success_of_a_key_is_known() {
        let mut successes = Successes::default();
        assert_eq!(successes.of(&key("a"), at(9)), None);
        successes.succeeded(&key("a"), at(0));
        assert_eq!(successes.of(&key("a"), at(9)), Some(Duration::from_secs(9)));
        successes.succeeded(&key("a"), at(5));
        assert_eq!(successes.of(&key("a"), at(9)), Some(Duration::from_secs(4)));
        assert_eq!(successes.of(&key("b"), at(9)), None);
    }

    #[test]
    fn many_keys_take_no_more_room_and_the_last_are_known() {
        let mut successes = Successes::default();
        let names: Vec<String> = (0..10 * SLOTS).map(|number| number.to_string()).collect();
        for name in &names {
            successes.succeeded(&key(name), at(1));
        }
        assert_eq!(successes.slots.len(), SLOTS);
        let known = names.iter().filter(|name| successes.of(&key(name), at(1)).is_some());
        // Each slot has one, and hardly a slot is without.
        assert!((SLOTS / 10 * 9..=SLOTS).contains(&known.count()));
        assert!(successes.of(&key(names.last().unwrap()), at(1)).is_some());
    }
}
