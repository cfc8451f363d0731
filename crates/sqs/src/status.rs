//! The status of a Queue after a reconcile, and whether it is worth a write. Pure.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use sdk::condition::{Finding, conditions, whole_seconds};

use super::api::{Management, Queue, QueueStatus};
use super::desired::Desired;
use super::invalid::InvalidSpec;
use super::plan::{EMPTY_AFTER, Observed};
use super::schedule;

/// How old the recorded time of the last check may grow before a check that found nothing is
/// recorded, if two fifths of the interval is not longer: 5,000 queues cost 6 writes a second at
/// most.
pub(super) const RECORD_EVERY: Duration = Duration::from_secs(900);
/// Less than the shortest time between two checks, which is half of the shortest period. So every check
/// at long intervals is recorded, and a manager that takes over knows about it.
const FRACTION: f64 = 0.4;
/// The longest interval of looks at a queue in trouble. The next one comes within one and a half of it.
pub(super) const IN_TROUBLE: Duration = Duration::from_secs(300);

/// How much later than two intervals a look may be due that waits for SQS.
const LATER: Duration = Duration::from_secs(120);

/// The reason of an object that waits for the end of its queue.
pub(super) const BLOCKED: &str = "DeletionBlocked";
/// The reason of one that waits because somebody took its queue's tag: until a person decides.
pub(super) const UNOWNED: &str = "DeletionNotOwned";
/// The reason of one that waits because other queues name its queue as their dead-letter queue.
pub(super) const REFERENCED: &str = "DeletionReferenced";

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recheck {
    /// When a watched object changes.
    OnChange,
    /// At that time.
    At(Timestamp),
    /// At the queue's next regular time, and in some minutes if that is later: trouble may be over before a
    /// check that comes once a day.
    Soon,
}

/// How a reconcile ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The spec cannot be acted on.
    Invalid(InvalidSpec),
    /// Something blocks it.
    Blocked {
        /// Why, as one word.
        reason: &'static str,
        /// Why, what it is about, and what to do.
        message: String,
        /// Whether the queue exists and is ours all the same.
        ready: bool,
        /// When to look again.
        recheck: Recheck,
    },
    /// The object is being deleted, and its queue shows no messages.
    SeemsEmpty {
        /// What it waits for.
        message: String,
        /// Since when.
        since: Timestamp,
    },
    /// The queue is as desired, or observed only.
    Synced {
        /// The queue.
        observed: Observed,
        /// Whether we changed it.
        changed: bool,
        /// Whether somebody else had changed or deleted it.
        drifted: bool,
        /// What it lacks all the same.
        lack: Option<Lack>,
    },
}

/// What a queue that is otherwise as desired lacks, for a reason outside of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    /// Why, as one word.
    pub(super) reason: &'static str,
    /// Why, what it is about, and what to do.
    pub(super) message: String,
}

/// How often the queue is compared with its spec.
pub(super) fn interval(queue: &Queue) -> Duration {
    Duration::from_secs(queue.spec.drift_check_interval_seconds.max(1).unsigned_abs().into())
}

/// When to check the object next; `None` to wait for a change.
pub(super) fn next_look(queue: &Queue, outcome: &Outcome, now: Timestamp) -> Option<Timestamp> {
    let within = |interval| Some(schedule::next(&queue.uid().unwrap_or_default(), interval, now));
    let observes = queue.spec.management == Management::Observe;
    match outcome {
        Outcome::Invalid(_) | Outcome::Blocked { recheck: Recheck::OnChange, .. } => None,
        Outcome::Blocked { recheck: Recheck::At(then), .. } => Some(*then),
        Outcome::SeemsEmpty { since, .. } => Some(*since + EMPTY_AFTER),
        Outcome::Blocked { recheck: Recheck::Soon, .. } => within(interval(queue).min(IN_TROUBLE)),
        Outcome::Synced { lack: Some(_), .. } if !observes => {
            within(interval(queue).min(IN_TROUBLE))
        }
        Outcome::Synced { .. } => within(interval(queue)),
    }
}

/// Whether it is worth telling that SQS is out of reach: if there is something to do, or if the last look
/// was due long ago. A short outage between two looks at a queue as desired is nobody's trouble.
pub(super) fn outage_matters(queue: &Queue, now: Timestamp) -> bool {
    let Some(status) = &queue.status else { return true };
    let Some(due) = &status.next_check else { return true };
    !status.is_ours()
        || status.observed_generation != queue.metadata.generation
        || now.duration_since(due.0) >= IN_TROUBLE.try_into().unwrap_or_default()
}

/// Until when there is nothing to do: the status describes this spec, and the next check is not due
/// yet. One that is later than any check may be was recorded by a clock that was wrong. `redrive` is the present ARN of the
/// dead-letter queue.
pub(super) fn rests_until(
    queue: &Queue,
    redrive: Option<&str>,
    now: Timestamp,
) -> Option<Timestamp> {
    let status = queue.status.as_ref()?;
    let next = status.next_check.as_ref().map(|next| next.0)?;
    let same = status.observed_generation == queue.metadata.generation
        && status.redrive_target.as_deref() == redrive;
    let latest = now + 2 * interval(queue) + LATER;
    (same && now < next && next <= latest).then_some(next)
}

