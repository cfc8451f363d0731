//! Deletes one incarnation of an object.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Preconditions};
use kube::{Client, Resource};

/// Deletes the object of this name if it still has this uid. One that is gone or replaced is no
/// error.
///
/// The answer is read as a dynamic object: of its kind it would have to be decoded twice, as itself
/// or as a status.
pub(crate) async fn delete<K>(
    client: Client,
    namespace: &str,
    (name, uid): (&str, &str),
    params: DeleteParams,
) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()>,
{
    let pinned = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let kind = ApiResource::erase::<K>(&());
    let objects = Api::<DynamicObject>::namespaced_with(client, namespace, &kind);
    match objects.delete(name, &params.preconditions(pinned)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        answer => answer.map(drop),
    }
}
