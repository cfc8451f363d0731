//! The end of a Queue: its queue is deleted, kept or left, and then its object may go. Shell.
//!
//! Nothing keeps the object for ever: what it waits for stands in its conditions, and the annotation
//! [`ABANDON`] lets it go at once.

use kube::ResourceExt;
use sdk::{Action, Context, Event, ReconcileError};

use super::FINALIZER;
use super::api::{DeletionPolicy, Queue};
use super::client::TO_LOOK;
use super::credentials::{Place, Sessions};
use super::desired::source;
use super::name::{OWNER_TAG, owner};
use super::plan::{Ending, ending};
use super::record::record;
use super::status::{Again, Outcome};
use super::turn::{Stop, Turn, WAIT};

/// The annotation that, set to `true`, lets an object go whatever becomes of its queue.
pub const ABANDON: &str = "leasehold.dev/abandon";

/// Ends it, or says what is waited for.
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
            let note = format!("queue {name} is left behind, for annotation {ABANDON} is set");
            Some(Event::warning(queue, "Abandoned", "Delete", note))
        }
        Some(Left::Retained) => {
            let note = format!("queue {name} is kept, for spec.deletionPolicy is Retain");
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

/// Why the queue is not even looked at.
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
    // Where it was made, whatever the spec says now.
    let region = status.region.as_deref().unwrap_or(&spec.region);
    let place = Place { region, endpoint: spec.endpoint.as_deref() };
    let namespace = queue.namespace().unwrap_or_default();
    let source = source(spec).map_err(invalid)?;
    // What the deletion takes beyond the look is not known before.
    let session = sessions.open(ctx, &namespace, source, place, TO_LOOK).await;
    let session = session.map_err(|unopened| Stop::unopened(unopened, now))?;
    let turn = Turn { ctx, session, now };

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
            Err(Stop::held("NotOwned", message, Again::At(now + WAIT)))
        }
        (Ending::Settle { until }, _) => {
            let message = format!(
                "queue {name} was changed within the last minute and SQS does not show it: it is \
                 looked for again then"
            );
            Err(Stop::held("Settling", message, Again::At(until)))
        }
    }
}

/// Says what is waited for, and how not to.
async fn wait(ctx: &Context, queue: &Queue, outcome: Outcome) -> Result<Action, ReconcileError> {
    let (why, again) = match outcome {
        Outcome::Held { message, again, .. } => (message, again),
        Outcome::Invalid(invalid) => (invalid.to_string(), Again::OnChange),
        Outcome::Synced { .. } => (String::new(), Again::OnChange),
    };
    let again = match again {
        Again::NextCheck => Again::At(ctx.now() + WAIT),
        again => again,
    };
    let message =
        format!("{why}; or set annotation {ABANDON}=true to let this Queue go without it");
    let held = Outcome::Held { reason: "DeletionBlocked", message, ready: false, again };
    record(ctx, queue, None, None, held).await
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
