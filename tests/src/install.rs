//! Installs CRDs and namespaces in an embedded cluster.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

/// Creates CRDs.
///
/// # Panics
/// If the cluster refuses one.
pub async fn crds(client: &Client, crds: impl IntoIterator<Item = CustomResourceDefinition>) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        api.create(&PostParams::default(), &crd).await.expect("the CRD is valid and new");
    }
}

/// Creates a namespace.
///
/// # Panics
/// If the cluster refuses it.
pub async fn namespace(client: &Client, name: &str) {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let api: Api<Namespace> = Api::all(client.clone());
    api.create(&PostParams::default(), &namespace).await.expect("the namespace is new");
}
