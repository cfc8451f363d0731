//! Writes that both controllers make in the same way.

use std::fmt::Debug;

use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Replaces the status of `object`, whose resourceVersion must still be the present one.
///
/// `None` when the object is gone, which is nobody's mistake.
///
/// # Errors
/// What the server or the transport says; a conflict when the object changed meanwhile.
pub(crate) async fn replace_status<K>(
    api: &Api<K>,
    object: &K,
    manager: &str,
) -> Result<Option<K>, kube::Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let params = PostParams { field_manager: Some(manager.to_owned()), dry_run: false };
    match api.replace_status(&object.name_any(), &params, object).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}

/// The server's words if it refused a write for what it asks, so that asking again without a change
/// of the object, of its surroundings or of our rights is in vain.
pub(crate) fn refusal(error: &kube::Error) -> Option<String> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => {
            Some(status.message.clone())
        }
        _ => None,
    }
}

/// Whether the server says that the object asked for is gone or has been replaced by a namesake.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}
