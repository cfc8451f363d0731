//! The controller that simulated replicas run beside the built-in ones: it keeps a slow copy of
//! each source in a second ConfigMap.
//!
//! A source may have a finalizer, which the controller removes when the copy is gone, and may ask
//! for a reconcile every few seconds.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use model::ObjectKey;
use sdk::{Action, Context, Controller, ControllerSpec, ReconcileError, Reconciler, Selector};

/// The label that distinguishes sources from copies.
pub const ROLE: &str = "sim.leasehold.dev/role";
/// A source's label.
pub const SOURCE: &str = "source";
/// A copy's label.
pub const COPY: &str = "copy";
/// On a source: reconcile it every this many seconds.
pub const EVERY: &str = "sim.leasehold.dev/every-seconds";
/// On a copy: the uid of its source.
pub const OF: &str = "sim.leasehold.dev/of";
/// The finalizer of sources that have one.
pub const FINALIZER: &str = "sim.leasehold.dev/copy";
/// The longest pause in a reconcile, in milliseconds.
const LONGEST_STEP_MS: u64 = 2_000;

/// The reconciler.
#[derive(Debug)]
struct Mirror {
    rng: Mutex<fastrand::Rng>,
}

/// The controller, whose pauses come from this seed.
pub fn controller(seed: u64) -> ControllerSpec {
    let role = |role: &str| -> Selector {
        format!("{ROLE}={role}").parse().expect("an equality is a selector")
    };
    let copies = sdk::Scope { labels: role(COPY), ..Default::default() };
    Controller::for_kind::<ConfigMap>("mirror")
        .selector(role(SOURCE))
        .owns_with::<ConfigMap>(copies)
        .workers(2)
        .reconciler(Mirror { rng: Mutex::new(fastrand::Rng::with_seed(seed)) })
}

/// The name of a source's copy.
pub fn copy_of(source: &str) -> String {
    format!("{source}-copy")
}

impl Reconciler for Mirror {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let source = ctx.get::<ConfigMap>(namespace, &key.name)?;
        let copy = ctx.get::<ConfigMap>(namespace, &copy_of(&key.name))?;
        let maps = Api::namespaced(ctx.client(), namespace.unwrap_or_default());
        self.pause().await;
        let going = source.as_ref().is_none_or(|s| s.metadata.deletion_timestamp.is_some());
        match (source, copy) {
            (source, Some(copy)) if going => {
                remove(&maps, &copy).await?;
                self.pause().await;
                release(&maps, source.as_deref()).await?;
            }
            (source, None) if going => release(&maps, source.as_deref()).await?,
            (Some(source), copy) => {
                write(&maps, &source, copy.as_deref()).await?;
                self.pause().await;
                return Ok(next_look(&source));
            }
            (None, _) => {}
        }
        Ok(Action::Done)
    }
}

impl Mirror {
    async fn pause(&self) {
        let ms = {
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            if rng.bool() { rng.u64(0..LONGEST_STEP_MS) } else { 0 }
        };
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

fn next_look(source: &ConfigMap) -> Action {
    let asked = source.metadata.annotations.as_ref().and_then(|all| all.get(EVERY));
    match asked.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => Action::RequeueAfter(Duration::from_secs(seconds)),
        None => Action::Done,
    }
}

async fn remove(maps: &Api<ConfigMap>, copy: &ConfigMap) -> Result<(), ReconcileError> {
    let pinned = Preconditions { uid: copy.metadata.uid.clone(), resource_version: None };
    let name = copy.metadata.name.as_deref().unwrap_or_default();
    match maps.delete(name, &DeleteParams::default().preconditions(pinned)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Removes the finalizer of a source that is being deleted.
async fn release(maps: &Api<ConfigMap>, source: Option<&ConfigMap>) -> Result<(), ReconcileError> {
    let Some(source) = source.filter(|source| source.metadata.finalizers.is_some()) else {
        return Ok(());
    };
    let mut freed = source.clone();
    freed.metadata.finalizers = None;
    let name = source.metadata.name.as_deref().unwrap_or_default();
    match maps.replace(name, &PostParams::default(), &freed).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Makes the copy equal to the source.
async fn write(
    maps: &Api<ConfigMap>,
    source: &ConfigMap,
    copy: Option<&ConfigMap>,
) -> Result<(), ReconcileError> {
    let (name, uid) = (source.metadata.name.clone(), source.metadata.uid.clone());
    let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
    let says = |copy: &ConfigMap| {
        let of = copy.metadata.annotations.as_ref().and_then(|all| all.get(OF));
        copy.data == source.data && of == Some(&uid)
    };
    if copy.is_some_and(says) {
        return Ok(());
    }
    let wanted = copy_for(source, &name, uid, copy);
    match copy {
        Some(_) => maps.replace(&copy_of(&name), &PostParams::default(), &wanted).await?,
        None => maps.create(&PostParams::default(), &wanted).await?,
    };
    Ok(())
}

/// The desired copy, which replaces the present one.
fn copy_for(source: &ConfigMap, name: &str, uid: String, copy: Option<&ConfigMap>) -> ConfigMap {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: name.to_owned(),
        uid: uid.clone(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some(copy_of(name)),
        namespace: source.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([(ROLE.to_owned(), COPY.to_owned())])),
        annotations: Some(BTreeMap::from([(OF.to_owned(), uid)])),
        owner_references: Some(vec![owner]),
        resource_version: copy.and_then(|copy| copy.metadata.resource_version.clone()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, data: source.data.clone(), ..ConfigMap::default() }
}
