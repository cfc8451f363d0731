//! The deletion of a Queue: its queue is deleted, kept or left behind, and then the finalizer is
//! removed. Shell.
//!
//! Nothing blocks the deletion for ever: the conditions say what it waits for, and the annotation
//! [`ABANDON`] ends the wait at once.

use std::collections::BTreeSet;

use kube::ResourceExt;
use sdk::{Action, Context, Event, ReconcileError};

use super::FINALIZER;
use super::access::Asked;
use super::api::{DeletionPolicy, Management, Queue, QueueStatus};
use super::client::TO_LOOK;
use super::credentials::{Location, Sessions};
use super::desired;
use super::holding::{Held, StillHeld};
use super::owner::{OWNER_TAG, Place};
use super::plan::{Ending, Observed, ending};
use super::record::record;
use super::referrers::{REFERRERS, by_name, counts, sends_to};
use super::requests::{Requests, Stop, WAIT, other_account};
use super::source::source;
use super::status::{BLOCKED, Outcome, REFERENCED, Recheck, UNOWNED};

/// The annotation that, set to `true`, lets the object be deleted without its queue.
pub(crate) const ABANDON: &str = "leasehold.dev/abandon";

/// How many of those that a queue waits for its message names.
const MAX_NAMED: usize = 5;
/// How many Queues are looked at to find a ring of such that wait for each other.
const MAX_RING: usize = 100;

/// Deletes the queue and removes the finalizer, or records what that waits for.
pub(super) async fn end(
    sessions: &Sessions,
    held: &Held,
    ctx: &Context,
    queue: &Queue,
) -> Result<Action, ReconcileError> {
    let status = queue.status.as_ref();
    let Some(name) = status.and_then(|status| status.queue_name.clone()) else {
        return release(held, ctx, queue, None).await;
    };
    // It may wait for days, while somebody replaces the Secret or names another.
    let mut queue = queue.clone();
    if let (None, Management::Manage, Ok(source)) =
        (left(&queue), queue.spec.management, source(&queue.spec))
    {
        held.hold(ctx, &mut queue, source.secret()).await?;
    }
    let queue = &queue;
    let event = match left(queue) {
        Some(Left::Abandoned) => {
            let note = format!("queue {name} is left behind: annotation {ABANDON} is set");
            Some(Event::warning(queue, "Abandoned", "Delete", note))
        }
        Some(Left::Retained) => {
            let note = format!("queue {name} is kept: spec.deletionPolicy is Retain");
            Some(Event::normal(queue, "Retained", "Delete", note))
        }
        Some(Left::Observed) => None,
        None => match delete(sessions, ctx, queue, &name).await {
            Ok(event) => event,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Outage(said, error)) => {
                wait(ctx, queue, Stop::told(&said, false)).await?;
                return Err(error);
            }
            Err(Stop::Outcome(outcome)) => return wait(ctx, queue, *outcome).await,
        },
    };
    release(held, ctx, queue, event).await
}

/// Why the queue is kept without a request to SQS.
enum Left {
    Abandoned,
    Retained,
    Observed,
}

fn left(queue: &Queue) -> Option<Left> {
    if queue.annotations().get(ABANDON).is_some_and(|value| value == "true") {
        return Some(Left::Abandoned);
    }
    match (queue.spec.management, queue.spec.deletion_policy) {
        (Management::Observe, _) => Some(Left::Observed),
        (Management::Manage, DeletionPolicy::Retain) => Some(Left::Retained),
        _ => None,
    }
}

async fn delete<'a>(
    sessions: &Sessions,
    ctx: &Context,
    queue: &'a Queue,
    name: &str,
) -> Result<Option<Event<'a>>, Stop> {
    let now = ctx.now();
    let invalid = |invalid| Stop::Outcome(Box::new(Outcome::Invalid(invalid)));
    let (spec, status) = (&queue.spec, queue.status.clone().unwrap_or_default());
    if spec.management == Management::Pause {
        let why = "spec.management is Pause: set it to Manage, or to Observe to leave the queue";
        return Err(Stop::blocked("Paused", why.to_owned(), Recheck::OnChange));
    }
    let place = Place::of(ctx, queue);
    // Where it was created, whatever the spec says now.
    let region = status.region.as_deref().unwrap_or(&spec.region);
    desired::region(region).map_err(invalid)?;
    let made = if status.account.is_some() { &status.endpoint } else { &spec.endpoint };
    let location = Location { region, endpoint: made.as_deref() };
    let asked = Asked::of(&place, name, location.endpoint, source(spec).map_err(invalid)?);
    // Only the requests of the look are known in advance.
    let session = sessions.open(ctx, &asked, location, TO_LOOK).await;
    let session = session.map_err(|error| Stop::no_session(error, now))?;
    let turn = Requests { ctx, session, now };
    let event = delete_with(&turn, &place, queue, name).await;
    if event.as_ref().is_err_and(Stop::is_denial) {
        sessions.forget(&turn.session);
    }
    event
}

