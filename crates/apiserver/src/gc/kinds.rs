//! The kinds that can be followed and deleted, by the server's discovery.

use std::collections::BTreeMap;

use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};

use super::graph::KindName;
use kube::core::DynamicObject;

/// Kinds that are served under the core group too.
const DUPLICATE_GROUPS: &[&str] = &["events.k8s.io"];

/// One kind.
#[derive(Debug, Clone)]
pub(crate) struct KnownKind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

/// Every kind that can be listed, watched and deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds(pub(crate) BTreeMap<KindName, KnownKind>);

impl Kinds {
    /// Asks the server.
    pub(crate) async fn discover(client: Client) -> kube::Result<Self> {
        let discovery = Discovery::new(client).exclude(DUPLICATE_GROUPS).run().await?;
        let mut kinds = BTreeMap::new();
        for (resource, capabilities) in discovery.groups().flat_map(|g| g.recommended_resources()) {
            let needed = [verbs::LIST, verbs::WATCH, verbs::DELETE];
            if needed.iter().all(|verb| capabilities.supports_operation(verb)) {
                let namespaced = capabilities.scope == Scope::Namespaced;
                kinds.insert(name_of(&resource), KnownKind { resource, namespaced });
            }
        }
        Ok(Self(kinds))
    }

    /// The kind that an owner reference names, in any version.
    pub(crate) fn of_owner(&self, api_version: &str, kind: &str) -> Option<&KnownKind> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.0.values().find(|k| k.resource.group == group && k.resource.kind == kind)
    }

    /// Access to the objects of a kind; the namespace counts only if the kind is namespaced.
    pub(crate) fn api(
        &self,
        client: &Client,
        kind: &str,
        namespace: &str,
    ) -> Option<Api<DynamicObject>> {
        self.0.get(kind).map(|kind| kind.api(client, namespace))
    }
}

impl KnownKind {
    /// Access to the objects of the kind.
    pub(crate) fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced && !namespace.is_empty() {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }
}

/// `plural.group`, or `plural` for the core group.
pub(crate) fn name_of(resource: &ApiResource) -> KindName {
    match resource.group.as_str() {
        "" => resource.plural.clone(),
        group => format!("{}.{group}", resource.plural),
    }
}
