//! The writes that most reconcilers make: server-side apply, status, finalizers, deletion. What would
//! change nothing is not sent.
//!
//! All of them go through the fenced client.

use std::borrow::Cow;

use http::HeaderValue;
use http::header::ACCEPT;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use crate::applied::Applied;
use crate::context::Context;
use crate::field::field;
use crate::owner::{named, set_controller};
use cache::DecodeError;
use engine::ReconcileError;
use model::{Kind, Object};

/// Of an object, its metadata
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>).
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// Where an object with a finalizer of ours stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifecycle<'a, K: Clone> {
    /// It lives, and has the finalizer: as it was read, or as the write left it that gave it one.
    Live(Cow<'a, K>),
    /// It is being deleted and waits for us: clean up, then
    /// [`Context::remove_finalizer`].
    Ending,
    /// It is being deleted, and we are done with it; or it is gone.
    Over,
}

/// An object that cannot be written.
#[derive(Debug, thiserror::Error)]
enum Unwritable {
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
    /// Brings an object to what `object` says by server-side apply, as this controller's field
    /// manager and by force: fields it names are ours, all others are left alone, and those that it
    /// named the last time and does not any more are given up.
    ///
    /// Nothing is sent if the cache shows that it was applied already. An annotation
    /// (`applied.leasehold.dev/<field manager>`) keeps the account.
    ///
    /// Gives the object as it is then.
    ///
    /// # Errors
    /// What the server says; terminal if the object has no name.
    pub async fn apply<K: Object>(&self, object: &K) -> Result<K, ReconcileError> {
        let json = json(object)?;
        let applied = Applied::new(json, self.field_manager());
        let (namespace, name) = (object.namespace(), name(object)?);
        if let Some(found) = self.cached::<K, Value>(namespace.as_deref(), &name)?
            && applied.is_shown_by(&found)
            && let Ok(found) = serde_json::from_value(found)
        {
            return Ok(found);
        }
        let params = PatchParams::apply(self.field_manager()).force();
        let request = requests(object).patch(&name, &params, &Patch::Apply(applied.object()));
        Ok(self.send(request).await?)
    }

    /// [`Self::apply`] for a child: `owner` becomes its controlling owner, so that it is deleted with
    /// it, and lends it its namespace.
    ///
    /// # Errors
    /// As [`Self::apply`]; terminal if `owner` cannot own it.
    pub async fn apply_child<O: Object, K: Object>(
        &self,
        owner: &O,
        mut child: K,
    ) -> Result<K, ReconcileError> {
        set_controller(owner, &mut child).map_err(ReconcileError::terminal)?;
        self.apply(&child).await
    }

    /// Replaces the status of `object`, which must have been read. Nothing is sent if it is the cached
    /// object with the status it has there.
    ///
    /// Gives the object as it is then; `None` if it is gone, which is nobody's mistake.
    ///
    /// # Errors
    /// What the server says; a conflict if the object changed since it was read.
    pub async fn update_status<K: Object>(&self, object: &K) -> Result<Option<K>, ReconcileError> {
        let json = json(object)?;
        let name = name(object)?;
        if object.resource_version().is_none() {
            return Err(Unwritable::Unread(named(object)).into());
        }
        let found = self.cached::<K, Value>(object.namespace().as_deref(), &name)?;
        if found.is_some_and(|found| says_the_same(&found, &json)) {
            return Ok(Some(object.clone()));
        }
        let params =
            PostParams { field_manager: Some(self.field_manager().into()), dry_run: false };
        let body = json.to_string().into_bytes();
        let request = requests(object).replace_subresource("status", &name, &params, body);
        unless_gone(self.send(request).await)
    }

