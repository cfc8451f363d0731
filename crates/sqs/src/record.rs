//! Records the outcome of a reconcile: the status, an Event, and when to look again. Shell.

use jiff::Timestamp;
use kube::ResourceExt;
use sdk::{Action, Context, Event, ReconcileError};

use super::api::{Queue, QueueStatus};
use super::desired::Desired;
use super::status::{Outcome, interval, is_news, next_look, says_something_new, status};

/// Writes the status if it says something new, publishes an Event for new trouble, and returns when
/// to look again.
pub(super) async fn record(
    ctx: &Context,
    queue: &Queue,
    desired: Option<&Desired>,
    redrive: Option<&str>,
    outcome: Outcome,
) -> Result<Action, ReconcileError> {
    let now = ctx.now();
    let after = status(queue, desired, redrive, &outcome, now);
    let before: Option<&QueueStatus> = queue.status.as_ref();
    if is_news(before, &after, interval(queue)) {
        let warning = match &outcome {
            Outcome::Invalid(invalid) => Some(("Invalid", invalid.to_string())),
            Outcome::Blocked { reason, message, .. } => Some((*reason, message.clone())),
            Outcome::SeemsEmpty { .. } => None,
            Outcome::Synced { lack, .. } => {
                lack.as_ref().map(|lack| (lack.reason, lack.message.clone()))
            }
        };
        if let Some((reason, note)) = warning.filter(|_| says_something_new(before, &after)) {
            ctx.publish(Event::warning(queue, reason, "Reconcile", note)).await;
        }
        ctx.update_status(&Queue { status: Some(after), ..queue.clone() }).await?;
    }
    let after = |then: Timestamp| Action::RequeueAfter(then.duration_since(now).unsigned_abs());
    Ok(next_look(queue, &outcome, now).map_or(Action::Done, after))
}

/// Writes this status. `queue` is updated to the object as it is then.
///
/// # Errors
/// What the server says; a conflict if the object is gone.
pub(super) async fn write(
    ctx: &Context,
    queue: &mut Queue,
    status: QueueStatus,
) -> Result<(), ReconcileError> {
    let wanted = Queue { status: Some(status), ..queue.clone() };
    let Some(found) = ctx.update_status(&wanted).await? else {
        return Err(ReconcileError::conflict(format!("Queue {} is gone", queue.name_any())));
    };
    *queue = found;
    Ok(())
}
