//! Reading objects of kinds that are known at run time.

use cache::{DecodeError, Entry};
use engine::{LogLine, ReconcileError, Wanted};
use model::{AnyObject, Kind, Selector};

use crate::bulk;
use crate::context::Context;
use crate::lookup::{Lookup, refused, warn};

impl Context {
    /// One object from the shared cache, of a kind that is known at run time. `T` is `DynamicObject` for
    /// the whole object, or `PartialObjectMeta` for its metadata, which is everything there is if the
    /// controller watches only that. The object carries its kind and can be written like any other:
    /// with [`Self::apply`], [`Self::patch_status`], [`Self::delete`] and so on.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::core::DynamicObject;
    /// use leasehold_sdk::{Action, Context, Controller, Kind, ObjectKey, ReconcileError, Reconciler};
    ///
    /// /// Writes the colour of each object of some kind into a ConfigMap beside it.
    /// struct Colours(Kind);
    ///
    /// impl Reconciler for Colours {
    ///     type Kind = DynamicObject;
    ///     async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
    ///         let namespace = key.namespace.as_deref();
    ///         let found = ctx.get_dynamic::<DynamicObject>(&self.0, namespace, &key.name)?;
    ///         let Some(object) = found else { return Ok(Action::Done) };
    ///         let colour = object.data.pointer("/spec/colour").and_then(|colour| colour.as_str());
    ///         let mut map = ConfigMap::default();
    ///         map.metadata.name = Some(format!("{}-colour", key.name));
    ///         map.data = colour.map(|colour| [("colour".to_owned(), colour.to_owned())].into());
    ///         ctx.apply_child(&object, map).await?;
    ///         Ok(Action::Done)
    ///     }
    /// }
    ///
    /// // From configuration, `Kind::of_crd` or `Kind::of_resource`.
    /// let widgets = Kind::new("example.com", "v1", "Widget", "widgets", true);
    /// let spec = Controller::for_dynamic("colours", widgets.clone())
    ///     .owns::<ConfigMap>()
    ///     .reconciler(Colours(widgets));
    /// ```
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind or the object does not fit the type.
    pub fn get_dynamic<T: AnyObject>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, ReconcileError> {
        let entry = self.caches().get(Wanted::by::<T>(kind), namespace, name)?;
        Ok(entry.map(|entry| decoded(kind, &entry)).transpose()?)
    }

    /// [`Self::list`] of a kind that is known at run time, read as [`Self::get_dynamic`] does.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn list_dynamic<T: AnyObject>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<T>, ReconcileError> {
        let entries = self.caches().list(Wanted::by::<T>(kind), namespace, selector)?;
        Ok(bulk::objects(self.caches(), kind, &entries).collect::<Result<_, _>>()?)
    }

    /// [`Self::indexed`] of a kind that is known at run time, read as [`Self::get_dynamic`] does. The
    /// index is declared with [`crate::Watch::index`].
    ///
    /// # Errors
    /// As [`Self::indexed`].
    pub fn indexed_dynamic<T: AnyObject>(
        &self,
        kind: &Kind,
        index: &str,
        value: &str,
    ) -> Result<Vec<T>, ReconcileError> {
        let entries = self.caches().indexed(Wanted::by::<T>(kind), index, value)??;
        Ok(bulk::objects(self.caches(), kind, &entries).collect::<Result<_, _>>()?)
    }

    /// [`Self::owned_by`] of a kind that is known at run time, read as [`Self::get_dynamic`] does.
    ///
    /// # Errors
    /// As [`Self::owned_by`].
    pub fn owned_by_dynamic<T: AnyObject>(
        &self,
        kind: &Kind,
        uid: &str,
    ) -> Result<Vec<T>, ReconcileError> {
        let entries = self.caches().owned_by(Wanted::by::<T>(kind), uid)?;
        Ok(bulk::objects(self.caches(), kind, &entries).collect::<Result<_, _>>()?)
    }

    /// [`Self::available`] for a kind that is known at run time.
    ///
    /// # Errors
    /// Terminal, if the controller does not watch the kind.
    pub fn available_dynamic(&self, kind: &Kind) -> Result<bool, ReconcileError> {
        Ok(self.caches().is_available(Wanted::metadata(kind))?)
    }
}

impl Lookup<'_> {
    /// [`Self::get`] of a kind that is known at run time: see [`Context::get_dynamic`].
    pub fn get_dynamic<T: AnyObject>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<T> {
        let entry = self.view().get(Wanted::by::<T>(kind), namespace, name).ok()??;
        decoded(kind, &entry).inspect_err(self.unfit()).ok()
    }

    /// [`Self::list`] of a kind that is known at run time: see [`Context::get_dynamic`].
    pub fn list_dynamic<T: AnyObject>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Vec<T> {
        match self.view().list(Wanted::by::<T>(kind), namespace, selector) {
            Ok(entries) => self.decoded(kind, &entries).collect(),
            Err(error) => refused(&error),
        }
    }
}

/// A cached object as its type, which need not know its kind.
pub(crate) fn decoded<T: AnyObject>(kind: &Kind, entry: &Entry) -> Result<T, DecodeError> {
    let mut object: T = entry.decode()?;
    object.set_kind(kind);
    Ok(object)
}

/// What a mapping makes of a cached object; nothing if the object does not fit its type. `log_line` says whether
/// a log is told.
pub(crate) fn mapped<C: AnyObject, T>(
    kind: &Kind,
    entry: &Entry,
    log_line: impl FnOnce(&'static str) -> Option<LogLine>,
    map: impl FnOnce(&C) -> Vec<T>,
) -> Vec<T> {
    const UNFIT: &str = "an object that does not fit its type is mapped to nothing";
    match decoded(kind, entry) {
        Ok(object) => map(&object),
        Err(error) => {
            warn(log_line(UNFIT), UNFIT, &error);
            Vec::new()
        }
    }
}
