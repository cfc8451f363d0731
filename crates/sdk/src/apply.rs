//! Server-side apply, of objects and of their status. An apply that would change nothing is not sent.

use std::hash::BuildHasher;

use cache::Entry;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{Patch, PatchParams};
use kube::core::{Request, Status};
use model::{AnyObject, Kind};
use serde_json::Value;

use crate::applied::Applied;
use crate::context::Context;
use crate::dynamic::decoded;
use crate::owner::{control, named};
use crate::remembered::Part;
use crate::writes::{json, name, of_kind, requests};
use engine::ReconcileError;

/// How an object or a status is applied. By default with force, and not as a dry run.
///
/// ```
/// use leasehold_sdk::ApplyOptions;
///
/// // Would the apply conflict, and with whose fields?
/// let ask = ApplyOptions::default().force(false).dry_run();
/// # assert_ne!(ask, ApplyOptions::default());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyOptions {
    force: bool,
    dry_run: bool,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self { force: true, dry_run: false }
    }
}

impl ApplyOptions {
    /// Whether to take over fields that other field managers own. Without force the server refuses the
    /// whole apply if it would change such a field: see [`ApplyConflict`].
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Makes the server return the result without storing it. A dry run is always sent.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// An apply without force that the server refused, because other field managers own fields that it
/// would change. [`Self::among`] finds it in an error; a reconciler that returns it reports a conflict:
/// the key is retried with backoff, and no error is counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("apply {object} without force: {}", described(.fields))]
pub struct ApplyConflict {
    object: String,
    fields: Vec<ConflictingField>,
}

/// A field that another field manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingField {
    /// The field manager, such as `kubectl-edit`.
    pub manager: String,
    /// The field's path, such as `.spec.replicas`.
    pub field: String,
}

impl ApplyConflict {
    /// The fields, and who owns them; at least one.
    pub fn fields(&self) -> &[ConflictingField] {
        &self.fields
    }

    /// The first such error in the source chain of `error`, if there is one.
    pub fn among<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Self> {
        std::iter::successors(Some(error), |error| error.source())
            .find_map(|error| error.downcast_ref())
    }

    /// Reads a server's refusal; `None` if it is not a conflict of field managers.
    fn read(object: impl FnOnce() -> String, status: &Status) -> Option<Self> {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let causes = causes.filter(|cause| cause.reason == "FieldManagerConflict");
        let fields: Vec<_> = causes
            .map(|cause| {
                // `conflict with "kubectl-edit" using v1 at 2026-01-01T00:00:00Z`
                let manager = cause.message.split('"').nth(1).unwrap_or(&cause.message);
                ConflictingField { manager: manager.to_owned(), field: cause.field.clone() }
            })
            .collect();
        (!fields.is_empty()).then(|| Self { object: object(), fields })
    }
}

fn described(fields: &[ConflictingField]) -> String {
    let described = |found: &ConflictingField| format!("{} owns {}", found.manager, found.field);
    fields.iter().map(described).collect::<Vec<_>>().join(", ")
}

impl Context {
    /// Applies `object` with server-side apply, as this controller's field manager and with force. We
    /// own the fields that it sets, all others are left alone, and fields that the last apply set and
    /// this one does not are given up.
    ///
    /// Nothing is sent if the cache shows that it would change nothing: the object has exactly what
    /// is applied, or it is as the last apply of the same content left it. Every later change by others,
    /// in lists too, is corrected by the rules of server-side apply: in an atomic list, as the rules of
    /// a Role, all their elements go; in a list that is a map or a set, as containers, their own
    /// elements stay. An annotation (`applied.leasehold.dev/<field manager>`) holds the digest of what
    /// was applied; the server's result, with its defaults, is kept in memory. So after a start or a
    /// handover an object with defaults is sent once more, which changes nothing.
    ///
    /// If the controller does not watch the kind, every apply is sent.
    ///
    /// Returns the resulting object.
    ///
    /// # Errors
    /// What the server says; terminal if the object has no name.
    pub async fn apply<K: AnyObject>(&self, object: &K) -> Result<K, ReconcileError> {
        self.apply_with(object, ApplyOptions::default()).await
    }

