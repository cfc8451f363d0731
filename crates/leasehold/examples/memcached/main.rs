//! A Memcached operator: each `Memcached` gets a Deployment with the requested number of Pods, and its
//! status says which of them run. `cargo run --release --example memcached`, or with
//! `-- --kubeconfig FILE`.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::{CustomResource, CustomResourceExt, ResourceExt};
use leasehold::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Memcached", namespaced)]
#[kube(status = "MemcachedStatus")]
struct MemcachedSpec {
    /// How many Pods.
    size: u32,
    /// What they run.
    image: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct MemcachedStatus {
    /// The Pods that run, by name.
    pods: Vec<String>,
}

struct Memcacheds;

impl Reconciler for Memcacheds {
    type Kind = Memcached;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(memcached) = ctx.get::<Memcached>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        ctx.apply_child(&*memcached, deployment(&memcached)).await?;
        let selector = format!("{LABEL}={}", key.name).parse().map_err(ReconcileError::terminal)?;
        let mut pods = ctx.list::<Pod>(namespace, &selector)?;
        pods.retain(|pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"));
        let pods = pods.iter().map(|pod| pod.name_any()).collect();
        let status = Some(MemcachedStatus { pods });
        ctx.update_status(&Memcached { status, ..(*memcached).clone() }).await?;
        Ok(Action::Done)
    }
}

/// On the Pods: whose they are.
const LABEL: &str = "example.com/memcached";

fn deployment(memcached: &Memcached) -> Deployment {
    let labels = BTreeMap::from([(LABEL, memcached.name_any())]);
    let MemcachedSpec { size, image } = &memcached.spec;
    serde_json::from_value(json!({
        "metadata": {"name": memcached.name_any(), "labels": labels},
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [
                    {"name": "memcached", "image": image, "ports": [{"containerPort": 11211}]},
                ]},
            },
        },
    }))
    .expect("a Deployment")
}

fn controller() -> ControllerSpec {
    Controller::for_kind::<Memcached>("memcached")
        .owns::<Deployment>()
        .watches::<Pod>(mapping::named_by_label(LABEL))
        .reconciler(Memcacheds)
}

const EXAMPLE: &str = "{apiVersion: example.com/v1, kind: Memcached, metadata: {name: cache}, spec: {size: 3, image: 'memcached:1.6'}}";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let local = Local::from_args().crd(Memcached::crd()).manifest(EXAMPLE);
    local.controller(controller()).run().await
}

#[cfg(test)]
mod tests;
