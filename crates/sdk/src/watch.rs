//! How a controller watches a kind: [`Watch`].

use std::marker::PhantomData;
use std::sync::Arc;

use cache::{Index, StoreOptions, Transform};
use engine::{Form, Priority, Role, Scope, Source};
use kube::core::{DynamicObject, PartialObjectMeta};
use model::{AnyObject, Kind, Object, Selector};

use crate::predicate::Predicate;

/// How a controller watches a kind: which of its objects, how much of them, which of their changes
/// count, and whether it can do without. For [`crate::Controller::owns_with`],
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
///     // Their metadata is enough, and is all that is transferred.
///     .owns_with(Watch::<Secret>::all().metadata_only().labels("app=web".parse()?))
///     // Most changes of them are none of ours.
///     .watches_with(
///         Watch::<ConfigMap>::all().predicate(predicate::label_changed("rolls")),
///         mapping::named_by_label("rolls"),
///     )
///     // A kind without a Rust type, which not every cluster has.
///     .owns_with(Watch::dynamic(certificates.clone()).optional())
///     .reconciler(Roll { certificates });
/// # Ok::<(), leasehold_sdk::SelectorError>(())
/// ```
#[must_use = "it is to be given to a controller"]
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
    /// All objects of a kind that has a Rust type. With `PartialObjectMeta<C>`, no more than their
    /// metadata: see [`Self::metadata_only`].
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

    /// Only objects with these labels. One that ceases to match counts as deleted.
    pub fn labels(mut self, labels: Selector) -> Self {
        self.scope.labels = labels;
        self
    }

    /// Only objects with these fields, in the server's syntax, as in `spec.nodeName=a`.
    pub fn fields(mut self, fields: impl Into<String>) -> Self {
        self.scope.fields = fields.into();
        self
    }

    /// Only changes for which `predicate` holds: see [`crate::predicate`]. Several must all hold.
    ///
    /// Nothing is filtered when a shard is gained, or a kind comes that the controller did without.
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

    /// Does without the kind in a cluster that does not have it, or does not let it be watched: the
    /// controller runs there, [`crate::Context::available`] says that the kind is not there, and
    /// reads find none of its objects, or those that were known before it went. When the kind comes,
    /// everything of it is followed up within seconds.
    ///
    /// A kind that is not optional keeps the controller from beginning anything in such a cluster.
    /// The metric `leasehold_source_available` and the log tell of both.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// For [`crate::Controller::owns_with`]: follows every ownerReference to the primary kind, not
    /// only that of the owner which controls the object. [`crate::Context::dependents`] finds the
    /// objects again.
    ///
    /// Every object of the kind is cached, on each replica that holds any range of the cluster, for
    /// its owners may lie in several.
    pub fn every_owner(mut self) -> Self {
        self.every_owner = true;
        self
    }

    /// No more than the objects' metadata, which is all that servers then send. They are read as
    /// `PartialObjectMeta<C>`, as in `ctx.get::<PartialObjectMeta<Secret>>(..)`.
    ///
    /// Beside another watch of whole objects of the kind this is a watch of its own.
    ///
    /// # Panics
    /// If there are predicates or indexes already: they would be shown objects without content.
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

    /// The key under which a controller keeps the kind's [`StoreOptions`], and what becomes of them.
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

    /// What the kind's [`StoreOptions`] are found by.
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