    /// Brings some fields of the status of `object` to what `status` says, by a merge patch
    /// ([RFC 7386]): fields it does not name are left alone, those it names as null are removed.
    /// Nothing is sent if `object` has them so.
    ///
    /// Gives whether the object is still there. The server is asked for no more than metadata in
    /// return, which saves both ends work; the next reconcile of the key finds in the cache what was
    /// written. Where the object is wanted at once there is [`Self::update_status`].
    ///
    /// [RFC 7386]: https://www.rfc-editor.org/rfc/rfc7386
    ///
    /// # Errors
    /// What the server says; terminal if the object has no name.
    pub async fn patch_status<K: Object>(
        &self,
        object: &K,
        status: impl Serialize,
    ) -> Result<bool, ReconcileError> {
        let status = serde_json::to_value(status);
        let status = status.map_err(|error| Unwritable::Json(Kind::of::<K>(), error))?;
        let found = field(object, "status");
        let found = found.map_err(|error| Unwritable::Json(Kind::of::<K>(), error))?;
        if found.is_some_and(|found| has_merged(&found, &status)) {
            return Ok(true);
        }
        let patch = Patch::Merge(json!({"status": status}));
        let (name, params) = (name(object)?, self.merging());
        let request = requests(object).patch_subresource("status", &name, &params, &patch);
        let request = request.map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA);
            request
        });
        Ok(unless_gone(self.send::<IgnoredAny>(request).await)?.is_some())
    }

    /// Sees that `object` has `finalizer` while it lives, and says where it stands.
    ///
    /// ```no_run
    /// # use leasehold_sdk::{Action, Context, Lifecycle, Object, ReconcileError};
    /// # async fn release_what_it_holds() {}
    /// # async fn keep_up<K>(ctx: &Context, object: &K) -> Result<(), ReconcileError> { Ok(()) }
    /// # async fn reconcile<K: Object>(ctx: &Context, object: &K) -> Result<Action, ReconcileError> {
    /// match ctx.finalizer(object, "example.com/release").await? {
    ///     Lifecycle::Live(object) => keep_up(ctx, &object).await?,
    ///     Lifecycle::Ending => {
    ///         release_what_it_holds().await;
    ///         ctx.remove_finalizer(object, "example.com/release").await?;
    ///         return Ok(Action::Done);
    ///     }
    ///     Lifecycle::Over => return Ok(Action::Done),
    /// }
    /// # Ok(Action::Done) }
    /// ```
    ///
    /// # Errors
    /// What the server says; a conflict if the object changed since it was read.
    pub async fn finalizer<'a, K: Object>(
        &self,
        object: &'a K,
        finalizer: &str,
    ) -> Result<Lifecycle<'a, K>, ReconcileError> {
        let has = object.finalizers().iter().any(|found| found == finalizer);
        match (object.meta().deletion_timestamp.is_some(), has) {
            (true, true) => Ok(Lifecycle::Ending),
            (true, false) => Ok(Lifecycle::Over),
            (false, true) => Ok(Lifecycle::Live(Cow::Borrowed(object))),
            (false, false) => {
                let mut finalizers = object.finalizers().to_vec();
                finalizers.push(finalizer.to_owned());
                let found = self.set_finalizers(object, &finalizers).await?;
                Ok(found.map_or(Lifecycle::Over, |object| Lifecycle::Live(Cow::Owned(object))))
            }
        }
    }

    /// Takes `finalizer` off `object`, which lets it go if it was the last. To be called when
    /// [`Self::finalizer`] says [`Lifecycle::Ending`] and all is cleaned up.
    ///
    /// # Errors
    /// What the server says; a conflict if the object changed since it was read.
    pub async fn remove_finalizer<K: Object>(
        &self,
        object: &K,
        finalizer: &str,
    ) -> Result<(), ReconcileError> {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.retain(|found| found != finalizer);
        if finalizers.len() < object.finalizers().len() {
            self.set_finalizers(object, &finalizers).await?;
        }
        Ok(())
    }

    /// Deletes this very incarnation of an object, its dependents in the background. An object that
    /// is gone, or was replaced by a namesake, is no error.
    ///
    /// # Errors
    /// What the server says.
    pub async fn delete<K: Object>(&self, object: &K) -> Result<(), ReconcileError> {
        let pinned = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams::background().preconditions(pinned);
        let request = requests(object).delete(&name(object)?, &params);
        match self.send::<Value>(request).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// The list as a whole, so it goes with the resourceVersion it was read at.
    async fn set_finalizers<K: Object>(
        &self,
        object: &K,
        finalizers: &[String],
    ) -> Result<Option<K>, ReconcileError> {
        let Some(version) = object.resource_version() else {
            return Err(Unwritable::Unread(named(object)).into());
        };
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let request = requests(object).patch(&name(object)?, &self.merging(), &Patch::Merge(patch));
        unless_gone(self.send(request).await)
    }

    /// How a merge patch is sent.
    fn merging(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.field_manager().into()), ..PatchParams::default() }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, kube::Error> {
        self.fenced().request(request.map_err(kube::Error::BuildRequest)?).await
    }

    /// What the cache has of an object; nothing if its kind is not watched.
    fn cached<K: Object, T: DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, DecodeError> {
        let entry = self.caches().get(&Kind::of::<K>(), namespace, name).ok().flatten();
        entry.map(|entry| entry.decode_dynamic()).transpose()
    }
}

/// Whether both are the same version of an object with the same status.
fn says_the_same(found: &Value, object: &Value) -> bool {
    const VERSION: &str = "/metadata/resourceVersion";
    found.pointer(VERSION) == object.pointer(VERSION) && found.get("status") == object.get("status")
}

/// Whether a merge patch would change nothing.
fn has_merged(found: &Value, patch: &Value) -> bool {
    match (found, patch) {
        (Value::Object(found), Value::Object(patch)) => {
            patch.iter().all(|(field, patch)| match found.get(field) {
                Some(found) => has_merged(found, patch),
                None => patch.is_null(),
            })
        }
        _ => found == patch,
    }
}

fn json<K: Object>(object: &K) -> Result<Value, Unwritable> {
    serde_json::to_value(object).map_err(|error| Unwritable::Json(Kind::of::<K>(), error))
}

fn name<K: Object>(object: &K) -> Result<String, Unwritable> {
    object.meta().name.clone().ok_or_else(|| Unwritable::Nameless(Kind::of::<K>()))
}

/// What makes requests for objects beside this one.
fn requests<K: Object>(object: &K) -> Request {
    Request::new(Kind::of::<K>().collection_path(object.namespace().as_deref()))
}

fn unless_gone<K>(answer: Result<K, kube::Error>) -> Result<Option<K>, ReconcileError> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => Ok(answer.map(Some)?),
    }
}
