//! The [`Context`] of one reconcile: what a reconciler may use.

use std::fmt;
use std::sync::{Arc, OnceLock};

use cache::{Entry, OWNERS};
use engine::{CacheView, External, FencedClient, ReconcileError, Run, Wanted};
use jiff::Timestamp;
use model::{ClusterName, ClusterUid, Epoch, Kind, Object, ObjectKey, Selector, ShardId, Validity};
use serde::de::DeserializeOwned;
use upstream::ExternalLimits;

use crate::bulk;
use crate::events::{Event, Recorder, Source};
use crate::remembered::Remembered;

/// What a reconciler may use; each reconcile has its own.
pub struct Context {
    run: Run,
    fenced: OnceLock<FencedClient>,
    client: OnceLock<kube::Client>,
    field_manager: Arc<str>,
    kept: Arc<Kept>,
}

/// The state that a controller keeps between reconciles.
#[derive(Default)]
pub(crate) struct Kept {
    recorder: Recorder,
    remembered: Remembered,
}

impl Context {
    pub(crate) fn new(run: Run, field_manager: Arc<str>, kept: Arc<Kept>) -> Self {
        let (fenced, client) = (OnceLock::new(), OnceLock::new());
        Self { run, fenced, client, field_manager, kept }
    }

    /// The results of the controller's last applies.
    pub(crate) fn remembered(&self) -> &Remembered {
        &self.kept.remembered
    }

    /// Created when it is first needed: most reconciles write nothing.
    pub(crate) fn fenced(&self) -> &FencedClient {
        self.fenced.get_or_init(|| self.run.fenced())
    }

    pub(crate) fn caches(&self) -> &CacheView {
        self.run.caches()
    }

    /// The key that is reconciled.
    pub fn key(&self) -> &ObjectKey {
        &self.run.dispatch().key
    }

    /// The name under which servers record what this controller writes: the controller's, unless
    /// [`crate::Controller::field_manager`] says otherwise.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// The cluster that this context reads and writes: the key's, or that of [`Self::in_cluster`].
    pub fn cluster(&self) -> &ClusterName {
        &self.shard().cluster
    }

    /// Which cluster that is, whatever the fleet calls it: the uid of its namespace `kube-system`. `None`
    /// while its server has not told, as where we may not read that namespace.
    pub fn cluster_uid(&self) -> Option<&ClusterUid> {
        self.run.cluster_uid()
    }

    /// How long this replica holds the key's shard: what a controller shows of an object, such as a series of its
    /// own, must end then.
    pub fn validity(&self) -> Validity {
        self.run.validity()
    }

    /// The shard this reconcile runs under. With [`Self::epoch`], a token that external systems can
    /// use to refuse a late writer.
    pub fn shard(&self) -> &ShardId {
        &self.run.dispatch().shard
    }

    /// The epoch of the shard when this reconcile began.
    pub fn epoch(&self) -> Epoch {
        self.run.dispatch().epoch
    }

    /// The fenced client of the key's cluster.
    ///
    /// Each write asks the fence again when it is sent, and fails with [`crate::FencedError`] in its
    /// source chain if the shard is no longer ours; it may take no longer than the rest of the Lease.
    /// Reads are not fenced. Prefer the cache for reads.
    ///
    /// Every request waits for its turn at the cluster's gate. While the circuit breaker of a failing
    /// cluster is open, requests fail at once with [`crate::UpstreamError`] in the source chain. If a
    /// reconciler returns that as a [`ReconcileError`], the key runs again when the breaker closes.
    pub fn client(&self) -> kube::Client {
        self.client.get_or_init(|| self.fenced().client()).clone()
    }

    /// One object from the shared cache. `namespace` is `None` for kinds without namespaces. Objects
    /// that were decoded recently are not decoded again.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind or the object does not fit the type.
    pub fn get<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<K>>, ReconcileError> {
        Ok(self.caches().get_decoded(&Kind::of::<K>(), namespace, name)??)
    }

    /// One object of kind `K`, read as another type: `DynamicObject` or `serde_json::Value`, or a
    /// struct with the fields of interest.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind or the object does not fit the type.
    pub fn get_as<K: Object, T: DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, ReconcileError> {
        let entry = self.caches().get(Wanted::by::<K>(&Kind::of::<K>()), namespace, name)?;
        Ok(entry.map(|entry| entry.decode_dynamic()).transpose()?)
    }