async fn delete_with<'a>(
    turn: &Requests<'_>,
    place: &Place<'_>,
    queue: &'a Queue,
    name: &str,
) -> Result<Option<Event<'a>>, Stop> {
    let (spec, status, now) = (&queue.spec, queue.status.clone().unwrap_or_default(), turn.now);
    let region = status.region.as_deref().unwrap_or(&spec.region);
    let seen = turn.observe(status.made_at(), name).await?;
    // What another account shows says nothing of this queue.
    match (status.pinned(), seen.as_ref().map(Observed::account)) {
        (Some(pinned), None) => turn.in_account(pinned, name).await?,
        (Some(pinned), Some(Some(found))) if pinned != found => {
            return Err(other_account(pinned, found, name));
        }
        _ => {}
    }
    let whose = |owner: Option<String>| match owner {
        Some(owner) => format!("its tag {OWNER_TAG} was changed to {owner} outside"),
        None => format!("its tag {OWNER_TAG} was removed outside"),
    };
    match (ending(place, spec.deletion_policy, seen.as_ref(), &status, now), seen) {
        (Ending::Delete, Some(found)) => {
            unreferenced(turn, queue, &found, name).await?;
            turn.delete(&found, name).await?;
            let note = format!("deleted queue {name} in {region}");
            Ok(Some(Event::normal(queue, "Deleted", "Delete", note)))
        }
        (Ending::NotEmpty { messages }, _) => {
            let message = format!(
                "queue {name} has about {messages} messages and spec.deletionPolicy is DeleteIfEmpty: \
                 receive or purge them, or set Delete"
            );
            Err(Stop::blocked("NotEmpty", message, Recheck::At(now + WAIT)))
        }
        (Ending::SeemsEmpty { since }, _) => {
            let message = format!(
                "queue {name} shows no messages, which SQS shows wrongly for a minute after the last one was sent: \
                 it is deleted if it still shows none then"
            );
            Err(Stop::Outcome(Box::new(Outcome::SeemsEmpty { message, since })))
        }
        (Ending::Gone | Ending::NeverOurs | Ending::Delete, _) => Ok(None),
        (Ending::Orphan { owner }, _) => {
            let note = format!("queue {name} is left behind: {}", whose(owner));
            Ok(Some(Event::warning(queue, "Orphaned", "Delete", note)))
        }
        (Ending::Unmanaged { owner }, _) => {
            let message = format!("queue {name} is not deleted: {}; put it back", whose(owner));
            Err(Stop::blocked(UNOWNED, message, Recheck::At(now + WAIT)))
        }
        (Ending::Settle { until }, _) => {
            let message = format!(
                "queue {name} was changed within the last minute and SQS does not show it yet: it is \
                 checked again then"
            );
            Err(Stop::blocked("Settling", message, Recheck::At(until)))
        }
    }
}

/// Whether the queue of an object goes with it before this one has to stay for it, as far as that is known.
fn ends(ctx: &Context, referrer: &Queue, queue: &Queue) -> Result<bool, ReconcileError> {
    let status = referrer.status.as_ref();
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let goes = match referrer.spec.deletion_policy {
        DeletionPolicy::Delete => !conditions.any(|told| told.reason == UNOWNED),
        // Until then it is received from, for days perhaps, and what fails goes here.
        DeletionPolicy::DeleteIfEmpty => status.is_some_and(|status| status.empty_since.is_some()),
        // It may stay, if its tag was removed. But where it waits for this one, neither would ever go.
        DeletionPolicy::OrphanOnUnmanaged => waits_for(ctx, referrer, queue)?,
        DeletionPolicy::Retain => false,
    };
    Ok(goes
        && referrer.metadata.deletion_timestamp.is_some()
        && left(referrer).is_none()
        && referrer.spec.management == Management::Manage
        && status.is_some_and(QueueStatus::is_ours))
}

/// Whether a Queue waits for another that names it, or for one that ends and waits for that in its turn.
fn waits_for(ctx: &Context, waiting: &Queue, queue: &Queue) -> Result<bool, ReconcileError> {
    let (mut next, mut seen) = (vec![waiting.clone()], BTreeSet::new());
    while let Some(waiting) = next.pop() {
        if sends_to(queue, &waiting) {
            return Ok(true);
        }
        if seen.len() == MAX_RING || !seen.insert(by_name(&waiting)) {
            continue;
        }
        let arn = waiting.status.as_ref().and_then(|status| status.arn.clone());
        for key in [Some(by_name(&waiting)), arn].into_iter().flatten() {
            let found = ctx.indexed::<Queue>(REFERRERS, &key)?.into_iter();
            let found = found.filter(|queue| queue.metadata.deletion_timestamp.is_some());
            next.extend(found.map(|queue| (*queue).clone()));
        }
    }
    Ok(false)
}

