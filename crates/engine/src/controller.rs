//! The controller builder, and [`ControllerSpec`]: a controller with its types erased, ready for
//! the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use model::group::GroupInput;
use model::{ControllerName, GroupName, GroupScope, ObjectKey, Range};

use crate::cache::{Entry, Index, Recipe, Strip};
use crate::coverage::Claim;
use crate::lookup::Lookup;
use crate::object::{Kind, Object};
use crate::predicate;
use crate::reconcile::{Action, Context, ReconcileError, Reconciler};
use crate::selector::Selector;

/// Reconciles of one controller at once in one cluster, unless told otherwise.
pub const DEFAULT_WORKERS: usize = 2;
/// The most that [`Controller::workers`] accepts.
pub const MAX_WORKERS: usize = 256;
/// How long one reconcile may take, unless told otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) type Predicate = Arc<dyn Fn(Option<&Entry>, Option<&Entry>) -> bool + Send + Sync>;
pub(crate) type Mapping =
    Arc<dyn Fn(&Entry, &Lookup<'_>) -> Vec<(Option<String>, String)> + Send + Sync>;

/// Which objects of a kind are watched. Sent to the server, so that others are neither transferred
/// nor cached.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only objects with these labels.
    pub labels: Selector,
    /// Only objects with these fields, in the server's syntax, as in `spec.nodeName=a`. Empty: all.
    pub fields: String,
}

/// Builds a controller for one kind.
///
/// ```
/// use leasehold_engine::{Action, Context, Controller, ReconcileError, Reconciler, Selector};
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use model::ObjectKey;
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
///     .predicate(leasehold_engine::predicate::generation_changed())
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
    recipes: BTreeMap<Kind, Recipe>,
    kind: PhantomData<fn() -> K>,
}

/// One watched kind of a controller and what its events mean.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
    pub(crate) role: Role,
}

/// How events of a source become keys of the primary kind.
#[derive(Clone)]
pub(crate) enum Role {
    /// The object is the key.
    Primary { predicates: Vec<Predicate> },
    /// The controlling owner is the key, if it is of this kind.
    Owned { owner: Kind },
    /// A function says.
    Mapped(Mapping),
}

impl Role {
    /// Which objects of its kind are needed where a range is held. A mapping may lead from any
    /// object to any key, and is there to be looked things up in, so it needs all.
    pub(crate) fn claim(&self, range: Range) -> Claim {
        match self {
            Self::Primary { .. } => Claim::Own(range),
            Self::Owned { .. } => Claim::Owner(range),
            Self::Mapped(_) => Claim::Whole,
        }
    }
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
                role: Role::Primary { predicates: Vec::new() },
            },
            others: Vec::new(),
            recipes: BTreeMap::new(),
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
        self.others.push(Source { kind: Kind::of::<C>(), scope, role });
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
        let erased: Mapping = Arc::new(move |entry, lookup| match entry.decode::<C>() {
            Ok(object) => map(&object, lookup),
            Err(error) => {
                let error = model::error::chain(&error);
                tracing::warn!(error, "an object that does not fit its type is mapped to nothing");
                Vec::new()
            }
        });
        self.others.push(Source { kind: Kind::of::<C>(), scope, role: Role::Mapped(erased) });
        self
    }

    /// Keeps an index of the cached objects of kind `C`, read with [`Context::indexed`]: `values`
    /// says under which values an object is found. It sees the object as it came, also what
    /// [`Self::strip`] drops, and must depend on nothing else.
    ///
    /// # Panics
    /// If a kind has more than [`crate::cache::MAX_INDEXES`]: indexes are written in the program.
    pub fn index<C: Object>(
        self,
        name: &str,
        values: impl Fn(&C) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.recipe::<C>(|recipe| recipe.index(Index::new(name, values)))
    }

    /// Drops parts of the objects of kind `C` before they are cached. A part that another controller
    /// of the same manager wants stays. With [`Strip::all_but_metadata`] read them as
    /// `PartialObjectMeta`, through [`Context::get_as`].
    pub fn strip<C: Object>(self, strip: Strip) -> Self {
        self.recipe::<C>(|recipe| recipe.strip(strip))
    }

    fn recipe<C: Object>(mut self, change: impl FnOnce(Recipe) -> Recipe) -> Self {
        let recipe = self.recipes.entry(Kind::of::<C>()).or_default();
        *recipe = change(std::mem::take(recipe));
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
        if let Role::Primary { predicates } = &mut self.primary.role {
            predicates.push(Arc::new(move |old, new| predicate.holds(old, new)));
        }
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
            field_manager: self.field_manager,
            group: self.group,
            group_scope: self.group_scope,
            workers: self.workers,
            timeout: self.timeout,
            sources,
            recipes: self.recipes,
            reconciler: Arc::new(reconciler),
        }
    }
}

/// A complete controller with its types erased.
#[derive(Clone)]
pub struct ControllerSpec {
    pub(crate) name: ControllerName,
    pub(crate) part_of: Option<ControllerName>,
    /// Under which servers record what it writes.
    pub(crate) field_manager: Arc<str>,
    pub(crate) group: Option<GroupName>,
    pub(crate) group_scope: GroupScope,
    pub(crate) workers: usize,
    pub(crate) timeout: Duration,
    /// The first is the primary.
    pub(crate) sources: Vec<Source>,
    /// What the caches of its kinds keep, where it is not whole objects.
    pub(crate) recipes: BTreeMap<Kind, Recipe>,
    pub(crate) reconciler: Arc<dyn ErasedReconciler>,
}

impl ControllerSpec {
    /// The controller's name.
    pub fn name(&self) -> &ControllerName {
        &self.name
    }

    /// The name by which configuration means it: that of the controller it is a part of, or its own.
    pub fn whole(&self) -> &ControllerName {
        self.part_of.as_ref().unwrap_or(&self.name)
    }

    /// The group it names for itself, if any.
    pub fn group(&self) -> Option<&GroupName> {
        self.group.as_ref()
    }

    /// The kinds it watches.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.sources.iter().map(|source| source.kind.clone()).collect()
    }

    /// What [`model::group::groups`] needs to know of it.
    pub fn group_input(&self) -> GroupInput {
        GroupInput {
            controller: self.name.clone(),
            named: self.group.clone(),
            kinds: self.kinds().iter().map(Kind::to_string).collect(),
            scope: self.group_scope,
        }
    }

    /// Sets how many objects of one cluster are reconciled at once, as configuration may.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, MAX_WORKERS);
        self
    }
}

impl fmt::Debug for ControllerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerSpec")
            .field("name", &self.name)
            .field("kinds", &self.kinds())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// [`Reconciler`] without its kind.
pub(crate) trait ErasedReconciler: Send + Sync {
    fn reconcile<'a>(
        &'a self,
        ctx: &'a Context,
        key: &'a ObjectKey,
    ) -> BoxFuture<'a, Result<Action, ReconcileError>>;
}

impl<R: Reconciler> ErasedReconciler for R {
    fn reconcile<'a>(
        &'a self,
        ctx: &'a Context,
        key: &'a ObjectKey,
    ) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        Reconciler::reconcile(self, ctx, key).boxed()
    }
}
