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
use crate::owner::{control, named};
use cache::DecodeError;
use engine::{ReconcileError, Wanted};
use model::{AnyObject, Kind};

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
    pub async fn apply<K: AnyObject>(&self, object: &K) -> Result<K, ReconcileError> {
        let kind = self.kind_of(object)?;
        let json = json(&kind, object)?;
        let applied = Applied::new(json, self.field_manager());
        let (namespace, name) = (object.namespace(), name(&kind, object)?);
        if let Some(found) = self.cached::<K>(&kind, namespace.as_deref(), &name)?
            && applied.is_shown_by(&found)
            && let Ok(found) = serde_json::from_value(found)
        {
            return Ok(found);
        }
        let params = PatchParams::apply(self.field_manager()).force();
        let request = requests(&kind, object);
        let request = request.patch(&name, &params, &Patch::Apply(applied.object()));
        Ok(self.send(request).await?)
    }

    /// [`Self::apply`] for a child: `owner` becomes its controlling owner, so that it is deleted with
    /// it, and lends it its namespace.
    ///
    /// # Errors
    /// As [`Self::apply`]; terminal if `owner` cannot own it.
    pub async fn apply_child<O: AnyObject, K: AnyObject>(
        &self,
        owner: &O,
        mut child: K,
    ) -> Result<K, ReconcileError> {
        let (owner_kind, kind) = (self.kind_of(owner)?, self.kind_of(&child)?);
        control((owner, &owner_kind), (&mut child, &kind)).map_err(ReconcileError::terminal)?;
        self.apply(&child).await
    }

    /// Replaces the status of `object`, which must have been read. Nothing is sent if it is the cached
    /// object with the status it has there.
    ///
    /// Gives the object as it is then; `None` if it is gone, which is nobody's mistake.
    ///
    /// # Errors
    /// What the server says; a conflict if the object changed since it was read.
    pub async fn update_status<K: AnyObject>(
        &self,
        object: &K,
    ) -> Result<Option<K>, ReconcileError> {
        let kind = self.kind_of(object)?;
        let json = json(&kind, object)?;
        let name = name(&kind, object)?;
        if object.resource_version().is_none() {
            return Err(Unwritable::Unread(named(&kind, object)).into());
        }
        let found = self.cached::<K>(&kind, object.namespace().as_deref(), &name)?;
        if found.is_some_and(|found| says_the_same(&found, &json)) {
            return Ok(Some(object.clone()));
        }
        let params =
            PostParams { field_manager: Some(self.field_manager().into()), dry_run: false };
        let body = json.to_string().into_bytes();
        let request = requests(&kind, object).replace_subresource("status", &name, &params, body);
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
    pub async fn patch_status<K: AnyObject>(
        &self,
        object: &K,
        status: impl Serialize,
    ) -> Result<bool, ReconcileError> {
        let kind = self.kind_of(object)?;
        let unfit = |error| Unwritable::Json(kind.clone(), error);
        let status = serde_json::to_value(status).map_err(unfit)?;
        let found = field(object, "status").map_err(unfit)?;
        if found.is_some_and(|found| has_merged(&found, &status)) {
            return Ok(true);
        }
        let patch = Patch::Merge(json!({"status": status}));
        let (name, params) = (name(&kind, object)?, self.merging());
        let request = requests(&kind, object).patch_subresource("status", &name, &params, &patch);
        let request = request.map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA);
            request
        });
        Ok(unless_gone(self.send::<IgnoredAny>(request).await)?.is_some())
    }

    /// Sees that `object` has `finalizer` while it lives, and says where it stands.
    ///
    /// ```no_run
    /// # use leasehold_sdk::{Action, AnyObject, Context, Lifecycle, ReconcileError};
    /// # async fn release_what_it_holds() {}
    /// # async fn keep_up<K>(ctx: &Context, object: &K) -> Result<(), ReconcileError> { Ok(()) }
    /// # async fn reconcile<K: AnyObject>(ctx: &Context, object: &K) -> Result<Action, ReconcileError> {
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
    pub async fn finalizer<'a, K: AnyObject>(
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
    pub async fn remove_finalizer<K: AnyObject>(
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
    pub async fn delete<K: AnyObject>(&self, object: &K) -> Result<(), ReconcileError> {
        let pinned = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams::background().preconditions(pinned);
        let kind = self.kind_of(object)?;
        let request = requests(&kind, object).delete(&name(&kind, object)?, &params);
        match self.send::<Value>(request).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// The list as a whole, so it goes with the resourceVersion it was read at.
    async fn set_finalizers<K: AnyObject>(
        &self,
        object: &K,
        finalizers: &[String],
    ) -> Result<Option<K>, ReconcileError> {
        let kind = self.kind_of(object)?;
        let Some(version) = object.resource_version() else {
            return Err(Unwritable::Unread(named(&kind, object)).into());
        };
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let (name, params) = (name(&kind, object)?, self.merging());
        let request = requests(&kind, object).patch(&name, &params, &Patch::Merge(patch));
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
    fn cached<K: AnyObject>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, DecodeError> {
        let entry = self.caches().get(Wanted::by::<K>(kind), namespace, name).ok().flatten();
        let found = entry.map(|entry| entry.decode_dynamic()).transpose()?;
        Ok(found.map(|found| of_kind::<K>(kind, found)))
    }

    /// The kind of an object that is to be written.
    fn kind_of<K: AnyObject>(&self, object: &K) -> Result<Kind, Unwritable> {
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

/// An object as it is read and written: metadata alone says that it is of another kind.
fn of_kind<K: AnyObject>(kind: &Kind, mut object: Value) -> Value {
    if K::metadata_api()
        && let Some(fields) = object.as_object_mut()
    {
        fields.insert("apiVersion".to_owned(), kind.api_version().into());
        fields.insert("kind".to_owned(), (*kind.kind).into());
    }
    object
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

fn json<K: AnyObject>(kind: &Kind, object: &K) -> Result<Value, Unwritable> {
    let json = serde_json::to_value(object);
    let json = json.map_err(|error| Unwritable::Json(kind.clone(), error))?;
    Ok(of_kind::<K>(kind, json))
}

fn name<K: AnyObject>(kind: &Kind, object: &K) -> Result<String, Unwritable> {
    object.meta().name.clone().ok_or_else(|| Unwritable::Nameless(kind.clone()))
}

/// What makes requests for objects beside this one.
fn requests<K: AnyObject>(kind: &Kind, object: &K) -> Request {
    Request::new(kind.collection_path(object.namespace().as_deref()))
}

fn unless_gone<K>(answer: Result<K, kube::Error>) -> Result<Option<K>, ReconcileError> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => Ok(answer.map(Some)?),
    }
}
