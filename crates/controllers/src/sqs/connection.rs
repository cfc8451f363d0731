//! The ConfigMap that tells consumers where a queue is. Shell.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use sdk::{Context, ReconcileError};

use super::api::Queue;
use super::plan::Observed;
use super::status::Lack;
use crate::children::{Step, controlled_by, ownership, step};
use crate::delete::delete;
use crate::refusal::refusal;

/// Brings the ConfigMap to what the spec asks for. Returns what is in its way.
pub(super) async fn tell(
    ctx: &Context,
    queue: &Queue,
    name: &str,
    observed: &Observed,
) -> Result<Option<Lack>, ReconcileError> {
    let wanted = queue.spec.connection.as_ref().map(|to| to.config_map.as_str());
    let recorded = queue.status.as_ref().and_then(|status| status.config_map.as_deref());
    if let Some(before) = recorded.filter(|before| Some(*before) != wanted) {
        remove(ctx, queue, before).await?;
    }
    let Some(wanted) = wanted else { return Ok(None) };
    match write(ctx, queue, desired(queue, wanted, name, observed)).await {
        Err(error) => match refusal(&error) {
            Some(why) => Ok(Some(lack(wanted, &why))),
            None => Err(error.into()),
        },
        Ok(true) => Ok(None),
        Ok(false) => {
            let why = "it exists and is not this Queue's, so it is left alone; give another name";
            Ok(Some(lack(wanted, why)))
        }
    }
}

fn lack(wanted: &str, why: &str) -> Lack {
    let message = format!("ConfigMap {wanted} of spec.connection is not written: {why}");
    Lack { reason: "ConnectionNotWritten", message }
}

fn desired(queue: &Queue, wanted: &str, name: &str, observed: &Observed) -> ConfigMap {
    let data = [
        ("QUEUE_URL", observed.url.clone()),
        ("QUEUE_ARN", observed.arn().cloned().unwrap_or_default()),
        ("QUEUE_NAME", name.to_owned()),
        ("AWS_REGION", queue.spec.region.clone()),
    ];
    let data: BTreeMap<_, _> =
        data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let metadata = ObjectMeta {
        name: Some(wanted.to_owned()),
        namespace: queue.namespace(),
        owner_references: ownership(queue),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

/// Returns whether the ConfigMap is this Queue's.
async fn write(ctx: &Context, queue: &Queue, desired: ConfigMap) -> Result<bool, kube::Error> {
    let maps: Api<ConfigMap> =
        Api::namespaced(ctx.client(), &queue.namespace().unwrap_or_default());
    let name = desired.name_any();
    let found = maps.get_opt(&name).await?;
    let apply = PatchParams::apply(ctx.field_manager());
    match step(queue, found.as_ref(), Some(desired), false) {
        Step::Create(map) => maps.patch(&name, &apply, &Patch::Apply(&map)).await.map(|_| true),
        Step::Correct(map) => {
            maps.patch(&name, &apply.force(), &Patch::Apply(&map)).await.map(|_| true)
        }
        Step::Foreign => Ok(false),
        Step::Keep | Step::Await | Step::Remove { .. } => Ok(true),
    }
}

/// Deletes the ConfigMap of an earlier spec, if it is this Queue's.
async fn remove(ctx: &Context, queue: &Queue, name: &str) -> Result<(), ReconcileError> {
    let namespace = queue.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client(), &namespace);
    let Some(found) = maps.get_opt(name).await? else { return Ok(()) };
    if let (true, Some(uid)) = (controlled_by(&found.metadata, queue), found.uid()) {
        let params = DeleteParams::background();
        delete::<ConfigMap>(ctx.client(), &namespace, (name, &uid), params).await?;
    }
    Ok(())
}
