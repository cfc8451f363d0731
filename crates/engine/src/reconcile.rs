//! The public face a controller's author sees while reconciling: [`Reconciler`], [`Action`],
//! [`ReconcileError`] and the [`Context`] of one reconcile.
//!
//! A reconciler never learns why it ran. It reads the cache through the context, compares with what
//! should be, and writes through the context's fenced client.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use model::{Clock, ClusterName, Epoch, ObjectKey, ShardId};
use serde::de::DeserializeOwned;

use crate::cache::{DecodeError, Entry, NoIndex};
use crate::dispatch::Dispatch;
use crate::events::{Event, Recorder};
use crate::external::{Externals, Turn};
use crate::fence::{Fence, FencedClient};
use crate::lookup::{CacheView, NotWatched};
use crate::object::Object;
use crate::selector::Selector;

/// Brings one object closer to what it asks for.
///
/// Runs once per key at a time, on the one member that owns the key's shard. It must be idempotent:
/// it runs again after failures, after handovers, and without cause.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind whose keys are reconciled.
    type Kind: Object;

    /// Reconciles one object. The object may be gone: then `ctx.get` gives `None`.
    ///
    /// The future may be dropped at any await when the shard is lost, so what must happen together
    /// belongs into one write.
    fn reconcile(
        &self,
        ctx: &Context,
        key: &ObjectKey,
    ) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

/// What comes after a reconcile that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until something changes. A wake-up asked for earlier is dropped.
    Done,
    /// Again after this long, or earlier if something changes. Replaces an earlier wake-up.
    RequeueAfter(Duration),
}

/// How a failed reconcile is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// Retried with backoff.
    Transient,
    /// Not retried until the object or something it depends on changes.
    Terminal,
    /// The object changed under us: retried with backoff, and not counted as an error.
    Conflict,
}

/// A failed reconcile: what was tried, how to retry, and the cause.
pub struct ReconcileError {
    class: RetryClass,
    source: Box<dyn StdError + Send + Sync>,
}

impl ReconcileError {
    /// A failure that may pass: retried with backoff.
    pub fn transient(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { class: RetryClass::Transient, source: source.into() }
    }

    /// A failure that stays until something changes: not retried.
    pub fn terminal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { class: RetryClass::Terminal, source: source.into() }
    }

    /// A lost race with another writer: retried with backoff.
    pub fn conflict(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { class: RetryClass::Conflict, source: source.into() }
    }

    /// How it is retried.
    pub fn class(&self) -> RetryClass {
        self.class
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.class {
            RetryClass::Transient => "reconcile failed",
            RetryClass::Terminal => "reconcile failed for good",
            RetryClass::Conflict => "reconcile met a conflicting write",
        })
    }
}

impl fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.class, model::error::chain(self))
    }
}

impl StdError for ReconcileError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

impl From<kube::Error> for ReconcileError {
    /// Classifies by the server's answer: a lost compare-and-swap is a conflict; a request the
    /// server calls malformed or invalid is terminal, for it will say so again; anything else,
    /// including a refused permission, may pass.
    fn from(error: kube::Error) -> Self {
        let class = match &error {
            kube::Error::Api(status) => match status.code {
                409 if status.reason == "Conflict" => RetryClass::Conflict,
                400 | 405 | 406 | 413 | 415 | 422 => RetryClass::Terminal,
                _ => RetryClass::Transient,
            },
            kube::Error::BuildRequest(_) => RetryClass::Terminal,
            _ => RetryClass::Transient,
        };
        Self { class, source: Box::new(error) }
    }
}

impl From<DecodeError> for ReconcileError {
    fn from(error: DecodeError) -> Self {
        Self::terminal(error)
    }
}

impl From<NoIndex> for ReconcileError {
    fn from(error: NoIndex) -> Self {
        Self::terminal(error)
    }
}

impl From<NotWatched> for ReconcileError {
    fn from(error: NotWatched) -> Self {
        Self::terminal(error)
    }
}

/// What a reconciler may use, made anew for each reconcile.
pub struct Context {
    dispatch: Dispatch,
    caches: Arc<CacheView>,
    clock: Arc<dyn Clock>,
    fence: Fence,
    fenced: OnceLock<FencedClient>,
    client: OnceLock<kube::Client>,
    recorder: Arc<Recorder>,
    field_manager: Arc<str>,
    externals: Arc<Externals>,
    /// The turns at external upstreams that were asked for.
    turns: Mutex<Vec<Arc<Turn>>>,
}

impl Context {
    pub(crate) fn new(
        dispatch: Dispatch,
        caches: Arc<CacheView>,
        clock: Arc<dyn Clock>,
        fence: Fence,
        recorder: Arc<Recorder>,
        field_manager: Arc<str>,
        externals: Arc<Externals>,
    ) -> Self {
        Self {
            dispatch,
            caches,
            clock,
            fence,
            fenced: OnceLock::new(),
            client: OnceLock::new(),
            recorder,
            field_manager,
            externals,
            turns: Mutex::default(),
        }
    }

    /// Made when it is first needed: most reconciles write nothing.
    pub(crate) fn fenced(&self) -> &FencedClient {
        self.fenced.get_or_init(|| FencedClient::new(&self.fence, &self.dispatch))
    }

    /// What a way to an external upstream is made of.
    pub(crate) fn outside(&self) -> (&Externals, Fence, Dispatch) {
        (&self.externals, self.fence.clone(), self.dispatch.clone())
    }

