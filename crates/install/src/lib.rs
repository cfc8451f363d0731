//! What a cluster needs before a manager can use it, put there: definitions, namespaces, and
//! manifests of examples. By server-side apply, so that doing it again does nothing.

use std::fmt::Debug;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::gvk::ParseGroupVersionError;
use kube::core::{ApiResource, GroupVersionKind, Request};
use kube::error::DiscoveryError;
use kube::{Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};

/// The field manager of what is installed.
const MANAGER: &str = "leasehold";
/// How long a definition may take to be served, and how often it is looked at.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);
const ESTABLISHED_POLL: Duration = Duration::from_millis(20);

/// Why something could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The server refuses it, or does not answer.
    #[error("apply {what}")]
    Apply {
        /// The object.
        what: String,
        /// What the server says.
        #[source]
        source: Box<kube::Error>,
    },
    /// The server takes the definition, and does not serve its kind.
    #[error("{name} is not served after {}s", ESTABLISHED_WITHIN.as_secs())]
    NotServed {
        /// The definition.
        name: String,
    },
    /// A manifest is no YAML of objects.
    #[error("read the manifest")]
    Manifest(#[from] Box<serde_saphyr::Error>),
    /// An object of a manifest is incomplete.
    #[error("an object of the manifest has no {0}")]
    Incomplete(&'static str),
    /// An object's `apiVersion` is invalid.
    #[error("an object of the manifest has a wrong apiVersion")]
    Version(#[from] ParseGroupVersionError),
}

/// Something that is being installed. It is in a box so that it is compiled here, and not in each crate
/// that awaits it.
pub type Installing<'a> = BoxFuture<'a, Result<(), InstallError>>;

/// Installs definitions and waits until their kinds are served.
///
/// # Errors
/// If one is refused or not served in time.
pub fn definitions<'a>(client: &'a Client, crds: &'a [CustomResourceDefinition]) -> Installing<'a> {
    all(client, crds).boxed()
}

async fn all(client: &Client, crds: &[CustomResourceDefinition]) -> Result<(), InstallError> {
    let api = answered_dynamically::<CustomResourceDefinition>(client);
    for crd in crds {
        apply(&api, &crd.name_any(), crd).await?;
    }
    for name in crds.iter().map(ResourceExt::name_any) {
        let served = async {
            while !is_established(&api.get(&name).await?) {
                tokio::time::sleep(ESTABLISHED_POLL).await;
            }
            Ok(())
        };
        match tokio::time::timeout(ESTABLISHED_WITHIN, served).await {
            Ok(served) => served.map_err(refused(&name))?,
            Err(_) => return Err(InstallError::NotServed { name }),
        }
    }
    Ok(())
}

/// Makes a namespace.
///
/// # Errors
/// If it is refused.
pub fn namespace<'a>(client: &'a Client, name: &'a str) -> Installing<'a> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    let api = answered_dynamically::<Namespace>(client);
    async move { apply(&api, name, &namespace).await }.boxed()
}

/// Applies a manifest of one or more objects, in their order. Those without a namespace of a kind
/// that has them go into `default`.
///
/// # Errors
/// If it is no manifest, or an object is refused; what came before it stays.
pub fn manifest<'a>(client: &'a Client, text: &'a str) -> Installing<'a> {
    objects(client, text).boxed()
}

async fn objects(client: &Client, text: &str) -> Result<(), InstallError> {
    let objects: Vec<DynamicObject> = serde_saphyr::from_multiple(text).map_err(Box::new)?;
    for object in objects {
        let types = object.types.as_ref().ok_or(InstallError::Incomplete("apiVersion and kind"))?;
        let name = object.metadata.name.clone();
        let name = name.ok_or(InstallError::Incomplete("metadata.name"))?;
        let what = format!("{} {name}", types.kind);
        let kind = GroupVersionKind::try_from(types)?;
        let served = served(client, &kind).await.map_err(refused(&what))?;
        let resource = ApiResource::from_gvk_with_plural(&kind, &served.name);
        let api: Api<DynamicObject> = if served.namespaced {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        };
        let params = PatchParams::apply(MANAGER).force();
        let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
        applied.map_err(refused(&what))?;
    }
    Ok(())
}

/// What is read of the kinds of a group and version. They must have names: in the client library's types, `{}` is a
/// kind, too, and takes hundreds of bytes.
#[derive(Deserialize)]
struct Kinds {
    resources: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
    kind: String,
    namespaced: bool,
}

/// A kind as a server serves it.
async fn served(client: &Client, kind: &GroupVersionKind) -> Result<Served, kube::Error> {
    let root = if kind.group.is_empty() { "/api" } else { "/apis" };
    let request = Request::new(format!("{root}/{}", kind.api_version()));
    let request = request.list(&ListParams::default()).map_err(kube::Error::BuildRequest)?;
    let Kinds { resources } = client.request(request).await?;
    let is_it = |served: &Served| served.kind == kind.kind && !served.name.contains('/');
    let missing = || kube::Error::Discovery(DiscoveryError::MissingKind(format!("{kind:?}")));
    resources.into_iter().find(is_it).ok_or_else(missing)
}

/// The API of a kind whose answers are not read as its type: little of them is needed, and reading
/// definitions is much code.
fn answered_dynamically<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

async fn apply(
    api: &Api<DynamicObject>,
    name: &str,
    object: &(impl Serialize + Debug),
) -> Result<(), InstallError> {
    let params = PatchParams::apply(MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object)).await.map(drop).map_err(refused(name))
}

fn refused(what: &str) -> impl Fn(kube::Error) -> InstallError {
    move |source| InstallError::Apply { what: what.to_owned(), source: Box::new(source) }
}

fn is_established(crd: &DynamicObject) -> bool {
    let conditions = crd.data["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}
