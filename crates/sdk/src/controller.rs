//! The controller builder. It builds a [`ControllerSpec`]: a controller with its types erased, ready for
//! the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use cache::{Index, StoreOptions, Transform};
use engine::{
    ControllerSpec, Form, MAX_WORKERS, Mapping, Priority, RateLimiter, Role, Source, Trigger,
    TriggerSources,
};
use kube::core::DynamicObject;
use model::{AnyObject, ControllerName, GroupName, GroupScope, Kind, Object, Selector};
use prometheus::core::Collector;

use crate::dynamic::mapped;
use crate::lookup::{Lookup, Name, name};
use crate::predicate;
use crate::reconciler::{Erased, Reconciler};
use crate::watch::Watch;

/// Reconciles of one controller at once in one cluster, by default.
pub const DEFAULT_WORKERS: usize = 2;
/// How long one reconcile may take, by default.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The shortest interval of a periodic resync.
pub const MIN_RESYNC: Duration = Duration::from_secs(1);

/// Builds a controller for one kind.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use leasehold_sdk::{Action, Context, Controller, ObjectKey, ReconcileError, Reconciler, Selector};
///
/// struct CountPods;
///
/// impl Reconciler for CountPods {
///     type Kind = ConfigMap;
///     async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
///         let namespace = key.namespace.as_deref();
///         let Some(_map) = ctx.get::<ConfigMap>(namespace, &key.name)? else {
///             return Ok(Action::Done);
///         };
///         let pods = ctx.list::<Pod>(namespace, &"app=web".parse().map_err(ReconcileError::terminal)?)?;
///         tracing::info!(pods = pods.len(), "counted");
///         Ok(Action::Done)
///     }
/// }
///
/// let spec = Controller::for_kind::<ConfigMap>("count-pods")
///     .watches::<Pod>(|pod, lookup| {
///         lookup.names::<ConfigMap>(pod.metadata.namespace.as_deref(), &Selector::all())
///     })
///     .predicate(leasehold_sdk::predicate::generation_changed())
///     .workers(4)
///     .reconciler(CountPods);
/// assert_eq!(spec.name().as_str(), "count-pods");
/// ```
#[must_use = "a controller does nothing until `reconciler` completes it"]
pub struct Controller<K> {
    name: ControllerName,
    part_of: Option<ControllerName>,
    field_manager: Arc<str>,
    group: Option<GroupName>,
    pub(crate) group_scope: GroupScope,
    namespaces: BTreeSet<String>,
    workers: usize,
    timeout: Duration,
    rate_limiter: RateLimiter,
    requeue_priority: Priority,
    resync_every: Option<Duration>,
    primary: Source,
    pub(crate) others: Vec<Source>,
    options: BTreeMap<(Kind, Form), StoreOptions>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) trigger_sources: TriggerSources,
    collectors: Vec<Arc<dyn Collector>>,
    kind: PhantomData<fn() -> K>,
}

impl Controller<()> {
    /// A controller that reconciles objects of kind `K`.
    ///
    /// # Panics
    /// If `name` is no valid [`ControllerName`], which is a mistake in the program.
    pub fn for_kind<K: Object>(name: &str) -> Controller<K> {
        Self::for_watch(name, Watch::all())
    }

    /// A controller that reconciles objects of a kind that is known at run time: see
    /// [`crate::Context::get_dynamic`], which has an example.
    ///
    /// # Panics
    /// If `name` is no valid [`ControllerName`], which is a mistake in the program.
    pub fn for_dynamic(name: &str, kind: Kind) -> Controller<DynamicObject> {
        Self::for_watch(name, Watch::dynamic(kind))
    }

    /// [`Self::for_kind`] with settings for how the kind is watched.
    ///
    /// # Panics
    /// If `name` is no valid [`ControllerName`], or the watch follows every owner, which are mistakes in
    /// the program.
    pub fn for_watch<K: AnyObject>(name: &str, mut watch: Watch<K>) -> Controller<K> {
        let options = BTreeMap::from([watch.declare(StoreOptions::default())]);
        Controller {
            name: name.parse().unwrap_or_else(|error| panic!("{error}")),
            part_of: None,
            field_manager: name.into(),
            group: None,
            group_scope: GroupScope::default(),
            namespaces: BTreeSet::new(),
            workers: DEFAULT_WORKERS,
            timeout: DEFAULT_TIMEOUT,
            rate_limiter: RateLimiter::default(),
            requeue_priority: Priority::Resync,
            resync_every: None,
            primary: watch.source(Role::Primary),
            others: Vec::new(),
            options,
            triggers: Vec::new(),
            trigger_sources: TriggerSources::default(),
            collectors: Vec::new(),
            kind: PhantomData,
        }
    }
}

