//! What is recorded of a restart, and what content asks for, compared with that. Pure.
//!
//! A restart is recorded before it is made, so that a crash at any point repeats nothing:
//!
//! ```text
//! hash = H0 ──content is H1──▶ changedAt ──window over──▶ pending = {H1, targets} ──▶ started
//!                                 │  what changes                │  after a crash the same is done        │
//!                                 └─ meanwhile counts            └─ again. A template that has H1,        ▼
//!                                    with it                        and a Pod whose uid is gone,     all is new:
//!                                                                   are not touched twice.           hash = H1
//! ```
//!
//! Each arrow is one write. `pending` names uids, so Pods that replace evicted ones are never mistaken for
//! them. Content that changes while a restart is pending is the next change, also when it changes back.

use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use sdk::condition::{rest, whole_seconds};
use serde::{Deserialize, Serialize};

use super::pending::Pending;

/// What was last found, decided and done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The digest, in hexadecimal, of the content for which the Pods were last restarted, or of the first
    /// content seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// When a change was seen that no restart is decided for yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub changed_at: Option<Time>,
    /// A restart that is decided: exactly these are restarted, however many attempts it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// Number of changes for which something was restarted.
    #[serde(default)]
    pub restarts: i64,
    /// When the last restart was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub last_restart: Option<Time>,
}

/// What content asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing: it is the recorded one, or is seen for the first time.
    Current,
    /// It is another, and may change again within this time.
    Wait(Duration),
    /// A restart: it is another.
    Restart,
    /// The end of a restart that is recorded.
    Follow(Pending),
}

impl Record {
    /// What content of this digest asks for, if changes within `window` count as one.
    pub(crate) fn decide(&self, hash: &str, now: Timestamp, window: Duration) -> Decision {
        match (&self.pending, &self.hash) {
            (Some(pending), _) if pending.hash == hash => Decision::Follow(pending.clone()),
            (None, None) => Decision::Current,
            (None, Some(recorded)) if recorded == hash => Decision::Current,
            _ => {
                let since = self.changed_at.as_ref().map_or(now, |changed| changed.0);
                rest(since, window, now).map_or(Decision::Restart, Decision::Wait)
            }
        }
    }

    /// The content is the one of the last restart, or is seen for the first time.
    #[must_use]
    pub(crate) fn seen(self, hash: String) -> Self {
        Self { hash: Some(hash), changed_at: None, pending: None, ..self }
    }

    /// The content is another, and may change again.
    #[must_use]
    pub(crate) fn changed(self, now: Timestamp) -> Self {
        let changed_at = self.changed_at.clone().or_else(|| Some(next_second(now)));
        Self { changed_at, ..self }
    }

    /// A restart is decided, or is this far. What changed meanwhile counts with it, or changed back.
    #[must_use]
    pub(crate) fn decided(self, pending: Pending) -> Self {
        Self { changed_at: None, pending: Some(pending), ..self }
    }

    /// A restart is finished.
    #[must_use]
    pub(crate) fn restarted(self, pending: &Pending, now: Timestamp) -> Self {
        let any = pending.targets() > 0;
        let restarts = self.restarts + i64::from(any);
        let last_restart = if any { Some(whole_seconds(now)) } else { self.last_restart.clone() };
        Self { restarts, last_restart, ..self }.seen(pending.hash.clone())
    }
}

/// The first whole second that is not before `now`: what is recorded has no fractions.
pub(crate) fn next_second(now: Timestamp) -> Time {
    let next = now.checked_add(999_999_999.nanoseconds()).unwrap_or(now);
    whole_seconds(next)
}

#[cfg(test)]
mod tests {
    use super::super::pending::PodRef;
    use super::*;

    const WINDOW: Duration = Duration::from_secs(5);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seen(hash: &str) -> Record {
        Record::default().seen(hash.to_owned())
    }

    fn pending(hash: &str) -> Pending {
        let pods = vec![PodRef { name: "a".into(), uid: "u".into(), controller: None }];
        Pending { hash: hash.to_owned(), pods, ..Pending::default() }
    }

    /// Goes on with a record until nothing is left to do at this time, and returns the words.
    fn turn(record: &mut Record, hash: &str, second: i64) -> Vec<&'static str> {
        let mut words = Vec::new();
        loop {
            let before = std::mem::take(record);
            let (word, after) = match before.decide(hash, at(second), WINDOW) {
                Decision::Current => ("current", before.seen(hash.to_owned())),
                Decision::Wait(_) => ("wait", before.changed(at(second))),
                Decision::Restart => ("restart", before.decided(pending(hash))),
                Decision::Follow(pending) => ("follow", before.restarted(&pending, at(second))),
            };
            *record = after;
            words.push(word);
            if word != "restart" {
                return words;
            }
        }
    }

    #[test]
    fn changes_within_the_window_are_one_restart() {
        let mut record = Record::default();
        assert_eq!(turn(&mut record, "a", 0), ["current"], "seen for the first time");
        assert_eq!(turn(&mut record, "b", 10), ["wait"]);
        assert_eq!(turn(&mut record, "c", 12), ["wait"]);
        assert_eq!(record.decide("c", at(12), WINDOW), Decision::Wait(Duration::from_secs(3)));
        assert_eq!(turn(&mut record, "c", 15), ["restart", "follow"]);
        assert_eq!(turn(&mut record, "c", 16), ["current"]);
        assert_eq!(record.restarts, 1);
        assert_eq!(turn(&mut record, "d", 20), ["wait"]);
        assert_eq!(turn(&mut record, "c", 22), ["current"], "changed back within the window");
        assert_eq!((record.restarts, &record.changed_at), (1, &None));
    }

    #[test]
    fn without_a_window_and_with_a_clock_set_back() {
        let record = seen("a");
        assert_eq!(record.decide("b", at(9), Duration::ZERO), Decision::Restart);
        let record = record.changed(at(100));
        assert_eq!(record.decide("b", at(97), WINDOW), Decision::Wait(WINDOW));
        // The clock was ahead when the change was seen.
        assert_eq!(record.decide("b", at(9), WINDOW), Decision::Restart);
    }

    #[test]
    fn a_restart_broken_off_goes_on_and_a_change_meanwhile_is_another() {
        let record = seen("a").decided(pending("b"));
        assert_eq!(record.decide("b", at(0), WINDOW), Decision::Follow(pending("b")));
        let mut other = record.clone();
        assert_eq!(turn(&mut other, "a", 10), ["wait"], "also back");
        assert_eq!(turn(&mut other, "a", 20), ["restart", "follow"]);
        let mut back = record.changed(at(10));
        assert_eq!(turn(&mut back, "b", 11), ["follow"], "it goes on when its content returns");
        assert_eq!((back.restarts, back.changed_at), (1, None));
    }

    #[test]
    fn a_restart_of_nobody_is_not_counted() {
        let nobody = Pending { pods: Vec::new(), ..pending("b") };
        let record = seen("a").restarted(&nobody, at(9));
        assert_eq!(
            (record.hash.as_deref(), record.restarts, record.last_restart),
            (Some("b"), 0, None)
        );
    }

    #[test]
    fn moments_are_recorded_in_whole_seconds_and_never_too_early() {
        let half = Timestamp::from_millisecond(1_500).unwrap();
        assert_eq!((next_second(half).0, next_second(at(2)).0), (at(2), at(2)));
    }
}