    /// [`Self::apply`] with options: without force, or as a dry run.
    ///
    /// ```no_run
    /// # use leasehold_sdk::{AnyObject, ApplyConflict, ApplyOptions, Context, ReconcileError};
    /// # async fn reconcile<K: AnyObject>(ctx: &Context, wanted: &K) -> Result<(), ReconcileError> {
    /// match ctx.apply_with(wanted, ApplyOptions::default().force(false)).await {
    ///     Ok(_) => {}
    ///     Err(error) => match ApplyConflict::among(&error) {
    ///         Some(conflict) => tracing::info!("left to others: {:?}", conflict.fields()),
    ///         None => return Err(error),
    ///     },
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Self::apply`]; without force, a conflict with an [`ApplyConflict`] in its source chain if
    /// others own what it would change.
    pub async fn apply_with<K: AnyObject>(
        &self,
        object: &K,
        options: ApplyOptions,
    ) -> Result<K, ReconcileError> {
        let kind = self.kind_of(object)?;
        let applied = Applied::object(json(&kind, object)?, self.field_manager());
        let answer = self.bring(&kind, object, &name(&kind, object)?, &applied, options).await;
        answer.map_err(|error| refused(&kind, object, error))
    }

    /// [`Self::apply`] for a child: `owner` becomes its controlling owner, so that the child is deleted
    /// with it. A child without a namespace gets that of `owner`.
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

    /// Applies the status of `object` with server-side apply, as this controller's field manager and
    /// with force. We own the fields that it sets, all others are left alone, and fields that the last
    /// apply set and this one does not are given up. So several controllers can share a status, and
    /// conditions by their type. Only name, namespace and status of `object` matter: it need not have
    /// been read.
    ///
    /// Nothing is sent if the cache shows that it would change nothing, as in [`Self::apply`]; there
    /// is no annotation here.
    ///
    /// Returns the resulting object; `None` if it is gone, which is no error.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus};
    /// # use leasehold_sdk::{Context, ReconcileError};
    /// # async fn reconcile(ctx: &Context, claim: &PersistentVolumeClaim) -> Result<(), ReconcileError> {
    /// let mut wanted = PersistentVolumeClaim::default();
    /// wanted.metadata.name = claim.metadata.name.clone();
    /// wanted.metadata.namespace = claim.metadata.namespace.clone();
    /// wanted.status =
    ///     Some(PersistentVolumeClaimStatus { phase: Some("Bound".into()), ..Default::default() });
    /// ctx.apply_status(&wanted).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What the server says; terminal if the object has no name.
    pub async fn apply_status<K: AnyObject>(
        &self,
        object: &K,
    ) -> Result<Option<K>, ReconcileError> {
        self.apply_status_with(object, ApplyOptions::default()).await
    }

    /// [`Self::apply_status`] with options: without force, or as a dry run.
    ///
    /// # Errors
    /// As [`Self::apply_status`]; without force, a conflict with an [`ApplyConflict`] in its source
    /// chain if others own what it would change.
    pub async fn apply_status_with<K: AnyObject>(
        &self,
        object: &K,
        options: ApplyOptions,
    ) -> Result<Option<K>, ReconcileError> {
        let kind = self.kind_of(object)?;
        let applied = Applied::status(json(&kind, object)?);
        match self.bring(&kind, object, &name(&kind, object)?, &applied, options).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            answer => answer.map(Some).map_err(|error| refused(&kind, object, error)),
        }
    }

    /// Applies, unless the cache shows that it would change nothing.
    async fn bring<K: AnyObject>(
        &self,
        kind: &Kind,
        object: &K,
        name: &str,
        applied: &Applied,
        options: ApplyOptions,
    ) -> Result<K, kube::Error> {
        if !options.dry_run
            && let Some(entry) = self.cached::<K>(kind, object.meta().namespace.as_deref(), name)
            && self.shows(applied, &entry)
            && let Some(found) = typed(kind, &entry)
        {
            return Ok(found);
        }
        let answer = self.sent(requests(kind, object), name, applied, options).await?;
        serde_json::from_str(&answer).map_err(kube::Error::SerdeError)
    }

    /// Sends an apply, and remembers the answer. In a box, so that it is compiled once and not with
    /// each type.
    fn sent<'a>(
        &'a self,
        requests: Request,
        name: &'a str,
        applied: &'a Applied,
        options: ApplyOptions,
    ) -> BoxFuture<'a, Result<String, kube::Error>> {
        let ApplyOptions { force, dry_run } = options;
        let field_manager = Some(self.field_manager().to_owned());
        let params = PatchParams { field_manager, force, dry_run, ..PatchParams::default() };
        let patch = Patch::Apply(applied.body());
        let request = match applied.part() {
            Part::Status => requests.patch_subresource("status", name, &params, &patch),
            _ => requests.patch(name, &params, &patch),
        };
        async move {
            let answer = self.fenced().request_text(request.map_err(kube::Error::BuildRequest)?);
            let answer = answer.await?;
            if !dry_run {
                self.remember(applied, &answer).map_err(kube::Error::SerdeError)?;
            }
            Ok(answer)
        }
        .boxed()
    }

    /// Whether the object in the cache shows that applying would change nothing.
    fn shows(&self, applied: &Applied, entry: &Entry) -> bool {
        let (remembered, header) = (self.remembered(), &entry.header);
        let known = remembered.get(self.cluster(), applied.part(), &header.uid);
        let hasher = remembered.hasher();
        let version = hasher.hash_one(&header.resource_version);
        if known.is_some_and(|known| applied.left_version(known, version)) {
            return true;
        }
        let Ok(found) = entry.decode_dynamic::<Value>() else { return false };
        applied.is_exactly(&found)
            || known.is_some_and(|known| applied.left_content(known, &found, hasher))
    }

    /// Remembers the result of an apply.
    fn remember(&self, applied: &Applied, answer: &str) -> serde_json::Result<()> {
        let remembered = self.remembered();
        if let Some((uid, known)) = applied.known(answer, remembered.hasher())? {
            remembered.keep(self.cluster(), applied.part(), &uid, known);
        }
        Ok(())
    }
}

/// An object of the cache, decoded; `None` if it does not fit the type.
fn typed<K: AnyObject>(kind: &Kind, entry: &Entry) -> Option<K> {
    if K::metadata_api() {
        let object = of_kind::<K>(kind, entry.decode_dynamic().ok()?);
        return serde_json::from_str(&object.to_string()).ok();
    }
    decoded(kind, entry).ok()
}

/// The error of a reconcile whose apply failed.
fn refused<K: AnyObject>(kind: &Kind, object: &K, error: kube::Error) -> ReconcileError {
    let conflict = match &error {
        kube::Error::Api(status) => ApplyConflict::read(|| named(kind, object), status),
        _ => None,
    };
    conflict.map_or_else(|| error.into(), ReconcileError::conflict)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: Value) -> Option<ApplyConflict> {
        ApplyConflict::read(|| "ConfigMap web/a".into(), &serde_json::from_value(status).unwrap())
    }

    /// As kube-apiserver words it: `printManager` in apimachinery's `managedfields/internal/conflict.go`.
    #[test]
    fn a_conflict_names_managers_and_fields() {
        let cause = |message: &str, field: &str| {
            let reason = "FieldManagerConflict";
            json!({"reason": reason, "message": message, "field": field})
        };
        let conflict = read(json!({
            "status": "Failure", "code": 409, "reason": "Conflict", "message": "Apply failed",
            "details": {"causes": [
                cause("conflict with \"kubectl-edit\" using v1 at 2026-01-01T00:00:00Z", ".data.x"),
                cause("conflict with \"x\" with subresource \"status\" using v1", ".status.y"),
                cause("conflict with somebody", ".data.z"),
            ]},
        }))
        .unwrap();
        let expect = "apply ConfigMap web/a without force: kubectl-edit owns .data.x, \
                      x owns .status.y, conflict with somebody owns .data.z";
        assert_eq!(conflict.to_string(), expect);
        let error = ReconcileError::conflict(conflict.clone());
        assert_eq!(ApplyConflict::among(&error), Some(&conflict));
        assert_eq!(conflict.fields().len(), 3);
    }

    #[test]
    fn a_lost_compare_and_swap_is_another_conflict() {
        let lost = json!({"status": "Failure", "code": 409, "reason": "Conflict", "message": "no"});
        assert_eq!(read(lost), None);
    }
}