/// Whether nobody's messages go to the queue any more when they fail. Queues that go with their objects do
/// not count: else those that name each other in a ring would wait for ever.
async fn unreferenced(
    turn: &Requests<'_>,
    queue: &Queue,
    found: &Observed,
    name: &str,
) -> Result<(), Stop> {
    let mut referrers = turn.ctx.indexed::<Queue>(REFERRERS, &by_name(queue))?;
    let arn = found.arn().cloned().unwrap_or_default();
    referrers.extend(turn.ctx.indexed::<Queue>(REFERRERS, &arn)?);
    let (mut ending, mut staying) = (Vec::new(), Vec::new());
    for referrer in &referrers {
        let part = if ends(turn.ctx, referrer, queue)? { &mut ending } else { &mut staying };
        part.push(referrer);
    }
    let staying = staying.into_iter().filter(|referrer| counts(referrer, queue, &arn));
    let mut names: Vec<_> = staying
        .map(|queue| {
            format!("Queue {}/{}", queue.namespace().unwrap_or_default(), queue.name_any())
        })
        .collect();
    if names.is_empty() {
        let known = |url: &String| {
            let mut urls = ending.iter().filter_map(|queue| queue.status.as_ref()?.url.as_ref());
            urls.any(|found| found == url)
        };
        let (sources, more) = turn.sources(found, name).await?.unwrap_or_default();
        names = sources.into_iter().filter(|url| !known(url)).collect();
        if names.is_empty() && more {
            names.push("more queues than SQS lists at once".to_owned());
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    names.truncate(MAX_NAMED);
    let message = format!(
        "queue {name} is the dead-letter queue of {}: remove it from their redrive policies",
        names.join(", ")
    );
    Err(Stop::blocked(REFERENCED, message, Recheck::At(turn.now + WAIT)))
}

/// Records what the deletion waits for, and how to end the wait.
async fn wait(ctx: &Context, queue: &Queue, outcome: Outcome) -> Result<Action, ReconcileError> {
    let escape = format!("set annotation {ABANDON}=true to delete this Queue without its queue");
    let (reason, why, recheck) = match outcome {
        Outcome::SeemsEmpty { message, since } => {
            let message = format!("{message}; or {escape}");
            return record(ctx, queue, None, None, Outcome::SeemsEmpty { message, since }).await;
        }
        Outcome::Blocked { reason: reason @ (UNOWNED | REFERENCED), message, recheck, .. } => {
            (reason, message, recheck)
        }
        Outcome::Blocked { message, recheck, .. } => (BLOCKED, message, recheck),
        Outcome::Invalid(invalid) => (BLOCKED, invalid.to_string(), Recheck::OnChange),
        Outcome::Synced { .. } => (BLOCKED, String::new(), Recheck::OnChange),
    };
    let recheck = match recheck {
        Recheck::Soon => Recheck::At(ctx.now() + WAIT),
        recheck => recheck,
    };
    let message = format!("{why}; or {escape}");
    let blocked = Outcome::Blocked { reason, message, ready: false, recheck };
    record(ctx, queue, None, None, blocked).await
}

/// Lets the object go, and before it the Secret of its credentials. The name of the queue is forgotten
/// first: after a crash the queue, which needed the Secret, must not be looked for without it.
async fn release(
    held: &Held,
    ctx: &Context,
    queue: &Queue,
    event: Option<Event<'_>>,
) -> Result<Action, ReconcileError> {
    if let Some(event) = event {
        ctx.publish(event).await;
    }
    let mut queue = queue.clone();
    let holds = |status: &&QueueStatus| status.secret.is_some() && status.queue_name.is_some();
    if let Some(status) = queue.status.as_ref().filter(holds) {
        let status = QueueStatus { queue_name: None, ..status.clone() };
        match ctx.update_status(&Queue { status: Some(status), ..queue.clone() }).await? {
            Some(found) => queue = found,
            None => return Ok(Action::Done),
        }
    }
    let is_abandoned = matches!(left(&queue), Some(Left::Abandoned));
    if let (Err(StillHeld(why)), false) = (held.release(ctx, &queue).await?, is_abandoned) {
        let message =
            format!("{why}; or set annotation {ABANDON}=true to delete this Queue all the same");
        let recheck = Recheck::At(ctx.now() + WAIT);
        let blocked = Outcome::Blocked { reason: BLOCKED, message, ready: false, recheck };
        return record(ctx, &queue, None, None, blocked).await;
    }
    ctx.remove_finalizer(&queue, FINALIZER).await?;
    Ok(Action::Done)
}
