//! The status of a database, written with Events for what is new in it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sdk::{Context, Event, Object, ReconcileError};

/// Something to tell: whether it is good, the reason of the Event, and its words.
pub type News = (bool, &'static str, String);

/// The condition of this type, if it has this status now and did not before, or for another reason.
pub fn turned<'a>(
    before: &[Condition],
    after: &'a [Condition],
    type_: &str,
    status: &str,
) -> Option<&'a Condition> {
    let is_it = |found: &&Condition| found.type_ == type_ && found.status == status;
    let was = before.iter().find(is_it);
    after.iter().find(is_it).filter(|is| was.is_none_or(|was| was.reason != is.reason))
}

/// Writes the status that `changed` has. Once it is there, publishes what is new in it, about `object`. It replaces
/// exactly the version that was read, so a decision on an old one fails here.
///
/// # Errors
/// What the server says.
pub async fn written<K: Object>(
    ctx: &Context,
    object: &K,
    changed: &K,
    news: impl IntoIterator<Item = News>,
) -> Result<(), ReconcileError> {
    if ctx.update_status(changed).await?.is_none() {
        return Ok(());
    }
    for (is_good, reason, note) in news {
        let event = if is_good {
            Event::normal(object, reason, "Reconcile", note)
        } else {
            Event::warning(object, reason, "Reconcile", note)
        };
        ctx.publish(event).await;
    }
    Ok(())
}
