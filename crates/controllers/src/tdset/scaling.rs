//! Reads and writes the scale of workloads, and the floor of autoscalers. Shell.
//!
//! Each write carries the version that its plan was made from: what changed meanwhile is a conflict, and is
//! planned anew.

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use sdk::Context;
use sdk::refusal::is_gone;
use serde_json::json;

use super::api::TDSet;
use super::target::Target;

/// What kube-apiserver says of a custom resource that names no number of replicas yet.
const UNSET: &str = "the spec replicas field";

/// The scale of the target; `None` if it does not exist or has none. One that names no number has a scale without a
/// `spec`: a server does not show that, and lets it be set.
pub(super) async fn read_scale(
    ctx: &Context,
    set: &TDSet,
    target: &Target,
) -> Result<Option<Scale>, kube::Error> {
    match api(ctx, set, target).get_scale(&target.name).await {
        Err(error) if is_gone(&error) => Ok(None),
        Err(kube::Error::Api(told)) if told.message.contains(UNSET) => Ok(Some(Scale::default())),
        answer => answer.map(Some),
    }
}

/// Gives the target this many replicas.
pub(super) async fn write_scale(
    ctx: &Context,
    set: &TDSet,
    target: &Target,
    seen: &Scale,
    replicas: i32,
) -> Result<Scale, kube::Error> {
    let version = &seen.metadata.resource_version;
    let patch = json!({
        "metadata": {"resourceVersion": version}, "spec": {"replicas": replicas},
    });
    let params = PatchParams::apply(ctx.field_manager());
    api(ctx, set, target).patch_scale(&target.name, &params, &Patch::Merge(patch)).await
}

/// Gives the autoscaler this floor.
pub(super) async fn raise_floor(
    ctx: &Context,
    autoscaler: &HorizontalPodAutoscaler,
    floor: i32,
) -> Result<(), kube::Error> {
    let namespace = autoscaler.namespace().unwrap_or_default();
    let autoscalers = Api::<HorizontalPodAutoscaler>::namespaced(ctx.client(), &namespace);
    let version = &autoscaler.metadata.resource_version;
    let patch = json!({
        "metadata": {"resourceVersion": version}, "spec": {"minReplicas": floor},
    });
    let (name, params) = (autoscaler.name_any(), PatchParams::apply(ctx.field_manager()));
    autoscalers.patch(&name, &params, &Patch::Merge(patch)).await.map(drop)
}

fn api(ctx: &Context, set: &TDSet, target: &Target) -> Api<DynamicObject> {
    let namespace = set.namespace().unwrap_or_default();
    Api::namespaced_with(ctx.client(), &namespace, &target.kind.api_resource())
}
