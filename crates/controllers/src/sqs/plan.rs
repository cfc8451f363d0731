//! From a queue as it is wanted and as it is seen to what is to be done about it. Pure.
//!
//! ```text
//!             absent ── Create ──▶ ours, as wanted ── Keep
//!                ▲                       │ changed outside, or the spec changed
//!  deleted outside└──────────────────────┼── Correct ──▶ as wanted
//!  another's ── Adopt (if the spec says so), else Foreign: never touched
//! ```
//!
//! For a minute after a change SQS may show what was before it
//! (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>),
//! so what we have just set is not set again, nor taken for drift, until [`SETTLED_AFTER`].

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::api::QueueStatus;
use super::desired::Desired;
use super::name::OWNER_TAG;

/// How long SQS may show what was before a change.
pub(super) const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// A queue as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// Its URL.
    pub url: String,
    /// All its attributes.
    pub attributes: BTreeMap<String, String>,
    /// All its tags.
    pub tags: BTreeMap<String, String>,
}

/// One attribute or tag that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Which.
    pub name: String,
    /// As it was seen.
    pub from: Option<String>,
    /// As it should be; `None` to remove a tag.
    pub to: Option<String>,
    /// Whether it had been as it should: then somebody else changed it.
    pub drift: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Make it; `anew` after it was there and was deleted outside.
    Create {
        /// Whether it was there.
        anew: bool,
    },
    /// Set our owner tag on a queue that was another's, or nobody's.
    Adopt {
        /// Whose it was.
        from: Option<String>,
    },
    /// Nothing: it is another's, or nobody's.
    Foreign {
        /// Whose.
        owner: Option<String>,
    },
    /// Change what is not as it should be.
    Correct {
        /// Attributes.
        attributes: Vec<Change>,
        /// Tags.
        tags: Vec<Change>,
    },
    /// Look again then: SQS may still show what was before our last change.
    Settle {
        /// When.
        until: Timestamp,
    },
    /// It is as it should be.
    Keep,
}

/// What is to be done about the queue.
pub(super) fn plan(
    desired: &Desired,
    observed: Option<&Observed>,
    status: &QueueStatus,
    now: Timestamp,
) -> Step {
    let settles = settles_at(status).filter(|until| now < *until);
    let Some(observed) = observed else {
        return match (&status.arn, settles) {
            (Some(_), Some(until)) => Step::Settle { until },
            (arn, _) => Step::Create { anew: arn.is_some() },
        };
    };
    let owner = observed.tags.get(OWNER_TAG);
    if owner != Some(&desired.owner) {
        return match (desired.adopt, owner.cloned()) {
            (true, from) => Step::Adopt { from },
            (false, owner) => Step::Foreign { owner },
        };
    }
    let attributes = attribute_changes(desired, observed, status);
    let tags = tag_changes(desired, observed, status);
    if attributes.is_empty() && tags.is_empty() {
        return Step::Keep;
    }
    // What we set within the last minute and see otherwise is most likely only not shown yet.
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

/// When SQS shows our last change everywhere.
pub(super) fn settles_at(status: &QueueStatus) -> Option<Timestamp> {
    status.last_change.as_ref().map(|change| change.0 + SETTLED_AFTER)
}

fn attribute_changes(desired: &Desired, observed: &Observed, status: &QueueStatus) -> Vec<Change> {
    let differs = |(name, wanted): (&&'static str, &String)| {
        let seen = observed.attributes.get(*name).map(String::as_str).unwrap_or_default();
        (seen != wanted).then(|| Change {
            name: (*name).to_owned(),
            from: observed.attributes.get(*name).cloned(),
            to: Some(wanted.clone()),
            drift: status.attributes.get(*name) == Some(wanted),
        })
    };
    desired.attributes.iter().filter_map(differs).collect()
}

fn tag_changes(desired: &Desired, observed: &Observed, status: &QueueStatus) -> Vec<Change> {
    let wrong = desired.tags.iter().filter(|(key, value)| observed.tags.get(*key) != Some(*value));
    let set = wrong.map(|(key, value)| Change {
        name: key.clone(),
        from: observed.tags.get(key).cloned(),
        to: Some(value.clone()),
        drift: status.tags.get(key) == Some(value),
    });
    // A tag that the spec named once and does not any more is ours to remove.
    let given_up = status.tags.keys().filter(|key| !desired.tags.contains_key(*key));
    let removed = given_up.filter_map(|key| {
        let from = observed.tags.get(key)?.clone();
        Some(Change { name: key.clone(), from: Some(from), to: None, drift: false })
    });
    set.chain(removed).collect()
}

impl Observed {
    /// Its ARN.
    pub(super) fn arn(&self) -> Option<&String> {
        self.attributes.get("QueueArn")
    }

    /// With the changes made.
    pub(super) fn with(mut self, attributes: &[Change], tags: &[Change]) -> Self {
        for (map, changes) in [(&mut self.attributes, attributes), (&mut self.tags, tags)] {
            for change in changes {
                match &change.to {
                    Some(to) => map.insert(change.name.clone(), to.clone()),
                    None => map.remove(&change.name),
                };
            }
        }
        self
    }
}

/// What becomes of the queue of an object that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Delete it.
    Delete,
    /// It is gone, or never was: let the object go.
    Gone,
    /// It is another's and never was ours: let the object go.
    NeverOurs,
    /// It was ours, and the owner tag was removed or changed: leave it and let the object go.
    Orphan {
        /// Whose it is now.
        owner: Option<String>,
    },
    /// Likewise, and the policy is to wait until somebody says what to do.
    Unmanaged {
        /// Whose it is now.
        owner: Option<String>,
    },
    /// Look again then: SQS may not show yet that we made it.
    Settle {
        /// When.
        until: Timestamp,
    },
}

/// What becomes of a queue that is to be deleted, as it was seen.
pub(super) fn ending(
    owner: &str,
    orphan: bool,
    observed: Option<&Observed>,
    status: &QueueStatus,
    now: Timestamp,
) -> Ending {
    let Some(observed) = observed else {
        return match settles_at(status).filter(|until| now < *until) {
            Some(until) => Ending::Settle { until },
            None => Ending::Gone,
        };
    };
    match observed.tags.get(OWNER_TAG).cloned() {
        Some(found) if found == owner => Ending::Delete,
        _ if status.arn.is_none() => Ending::NeverOurs,
        owner if orphan => Ending::Orphan { owner },
        owner => Ending::Unmanaged { owner },
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
