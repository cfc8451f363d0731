//! Which part of a shard's busy time its heaviest object takes: an estimate in little memory. Pure.
//!
//! The busy time of at most `OBJECTS` objects is kept. An object that has no place takes that of the
//! lightest and the lightest's time with it (*space saving*, Metwally et al. 2005). Time fades, so that an
//! object that was heavy long ago does not count.
//!
//! # Invariants
//! - The kept times add up to the time of all objects.
//! - No object's time is estimated too low, and none more than one part in `OBJECTS` of the time of all
//!   too high. So a load that is of one object is never taken for one that can be divided.

use std::time::Duration;

use crate::Moment;

/// The most objects of which the busy time is kept.
const OBJECTS: usize = 16;
/// In this time two thirds of a busy time fade.
const FADING: Duration = Duration::from_secs(60);

/// For so long after a shard was opened nothing counts: at first all its objects are reconciled once,
/// which says nothing about its later load.
const WARM_UP: Duration = Duration::from_secs(15);

/// The objects with the most busy time lately.
#[derive(Clone, Debug)]
pub struct Heaviest {
    /// Per hash of an object: its busy time in seconds.
    objects: Vec<(u64, f64)>,
    counts_from: Moment,
    faded: Moment,
}

impl Heaviest {
    /// Those of a shard that is opened now.
    pub fn new(opened: Moment) -> Self {
        Self { objects: Vec::new(), counts_from: opened + WARM_UP, faded: opened }
    }

    /// Counts the time in which an object was reconciled.
    pub fn add(&mut self, object: u64, from: Moment, until: Moment) {
        let busy = until.since(from.max(self.counts_from)).as_secs_f64();
        if busy <= 0.0 {
            return;
        }
        if let Some((_, time)) = self.objects.iter_mut().find(|(known, _)| *known == object) {
            *time += busy;
        } else if self.objects.len() < OBJECTS {
            self.objects.push((object, busy));
        } else if let Some(lightest) = self.objects.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1)) {
            *lightest = (object, lightest.1 + busy);
        }
    }

    /// The part of the heaviest object in the time of all, in thousandths. Before anything is counted,
    /// all may be of one object.
    pub fn permille(&mut self, now: Moment) -> u16 {
        let keep = (-now.since(self.faded).as_secs_f64() / FADING.as_secs_f64()).exp();
        self.faded = now.max(self.faded);
        for (_, time) in &mut self.objects {
            *time *= keep;
        }
        let all: f64 = self.objects.iter().map(|(_, time)| time).sum();
        let most = self.objects.iter().map(|(_, time)| *time).fold(0.0, f64::max);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a thousand"
        )]
        let part = |part: f64| (part * 1e3).ceil() as u16;
        if all > 0.0 { part(most / all) } else { 1_000 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(WARM_UP + Duration::from_millis(ms))
    }

    fn opened() -> Heaviest {
        Heaviest::new(Moment::default())
    }

    #[test]
    fn what_was_heavy_long_ago_does_not_count() {
        let mut heaviest = opened();
        heaviest.add(1, at(0), at(100_000));
        assert_eq!(heaviest.permille(at(100_000)), 1_000);
        for s in 101..700 {
            heaviest.permille(at(s * 1_000));
            heaviest.add(2 + s % 10, at(s * 1_000), at(s * 1_000 + 1_000));
        }
        assert!(heaviest.permille(at(700_000)) < 150);
    }

    #[test]
    fn the_first_reconciles_do_not_count() {
        let mut heaviest = opened();
        for object in 0..10 {
            heaviest.add(object, Moment::default(), at(0));
        }
        assert_eq!(heaviest.permille(at(0)), 1_000);
        heaviest.add(1, Moment::default(), at(5));
        heaviest.add(2, Moment::default(), at(15));
        assert_eq!(heaviest.permille(at(15)), 750);
    }

    proptest! {
        /// For any work of any objects.
        #[test]
        fn the_estimate_is_never_too_low_and_little_too_high(
            work in vec((0..60u64, 1..500u64), 1..400),
        ) {
            let mut heaviest = opened();
            let mut exact = std::collections::BTreeMap::<u64, u64>::new();
            for &(object, ms) in &work {
                heaviest.add(object, at(0), at(ms));
                *exact.entry(object).or_default() += ms;
            }
            let all: u64 = exact.values().sum();
            let most = exact.values().max().unwrap() * 1_000;
            let told = u64::from(heaviest.permille(at(0))) * all;
            prop_assert!(told >= most, "{told} {most}");
            prop_assert!(told <= most + all * (1_000 / OBJECTS as u64 + 2), "{told} {most}");
        }
    }
}