/// The status before the queue is created: what is needed to find it again.
pub(super) fn intent(queue: &Queue, desired: &Desired, now: Timestamp) -> QueueStatus {
    let before = queue.status.clone().unwrap_or_default();
    let message = format!("creating queue {} in {}", desired.name, queue.spec.region);
    QueueStatus {
        queue_name: Some(desired.name.clone()),
        region: Some(queue.spec.region.clone()),
        last_change: Some(whole_seconds(now)),
        conditions: conditions(
            findings(false, false, "Creating", message, false),
            &before.conditions,
            queue.metadata.generation,
            now,
        ),
        ..before
    }
}

/// The status after `outcome`; `redrive` is the ARN of the dead-letter queue.
pub(super) fn status(
    queue: &Queue,
    desired: Option<&Desired>,
    redrive: Option<&str>,
    outcome: &Outcome,
    now: Timestamp,
) -> QueueStatus {
    let before = queue.status.clone().unwrap_or_default();
    let generation = queue.metadata.generation;
    let (ready, synced, reason, message, invalid) = match outcome {
        Outcome::Invalid(invalid) => {
            (before.is_ours(), false, "Invalid", invalid.to_string(), true)
        }
        Outcome::Blocked { reason, message, ready, .. } => {
            (*ready, false, *reason, message.clone(), false)
        }
        Outcome::SeemsEmpty { message, .. } => (false, false, BLOCKED, message.clone(), false),
        Outcome::Synced { lack: Some(Lack { reason, message }), .. } => {
            (true, false, *reason, message.clone(), false)
        }
        Outcome::Synced { lack: None, .. } => {
            let name = desired.map(|desired| desired.name.as_str()).unwrap_or_default();
            let message = format!("queue {name} in {} is as the spec says", queue.spec.region);
            (true, true, "Synced", message, false)
        }
    };
    let findings = findings(ready, synced, reason, message, invalid);
    let mut status = QueueStatus {
        observed_generation: generation,
        next_check: next_look(queue, outcome, now).map(whole_seconds_up),
        redrive_target: redrive.map(str::to_owned),
        // Any other look ends it.
        empty_since: match outcome {
            Outcome::SeemsEmpty { since, .. } => Some(whole_seconds_up(*since)),
            _ => None,
        },
        conditions: conditions(findings, &before.conditions, generation, now),
        ..before
    };
    if let (Outcome::Synced { observed, changed, drifted, .. }, Some(desired)) = (outcome, desired)
    {
        seen(&mut status, observed, desired);
        status.region = Some(queue.spec.region.clone());
        status.endpoint.clone_from(&queue.spec.endpoint);
        status.account = observed.account().map(str::to_owned);
        status.observed = queue.spec.management == Management::Observe;
        status.config_map = queue.spec.connection.as_ref().map(|to| to.config_map.clone());
        status.last_checked = Some(whole_seconds(now));
        status.drifts += i64::from(*drifted);
        if *changed {
            status.last_change = Some(whole_seconds(now));
        }
    }
    status
}

fn seen(status: &mut QueueStatus, observed: &Observed, desired: &Desired) {
    let attribute = |name: &str| observed.attributes.get(name).cloned();
    status.queue_name = Some(desired.name.clone());
    status.url = Some(observed.url.clone());
    status.arn = observed.arn().cloned();
    status.attributes = desired
        .attributes
        .keys()
        .filter_map(|name| Some(((*name).to_owned(), attribute(name)?)))
        .collect();
    status.tags = desired
        .tags
        .keys()
        .filter_map(|key| Some((key.clone(), observed.tags.get(key)?.clone())))
        .collect();
    status.messages = Some(observed.messages());
}

/// Whether `after` is worth a write. Numbers of messages and times of checks alone are not; they are
/// recorded when the recorded ones have grown old.
pub(super) fn is_news(
    before: Option<&QueueStatus>,
    after: &QueueStatus,
    interval: Duration,
) -> bool {
    let Some(before) = before else { return true };
    let quiet = QueueStatus {
        messages: before.messages,
        last_checked: before.last_checked.clone(),
        next_check: before.next_check.clone(),
        ..after.clone()
    };
    if quiet != *before {
        return true;
    }
    match (&before.last_checked, &after.last_checked) {
        (Some(before), Some(after)) => {
            after.0.duration_since(before.0).unsigned_abs()
                >= interval.mul_f64(FRACTION).max(RECORD_EVERY)
        }
        (before, after) => before != after,
    }
}

/// Whether the conditions say something new, which deserves an Event.
pub(super) fn says_something_new(before: Option<&QueueStatus>, after: &QueueStatus) -> bool {
    let words = |status: &QueueStatus| -> Vec<(String, String)> {
        let conditions = status.conditions.iter();
        conditions.map(|found| (found.reason.clone(), found.message.clone())).collect()
    };
    before.map(words).unwrap_or_default() != words(after)
}

/// The next whole second: a recorded time must not come before the time that it stands for.
fn whole_seconds_up(moment: Timestamp) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    whole_seconds(moment + Duration::from_millis(999))
}

fn findings(
    ready: bool,
    synced: bool,
    reason: &'static str,
    message: String,
    invalid: bool,
) -> Vec<Finding> {
    vec![
        Finding {
            type_: "Ready",
            holds: ready,
            reason: if ready && !synced { "Available" } else { reason },
            message: if ready && !synced {
                "the queue exists, but differs from the spec".to_owned()
            } else {
                message.clone()
            },
        },
        Finding { type_: "Synced", holds: synced, reason, message: message.clone() },
        Finding {
            type_: "Invalid",
            holds: invalid,
            reason: if invalid { "Invalid" } else { "Valid" },
            message: if invalid { message } else { "the spec can be acted on".to_owned() },
        },
    ]
}
