//! Controllers that watch and cache and have nothing to reconcile: there are no objects of their
//! own kind, and so none that would own other objects.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, LimitRange, PersistentVolumeClaim, PodTemplate, ResourceQuota, Secret, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use model::ObjectKey;
use sdk::{Action, Context, Controller, ControllerSpec, Object, ReconcileError, Reconciler};

use super::NAME;

struct Idle;

impl Reconciler for Idle {
    type Kind = PodTemplate;

    async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
        Ok(Action::Done)
    }
}

/// Caches the objects of one kind.
pub fn caching<K: Object>(namespace: &str) -> ControllerSpec {
    idle(namespace).owns::<K>().reconciler(Idle)
}

/// Watches twenty kinds.
pub fn twenty_kinds(namespace: &str) -> ControllerSpec {
    idle(namespace)
        .owns::<ConfigMap>()
        .owns::<CronJob>()
        .owns::<DaemonSet>()
        .owns::<Deployment>()
        .owns::<EndpointSlice>()
        .owns::<Ingress>()
        .owns::<Job>()
        .owns::<LimitRange>()
        .owns::<NetworkPolicy>()
        .owns::<PersistentVolumeClaim>()
        .owns::<PodDisruptionBudget>()
        .owns::<ReplicaSet>()
        .owns::<ResourceQuota>()
        .owns::<Role>()
        .owns::<RoleBinding>()
        .owns::<Secret>()
        .owns::<Service>()
        .owns::<ServiceAccount>()
        .owns::<StatefulSet>()
        .reconciler(Idle)
}

fn idle(namespace: &str) -> Controller<PodTemplate> {
    Controller::for_kind::<PodTemplate>(NAME).namespace(namespace)
}
