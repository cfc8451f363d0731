//! A controller that copies `data.wanted` of a ConfigMap to its annotation `seen`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use model::ObjectKey;
use sdk::{Action, Context, ReconcileError, Reconciler};
use serde_json::json;

/// The reconciler.
#[derive(Default)]
pub struct Copy {
    /// The names of ConfigMaps that were gone when they were reconciled.
    pub gone: Arc<Mutex<BTreeSet<String>>>,
}

impl Reconciler for Copy {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(map) = ctx.get::<ConfigMap>(namespace, &key.name)? else {
            self.gone.lock().expect("no holder of this lock panics").insert(key.name.to_string());
            return Ok(Action::Done);
        };
        let Some(wanted) = wanted(&map).filter(|wanted| seen(&map) != Some(wanted)) else {
            return Ok(Action::Done);
        };
        let api: Api<ConfigMap> = Api::namespaced(ctx.client(), namespace.unwrap_or_default());
        let patch = json!({"metadata": {"annotations": {"seen": wanted}}});
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Action::Done)
    }
}

/// The value to copy.
pub fn wanted(map: &ConfigMap) -> Option<&str> {
    Some(map.data.as_ref()?.get("wanted")?.as_str())
}

/// The copied value.
pub fn seen(map: &ConfigMap) -> Option<&str> {
    Some(map.metadata.annotations.as_ref()?.get("seen")?.as_str())
}
