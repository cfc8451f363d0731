//! From the desired and the observed queue to the next step. Pure.
//!
//! ```text
//!             absent ── Create ──▶ ours, as wanted ── Keep
//!                ▲                       │ changed outside, or the spec changed
//!  deleted outside└──────────────────────┼── Correct ──▶ as wanted
//!  nobody's ── Adopt (if the spec says so), else Foreign; another's ── Foreign: never touched
//! ```
//!
//! For a minute after a change SQS may show what was before it
//! (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>),
//! so until [`SETTLED_AFTER`] what we have just set is neither set again nor treated as drift.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sdk::condition::rest;

use super::api::{DeletionPolicy, Messages, QueueStatus};
use super::desired::Desired;
use super::documents::normalised;
use super::owner::{OWNER_TAG, Place, Whose};

/// How long SQS may show the state before a change.
pub(super) const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// How long a queue must show no messages until it counts as empty. SQS's numbers are right a minute after its
/// producers have stopped, at the earliest
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html>).
pub(super) const EMPTY_AFTER: Duration = Duration::from_secs(90);
/// How old the first of two such looks may be.
const EMPTY_WITHIN: Duration = Duration::from_secs(900);

/// A queue as SQS shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// Its URL.
    pub url: String,
    /// All its attributes, JSON in the spelling of [`normalised`].
    pub attributes: BTreeMap<String, String>,
    /// All its tags.
    pub tags: BTreeMap<String, String>,
}

/// One attribute or tag that differs from what is desired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Which.
    pub name: String,
    /// The observed value.
    pub from: Option<String>,
    /// The desired value; `None` to remove a tag.
    pub to: Option<String>,
    /// Whether it had the desired value before: then somebody else changed it.
    pub drift: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create it.
    Create {
        /// Whether it existed before.
        anew: bool,
    },
    /// Set our owner tag on a queue of nobody.
    Adopt {
        /// The mark of an earlier object of this name, if it has one.
        from: Option<String>,
    },
    /// Leave it alone: it has another owner, or none.
    Foreign {
        /// The other owner, if there is one.
        owner: Option<String>,
        /// Whether the spec could adopt it.
        adoptable: bool,
    },
    /// Correct what differs.
    Correct {
        /// Attributes.
        attributes: Vec<Change>,
        /// Tags.
        tags: Vec<Change>,
    },
    /// Look again at that time: SQS may still show the state before our last change.
    Settle {
        /// When.
        until: Timestamp,
    },
    /// Nothing to do.
    Keep,
}

/// The next step for the queue.
pub(super) fn plan(
    desired: &Desired,
    place: &Place<'_>,
    observed: Option<&Observed>,
    status: &QueueStatus,
    now: Timestamp,
) -> Step {
    let settles = settles_at(status, now);
    let Some(observed) = observed else {
        return match (status.is_ours(), settles) {
            (true, Some(until)) => Step::Settle { until },
            (anew, _) => Step::Create { anew },
        };
    };
    let mark = observed.tags.get(OWNER_TAG).cloned();
    match (place.whose(mark.as_deref()), desired.adopt) {
        (Whose::Ours | Whose::OursByOldMark, _) => {}
        (Whose::Nobody, true) => return Step::Adopt { from: mark },
        (Whose::Nobody, false) => return Step::Foreign { owner: mark, adoptable: true },
        (Whose::Others, _) => return Step::Foreign { owner: mark, adoptable: false },
    }
    let attributes = attribute_changes(desired, observed, status);
    let mut tags = tag_changes(desired, observed, status);
    tags.extend(mark_change(place, mark));
    if attributes.is_empty() && tags.is_empty() {
        return Step::Keep;
    }
    // SQS most likely does not show yet what we set within the last minute.
    let unsettled = |change: &Change| settles.is_some() && change.drift;
    let pending = |changes: Vec<Change>| -> Vec<_> {
        changes.into_iter().filter(|change| !unsettled(change)).collect()
    };
    match (pending(attributes), pending(tags), settles) {
        (attributes, tags, Some(until)) if attributes.is_empty() && tags.is_empty() => {
            Step::Settle { until }
        }
        (attributes, tags, _) => Step::Correct { attributes, tags },
    }
}

/// The time from which SQS shows our last change everywhere, if it is still to come.
fn settles_at(status: &QueueStatus, now: Timestamp) -> Option<Timestamp> {
    let change = status.last_change.as_ref()?.0;
    rest(change, SETTLED_AFTER, now).map(|_| change + SETTLED_AFTER)
}

/// Replaces a mark of ours in the form of earlier versions.
fn mark_change(place: &Place<'_>, mark: Option<String>) -> Option<Change> {
    let is_old = place.whose(mark.as_deref()) == Whose::OursByOldMark;
    let change =
        |from| Change { name: OWNER_TAG.to_owned(), from, to: Some(place.mark()), drift: false };
    is_old.then(|| change(mark))
}

