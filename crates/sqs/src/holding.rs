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
use sdk::{Context, Event, Lifecycle, ObjectKey, ReconcileError};

use super::api::{Queue, QueueStatus};
use super::credentials::missing;
use super::record::write;

/// The most Queues of which is remembered that they hold their Secret. Beyond it, all are looked at anew.
const MAX_SEEN: usize = 10_000;
/// How long it is remembered: whoever replaces a Secret takes all finalizers off.
const SEEN_FOR: Duration = Duration::from_secs(3_600);

/// A Secret that keeps a Queue's finalizer, because we may not take it off: why, and what to do.
#[derive(Debug)]
pub(super) struct StillHeld(pub(super) String);

/// What each Queue holds, as far as this process knows. So a Secret is also let go for an object that is gone
/// because somebody took its finalizer off: nobody else would.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<ObjectKey, Holder>>);

/// A Queue that holds a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    uid: String,
    secret: String,
    /// When its finalizer was seen on the Secret, if it was.
    seen: Option<Timestamp>,
}

impl Held {
    /// Whether the finalizer was seen a while ago at most.
    fn has(&self, key: &ObjectKey, uid: &str, secret: &str, now: Timestamp) -> bool {
        let held = self.0.lock().expect("no holder of this lock panics");
        let holder = held.get(key).filter(|holder| holder.uid == uid && holder.secret == secret);
        holder.and_then(|holder| rest(holder.seen?, SEEN_FOR, now)).is_some()
    }

    fn note(&self, key: ObjectKey, holder: Holder) {
        let mut held = self.0.lock().expect("no holder of this lock panics");
        if held.len() >= MAX_SEEN {
            held.clear();
        }
        held.insert(key, holder);
    }

    fn forget(&self, key: &ObjectKey) {
        self.0.lock().expect("no holder of this lock panics").remove(key);
    }

    /// Remembers what is on record, also where it was recorded by another process.
    pub(super) fn remember(&self, ctx: &Context, queue: &Queue) {
        let recorded = queue.status.as_ref().and_then(|status| status.secret.clone());
        let (Some(secret), Some(uid)) = (recorded, queue.uid()) else { return };
        let mut held = self.0.lock().expect("no holder of this lock panics");
        if held.len() < MAX_SEEN {
            let holder = Holder { uid, secret, seen: None };
            held.entry(ctx.key().clone()).or_insert(holder);
        }
    }

    /// Lets go of what a Queue of this key held that is gone without us; `queue` is the one that is there now.
    pub(super) async fn leave(
        &self,
        ctx: &Context,
        queue: Option<&Queue>,
    ) -> Result<(), ReconcileError> {
        let key = ctx.key();
        let uid = queue.and_then(ResourceExt::uid);
        let left = {
            let held = self.0.lock().expect("no holder of this lock panics");
            held.get(key).filter(|holder| Some(&holder.uid) != uid.as_ref()).cloned()
        };
        let Some(Holder { uid, secret, .. }) = left else { return Ok(()) };
        let namespace = key.namespace.as_deref().unwrap_or_default();
        // There is no object any more that an Event could be about.
        let _refused = take_off(ctx, namespace, &secret, &uid).await?;
        self.forget(key);
        Ok(())
    }

