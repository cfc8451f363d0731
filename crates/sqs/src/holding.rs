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

use std::collections::HashSet;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::Api;
use sdk::{Context, Event, Lifecycle, ReconcileError};

use super::api::{Queue, QueueStatus};
use super::record::write;
use sdk::refusal::{refusal, refused};

/// The most Queues of which is remembered that they hold their Secret. Beyond it, all are looked at anew.
const MAX_SEEN: usize = 10_000;

/// A Secret that keeps a Queue's finalizer, because we may not take it off: why, and what to do.
#[derive(Debug)]
pub(super) struct StillHeld(pub(super) String);

/// Which Queues hold which Secret, as far as this process has seen it.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashSet<(String, String)>>);

impl Held {
    fn has(&self, uid: &str, secret: &str) -> bool {
        let held = self.0.lock().expect("no holder of this lock panics");
        held.contains(&(uid.to_owned(), secret.to_owned()))
    }

    fn note(&self, uid: &str, secret: &str) {
        let mut held = self.0.lock().expect("no holder of this lock panics");
        if held.len() >= MAX_SEEN {
            held.clear();
        }
        held.insert((uid.to_owned(), secret.to_owned()));
    }

    fn forget(&self, uid: &str, secret: &str) {
        let mut held = self.0.lock().expect("no holder of this lock panics");
        held.remove(&(uid.to_owned(), secret.to_owned()));
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
        let uid = queue.uid().unwrap_or_default();
        if recorded.as_deref() == wanted && wanted.is_none_or(|secret| self.has(&uid, secret)) {
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
            self.note(&uid, name);
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
        self.forget(&uid, name);
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
