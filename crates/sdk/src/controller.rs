//! The controller builder: gives a [`ControllerSpec`], a controller with its types erased, ready for
//! the engine.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use cache::{Index, StoreOptions, Transform};
use engine::{ControllerSpec, MAX_WORKERS, Mapping, Role, Scope, Source};
use model::{ControllerName, GroupName, GroupScope, Kind, Object, Selector};

use crate::lookup::Lookup;
use crate::predicate;
use crate::reconciler::{Erased, Reconciler};

/// Reconciles of one controller at once in one cluster, unless told otherwise.
pub const DEFAULT_WORKERS: usize = 2;
/// How long one reconcile may take, unless told otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

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
///         let namespace = pod.metadata.namespace.as_deref();
///         let maps = lookup.list::<ConfigMap>(namespace, &Selector::all());
///         maps.iter().filter_map(|map| Some((map.metadata.namespace.clone(), map.metadata.name.clone()?))).collect()
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
    group_scope: GroupScope,
    namespace: Option<String>,
    workers: usize,
    timeout: Duration,
    primary: Source,
    others: Vec<Source>,
    options: BTreeMap<Kind, StoreOptions>,
    kind: PhantomData<fn() -> K>,
}

impl Controller<()> {
    /// A controller that reconciles objects of kind `K`.
    ///
    /// # Panics
    /// If `name` is no valid [`ControllerName`]: names are written in the program.
    pub fn for_kind<K: Object>(name: &str) -> Controller<K> {
        Controller {
            name: name.parse().unwrap_or_else(|error| panic!("{error}")),
            part_of: None,
            field_manager: name.into(),
            group: None,
            group_scope: GroupScope::default(),
            namespace: None,
            workers: DEFAULT_WORKERS,
            timeout: DEFAULT_TIMEOUT,
            primary: Source {
                kind: Kind::of::<K>(),
                scope: Scope::default(),
                role: Role::Primary,
                predicates: Vec::new(),
            },
            others: Vec::new(),
            options: BTreeMap::new(),
            kind: PhantomData,
        }
    }
}

impl<K: Object> Controller<K> {
    /// Watches `C` and reconciles the object that its controlling ownerReference names.
    ///
    /// Where a replica holds only a range of a cluster, it caches the children of the objects it
    /// reconciles and no others: neither other owners' children nor objects that nobody controls.
    /// [`Self::watches`] shows all.
    pub fn owns<C: Object>(self) -> Self {
        self.owns_with::<C>(Scope::default())
    }

    /// [`Self::owns`], restricted to some objects of `C`.
    pub fn owns_with<C: Object>(mut self, scope: Scope) -> Self {
        let role = Role::Owned { owner: self.primary.kind.clone() };
        self.others.push(Source { kind: Kind::of::<C>(), scope, role, predicates: Vec::new() });
        self
    }