    /// Holds the Secret that the Queue uses, if it uses one, and lets go of the one before. `queue` is
    /// updated to the object as it is then. Returns why no queue may be made with that Secret: it could not be deleted
    /// once the Secret is gone.
    pub(super) async fn hold(
        &self,
        ctx: &Context,
        queue: &mut Queue,
        wanted: Option<&str>,
    ) -> Result<Option<String>, ReconcileError> {
        let recorded = queue.status.as_ref().and_then(|status| status.secret.clone());
        let (key, uid) = (ctx.key(), queue.uid().unwrap_or_default());
        let is_seen = |secret| self.has(key, &uid, secret, ctx.now());
        let changes = recorded.as_deref() != wanted;
        if !changes && wanted.is_none_or(is_seen) {
            return Ok(None);
        }
        // It stays on record: only one can be, and nobody else would take its finalizer off.
        if changes && recorded.is_some() && self.release(ctx, queue).await?.is_err() {
            return Ok(None);
        }
        let Some(name) = wanted else {
            put_on_record(ctx, queue, None).await?;
            return Ok(None);
        };
        let namespace = queue.namespace().unwrap_or_default();
        let secret = match read(ctx, &namespace, name).await? {
            Ok(Some(secret)) => secret,
            Ok(None) => {
                put_on_record(ctx, queue, None).await?;
                return Ok(Some(missing(name)));
            }
            // It may have our finalizer all the same, so it stays on record if it is.
            Err(why) => {
                if changes {
                    put_on_record(ctx, queue, None).await?;
                }
                return Ok(Some(format!("Secret {name}: {why}")));
            }
        };
        put_on_record(ctx, queue, Some(name)).await?;
        match add(ctx, queue, &secret).await? {
            Stage::Held => {
                let holder = Holder { uid, secret: name.to_owned(), seen: Some(ctx.now()) };
                self.note(key.clone(), holder);
                Ok(None)
            }
            Stage::Refused => Ok(None),
            Stage::Going => {
                let why = format!(
                    "Secret {name} is being deleted: name another in spec.credentials.secretRef, or create it again \
                     once it is gone"
                );
                Ok(Some(why))
            }
        }
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
        let (namespace, uid) =
            (queue.namespace().unwrap_or_default(), queue.uid().unwrap_or_default());
        let Err(why) = take_off(ctx, &namespace, name, &uid).await? else {
            self.forget(ctx.key());
            return Ok(Ok(()));
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

/// Records which Secret the Queue holds.
async fn put_on_record(
    ctx: &Context,
    queue: &mut Queue,
    secret: Option<&str>,
) -> Result<(), ReconcileError> {
    let before = queue.status.clone().unwrap_or_default();
    if before.secret.as_deref() == secret {
        return Ok(());
    }
    write(ctx, queue, QueueStatus { secret: secret.map(str::to_owned), ..before }).await
}

/// Takes the finalizer of the Queue with this uid off the Secret; or why we may not.
async fn take_off(
    ctx: &Context,
    namespace: &str,
    secret: &str,
    uid: &str,
) -> Result<Result<(), String>, ReconcileError> {
    let found = match read(ctx, namespace, secret).await? {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Ok(())),
        Err(why) => return Ok(Err(why)),
    };
    match ctx.remove_finalizer(&found, &finalizer(uid)).await {
        Ok(()) => Ok(Ok(())),
        Err(error) => refused(error).map(Err),
    }
}

/// The finalizer of the Queue with this uid.
fn finalizer(uid: &str) -> String {
    format!("sqs.leasehold.dev/{uid}")
}

/// The Secret, if there is one; or why we may not read it.
async fn read(
    ctx: &Context,
    namespace: &str,
    name: &str,
) -> Result<Result<Option<Secret>, String>, ReconcileError> {
    let secrets: Api<Secret> = Api::namespaced(ctx.client(), namespace);
    match secrets.get_opt(name).await {
        Err(error) => match refusal(&error) {
            Some(why) => Ok(Err(why)),
            None => Err(error.into()),
        },
        Ok(found) => Ok(Ok(found)),
    }
}

/// What became of a Secret that a Queue wants to hold.
enum Stage {
    Held,
    /// We may not: an administrator may not have given the right.
    Refused,
    /// It is being deleted without the Queue's finalizer, and takes no further ones.
    Going,
}

/// Adds the Queue's finalizer.
async fn add(ctx: &Context, queue: &Queue, secret: &Secret) -> Result<Stage, ReconcileError> {
    let own = finalizer(&queue.uid().unwrap_or_default());
    let error = match ctx.finalizer(secret, &own).await {
        Ok(Lifecycle::Over) => return Ok(Stage::Going),
        Ok(_) => return Ok(Stage::Held),
        Err(error) => error,
    };
    let why = refused(error)?;
    let note = format!(
        "Secret {} is not held while it is in use: {why}; let the manager patch it",
        secret.name_any()
    );
    ctx.publish(Event::warning(queue, "SecretNotHeld", "Hold", note)).await;
    Ok(Stage::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_looked_at_again_after_a_while_and_when_a_clock_was_wrong() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let key = ObjectKey::new("a".parse().unwrap(), Some("shop"), "orders");
        let held = Held::default();
        let holder = |seen| Holder { uid: "u1".to_owned(), secret: "aws".to_owned(), seen };
        held.note(key.clone(), holder(Some(at(7_200))));
        for (now, expect) in [(7_201, true), (10_799, true), (10_800, false), (0, false)] {
            assert_eq!(held.has(&key, "u1", "aws", at(now)), expect, "{now}");
        }
        assert!(!held.has(&key, "u1", "next", at(7_201)), "another Secret");
        assert!(!held.has(&key, "u2", "aws", at(7_201)), "another Queue of that name");
        held.note(key.clone(), holder(None));
        assert!(!held.has(&key, "u1", "aws", at(7_201)), "on record, and not seen");
    }
}
