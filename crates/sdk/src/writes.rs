//! Writes that most reconcilers make, beside server-side apply (`apply`) and finalizers
//! (`finalizers`): of the status, and deletion. What would change nothing is not sent. And how all of
//! them are sent: through the fenced client.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{DeleteParams, PatchParams, Preconditions};
use kube::core::Request;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::Context;
use cache::{Entry, ResourceVersion};
use engine::ReconcileError;
use model::{Kind, Object};

/// An object that cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unwritable {
    #[error("write {0}: it has no name")]
    Nameless(Kind),
    #[error("write {0} as JSON")]
    Json(Kind, #[source] serde_json::Error),
    #[error("write {0} without its resourceVersion: only an object that was read can be replaced")]
    Unread(String),
}

impl From<Unwritable> for ReconcileError {
    fn from(error: Unwritable) -> Self {
        Self::terminal(error)
    }
}

impl Context {
    /// Deletes this very incarnation of an object, its dependents in the background. An object that
    /// is gone, or was replaced by a namesake, is no error.
    ///
    /// # Errors
    /// What the server says.
    pub async fn delete<K: Object>(&self, object: &K) -> Result<(), ReconcileError> {
        let pinned = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams::background().preconditions(pinned);
        let request = requests(&Kind::of::<K>(), object).delete(&name(object)?, &params);
        match self.send::<Value>(request).await {
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

    /// What the cache has of an object; nothing if its kind is not watched.
    pub(crate) fn cached(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<Entry>> {
        self.caches().get(kind, namespace, name).ok().flatten()
    }

    /// [`Self::cached`], if it is the very version of the object that `object` was read at.
    pub(crate) fn as_cached<K: Object>(&self, kind: &Kind, object: &K) -> Option<Arc<Entry>> {
        let (meta, version) = (object.meta(), object.meta().resource_version.as_deref()?);
        let found = self.cached(kind, meta.namespace.as_deref(), meta.name.as_deref()?);
        found.filter(|found| found.header.resource_version == ResourceVersion::new(version))
    }
}

pub(crate) fn json<K: Object>(object: &K) -> Result<Value, Unwritable> {
    serde_json::to_value(object).map_err(|error| Unwritable::Json(Kind::of::<K>(), error))
}

pub(crate) fn name<K: Object>(object: &K) -> Result<String, Unwritable> {
    object.meta().name.clone().ok_or_else(|| Unwritable::Nameless(Kind::of::<K>()))
}

/// What makes requests for objects beside this one.
pub(crate) fn requests<K: Object>(kind: &Kind, object: &K) -> Request {
    Request::new(kind.collection_path(object.meta().namespace.as_deref()))
}

pub(crate) fn unless_gone<K>(answer: Result<K, kube::Error>) -> Result<Option<K>, ReconcileError> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => Ok(answer.map(Some)?),
    }
}
