//! How a controller watches a kind: [`Watch`].

use std::marker::PhantomData;
use std::sync::Arc;

use cache::{Index, StoreOptions, Transform};
use engine::{Form, Priority, Role, Scope, Source};
use kube::core::{DynamicObject, PartialObjectMeta};
use model::{AnyObject, Kind, Object, Selector};

use crate::predicate::Predicate;

/// How a controller watches a kind: which of its objects, how much of them, which of their changes
/// count, and whether the kind is optional. For [`crate::Controller::owns_with`],
/// [`crate::Controller::watches_with`] and [`crate::Controller::for_watch`].
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use leasehold_sdk::{
///     Action, Context, Controller, Kind, ObjectKey, ReconcileError, Reconciler, Watch, mapping,
///     predicate,
/// };
///
/// struct Roll {
///     certificates: Kind,
/// }
///
/// impl Reconciler for Roll {
///     type Kind = Deployment;
///     async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
///         if ctx.available_dynamic(&self.certificates)? {
///             tracing::info!(%key, "there may be certificates");
///         }
///         Ok(Action::Done)
///     }
/// }
///
/// let certificates = Kind::new("cert-manager.io", "v1", "Certificate", "certificates", true);
/// let spec = Controller::for_kind::<Deployment>("roll")
///     // Their metadata is enough, so servers send nothing else.
///     .owns_with(Watch::<Secret>::all().metadata_only().labels("app=web".parse()?))
///     // Most of their changes do not concern us.
///     .watches_with(
///         Watch::<ConfigMap>::all().predicate(predicate::label_changed("rolls")),
///         mapping::named_by_label("rolls"),
///     )
///     // A kind without a Rust type, which not every cluster has.
///     .owns_with(Watch::dynamic(certificates.clone()).optional())
///     .reconciler(Roll { certificates });
/// # Ok::<(), leasehold_sdk::SelectorError>(())
/// ```
#[must_use = "give it to a controller"]
pub struct Watch<C> {
    kind: Kind,
    scope: Scope,
    predicates: Vec<engine::Predicate>,
    priority: Priority,
    optional: bool,
    every_owner: bool,
    indexes: Vec<Index>,
    transform: Option<Transform>,
    object: PhantomData<fn() -> C>,
}

impl<C: Object> Watch<C> {
    /// All objects of a kind that has a Rust type. With `PartialObjectMeta<C>`, only their metadata: see
    /// [`Self::metadata_only`].
    pub fn all() -> Self {
        Self::of(Kind::of::<C>())
    }
}

impl Watch<DynamicObject> {
    /// All objects of a kind that is known at run time, read as `DynamicObject`: see
    /// [`crate::Context::get_dynamic`].
    pub fn dynamic(kind: Kind) -> Self {
        Self::of(kind)
    }
}

impl<C: AnyObject> Watch<C> {
    fn of(kind: Kind) -> Self {
        Self {
            kind,
            scope: Scope::default(),
            predicates: Vec::new(),
            priority: Priority::Change,
            optional: false,
            every_owner: false,
            indexes: Vec::new(),
            transform: None,
            object: PhantomData,
        }
    }

    /// Only some of the objects.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Only objects with these labels. An object that no longer matches counts as deleted.
    pub fn labels(mut self, labels: Selector) -> Self {
        self.scope.labels = labels;
        self
    }

    /// Only objects with these fields, in the server's syntax, as in `spec.nodeName=a`.
    pub fn fields(mut self, fields: impl Into<String>) -> Self {
        self.scope.fields = fields.into();
        self
    }

    /// Only changes for which `predicate` holds: see [`crate::predicate`]. If there are several, all must
    /// hold.
    ///
    /// Nothing is filtered when a shard is gained, or when an optional kind appears.
    pub fn predicate(mut self, predicate: impl Predicate<C>) -> Self {
        self.predicates.push(Arc::new(move |old, new| predicate.holds(old, new)));
        self
    }

    /// The priority of the keys that changes of these objects add to the queue:
    /// [`Priority::Change`] unless set. Set a lower one for changes that can wait until the queue has
    /// nothing more urgent.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Makes the kind optional. In a cluster that lacks it, or does not allow us to watch it, the
    /// controller runs without it: [`crate::Context::available`] returns `false`, and reads find none of
    /// its objects, or those that were known before it disappeared. When the kind appears, the keys of
    /// all its objects are queued within seconds.
    ///
    /// If the kind is not optional, the controller does not run in such a cluster. The log, the metric
    /// `leasehold_source_missing` and `/debug/clusters` report both.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// For [`crate::Controller::owns_with`]: follows every ownerReference to the primary kind, not
    /// only that of the controlling owner. [`crate::Context::dependents`] finds the objects by owner.
    ///
    /// Every object of the kind is cached, on each replica that holds any range of the cluster, because
    /// its owners may be in several ranges.
    pub fn every_owner(mut self) -> Self {
        self.every_owner = true;
        self
    }

    /// Watches only the metadata of the objects: servers send nothing else. Read them as
    /// `PartialObjectMeta<C>`, as in `ctx.get::<PartialObjectMeta<Secret>>(..)`.
    ///
    /// It is a separate watch, even if the whole objects of the kind are watched too.
    ///
    /// # Panics
    /// If there are predicates or indexes already: they would see objects without content.
    pub fn metadata_only(self) -> Watch<PartialObjectMeta<C>>
    where
        PartialObjectMeta<C>: AnyObject,
    {
        let Self { kind, scope, predicates, priority, optional, .. } = self;
        let (every_owner, indexes, transform) = (self.every_owner, self.indexes, self.transform);
        assert!(
            predicates.is_empty() && indexes.is_empty(),
            "watch {kind}: call metadata_only before predicate and index"
        );
        let watch = Watch::of(kind);
        Watch { scope, priority, optional, every_owner, transform, ..watch }
    }

    /// [`crate::Controller::index`] for this kind.
    pub fn index(
        mut self,
        name: &str,
        values: impl Fn(&C) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.indexes.push(Index::new(name, values));
        self
    }

    /// [`crate::Controller::transform`] for this kind.
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = Some(transform);
        self
    }

    /// The key under which a controller keeps the kind's [`StoreOptions`], and the changed options.
    pub(crate) fn declare(&mut self, mut options: StoreOptions) -> ((Kind, Form), StoreOptions) {
        if self.every_owner {
            self.indexes.push(Index::owners());
        }
        options = self.indexes.drain(..).fold(options, StoreOptions::index);
        if let Some(transform) = self.transform.take() {
            options = options.transform(transform);
        }
        (self.key(), options)
    }

    /// The key of the kind's [`StoreOptions`].
    pub(crate) fn key(&self) -> (Kind, Form) {
        (self.kind.clone(), Form::of::<C>())
    }

    /// The source of a primary kind or a mapped one.
    ///
    /// # Panics
    /// If it follows every owner: such objects are owned.
    pub(crate) fn source(self, role: Role) -> Source {
        assert!(!self.every_owner, "watch {}: only owns_with follows owners", self.kind);
        self.into_source(role)
    }

    /// The source of an owned kind.
    pub(crate) fn owned(self, owner: Kind) -> Source {
        let role = match self.every_owner {
            true => Role::Dependent { owner },
            false => Role::Owned { owner },
        };
        self.into_source(role)
    }

    fn into_source(self, role: Role) -> Source {
        let Self { kind, scope, predicates, priority, optional, .. } = self;
        Source { kind, form: Form::of::<C>(), scope, role, predicates, priority, optional }
    }
}

impl<C: Object> From<Scope> for Watch<C> {
    fn from(scope: Scope) -> Self {
        Self::all().scope(scope)
    }
}