    /// The turn at the upstream of that name, made if none was asked for yet.
    pub(crate) fn turn_at(&self, name: &str, make: impl FnOnce() -> Turn) -> Arc<Turn> {
        let mut turns = self.turns.lock().expect("no holder of this lock panics");
        if let Some(turn) = turns.iter().find(|turn| turn.is_at(name)) {
            return Arc::clone(turn);
        }
        let turn = Arc::new(make());
        turns.push(Arc::clone(&turn));
        turn
    }

    pub(crate) fn caches(&self) -> &CacheView {
        &self.caches
    }

    /// The name under which servers record what this controller writes: the controller's, unless
    /// [`crate::Controller::field_manager`] says otherwise.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// The cluster of the key.
    pub fn cluster(&self) -> &ClusterName {
        &self.dispatch.key.cluster
    }

    /// The shard this reconcile runs under. With [`Self::epoch`], a token that external systems can
    /// use to refuse a late writer.
    pub fn shard(&self) -> &ShardId {
        &self.dispatch.shard
    }

    /// The epoch of the shard when this reconcile began.
    pub fn epoch(&self) -> Epoch {
        self.dispatch.epoch
    }

    /// The fenced client of the key's cluster.
    ///
    /// Each write asks the fence again when it is sent, and fails with
    /// [`crate::FencedError`] in its source chain if the shard is not ours any more; it is bounded by
    /// what is left of the Lease. Reads pass unfenced. Prefer the cache for reads.
    ///
    /// Every request waits for its turn at the cluster; while the cluster is left alone because it
    /// fails, requests fail at once with [`crate::UpstreamError`] in the source chain. Passed on as
    /// a [`ReconcileError`], that has the key run again when the cluster is asked again.
    pub fn client(&self) -> kube::Client {
        self.client.get_or_init(|| self.fenced().client()).clone()
    }

    /// One object from the shared cache. `namespace` is `None` for kinds without namespaces. What
    /// was decoded lately is not decoded again.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind or the object does not fit the type.
    pub fn get<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<K>>, ReconcileError> {
        Ok(self.caches.get_decoded(namespace, name)??)
    }

    /// One object of kind `K`, read as another type: `PartialObjectMeta<K>` where only the metadata
    /// is kept, `DynamicObject` or `serde_json::Value`, or a struct with the fields of interest.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind or the object does not fit the type.
    pub fn get_as<K: Object, T: DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, ReconcileError> {
        let entry = self.caches.get::<K>(namespace, name)?;
        Ok(entry.map(|entry| entry.decode_dynamic()).transpose()?)
    }

    /// Objects from the shared cache: those of a namespace (`None`: of all) that the selector
    /// selects, ordered by namespace and name.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind or an object does not fit the type.
    pub fn list<K: Object>(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Arc<K>>, ReconcileError> {
        let entries = self.caches.list::<K>(namespace, selector)?;
        decoded(&entries)
    }

    /// [`Self::list`], with each object of kind `K` read as another type: see [`Self::get_as`].
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind or an object does not fit the type.
    pub fn list_as<K: Object, T: DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<T>, ReconcileError> {
        let entries = self.caches.list::<K>(namespace, selector)?;
        entries.iter().map(|entry| Ok(entry.decode_dynamic()?)).collect()
    }

    /// Objects from the shared cache that have a value in an index which the controller declares
    /// with [`crate::Controller::index`], ordered by namespace and name.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind, the index is not declared, or an object
    /// does not fit the type.
    pub fn indexed<K: Object>(
        &self,
        index: &str,
        value: &str,
    ) -> Result<Vec<Arc<K>>, ReconcileError> {
        let entries = self.caches.indexed::<K>(index, value)??;
        decoded(&entries)
    }

    /// Objects from the shared cache whose controlling owner has this uid, ordered by namespace
    /// and name. Served from an index.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind or an object does not fit the type.
    pub fn owned_by<K: Object>(&self, uid: &str) -> Result<Vec<Arc<K>>, ReconcileError> {
        let entries = self.caches.owned_by::<K>(uid)?;
        decoded(&entries)
    }

    /// The wall clock's time.
    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// Publishes an Event about an object, best effort: repeats within a few minutes become a
    /// series, failures are logged and never fail the reconcile.
    pub async fn publish(&self, event: Event<'_>) {
        self.recorder.publish(&self.client(), &self.dispatch, event, self.clock.wall()).await;
    }
}

fn decoded<K: Object>(entries: &[Arc<Entry>]) -> Result<Vec<Arc<K>>, ReconcileError> {
    entries.iter().map(|entry| Ok(Arc::new(entry.decode()?))).collect()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn answers_of_the_server_fall_into_classes() {
        for (code, reason, class) in [
            (409, "Conflict", RetryClass::Conflict),
            (409, "AlreadyExists", RetryClass::Transient),
            (422, "Invalid", RetryClass::Terminal),
            (400, "BadRequest", RetryClass::Terminal),
            (403, "Forbidden", RetryClass::Transient),
            (404, "NotFound", RetryClass::Transient),
            (429, "TooManyRequests", RetryClass::Transient),
            (500, "InternalError", RetryClass::Transient),
        ] {
            let status = Status::failure("why", reason).with_code(code).boxed();
            assert_eq!(ReconcileError::from(kube::Error::Api(status)).class(), class, "{code}");
        }
    }

    #[test]
    fn an_error_shows_its_causes_once() {
        let error = ReconcileError::terminal(std::io::Error::other("disk full"));
        assert_eq!(format!("{error:?}"), "Terminal: reconcile failed for good: disk full");
    }
}
