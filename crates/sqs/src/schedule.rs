//! When a queue is looked at: at regular times that follow from its uid. Pure.
//!
//! A queue has a period, the interval of its spec a tenth more or less, and within the period a
//! phase. Both follow from the uid. So thousands of queues that were created at once, or that one
//! replica takes over at once, are looked at evenly over the interval, and every replica that ever
//! holds a queue looks at it at the same times.

use std::time::Duration;

use jiff::Timestamp;
use sdk::uid_hash;

/// A period is the interval times 0.9 to 1.1.
const LEAST: f64 = 0.9;
const SPREAD: f64 = 0.2;

/// The time between two looks at the queue of the object with this uid.
pub(super) fn period(uid: &str, interval: Duration) -> Duration {
    interval.mul_f64(LEAST + SPREAD * fraction(uid, 1)).max(Duration::from_secs(1))
}

/// When the queue is looked at next after a look at `after`: at the first of its times that is at
/// least half a period away.
pub(super) fn next(uid: &str, interval: Duration, after: Timestamp) -> Timestamp {
    let period = millis(period(uid, interval));
    let phase = millis(period_part(uid, period));
    let earliest = after.as_millisecond() + period / 2;
    let since = (earliest - phase).rem_euclid(period);
    let at = if since == 0 { earliest } else { earliest + period - since };
    Timestamp::from_millisecond(at).unwrap_or(Timestamp::MAX)
}

fn period_part(uid: &str, period: i64) -> Duration {
    Duration::from_millis(period.unsigned_abs()).mul_f64(fraction(uid, 2))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4).max(1)
}

/// A number from 0 to 1 that the uid gives; another for each `salt`.
fn fraction(uid: &str, salt: u64) -> f64 {
    (mixed(uid, salt) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A hash of a text; another for each `salt`.
pub(super) fn mixed(text: &str, salt: u64) -> u64 {
    // FNV-1a mixes its high bits badly, so the finaliser of splitmix64 follows.
    let mut hash = uid_hash(text) ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_queue_is_looked_at_once_in_its_period() {
        for number in 0..100 {
            let uid = format!("uid-{number}");
            let period = period(&uid, HOUR);
            assert!(period >= HOUR.mul_f64(0.9) && period <= HOUR.mul_f64(1.1), "{period:?}");
            let mut at: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
            let first = next(&uid, HOUR, at);
            let gap = first.duration_since(at).unsigned_abs();
            assert!(gap >= period / 2 && gap <= period + period / 2, "{gap:?} of {period:?}");
            at = first;
            for _ in 0..5 {
                let then = next(&uid, HOUR, at);
                assert_eq!(then.duration_since(at).unsigned_abs().as_secs(), period.as_secs());
                // A look that is late by a little does not move those that follow.
                let late = at + Duration::from_secs(60);
                assert_eq!(next(&uid, HOUR, late), then);
                at = then;
            }
        }
    }

    /// 5,000 queues that were made at once and are looked at hourly: from one period and a half on,
    /// when the last has had its first look, an even stream.
    #[test]
    fn looks_at_queues_that_were_made_at_once_are_an_even_stream() {
        let made: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let mut minutes = [0_u32; 240];
        for number in 0..5_000 {
            let uid = format!("7b0e4b1c-51a4-4f0e-9d50-{number:012}");
            let mut at = next(&uid, HOUR, made);
            while let Some(count) = usize::try_from(at.duration_since(made).as_secs() / 60)
                .ok()
                .and_then(|m| minutes.get_mut(m))
            {
                *count += 1;
                at = next(&uid, HOUR, at);
            }
        }
        for (minute, count) in minutes.iter().enumerate().take(180).skip(120) {
            println!("minute {minute:3} {count:4} {}", "#".repeat(*count as usize / 2));
        }
        let hour = &minutes[120..180];
        let mean = f64::from(hour.iter().sum::<u32>()) / hour.len() as f64;
        let most = f64::from(hour.iter().max().copied().unwrap_or_default());
        println!("{most} in the busiest minute, {mean:.1} on average: {:.2}", most / mean);
        assert!(most / mean < 1.5, "{most} in a minute, {mean} on average");
        // Nor is there a rush before: none of the first looks comes together with many others.
        let first = minutes[..120].iter().max().copied().unwrap_or_default();
        assert!(f64::from(first) < 2.0 * mean, "{first} in a minute, {mean} on average");
    }
}
