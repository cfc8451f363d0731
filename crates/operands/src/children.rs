//! The objects that belong to a database: applied, unless something of others has their name.

use std::error::Error;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use sdk::error::foreign;
use sdk::refusal::refusal;
use sdk::{Context, Object, ReconcileError};
use serde_json::json;

/// Why something that a database needs is not there.
#[derive(Debug)]
pub enum Obstacle {
    /// Something that only a person can fix.
    Blocked(String),
    /// The server refuses an object for its content or our rights, in these words.
    Refused(String),
    /// Something else.
    Failed(ReconcileError),
}

impl From<ReconcileError> for Obstacle {
    fn from(error: ReconcileError) -> Self {
        Self::Failed(error)
    }
}

impl From<kube::Error> for Obstacle {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Obstacle {
    /// What the server answered instead of taking an object: that it refuses it or, as when an admission
    /// webhook is down, that it fails. Whoever has enough without that object goes on.
    ///
    /// # Errors
    /// Itself, if it is not an answer of the server, or if somebody else wrote meanwhile.
    pub fn answered(self) -> Result<String, Self> {
        match self {
            Self::Refused(words) => Ok(words),
            Self::Failed(error) => match answer(&error) {
                Some(words) => Ok(words),
                None => Err(Self::Failed(error)),
            },
            blocked @ Self::Blocked(_) => Err(blocked),
        }
    }

    /// Why an object of this name was not written.
    pub fn unwritten<K: Resource<DynamicType = ()>>(name: &str, error: ReconcileError) -> Self {
        match refused(&error) {
            Some(words) => {
                let kind = K::kind(&());
                Self::Refused(format!("the server refuses {kind} {name}: {words}"))
            }
            None => Self::Failed(error),
        }
    }

    /// An object of others has the name of one that `O` needs.
    pub(crate) fn taken<O, K>(name: &str) -> Self
    where
        O: Resource<DynamicType = ()>,
        K: Resource<DynamicType = ()>,
    {
        let (kind, owner) = (K::kind(&()), O::kind(&()));
        Self::Blocked(format!(
            "{kind} {name} exists and is not of this {owner}: delete it, or give the {owner} another name"
        ))
    }
}

/// Whether an object belongs to an owner.
pub fn is_of(owner: &impl ResourceExt, object: &impl ResourceExt) -> bool {
    let uid = owner.uid();
    object.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref())
}

/// Whether the server has the very object that was read.
///
/// # Errors
/// What the server says.
pub async fn is_current<K>(ctx: &Context, object: &K) -> Result<bool, ReconcileError>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let namespace = object.namespace().unwrap_or_default();
    let objects = Api::<K>::namespaced(ctx.client(), &namespace);
    let found = objects.get_opt(&object.name_any()).await?;
    Ok(found.is_some_and(|found| {
        found.resource_version() == object.resource_version()
            && found.meta().deletion_timestamp.is_none()
    }))
}

/// Applies an object that belongs to `owner`, unless something of others has its name. Its kind is one
/// that the controller watches.
///
/// # Errors
/// If something of others has its name, the server refuses it, or what the server says.
pub async fn in_place<O, K>(ctx: &Context, owner: &O, child: K) -> Result<(), Obstacle>
where
    O: Object,
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let (name, namespace) = (child.name_any(), owner.namespace().unwrap_or_default());
    if ctx.get::<K>(Some(&namespace), &name)?.is_none() {
        // Only what has our label is cached, so the server is asked about the others.
        let found = Api::<K>::namespaced(ctx.client(), &namespace).get_opt(&name).await?;
        if found.is_some_and(|found| !is_of(owner, &found)) {
            return Err(Obstacle::taken::<O, K>(&name));
        }
    }
    match ctx.apply(&child).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Obstacle::unwritten::<K>(&name, error)),
    }
}

/// Lets an object that is there go with `owner`, by this reference, or stay without it.
///
/// # Errors
/// If the server refuses that, or what the server says.
pub async fn go_with<O, K>(
    ctx: &Context,
    owner: &O,
    object: &K,
    reference: Option<&OwnerReference>,
) -> Result<(), Obstacle>
where
    O: Object,
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let Some(owners) = owners(owner, object, reference) else { return Ok(()) };
    let (name, namespace) = (object.name_any(), owner.namespace().unwrap_or_default());
    // It fails if somebody changed the object meanwhile.
    let metadata = json!({"resourceVersion": object.resource_version(), "ownerReferences": owners});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let objects = Api::<K>::namespaced(ctx.client(), &namespace);
    match objects.patch(&name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        // The next look finds it as it is.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(refusal(&error).map_or_else(
            || Obstacle::from(error),
            |words| {
                let kind = K::kind(&());
                Obstacle::Refused(format!("the server refuses to change {kind} {name}: {words}"))
            },
        )),
    }
}

/// The owners that an object should have, if it has others.
fn owners(
    owner: &impl ResourceExt,
    object: &impl ResourceExt,
    reference: Option<&OwnerReference>,
) -> Option<Vec<OwnerReference>> {
    let uid = owner.uid();
    let is_ending = object.meta().deletion_timestamp.is_some();
    if is_ending || is_of(owner, object) == reference.is_some() {
        return None;
    }
    let others = object.owner_references().iter().filter(|one| Some(&one.uid) != uid.as_ref());
    Some(others.chain(reference).cloned().collect())
}

/// The server's words, if something failed because of an answer other than that somebody wrote meanwhile.
pub fn answer(error: &(dyn Error + 'static)) -> Option<String> {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    let status = chain.filter_map(|error| error.downcast_ref()).find_map(|error| match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    })?;
    let words = || format!("the server answers {}: {}", status.code, foreign(&status.message));
    (status.code != 409).then(words)
}

/// The server's words, if a reconcile failed because it refused a write for its content or our rights.
fn refused(error: &(dyn Error + 'static)) -> Option<String> {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.filter_map(|error| error.downcast_ref()).find_map(refusal)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
    use serde_json::Value;

    use super::*;

    fn reference(uid: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid})
    }

    #[test]
    fn an_owner_comes_and_goes_and_others_stay() {
        let object = json!({"metadata": {"name": "db", "uid": "ours"}});
        let owner: ConfigMap = serde_json::from_value(object).unwrap();
        let ours: OwnerReference = serde_json::from_value(reference("ours")).unwrap();
        for (has, is_wanted, expect) in [
            (vec!["ours", "other"], true, None),
            (vec!["ours", "other"], false, Some(vec!["other"])),
            (vec!["other"], false, None),
            (vec!["other"], true, Some(vec!["other", "ours"])),
            (vec![], true, Some(vec!["ours"])),
        ] {
            let owners_of: Vec<_> = has.iter().map(|uid| reference(uid)).collect();
            let volume = json!({"metadata": {"name": "v", "ownerReferences": owners_of}});
            let mut volume: PersistentVolumeClaim = serde_json::from_value(volume).unwrap();
            let found = owners(&owner, &volume, is_wanted.then_some(&ours));
            let found = found.map(|all| all.into_iter().map(|one| one.uid).collect::<Vec<_>>());
            assert_eq!(found, expect.map(|all| all.into_iter().map(String::from).collect()));
            volume.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            assert_eq!(owners(&owner, &volume, is_wanted.then_some(&ours)), None);
        }
    }
}
