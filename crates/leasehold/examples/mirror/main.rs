//! A mirror copies objects of a hub cluster into all other clusters, keeps the copies equal, and deletes
//! them with the original. The command line names the kind, which is only known at run time.
//!
//! ```sh
//! cargo run --release --example mirror                              # on three embedded clusters
//! cargo run --release --example mirror -- --kind /v1/ConfigMap \
//!     --kubeconfig ~/.kube/config --context hub --context east      # the hub first
//! ```

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt};
use leasehold::local::LocalArgs;
use leasehold::prelude::*;
use serde_json::json;

/// Copies objects of a kind from a hub cluster into all others.
#[derive(Parser)]
struct Args {
    /// The kind to copy, as GROUP/VERSION/KIND. It must be namespaced.
    #[arg(long, default_value = "example.com/v1/Setting", value_parser = kind)]
    kind: Kind,
    #[command(flatten)]
    local: LocalArgs,
}

fn kind(text: &str) -> Result<Kind, String> {
    let parts: Vec<_> = text.split('/').collect();
    let [group, version, kind] = parts[..] else {
        return Err("write GROUP/VERSION/KIND, as in example.com/v1/Setting or /v1/Secret".into());
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Ok(Kind::of_resource(&resource, true))
}

/// Marks each copy. An object of that name without the label belongs to somebody else.
const LABEL: &str = "example.com/mirrored";

struct Mirror {
    kind: Kind,
    hub: ClusterName,
}

impl Reconciler for Mirror {
    type Kind = DynamicObject;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if *ctx.cluster() == self.hub {
            return Ok(Action::Done);
        }
        let namespace = key.namespace.as_deref();
        let find = |ctx: &Context| ctx.get_dynamic(&self.kind, namespace, &key.name);
        let original: Option<DynamicObject> = find(&ctx.in_cluster(&self.hub)?)?;
        let found: Option<DynamicObject> = find(ctx)?;
        let is_ours = |found: &DynamicObject| found.labels().contains_key(LABEL);
        match (original.filter(|original| original.meta().deletion_timestamp.is_none()), found) {
            (Some(_), Some(found)) if !is_ours(&found) => {
                tracing::warn!(%key, "not copied: there is an object of that name");
            }
            (Some(original), _) => drop(ctx.apply(&copy(original)).await?),
            (None, Some(found)) if is_ours(&found) => ctx.delete(&found).await?,
            (None, _) => {}
        }
        Ok(Action::Done)
    }
}

/// The copy of an object: what people wrote, without what its cluster added.
fn copy(mut original: DynamicObject) -> DynamicObject {
    let mut copy = DynamicObject { types: original.types.take(), ..original.clone() };
    copy.metadata = Default::default();
    copy.metadata.name = original.metadata.name;
    copy.metadata.namespace = original.metadata.namespace;
    copy.labels_mut().extend(original.metadata.labels.unwrap_or_default());
    copy.labels_mut().insert(LABEL.to_owned(), "yes".to_owned());
    if let Some(fields) = copy.data.as_object_mut() {
        fields.remove("status");
    }
    copy
}

fn controller(kind: Kind, hub: ClusterName) -> ControllerSpec {
    Controller::for_dynamic("mirror", kind.clone())
        .watches_across_with(
            Watch::dynamic(kind.clone()),
            mapping::namesakes_elsewhere(hub.clone()),
        )
        .reconciler(Mirror { kind, hub })
}

/// The CRD of the kind in the embedded clusters.
fn settings() -> CustomResourceDefinition {
    let schema = json!({"type": "object", "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string"}},
    }});
    serde_json::from_value(json!({
        "metadata": {"name": "settings.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Setting", "plural": "settings", "singular": "setting"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    }))
    .expect("a definition")
}

const EXAMPLE: &str =
    "{apiVersion: example.com/v1, kind: Setting, metadata: {name: colours}, data: {sky: blue}}";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { kind, local } = Args::parse();
    let hub = ClusterName::from_context(local.contexts.first().map_or("hub", String::as_str));
    let mut manager = Local::new(local.clone()).clusters(["hub", "east", "west"]);
    if local.kubeconfig.is_none() {
        manager = manager.crd(settings()).manifest(EXAMPLE);
    }
    manager.controller(controller(kind, hub)).run().await
}

#[cfg(test)]
mod tests;
