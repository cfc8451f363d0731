//! Reflectors, which only watch and cache.

use std::fmt::Debug;
use std::hash::Hash;

use futures::StreamExt as _;
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
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use kube_runtime::reflector::store;
use kube_runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;

use super::Count;

/// Caches the objects of one kind, without their managed fields.
pub fn caching<K>(client: &Client, namespace: &str) -> Count
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    K::DynamicType: Eq + Hash,
{
    let (reader, writer) = store::<K>();
    let watch =
        watcher(Api::<K>::namespaced(client.clone(), namespace), watcher::Config::default())
            .default_backoff()
            .modify(|object| object.meta_mut().managed_fields = None)
            .reflect(writer)
            .applied_objects()
            .for_each(|outcome| async {
                if let Err(error) = outcome {
                    eprintln!("{error}");
                }
            });
    tokio::spawn(watch);
    Box::new(move || reader.len())
}

/// Watches twenty kinds.
pub fn twenty_kinds(client: &Client, namespace: &str) -> Count {
    let all = [
        caching::<ConfigMap>(client, namespace),
        caching::<CronJob>(client, namespace),
        caching::<DaemonSet>(client, namespace),
        caching::<Deployment>(client, namespace),
        caching::<EndpointSlice>(client, namespace),
        caching::<Ingress>(client, namespace),
        caching::<Job>(client, namespace),
        caching::<LimitRange>(client, namespace),
        caching::<NetworkPolicy>(client, namespace),
        caching::<PersistentVolumeClaim>(client, namespace),
        caching::<PodDisruptionBudget>(client, namespace),
        caching::<PodTemplate>(client, namespace),
        caching::<ReplicaSet>(client, namespace),
        caching::<ResourceQuota>(client, namespace),
        caching::<Role>(client, namespace),
        caching::<RoleBinding>(client, namespace),
        caching::<Secret>(client, namespace),
        caching::<Service>(client, namespace),
        caching::<ServiceAccount>(client, namespace),
        caching::<StatefulSet>(client, namespace),
    ];
    Box::new(move || all.iter().map(|count| count()).sum())
}
