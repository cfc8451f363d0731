//! Holds the Secret of a Queue's credentials by a finalizer until its queue needs it no longer: else the
//! deletion of a namespace takes the Secret first, and the queue can never be deleted. Shell.
//!
//! Each Queue has a finalizer of its own on the Secret, by its uid, so that Queues which end at one time
//! need not agree who is the last.
//!
//! ```text
//!   status: secret ▶ finalizer on the Secret … queue ends ▶ status: no name ▶ finalizer off ▶ object gone
//! ```
//! A crash between any two of these leaves no finalizer behind: the name of the Secret is recorded
//! first, and forgotten with the object.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::Api;
use sdk::condition::rest;
use sdk::refusal::{refusal, refused};
use sdk::{ClusterName, Context, Event, Lifecycle, ReconcileError};

use super::api::{Queue, QueueStatus};
use super::record::write;

/// The most Queues of which is remembered that they hold their Secret. Beyond it, all are looked at anew.
const MAX_SEEN: usize = 10_000;
/// How long it is remembered: whoever replaces a Secret takes all finalizers off.
const SEEN_FOR: Duration = Duration::from_secs(3_600);

/// A Secret that keeps a Queue's finalizer, because we may not take it off: why, and what to do.
#[derive(Debug)]
pub(super) struct StillHeld(pub(super) String);

/// Which Queues hold which Secret, and when this process has seen it.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<Seen, Timestamp>>);

/// A cluster, the uid of a Queue there, and a Secret. Clusters that were restored from one backup have the same uids.
type Seen = (ClusterName, String, String);

impl Held {
    fn has(&self, seen: &Seen, now: Timestamp) -> bool {
        let held = self.0.lock().expect("no holder of this lock panics");
        held.get(seen).and_then(|at| rest(*at, SEEN_FOR, now)).is_some()
    }

    fn note(&self, seen: Seen, now: Timestamp) {
        let mut held = self.0.lock().expect("no holder of this lock panics");
        if held.len() >= MAX_SEEN {
            held.clear();
        }
        held.insert(seen, now);
    }

    fn forget(&self, seen: &Seen) {
        self.0.lock().expect("no holder of this lock panics").remove(seen);
    }

    /// Holds the Secret that the Queue uses, if it uses one, and lets go of the one before. `queue` is
    /// updated to the object as it is then.
    pub(super) async fn hold(
        &self,
        ctx: &Context,
        queue: &mut Queue,
        wanted: Option<&str>,
    ) -> Result<(), ReconcileError> {
        let recorded = queue.status.as_ref().and_then(|status| status.secret.clone());
        let now = ctx.now();
        let is_seen = |secret| self.has(&seen(ctx, queue, secret), now);
        if recorded.as_deref() == wanted && wanted.is_none_or(is_seen) {
            return Ok(());
        }
        if recorded.is_some() && recorded.as_deref() != wanted {
            // It stays on record: only one can be, and nobody else would take its finalizer off.
            if self.release(ctx, queue).await?.is_err() {
                return Ok(());
            }
        }
        let found = match wanted {
            Some(name) => read(ctx, queue, name).await?.unwrap_or_default(),
            None => None,
        };
        // One that does not exist, or that we may not read, cannot be held: opening a session says so.
        let wanted = found.as_ref().and(wanted);
        if recorded.as_deref() != wanted {
            let before = queue.status.clone().unwrap_or_default();
            let status = QueueStatus { secret: wanted.map(str::to_owned), ..before };
            write(ctx, queue, status).await?;
        }
        let (Some(secret), Some(name)) = (found, wanted) else { return Ok(()) };
        if add(ctx, queue, &secret).await? {
            self.note(seen(ctx, queue, name), now);
        }
        Ok(())
    }

    /// Lets go of the Secret that the Queue holds, if it holds one. If we may not, an Event says so.
    pub(super) async fn release(
        &self,
        ctx: &Context,
        queue: &Queue,
    ) -> Result<Result<(), StillHeld>, ReconcileError> {
        let Some(name) = queue.status.as_ref().and_then(|status| status.secret.as_ref()) else {
            return Ok(Ok(()));
        };
        let uid = queue.uid().unwrap_or_default();
        self.forget(&seen(ctx, queue, name));
        let why = match read(ctx, queue, name).await? {
            Ok(None) => return Ok(Ok(())),
            Ok(Some(secret)) => match ctx.remove_finalizer(&secret, &finalizer(&uid)).await {
                Ok(()) => return Ok(Ok(())),
                Err(error) => refused(error)?,
            },
            Err(why) => why,
        };
        let note = format!(
            "Secret {name} keeps the finalizer {}, by which it is never deleted: {why}; let the manager get and patch \
             the Secret, or take the finalizer off",
            finalizer(&uid)
        );
        ctx.publish(Event::warning(queue, "SecretNotReleased", "Release", note.clone())).await;
        Ok(Err(StillHeld(note)))
    }
}

fn seen(ctx: &Context, queue: &Queue, secret: &str) -> Seen {
    (ctx.cluster().clone(), queue.uid().unwrap_or_default(), secret.to_owned())
}

/// The finalizer of the Queue with this uid.
fn finalizer(uid: &str) -> String {
    format!("sqs.leasehold.dev/{uid}")
}

/// The Secret, if there is one; or why we may not read it.
async fn read(
    ctx: &Context,
    queue: &Queue,
    name: &str,
) -> Result<Result<Option<Secret>, String>, ReconcileError> {
    let secrets: Api<Secret> =
        Api::namespaced(ctx.client(), &queue.namespace().unwrap_or_default());
    match secrets.get_opt(name).await {
        Err(error) => match refusal(&error) {
            Some(why) => Ok(Err(why)),
            None => Err(error.into()),
        },
        Ok(found) => Ok(Ok(found)),
    }
}

/// Adds the Queue's finalizer. Returns whether it is there then: an administrator may not have given the
/// right, and a Secret that is being deleted takes no further ones.
async fn add(ctx: &Context, queue: &Queue, secret: &Secret) -> Result<bool, ReconcileError> {
    let own = finalizer(&queue.uid().unwrap_or_default());
    let error = match ctx.finalizer(secret, &own).await {
        Ok(stage) => return Ok(stage != Lifecycle::Over),
        Err(error) => error,
    };
    let why = refused(error)?;
    let note = format!(
        "Secret {} is not held while it is in use: {why}; let the manager patch it",
        secret.name_any()
    );
    ctx.publish(Event::warning(queue, "SecretNotHeld", "Hold", note)).await;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_looked_at_again_after_a_while_and_when_a_clock_was_wrong() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (held, seen) = (Held::default(), ("a".parse().unwrap(), "u1".into(), "aws".into()));
        held.note(Seen::clone(&seen), at(7_200));
        for (now, expect) in [(7_201, true), (10_799, true), (10_800, false), (0, false)] {
            assert_eq!(held.has(&seen, at(now)), expect, "{now}");
        }
    }
}
