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

use model::Moment;

/// The most objects of which the busy time is kept.
const OBJECTS: usize = 16;
/// In this time two thirds of a busy time fade.
const FADING: Duration = Duration::from_secs(60);

/// The objects with the most busy time lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heaviest {
    /// Per hash of an object: its busy time in seconds.
    objects: Vec<(u64, f64)>,
    faded: Option<Moment>,
}

impl Heaviest {
    /// Counts busy time of an object.
    pub(crate) fn add(&mut self, object: u64, busy: Duration) {
        let busy = busy.as_secs_f64();
        if let Some((_, time)) = self.objects.iter_mut().find(|(known, _)| *known == object) {
            *time += busy;
        } else if self.objects.len() < OBJECTS {
            self.objects.push((object, busy));
        } else if let Some(lightest) = self.objects.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1)) {
            *lightest = (object, lightest.1 + busy);
        }
    }

    /// The part of the heaviest object in the time of all, in thousandths.
    pub(crate) fn permille(&mut self, now: Moment) -> u16 {
        let faded = self.faded.unwrap_or(now);
        let keep = (-now.since(faded).as_secs_f64() / FADING.as_secs_f64()).exp();
        self.faded = Some(now.max(faded));
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
        if all > 0.0 { part(most / all) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(s: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(s))
    }

    #[test]
    fn what_was_heavy_long_ago_does_not_count() {
        let mut heaviest = Heaviest::default();
        heaviest.add(1, Duration::from_secs(100));
        assert_eq!(heaviest.permille(at(0)), 1_000);
        for s in 1..600 {
            heaviest.permille(at(s));
            heaviest.add(2 + s % 10, Duration::from_secs(1));
        }
        assert!(heaviest.permille(at(600)) < 150);
    }

    proptest! {
        /// For any work of any objects.
        #[test]
        fn the_estimate_is_never_too_low_and_little_too_high(
            work in vec((0..60u64, 1..500u64), 1..400),
        ) {
            let mut heaviest = Heaviest::default();
            let mut exact = std::collections::BTreeMap::<u64, u64>::new();
            for &(object, ms) in &work {
                heaviest.add(object, Duration::from_millis(ms));
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
