//! The ConfigMap that tells consumers where a queue is. Shell.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use sdk::{Context, Event, ReconcileError, controlled_by};

use super::api::Queue;
use super::plan::Observed;
use super::status::Lack;
use sdk::refusal::{refusal, refused};

/// Brings the ConfigMap to what the spec asks for. Returns what is in its way.
pub(super) async fn tell(
    ctx: &Context,
    queue: &Queue,
    name: &str,
    observed: &Observed,
) -> Result<Option<Lack>, ReconcileError> {
    let wanted = queue.spec.connection.as_ref().map(|to| to.config_map.as_str());
    let recorded = queue.status.as_ref().and_then(|status| status.config_map.as_deref());
    if let Some(before) = recorded.filter(|before| Some(*before) != wanted)
        && let Err(error) = remove(ctx, queue, before).await
    {
        let why = refused(error)?;
        let note = format!(
            "ConfigMap {before} of an earlier spec.connection stays until this Queue is deleted: \
             {why}"
        );
        ctx.publish(Event::warning(queue, "ConnectionNotRemoved", "Connect", note)).await;
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
        owner_references: queue.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

/// Returns whether the ConfigMap is this Queue's. One that is not is left alone.
async fn write(ctx: &Context, queue: &Queue, mut desired: ConfigMap) -> Result<bool, kube::Error> {
    let maps: Api<ConfigMap> =
        Api::namespaced(ctx.client(), &queue.namespace().unwrap_or_default());
    let name = desired.name_any();
    let params = match maps.get_opt(&name).await? {
        Some(found) if !controlled_by(&found, queue) => return Ok(false),
        Some(found) if found.data == desired.data => return Ok(true),
        Some(found) => {
            // Pinned to the object seen.
            desired.metadata.uid = found.uid();
            PatchParams::apply(ctx.field_manager()).force()
        }
        // One that others create meanwhile is theirs: an apply would add to it.
        None => return create(&maps, ctx.field_manager(), &desired).await,
    };
    maps.patch(&name, &params, &Patch::Apply(&desired)).await.map(|_| true)
}

async fn create(
    maps: &Api<ConfigMap>,
    manager: &str,
    desired: &ConfigMap,
) -> Result<bool, kube::Error> {
    let params = PostParams { field_manager: Some(manager.to_owned()), dry_run: false };
    match maps.create(&params, desired).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        made => made.map(|_| true),
    }
}

/// Deletes the ConfigMap of an earlier spec, if it is this Queue's.
async fn remove(ctx: &Context, queue: &Queue, name: &str) -> Result<(), ReconcileError> {
    let maps: Api<ConfigMap> =
        Api::namespaced(ctx.client(), &queue.namespace().unwrap_or_default());
    match maps.get_opt(name).await? {
        Some(found) if controlled_by(&found, queue) => ctx.delete(&found).await,
        _ => Ok(()),
    }
}
