//! The deletion of a Queue: its queue is deleted, kept or left behind, and then the finalizer is
//! removed. Shell.
//!
//! Nothing blocks the deletion for ever: the conditions say what it waits for, and the annotation
//! [`ABANDON`] ends the wait at once.

use kube::ResourceExt;
use sdk::{Action, Context, Event, ReconcileError};

use super::FINALIZER;
use super::api::{DeletionPolicy, Queue};
use super::client::TO_LOOK;
use super::credentials::{Location, Sessions};
use super::desired::source;
use super::name::{OWNER_TAG, owner};
use super::plan::{Ending, ending};
use super::record::record;
use super::requests::{Requests, Stop, WAIT};
use super::status::{Outcome, Recheck};

/// The annotation that, set to `true`, lets the object be deleted without its queue.
pub(crate) const ABANDON: &str = "leasehold.dev/abandon";

/// Deletes the queue and removes the finalizer, or records what that waits for.
pub(super) async fn end(
    sessions: &Sessions,
    ctx: &Context,
    queue: &Queue,
) -> Result<Action, ReconcileError> {
    let status = queue.status.as_ref();
    let Some(name) = status.and_then(|status| status.queue_name.clone()) else {
        return release(ctx, queue, None).await;
    };
    let event = match left(queue) {
        Some(Left::Abandoned) => {
            let note = format!("queue {name} is left behind: annotation {ABANDON} is set");
            Some(Event::warning(queue, "Abandoned", "Delete", note))
        }
        Some(Left::Retained) => {
            let note = format!("queue {name} is kept: spec.deletionPolicy is Retain");
            Some(Event::normal(queue, "Retained", "Delete", note))
        }
        None => match delete(sessions, ctx, queue, &name).await {
            Ok(event) => event,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Outcome(outcome)) => return wait(ctx, queue, *outcome).await,
        },
    };
    release(ctx, queue, event).await
}

/// Why the queue is kept without a request to SQS.
enum Left {
    Abandoned,
    Retained,
}

fn left(queue: &Queue) -> Option<Left> {
    if queue.annotations().get(ABANDON).is_some_and(|value| value == "true") {
        return Some(Left::Abandoned);
    }
    (queue.spec.deletion_policy == DeletionPolicy::Retain).then_some(Left::Retained)
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
    // Where it was created, whatever the spec says now.
    let region = status.region.as_deref().unwrap_or(&spec.region);
    let location = Location { region, endpoint: spec.endpoint.as_deref() };
    let namespace = queue.namespace().unwrap_or_default();
    let source = source(spec).map_err(invalid)?;
    // Only the requests of the look are known in advance.
    let session = sessions.open(ctx, &namespace, source, location, TO_LOOK).await;
    let session = session.map_err(|error| Stop::no_session(error, now))?;
    let turn = Requests { ctx, session, now };

    let uid = queue.uid().unwrap_or_default();
    let owner = owner(ctx.cluster().as_str(), &namespace, &queue.name_any(), &uid);
    let seen = turn.observe(status.url.as_ref(), name).await?;
    let orphan = spec.deletion_policy == DeletionPolicy::OrphanOnUnmanaged;
    let whose = |owner: Option<String>| match owner {
        Some(owner) => format!("its tag {OWNER_TAG} was changed to {owner} outside"),
        None => format!("its tag {OWNER_TAG} was removed outside"),
    };
    match (ending(&owner, orphan, seen.as_ref(), &status, now), seen) {
        (Ending::Delete, Some(found)) => {
            turn.delete(&found, name).await?;
            let note = format!("deleted queue {name} in {region}");
            Ok(Some(Event::normal(queue, "Deleted", "Delete", note)))
        }
        (Ending::Gone | Ending::NeverOurs | Ending::Delete, _) => Ok(None),
        (Ending::Orphan { owner }, _) => {
            let note = format!("queue {name} is left behind: {}", whose(owner));
            Ok(Some(Event::warning(queue, "Orphaned", "Delete", note)))
        }
        (Ending::Unmanaged { owner }, _) => {
            let message = format!("queue {name} is not deleted: {}; put it back", whose(owner));
            Err(Stop::blocked("NotOwned", message, Recheck::At(now + WAIT)))
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

/// Records what the deletion waits for, and how to end the wait.
async fn wait(ctx: &Context, queue: &Queue, outcome: Outcome) -> Result<Action, ReconcileError> {
    let (why, recheck) = match outcome {
        Outcome::Blocked { message, recheck, .. } => (message, recheck),
        Outcome::Invalid(invalid) => (invalid.to_string(), Recheck::OnChange),
        Outcome::Synced { .. } => (String::new(), Recheck::OnChange),
    };
    let recheck = match recheck {
        Recheck::NextCheck => Recheck::At(ctx.now() + WAIT),
        recheck => recheck,
    };
    let message =
        format!("{why}; or set annotation {ABANDON}=true to delete this Queue without its queue");
    let blocked = Outcome::Blocked { reason: "DeletionBlocked", message, ready: false, recheck };
    record(ctx, queue, None, None, blocked).await
}

async fn release(
    ctx: &Context,
    queue: &Queue,
    event: Option<Event<'_>>,
) -> Result<Action, ReconcileError> {
    if let Some(event) = event {
        ctx.publish(event).await;
    }
    ctx.remove_finalizer(queue, FINALIZER).await?;
    Ok(Action::Done)
}