impl<K: AnyObject> Controller<K> {
    /// Watches `C` and reconciles the object that its controlling ownerReference names.
    ///
    /// A replica that holds only a range of a cluster caches only the children of the objects that it
    /// reconciles: neither other owners' children nor objects without a controlling owner.
    /// [`Self::watches`] caches all.
    pub fn owns<C: Object>(self) -> Self {
        self.owns_with(Watch::<C>::all())
    }

    /// [`Self::owns`] with settings for how `C` is watched: a [`Watch`], or the [`crate::Scope`] that
    /// restricts it.
    pub fn owns_with<C: AnyObject>(mut self, watch: impl Into<Watch<C>>) -> Self {
        let watch = self.declared(watch.into());
        let owner = self.primary.kind.clone();
        self.others.push(watch.owned(owner));
        self
    }

    /// Watches `C` and reconciles the objects that `map` names, as `(namespace, name)`; names without an
    /// object are ignored. [`crate::mapping`] has the usual mappings.
    ///
    /// `map` runs for an object as it was before a change and as it is after, so that both the objects
    /// that no longer depend on it and those that now do are reconciled. For a deleted object it sees
    /// the last known state.
    ///
    /// Every object of `C` is cached, on each replica that holds any range of the cluster.
    pub fn watches<C: Object>(
        self,
        map: impl Fn(&C, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static,
    ) -> Self {
        self.watches_with(Watch::<C>::all(), map)
    }

    /// [`Self::watches`] with settings for how `C` is watched: a [`Watch`], or the [`crate::Scope`]
    /// that restricts it.
    ///
    /// # Panics
    /// If the watch follows every owner, which is a mistake in the program.
    pub fn watches_with<C: AnyObject>(
        mut self,
        watch: impl Into<Watch<C>>,
        map: impl Fn(&C, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static,
    ) -> Self {
        let watch = self.declared(watch.into());
        let (kind, _) = watch.key();
        let erased: Mapping = Arc::new(move |entry, view| {
            let log_line = |text| view.log_line(text);
            mapped(&kind, entry, log_line, |object: &C| map(object, &Lookup::new(view)))
        });
        self.others.push(watch.source(Role::Mapped(erased)));
        self
    }

    /// [`Self::watches_with`] where the name of a changed object is all that `map` needs: nothing is decoded,
    /// which is most of what a mapping costs.
    ///
    /// # Panics
    /// As [`Self::watches_with`].
    pub fn watches_names<C: AnyObject>(
        mut self,
        watch: impl Into<Watch<C>>,
        map: impl Fn(Name, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static,
    ) -> Self {
        let watch = self.declared(watch.into());
        let mapping: Mapping =
            Arc::new(move |entry, view| map(name(&entry.header.key), &Lookup::new(view)));
        self.others.push(watch.source(Role::Mapped(mapping)));
        self
    }

    /// Adds what the caches should keep for a watch.
    pub(crate) fn declared<C: AnyObject>(&mut self, mut watch: Watch<C>) -> Watch<C> {
        let present = self.options.remove(&watch.key()).unwrap_or_default();
        let (key, options) = watch.declare(present);
        self.options.insert(key, options);
        watch
    }

    /// Keeps an index of the cached objects of kind `C`, read with [`crate::Context::indexed`]: `values`
    /// returns the values under which an object is found. It sees the object as the server sent it, with
    /// the parts that [`Self::transform`] drops, and must depend on nothing else.
    ///
    /// # Panics
    /// If a kind has more than 64 indexes, which only a mistake in the program can cause.
    pub fn index<C: Object>(
        self,
        name: &str,
        values: impl Fn(&C) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.options::<C>(|options| options.index(Index::new(name, values)))
    }

    /// Drops parts of the objects of kind `C` before they are cached. A part that another controller of
    /// the same manager needs stays. If the metadata is enough, use [`Watch::metadata_only`]: then
    /// servers send nothing else.
    pub fn transform<C: Object>(self, transform: Transform) -> Self {
        self.options::<C>(|options| options.transform(transform))
    }

    fn options<C: Object>(mut self, change: impl FnOnce(StoreOptions) -> StoreOptions) -> Self {
        let options = self.options.entry((Kind::of::<C>(), Form::of::<C>())).or_default();
        *options = change(std::mem::take(options));
        self
    }

    /// Reconciles only objects with these labels. An object that no longer matches counts as deleted.
    pub fn selector(mut self, labels: Selector) -> Self {
        self.primary.scope.labels = labels;
        self
    }

    /// Reconciles only objects with these fields, in the server's syntax.
    pub fn fields(mut self, fields: impl Into<String>) -> Self {
        self.primary.scope.fields = fields.into();
        self
    }

    /// Restricts everything this controller watches to one namespace: see [`Self::namespaces`].
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// Restricts everything this controller watches to these namespaces; to none if there are none.
    /// Kinds without namespaces are watched as before, and a [`Watch`] whose scope names a namespace
    /// stays in that namespace.
    ///
    /// Each namespace is watched by itself, so rights in those namespaces are enough.
    pub fn namespaces<N: Into<String>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Self {
        self.namespaces = namespaces.into_iter().map(Into::into).collect();
        self
    }

    /// Reconciles on changes of the primary kind only if `predicate` holds: see
    /// [`crate::predicate`]. If there are several, all must hold; without any, each change counts.
    ///
    /// Nothing is filtered when a shard is gained: every object is reconciled then.
    pub fn predicate(mut self, predicate: impl predicate::Predicate<K>) -> Self {
        self.primary.predicates.push(Arc::new(move |old, new| predicate.holds(old, new)));
        self
    }

    /// [`Self::predicate`] with a function of the objects before and after: the first is absent for
    /// a new object, the second for a deleted one. Both are decoded at each change.
    pub fn filter(
        self,
        counts: impl Fn(Option<&K>, Option<&K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.predicate(counts)
    }

    /// How many objects of one cluster are reconciled at once, 1 to [`MAX_WORKERS`].
    ///
    /// Counted per cluster, so that a cluster that answers slowly delays only its own objects.
    /// Over all clusters at most 4,096 are, and fewer while most of their writes become slow, because then they share
    /// something that has too much to do: the processor, or the machine of the API servers.
    ///
    /// Each worker holds what its reconcile reads. Ordinary objects take a few times their JSON once they are decoded.
    /// If a cluster puts into them what takes most, an object takes up to 40 MiB, and a list up to 256 MiB from the cache
    /// and about 300 MiB from the API server: a cluster may take that for each worker. Where strangers write the
    /// objects, have few workers, and let reconciles read short lists, with a selector or in pages.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, MAX_WORKERS);
        self
    }

    /// How long one reconcile may take before it is cancelled and retried.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long an object that failed waits before it is reconciled again. The default is
    /// client-go's, with jitter; [`ReconcileError::retry_after`](crate::ReconcileError::retry_after)
    /// takes its place for one retry.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use leasehold_sdk::{Action, Context, Controller, ObjectKey, ReconcileError, Reconciler};
    /// use leasehold_sdk::{Priority, RateLimiter};
    /// # struct Slow;
    /// # impl Reconciler for Slow {
    /// #     type Kind = ConfigMap;
    /// #     async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
    /// #         Ok(Action::Done)
    /// #     }
    /// # }
    ///
    /// let spec = Controller::for_kind::<ConfigMap>("slow")
    ///     .rate_limiter(RateLimiter::exponential(Duration::from_secs(1), Duration::from_secs(300)))
    ///     .requeue_priority(Priority::Initial)
    ///     .resync_every(Duration::from_secs(3600))
    ///     .reconciler(Slow);
    /// assert_eq!(spec.resync_every, Some(Duration::from_secs(3600)));
    /// ```
    pub fn rate_limiter(mut self, rate_limiter: RateLimiter) -> Self {
        self.rate_limiter = rate_limiter;
        self
    }

    /// The priority of the keys that changes of the reconciled kind add to the queue:
    /// [`Priority::Change`] unless set. [`Watch::priority`] sets that of another source.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.primary.priority = priority;
        self
    }

    /// The priority of objects that [`Action::RequeueAfter`](crate::Action::RequeueAfter) queues again:
    /// [`Priority::Resync`] unless set.
    pub fn requeue_priority(mut self, priority: Priority) -> Self {
        self.requeue_priority = priority;
        self
    }

    /// Reconciles every object again about this often, even if nothing changed; at least
    /// [`MIN_RESYNC`]. Off unless set: watches miss nothing, so this is for changes outside of Kubernetes
    /// that cause no event.
    ///
    /// Objects are queued at [`Priority::Resync`], spread evenly over the interval with some jitter. They
    /// come from the cache: nothing is listed.
    pub fn resync_every(mut self, interval: Duration) -> Self {
        self.resync_every = Some(interval.max(MIN_RESYNC));
        self
    }

    /// The name under which servers record what this controller writes; by default its own name. Fields
    /// that it applied under another name stay with that name, so do not change it.
    ///
    /// # Panics
    /// If it cannot be the name of a field manager and of an annotation, which has at most 63 letters,
    /// digits, `-`, `_` and `.`.
    pub fn field_manager(mut self, name: &str) -> Self {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        assert!(
            (1..=63).contains(&name.len()) && name.chars().all(fits),
            "{name:?} is no field manager: 1 to 63 letters, digits, '-', '_' and '.'"
        );
        self.field_manager = name.into();
        self
    }

    /// Makes this controller a part of the one of that name: configuration that names the whole means
    /// its parts too.
    ///
    /// # Panics
    /// If `whole` is no valid [`ControllerName`], which is a mistake in the program.
    pub fn part_of(mut self, whole: &str) -> Self {
        self.part_of = Some(whole.parse().unwrap_or_else(|error| panic!("{error}")));
        self
    }

    /// Names a group, which lets this controller run on another replica than those it shares kinds
    /// with.
    ///
    /// # Panics
    /// If `group` is no valid [`GroupName`], which is a mistake in the program.
    pub fn group(mut self, group: &str) -> Self {
        self.group = Some(group.parse().unwrap_or_else(|error| panic!("{error}")));
        self
    }

    /// How far its work may be divided. By default by object: a replica that holds some ranges of a
    /// cluster caches only the objects that it reconciles. A controller that needs all objects of a
    /// cluster at once needs [`GroupScope::Cluster`]; one that works across clusters needs
    /// [`GroupScope::Fleet`]: then one replica holds the shards of all clusters, and
    /// [`crate::Context::in_cluster`] gives access to the others.
    pub fn group_scope(mut self, scope: GroupScope) -> Self {
        self.group_scope = scope;
        self
    }

    /// Exports series of its own where it runs, beside those that every controller has. What they cost must be bounded
    /// for each cluster: [`crate::Context::validity`] has the cluster's label value, and says how long it may be shown.
    pub fn collector(mut self, collector: impl Collector + 'static) -> Self {
        self.collectors.push(Arc::new(collector));
        self
    }

    /// Completes the controller with what it runs.
    ///
    /// # Panics
    /// If it maps across clusters and its scope was narrowed again: both are written in the program.
    pub fn reconciler<R: Reconciler<Kind = K>>(self, reconciler: R) -> ControllerSpec {
        self.check_scope();
        let spec = ControllerSpec {
            name: self.name,
            part_of: self.part_of,
            group: self.group,
            group_scope: self.group_scope,
            workers: self.workers,
            timeout: self.timeout,
            rate_limiter: self.rate_limiter,
            requeue_priority: self.requeue_priority,
            resync_every: self.resync_every,
            sources: std::iter::once(self.primary).chain(self.others).collect(),
            options: self.options,
            reconcile: Arc::new(Erased {
                reconciler,
                field_manager: self.field_manager,
                kept: Arc::default(),
            }),
            triggers: self.triggers,
            trigger_sources: self.trigger_sources,
            collectors: self.collectors,
        };
        spec.with_namespaces(&self.namespaces)
    }

    /// Mappings across clusters need all shards on one replica.
    fn check_scope(&self) {
        let (name, scope) = (&self.name, self.group_scope);
        let across = self.others.iter().any(|source| matches!(source.role, Role::Across(_)));
        assert!(
            !across || scope == GroupScope::Fleet,
            "controller {name} maps across clusters, so its scope must be Fleet, not {scope:?}"
        );
    }
}
