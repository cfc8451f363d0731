//! Writes that most reconcilers make, besides server-side apply (`apply`) and finalizers
//! (`finalizers`): of the status, and deletion. A write that would change nothing is not sent. All
//! writes go through the fenced client.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{DeleteParams, PatchParams, Preconditions};
use kube::core::Request;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::context::Context;
use cache::{Entry, ResourceVersion};
use engine::{ReconcileError, Wanted};
use model::{AnyObject, Kind};

/// An object that cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unwritable {
    #[error("write {0}: it has no name")]
    Nameless(Kind),
    #[error("write {0} as JSON")]
    Json(Kind, #[source] serde_json::Error),
    #[error("write an object that has neither apiVersion nor kind")]
    Untyped,
    #[error("write {api_version} {kind}: only a kind that the controller watches is known by name")]
    Unknown { api_version: String, kind: String },
    #[error("write {0} without its resourceVersion: only an object that was read can be replaced")]
    Unread(String),
}

impl From<Unwritable> for ReconcileError {
    fn from(error: Unwritable) -> Self {
        Self::terminal(error)
    }
}

impl Context {
    /// Deletes exactly this incarnation of an object, and its dependents in the background. It is no
    /// error if the object is gone, or was replaced by another of the same name.
    ///
    /// # Errors
    /// What the server says.
    pub async fn delete<K: AnyObject>(&self, object: &K) -> Result<(), ReconcileError> {
        let pinned = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams::background().preconditions(pinned);
        let kind = self.kind_of(object)?;
        let request = requests(&kind, object).delete(&name(&kind, object)?, &params);
        match self.send::<IgnoredAny>(request).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// How a merge patch is sent.
    pub(crate) fn merging(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.field_manager().into()), ..PatchParams::default() }
    }

    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, kube::Error> {
        self.fenced().request(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// The cached object; `None` if its kind is not watched.
    pub(crate) fn cached<K: AnyObject>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<Entry>> {
        self.caches().get(Wanted::by::<K>(kind), namespace, name).ok().flatten()
    }

    /// [`Self::cached`], if it has the version of `object`.
    pub(crate) fn as_cached<K: AnyObject>(&self, kind: &Kind, object: &K) -> Option<Arc<Entry>> {
        let (meta, version) = (object.meta(), object.meta().resource_version.as_deref()?);
        let found = self.cached::<K>(kind, meta.namespace.as_deref(), meta.name.as_deref()?);
        found.filter(|found| found.header.resource_version == ResourceVersion::new(version))
    }

    /// The kind of an object to write.
    pub(crate) fn kind_of<K: AnyObject>(&self, object: &K) -> Result<Kind, Unwritable> {
        if let Some(kind) = K::static_kind() {
            return Ok(kind);
        }
        let Some(types) = object.type_meta() else { return Err(Unwritable::Untyped) };
        let known = self.caches().kinds().find(|kind| kind.type_meta() == *types);
        known.cloned().ok_or_else(|| Unwritable::Unknown {
            api_version: types.api_version.clone(),
            kind: types.kind.clone(),
        })
    }
}

/// An object as it is read and written, with its real kind: partial metadata alone would be of the kind
/// `PartialObjectMetadata`.
pub(crate) fn of_kind<K: AnyObject>(kind: &Kind, mut object: Value) -> Value {
    if K::metadata_api()
        && let Some(fields) = object.as_object_mut()
    {
        fields.insert("apiVersion".to_owned(), kind.api_version().into());
        fields.insert("kind".to_owned(), (*kind.kind).into());
    }
    object
}

pub(crate) fn json<K: AnyObject>(kind: &Kind, object: &K) -> Result<Value, Unwritable> {
    let json = serde_json::to_value(object);
    let json = json.map_err(|error| Unwritable::Json(kind.clone(), error))?;
    Ok(of_kind::<K>(kind, json))
}

pub(crate) fn name<K: AnyObject>(kind: &Kind, object: &K) -> Result<String, Unwritable> {
    object.meta().name.clone().ok_or_else(|| Unwritable::Nameless(kind.clone()))
}

/// Builds requests for objects in the same collection as this one.
pub(crate) fn requests<K: AnyObject>(kind: &Kind, object: &K) -> Request {
    Request::new(kind.collection_path(object.meta().namespace.as_deref()))
}

pub(crate) fn unless_gone<K>(answer: Result<K, kube::Error>) -> Result<Option<K>, ReconcileError> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => Ok(answer.map(Some)?),
    }
}