    /// Watches `C` and reconciles the objects that `map` names, as `(namespace, name)`; those that
    /// do not exist are passed over. [`crate::mapping`] has the usual ones.
    ///
    /// Runs for an object as it was before a change and as it is after, so both those that ceased
    /// to depend on it and those that began to are reconciled; for a deleted one, as last known.
    ///
    /// Every object of `C` is cached, on each replica that holds any range of the cluster.
    pub fn watches<C: Object>(
        self,
        map: impl Fn(&C, &Lookup<'_>) -> Vec<(Option<String>, String)> + Send + Sync + 'static,
    ) -> Self {
        self.watches_with::<C>(Scope::default(), map)
    }

    /// [`Self::watches`], restricted to some objects of `C`.
    pub fn watches_with<C: Object>(
        mut self,
        scope: Scope,
        map: impl Fn(&C, &Lookup<'_>) -> Vec<(Option<String>, String)> + Send + Sync + 'static,
    ) -> Self {
        let erased: Mapping = Arc::new(move |entry, view| match entry.decode::<C>() {
            Ok(object) => map(&object, &Lookup::new(view)),
            Err(error) => {
                let error = model::error::chain(&error);
                tracing::warn!(error, "an object that does not fit its type is mapped to nothing");
                Vec::new()
            }
        });
        self.others.push(Source {
            kind: Kind::of::<C>(),
            scope,
            role: Role::Mapped(erased),
            predicates: Vec::new(),
        });
        self
    }

    /// Keeps an index of the cached objects of kind `C`, read with [`crate::Context::indexed`]: `values`
    /// says under which values an object is found. It sees the object as it came, also what
    /// [`Self::transform`] drops, and must depend on nothing else.
    ///
    /// # Panics
    /// If a kind has more than [`cache::MAX_INDEXES`]: indexes are written in the program.
    pub fn index<C: Object>(
        self,
        name: &str,
        values: impl Fn(&C) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.options::<C>(|options| options.index(Index::new(name, values)))
    }

    /// Drops parts of the objects of kind `C` before they are cached. A part that another controller
    /// of the same manager wants stays. With [`Transform::all_but_metadata`] read them as
    /// `PartialObjectMeta`, through [`crate::Context::get_as`].
    pub fn transform<C: Object>(self, transform: Transform) -> Self {
        self.options::<C>(|options| options.transform(transform))
    }

    fn options<C: Object>(mut self, change: impl FnOnce(StoreOptions) -> StoreOptions) -> Self {
        let options = self.options.entry(Kind::of::<C>()).or_default();
        *options = change(std::mem::take(options));
        self
    }

    /// Reconciles only objects with these labels. An object that ceases to match counts as deleted.
    pub fn selector(mut self, labels: Selector) -> Self {
        self.primary.scope.labels = labels;
        self
    }

    /// Reconciles only objects with these fields, in the server's syntax.
    pub fn fields(mut self, fields: impl Into<String>) -> Self {
        self.primary.scope.fields = fields.into();
        self
    }

    /// Restricts everything this controller watches to one namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Reconciles on changes of the primary kind only if `predicate` holds: see
    /// [`crate::predicate`]. Several must all hold. Without any, each change counts.
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
    /// Counted per cluster, so that a cluster which answers slowly holds up only its own objects.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, MAX_WORKERS);
        self
    }

    /// How long one reconcile may take before it is cancelled and retried.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The name under which servers record what this controller writes; its own unless said
    /// otherwise. What it applied under another name stays that one's, so keep it.
    ///
    /// # Panics
    /// If it cannot be a field manager's and the name of an annotation: at most 63 letters, digits,
    /// `-`, `_` and `.`. Names are written in the program.
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
    /// If `whole` is no valid [`ControllerName`]: names are written in the program.
    pub fn part_of(mut self, whole: &str) -> Self {
        self.part_of = Some(whole.parse().unwrap_or_else(|error| panic!("{error}")));
        self
    }

    /// Names a group, which lets this controller run on another replica than those it shares kinds
    /// with.
    ///
    /// # Panics
    /// If `group` is no valid [`GroupName`]: names are written in the program.
    pub fn group(mut self, group: &str) -> Self {
        self.group = Some(group.parse().unwrap_or_else(|error| panic!("{error}")));
        self
    }

    /// How far its work may be divided; by object unless said otherwise: then a replica that holds
    /// some ranges of a cluster caches only those objects that it reconciles. A controller that looks at
    /// all objects of a cluster together needs [`GroupScope::Cluster`], one that looks at several
    /// clusters together [`GroupScope::Fleet`].
    pub fn group_scope(mut self, scope: GroupScope) -> Self {
        self.group_scope = scope;
        self
    }

    /// Completes the controller with what it runs.
    pub fn reconciler<R: Reconciler<Kind = K>>(self, reconciler: R) -> ControllerSpec {
        let mut sources = vec![self.primary];
        sources.extend(self.others);
        if let Some(namespace) = &self.namespace {
            for source in sources.iter_mut().filter(|source| source.kind.namespaced) {
                source.scope.namespace = Some(namespace.clone());
            }
        }
        ControllerSpec {
            name: self.name,
            part_of: self.part_of,
            group: self.group,
            group_scope: self.group_scope,
            workers: self.workers,
            timeout: self.timeout,
            sources,
            options: self.options,
            reconcile: Arc::new(Erased {
                reconciler,
                field_manager: self.field_manager,
                kept: Arc::default(),
            }),
        }
    }
}
