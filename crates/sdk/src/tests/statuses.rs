//! Patches of a status: nothing is sent that the object already has, however that is known.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::world::holding;
use crate::{Action, Context, Controller, ObjectKey, ReconcileError, Reconciler};
use engine::testing::Server;

const QUIET: Duration = Duration::from_secs(1);

/// Says in the status how many replicas are asked for, and which generation was seen.
struct Count;

impl Reconciler for Count {
    type Kind = Deployment;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let found = ctx.get::<Deployment>(key.namespace.as_deref(), &key.name)?;
        let Some(deployment) = found else { return Ok(Action::Done) };
        let replicas = deployment.spec.replicas;
        // Two patches, so that neither takes the other for something new.
        ctx.patch_status(&*deployment, json!({"replicas": replicas})).await?;
        ctx.patch_status(&*deployment, json!({"observedGeneration": 1})).await?;
        Ok(Action::Done)
    }
}

fn deployment(version: u64, replicas: u32, status: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": version.to_string()},
        "spec": {"replicas": replicas, "selector": {}, "template": {}}, "status": status,
    })
}

async fn patched(server: &mut Server, version: u64) -> Value {
    let asked = server.asked().await;
    assert!(asked.line.starts_with("PATCH "), "{}", asked.line);
    let status = asked.body["status"].clone();
    asked.answer(200, &json!({"metadata": {"name": "a", "namespace": "ns", "resourceVersion": version.to_string()}}));
    status
}

#[tokio::test(start_paused = true)]
async fn what_a_status_has_is_not_sent() {
    let spec = Controller::for_kind::<Deployment>("count").reconciler(Count);
    let (_world, mut server) = holding(vec![spec], 3);
    let list = server.asked().await;
    // Both stand already: seen by reading it.
    let watch = list.list(5, &[deployment(5, 1, json!({"replicas": 1, "observedGeneration": 1}))]);
    server.quiet(QUIET).await;
    // Others change it; what they leave is no concern of ours, what they take is.
    watch.event(
        "MODIFIED",
        &deployment(6, 1, json!({"replicas": 1, "observedGeneration": 1, "theirs": 1})),
    );
    server.quiet(QUIET).await;
    watch.event("MODIFIED", &deployment(7, 1, json!({"observedGeneration": 1})));
    assert_eq!(patched(&mut server, 8).await, json!({"replicas": 1}));
    watch.event("MODIFIED", &deployment(8, 1, json!({"replicas": 1, "observedGeneration": 1})));
    server.quiet(QUIET).await;
    // Something else is asked for.
    watch.event("MODIFIED", &deployment(9, 2, json!({"replicas": 1, "observedGeneration": 1})));
    assert_eq!(patched(&mut server, 10).await, json!({"replicas": 2}));
    watch.event("MODIFIED", &deployment(10, 2, json!({"replicas": 2, "observedGeneration": 1})));
    server.quiet(QUIET).await;
}