    /// Objects from the shared cache: those of a namespace (`None`: of all) that the selector
    /// selects, ordered by namespace and name.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind, an object does not fit the type, or the objects would take
    /// more than 256 MiB once they are decoded. That is estimated, and rather too high: a thousand large Pods pass.
    pub fn list<K: Object>(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Arc<K>>, ReconcileError> {
        let kind = Kind::of::<K>();
        let entries = self.caches().list(Wanted::by::<K>(&kind), namespace, selector)?;
        decoded(self.caches(), &entries)
    }

    /// [`Self::list`], with each object of kind `K` read as another type: see [`Self::get_as`]. What the objects would
    /// take is estimated as that of `serde_json::Value`, whatever the type.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn list_as<K: Object, T: DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<T>, ReconcileError> {
        let kind = Kind::of::<K>();
        let entries = self.caches().list(Wanted::by::<K>(&kind), namespace, selector)?;
        let found = bulk::values(self.caches(), &kind, &entries);
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Objects from the shared cache that have a value in an index which the controller declares
    /// with [`crate::Controller::index`], ordered by namespace and name.
    ///
    /// # Errors
    /// As [`Self::list`], and terminal if the index is not declared.
    pub fn indexed<K: Object>(
        &self,
        index: &str,
        value: &str,
    ) -> Result<Vec<Arc<K>>, ReconcileError> {
        let kind = Kind::of::<K>();
        let entries = self.caches().indexed(Wanted::by::<K>(&kind), index, value)??;
        decoded(self.caches(), &entries)
    }

    /// Objects from the shared cache whose controlling owner has this uid, ordered by namespace
    /// and name. Served from an index.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn owned_by<K: Object>(&self, uid: &str) -> Result<Vec<Arc<K>>, ReconcileError> {
        let entries = self.caches().owned_by(Wanted::by::<K>(&Kind::of::<K>()), uid)?;
        decoded(self.caches(), &entries)
    }

    /// Objects from the shared cache that name an owner with this uid, whether it controls them or
    /// not, ordered by namespace and name. Served from an index, which [`crate::Watch::every_owner`]
    /// declares.
    ///
    /// # Errors
    /// As [`Self::list`], and terminal if the controller does not watch the kind that way.
    pub fn dependents<K: Object>(&self, uid: &str) -> Result<Vec<Arc<K>>, ReconcileError> {
        self.indexed(OWNERS, uid)
    }

    /// Whether the key's cluster has kind `K` and allows us to watch it, as far as is known: see
    /// [`crate::Watch::optional`].
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind.
    pub fn available<K: Object>(&self) -> Result<bool, ReconcileError> {
        Ok(self.caches().is_available(Wanted::by::<K>(&Kind::of::<K>()))?)
    }

    /// A service outside of Kubernetes. `service`, such as `sqs`, is its label in metrics; `name` is the
    /// unit for which its provider limits requests, such as an account's token. The limits are those of
    /// the first call with this name.
    ///
    /// The first request needs the key's turn: before its turn it fails at once, and the key runs again
    /// when the turn comes. A reconcile has one turn at a service, however often it calls this.
    pub fn external(&self, service: &'static str, name: &str, limits: &ExternalLimits) -> External {
        self.run.external(service, name, limits)
    }

    /// A context for another cluster: it reads the caches of the same kinds there, and its client writes
    /// there. For controllers of scope [`crate::GroupScope::Fleet`], whose shards of all clusters are on
    /// one replica.
    ///
    /// A write passes the gate of the other cluster, and is refused unless this replica still holds both
    /// shards: the key's and the other cluster's. The next run of the key waits until the caches of the
    /// other cluster show what was written.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use leasehold_sdk::{Action, Context, ObjectKey, ReconcileError};
    /// # async fn reconcile(ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
    /// let hub = ctx.in_cluster(&"hub".parse().map_err(ReconcileError::terminal)?)?;
    /// if let Some(map) = hub.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? {
    ///     tracing::info!(cluster = %ctx.cluster(), data = ?map.data, "the hub has one");
    /// }
    /// # Ok(Action::Done) }
    /// ```
    ///
    /// # Errors
    /// [`crate::InClusterError`]: terminal if the controller is not of scope `Fleet`, transient if the
    /// cluster is not engaged, its shard is not held here, or its caches are not complete yet.
    pub fn in_cluster(&self, cluster: &ClusterName) -> Result<Context, ReconcileError> {
        let run = self.run.in_cluster(cluster)?;
        Ok(Self::new(run, Arc::clone(&self.field_manager), Arc::clone(&self.kept)))
    }

    /// The clusters for which [`Self::in_cluster`] may succeed, in order of their names, the key's
    /// included: those whose shards this replica holds. It still fails for a cluster whose caches are
    /// being filled.
    pub fn clusters(&self) -> Vec<ClusterName> {
        self.run.clusters()
    }

    /// The wall clock's time.
    pub fn now(&self) -> Timestamp {
        self.run.clock().wall()
    }

    /// Publishes an Event about an object, best effort: repeats within a few minutes become a series,
    /// too many about one object are dropped, and failures are logged but never fail the reconcile.
    pub async fn publish(&self, event: Event<'_>) {
        let dispatch = self.run.dispatch();
        let source = Source {
            cluster: self.cluster().as_str(),
            controller: &format!("leasehold.dev/{}", dispatch.controller),
            instance: dispatch.member.as_str(),
        };
        let (client, clock) = (self.client(), self.run.clock());
        self.kept.recorder.publish(&client, source, event, &**clock).await;
    }
}

fn decoded<K: Object>(
    view: &CacheView,
    entries: &[Arc<Entry>],
) -> Result<Vec<Arc<K>>, ReconcileError> {
    let kind = Kind::of::<K>();
    let found = bulk::objects(view, &kind, entries).map(|object| object.map(Arc::new));
    Ok(found.collect::<Result<_, _>>()?)
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("run", &self.run).finish_non_exhaustive()
    }
}
