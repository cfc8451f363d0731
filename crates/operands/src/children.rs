//! The objects that belong to a database: applied, unless something of others has their name.

use std::error::Error;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use sdk::refusal::refusal;
use sdk::{Context, Object, ReconcileError};

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
        Err(error) => Err(refused(&error).map_or_else(
            || Obstacle::Failed(error),
            |words| {
                let kind = K::kind(&());
                Obstacle::Refused(format!("the server refuses {kind} {name}: {words}"))
            },
        )),
    }
}

/// The server's words, if a reconcile failed because it refused a write for its content or our rights.
fn refused(error: &(dyn Error + 'static)) -> Option<String> {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.filter_map(|error| error.downcast_ref()).find_map(refusal)
}
