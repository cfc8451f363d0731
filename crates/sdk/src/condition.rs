//! Status conditions: how a controller says what it found, in the form that `kubectl wait` reads.
//!
//! Owns the rule that `lastTransitionTime` moves only when a condition's status does, so that a newly
//! computed status equals the recorded one as long as nothing changed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// One finding about an object: a condition without its bookkeeping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The condition's type, such as `Ready`.
    pub type_: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, as one CamelCase word.
    pub reason: &'static str,
    /// Why, as a sentence for people.
    pub message: String,
}

/// The conditions that record `findings`, given those recorded before.
///
/// Whole seconds only: that is what a server stores, and what the next comparison will read back.
pub fn conditions(
    findings: Vec<Finding>,
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    findings
        .into_iter()
        .map(|finding| {
            let status = if finding.holds { "True" } else { "False" };
            let since = before
                .iter()
                .find(|known| known.type_ == finding.type_ && known.status == status)
                .map_or_else(|| whole_seconds(now), |known| known.last_transition_time.clone());
            Condition {
                last_transition_time: since,
                message: finding.message,
                observed_generation: generation,
                reason: finding.reason.to_owned(),
                status: status.to_owned(),
                type_: finding.type_.to_owned(),
            }
        })
        .collect()
}

/// The rest of `length` since a moment that was recorded; `None` if it is over. Clocks differ, so a moment that is ahead
/// counts as the beginning. One that is ahead by more than `length` was written by a clock that was wrong, and is over:
/// else nothing would happen until time has caught up.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold_sdk::condition::rest;
///
/// let at = |second| jiff::Timestamp::from_second(second).unwrap();
/// let minute = Duration::from_secs(60);
/// assert_eq!(rest(at(100), minute, at(115)), Some(Duration::from_secs(45)));
/// assert_eq!(rest(at(100), minute, at(160)), None);
/// assert_eq!(rest(at(100), minute, at(90)), Some(minute));
/// assert_eq!(rest(at(100), minute, at(39)), None);
/// ```
pub fn rest(since: Timestamp, length: Duration, now: Timestamp) -> Option<Duration> {
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let left = length.checked_sub(elapsed).filter(|left| !left.is_zero());
    left.filter(|_| since <= now + length)
}

/// `moment` as a server records it: without fractions of a second.
pub fn whole_seconds(moment: Timestamp) -> Time {
    Time(Timestamp::from_second(moment.as_second()).expect("the second of a valid timestamp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(holds: bool, message: &str) -> Vec<Finding> {
        vec![Finding { type_: "Ready", holds, reason: "Test", message: message.to_owned() }]
    }

    #[test]
    fn only_a_transition_moves_its_time() {
        let first = conditions(ready(false, "one"), &[], Some(1), at(10));
        let same = conditions(ready(false, "two"), &first, Some(2), at(20));
        let turned = conditions(ready(true, "three"), &same, Some(2), at(30));
        let times: Vec<_> = [&first, &same, &turned]
            .iter()
            .map(|list| list[0].last_transition_time.0.as_second())
            .collect();
        assert_eq!(times, [10, 10, 30]);
        assert_eq!((same[0].message.as_str(), same[0].observed_generation), ("two", Some(2)));
    }
}