pub(super) fn attribute_changes(
    desired: &Desired,
    observed: &Observed,
    status: &QueueStatus,
) -> Vec<Change> {
    let differs = |(name, wanted): (&&'static str, &String)| {
        let seen = observed.attributes.get(*name).map(String::as_str).unwrap_or_default();
        let spelt = normalised(name, wanted.clone());
        (seen != spelt).then(|| Change {
            name: (*name).to_owned(),
            from: observed.attributes.get(*name).cloned(),
            to: Some(wanted.clone()),
            drift: status.attributes.get(*name) == Some(&spelt),
        })
    };
    desired.attributes.iter().filter_map(differs).collect()
}

pub(super) fn tag_changes(
    desired: &Desired,
    observed: &Observed,
    status: &QueueStatus,
) -> Vec<Change> {
    let wrong = desired.tags.iter().filter(|(key, value)| observed.tags.get(*key) != Some(*value));
    let set = wrong.map(|(key, value)| Change {
        name: key.clone(),
        from: observed.tags.get(key).cloned(),
        to: Some(value.clone()),
        drift: status.tags.get(key) == Some(value),
    });
    // A tag that the spec named before and no longer does is ours to remove.
    // Earlier versions recorded the owner's too, which is no tag of the spec.
    let named = status.tags.keys().filter(|key| *key != OWNER_TAG);
    let given_up = named.filter(|key| !desired.tags.contains_key(*key));
    let removed = given_up.filter_map(|key| {
        let from = observed.tags.get(key)?.clone();
        Some(Change { name: key.clone(), from: Some(from), to: None, drift: false })
    });
    set.chain(removed).collect()
}

impl Observed {
    /// The account of its ARN.
    pub(super) fn account(&self) -> Option<&str> {
        self.arn()?.split(':').nth(4)
    }

    /// How many messages it has, about: visible, in flight and delayed.
    pub(super) fn messages(&self) -> Messages {
        let count = |name| {
            let count = self.attributes.get(name).and_then(|count| count.parse().ok());
            count.unwrap_or_default()
        };
        Messages {
            visible: count("ApproximateNumberOfMessages"),
            in_flight: count("ApproximateNumberOfMessagesNotVisible"),
            delayed: count("ApproximateNumberOfMessagesDelayed"),
        }
    }

    /// Its ARN.
    pub(super) fn arn(&self) -> Option<&String> {
        self.attributes.get("QueueArn")
    }

    /// The queue once the changes are made.
    pub(super) fn with(mut self, attributes: &[Change], tags: &[Change]) -> Self {
        for Change { name, to, .. } in attributes {
            let to = to.clone().map(|to| normalised(name, to)).unwrap_or_default();
            self.attributes.insert(name.clone(), to);
        }
        for Change { name, to, .. } in tags {
            match to {
                Some(to) => self.tags.insert(name.clone(), to.clone()),
                None => self.tags.remove(name),
            };
        }
        self
    }
}

/// What to do with the queue of an object that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Delete it.
    Delete,
    /// It does not exist: the object may go.
    Gone,
    /// It has another owner and never was ours: the object may go.
    NeverOurs,
    /// It was ours, and the owner tag was removed or changed: leave it; the object may go.
    Orphan {
        /// The owner now.
        owner: Option<String>,
    },
    /// The same, where the policy is to wait until a person decides.
    Unmanaged {
        /// The owner now.
        owner: Option<String>,
    },
    /// It has messages, and the policy is to wait until it has none.
    NotEmpty {
        /// How many, about.
        messages: i64,
    },
    /// It shows no messages, and has to go on doing so.
    SeemsEmpty {
        /// Since when it does.
        since: Timestamp,
    },
    /// Look again at that time: SQS may not show yet that we created it.
    Settle {
        /// When.
        until: Timestamp,
    },
}

/// The next step for the queue of an object that is being deleted.
pub(super) fn ending(
    place: &Place<'_>,
    policy: DeletionPolicy,
    observed: Option<&Observed>,
    status: &QueueStatus,
    now: Timestamp,
) -> Ending {
    let Some(observed) = observed else {
        return match settles_at(status, now) {
            Some(until) => Ending::Settle { until },
            None => Ending::Gone,
        };
    };
    let owner = observed.tags.get(OWNER_TAG).cloned();
    let Messages { visible, in_flight, delayed } = observed.messages();
    let messages = visible + in_flight + delayed;
    match place.whose(owner.as_deref()) {
        Whose::Ours | Whose::OursByOldMark if policy == DeletionPolicy::DeleteIfEmpty => {
            if messages > 0 {
                return Ending::NotEmpty { messages };
            }
            let since = empty_since(status, now);
            match now.duration_since(since).unsigned_abs() >= EMPTY_AFTER {
                true => Ending::Delete,
                false => Ending::SeemsEmpty { since },
            }
        }
        Whose::Ours | Whose::OursByOldMark => Ending::Delete,
        _ if !status.is_ours() => Ending::NeverOurs,
        _ if policy == DeletionPolicy::OrphanOnUnmanaged => Ending::Orphan { owner },
        _ => Ending::Unmanaged { owner },
    }
}

/// Since when a queue that shows no messages now has shown none.
fn empty_since(status: &QueueStatus, now: Timestamp) -> Timestamp {
    let known = status.empty_since.as_ref().map(|since| since.0);
    let is_recent = |since: &Timestamp| {
        Duration::try_from(now.duration_since(*since)).is_ok_and(|age| age <= EMPTY_WITHIN)
    };
    known.filter(is_recent).unwrap_or(now)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
