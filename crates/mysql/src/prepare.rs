//! What instances need before they are asked: objects in the API server, passwords, certificates, a
//! restored backup, volumes of the right size.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Resource, ResourceExt};
use operands::archive::Settings;
use operands::archive::restore::Restored;
use operands::children::{Obstacle, go_with, in_place, is_of};
use operands::spec::Invalid;
use sdk::refusal::refusal;
use sdk::{Context, Object, ReconcileError};
use serde_json::json;

use crate::accounts::{Passwords, passwords};
use crate::api::{MySQLCluster, VolumeReclaim};
use crate::backup;
use crate::calls::Address;
use crate::certificates::{Certificates, Trust};
use crate::config;
use crate::memory::Memory;
use crate::names;
use crate::objects::{self, Parts};
use crate::observed::{Observed, PodSeen, VolumeSeen, Wanted, instances_of, replicas};
use crate::pods::{digest, stateful_set};
use crate::remembered::{Past, Refused};
use crate::server::{Look, Silence};
use crate::step::{MOMENT, RETRY, Waiting};
use crate::storage::{Growth, growth};
use crate::version::{Version, check_image, of_image};
use crate::wanted::{Accepted, is_founded};

/// Prepares one cluster.
pub(crate) struct Preparing<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) cluster: &'a MySQLCluster,
    pub(crate) accepted: &'a Accepted,
    /// The mistakes in the spec, if there are any.
    pub(crate) invalid: Option<&'a Invalid>,
    pub(crate) certificates: &'a Certificates,
    pub(crate) settings: &'a Settings,
    pub(crate) random: fn() -> String,
}

/// Whether instances can be asked.
pub(crate) enum Readiness {
    /// They can.
    Ready(Box<Prepared>),
    /// Something comes first.
    Waits(Waiting),
}

/// What instances have.
pub(crate) struct Prepared {
    pub(crate) passwords: Passwords,
    pub(crate) trust: Trust,
    /// Why a part of the spec is not carried out.
    pub(crate) refusal: Option<Invalid>,
    /// A Secret that the server does not take; what there is serves meanwhile.
    pub(crate) untaken: Option<Invalid>,
    /// The digest of what Pods should be made from; that of the last good spec where this one is refused.
    template: String,
}

impl Prepared {
    /// How an instance is reached.
    pub(crate) fn address(&self, cluster: &MySQLCluster, instance: &str) -> Address {
        Address {
            namespace: cluster.namespace().unwrap_or_default(),
            pod: instance.to_owned(),
            domain: names::service_host(cluster, &names::instances(cluster)),
            authority: self.trust.authority.clone(),
            passwords: self.passwords.keyring.own(),
            root: self.passwords.root.clone(),
            replication: self.passwords.replication(),
        }
    }

    /// What the plan should reach.
    pub(crate) fn wanted(&self, cluster: &MySQLCluster, accepted: &Accepted) -> Wanted {
        let spec = &cluster.spec;
        // A template that was kept is not of this image.
        let version = of_image(&spec.image).filter(|_| self.refusal.is_none());
        Wanted {
            instances: accepted.replicas,
            acks: accepted.acks,
            when_alone: spec.when_alone,
            alone_after: accepted.alone_after,
            failover_after: accepted.failover_after,
            template: self.template.clone(),
            version: version.map(|version| version.to_string()),
            primary: accepted.primary.clone(),
            is_restored: spec.from_backup.is_some() || spec.from_stored.is_some(),
        }
    }
}

impl Preparing<'_> {
    /// Sees to everything, or says what comes first.
    pub(crate) async fn prepare(&self, past: &mut Past) -> Result<Readiness, Obstacle> {
        let Self { ctx, cluster, accepted, .. } = self;
        let found = self.objects()?;
        past.forgive(cluster, ctx.now());
        for service in objects::services(cluster) {
            self.child(service, past).await?;
        }
        self.child(objects::budget(cluster), past).await?;
        // A read that fails leaves those that are known.
        let passwords = match past.passwords.clone() {
            Some(known) if known.is_fresh(ctx.now()) => known,
            known => passwords(ctx, cluster, self.random, (past.root.as_ref(), known)).await?,
        };
        past.passwords = Some(passwords.clone());
        let trouble = passwords.trouble.clone();
        if let (Some(trouble), None) = (&trouble, found.template()) {
            return Err(Obstacle::Blocked(trouble.clone()));
        }
        let (trust, unrenewed) = self.certificates.ensure(ctx, cluster, accepted.valid).await?;
        let untaken = passwords.untaken.clone().or(unrenewed);
        let untaken = untaken.map(|message| Invalid { reason: "Rejected", message });
        let files = self.files();
        // An instance that starts reads it: it stays that of the last good spec.
        if self.invalid.is_none() {
            self.child(objects::config_map(cluster, &files), past).await?;
        }
        if let Restored::No { reason, message, is_stuck } =
            backup::begin(ctx, self.settings, cluster).await?
        {
            return Ok(Readiness::Waits(Waiting { reason, message, is_stuck, pause: RETRY }));
        }
        if is_founded(cluster) && !past.restore_ended {
            let ended = backup::end(ctx, cluster).await;
            if let Err(error) = &ended {
                tracing::warn!(error = sdk::error::chain(error), "the Job of the restore stays");
            }
            past.restore_ended = ended.is_ok();
        }
        let parts = Parts { cluster, wanted: accepted, files: &files };
        let secret = trouble.map(|message| Invalid { reason: "SecretUnusable", message });
        let refusal = self.invalid.cloned().or_else(|| self.refusal()).or(secret);
        let mut prepared = Prepared { passwords, trust, refusal, untaken, template: digest(parts) };
        if let Some(waits) = self.grown(&found, past, &mut prepared.refusal).await? {
            return Ok(waits);
        }
        if prepared.refusal.is_none() {
            self.child(stateful_set(parts, self.count()), past).await?;
        }
        if past.refused.is_none()
            && let Err(obstacle) = self.keep_first_volume(&found).await
        {
            self.note(Invalid { reason: "Rejected", message: obstacle.answered()? }, past);
        }
        let refused = past.refused.as_ref().map(|refused| refused.invalid.clone());
        prepared.refusal = prepared.refusal.or(refused);
        if let Some(invalid) = &prepared.refusal {
            // What runs keeps running as it is.
            let template = found.template();
            prepared.template =
                template.ok_or_else(|| Obstacle::Blocked(invalid.message.clone()))?;
        }
        Ok(Readiness::Ready(Box::new(prepared)))
    }

    /// Sees to it that volumes are as large as the spec asks. Returns what to wait for, if something comes first.
    async fn grown(
        &self,
        found: &Objects,
        past: &mut Past,
        refusal: &mut Option<Invalid>,
    ) -> Result<Option<Readiness>, Obstacle> {
        let wanted = (self.accepted.storage, self.cluster.spec.storage.as_str());
        match growth(wanted, found.set.as_deref(), found.volumes()) {
            Growth::Fits => {}
            _ if self.invalid.is_some() => {}
            Growth::Grow(_) | Growth::Remake(_) if past.refused.is_some() => {}
            // The StatefulSet is not applied before it is made anew: the server refuses other
            // volumeClaimTemplates.
            Growth::Grow(volume) => match self.grow(&volume).await? {
                None => return Ok(Some(growing(format!("volume {volume} grows"), MOMENT))),
                Some(invalid) => self.note(invalid, past),
            },
            Growth::Remake(uid) => match self.remake(&uid).await? {
                None => {
                    let message = "volumes have grown, and the StatefulSet is made anew".to_owned();
                    return Ok(Some(growing(message, RETRY)));
                }
                Some(invalid) => self.note(invalid, past),
            },
            Growth::Refused(invalid) => {
                refusal.get_or_insert(invalid);
            }
        }
        Ok(None)
    }

    /// Applies an object of the cluster. What the server refuses is noted, and nothing is asked of it for a
    /// while: what runs is looked after meanwhile.
    async fn child<K>(&self, child: K, past: &mut Past) -> Result<(), Obstacle>
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        if past.refused.is_some() {
            return Ok(());
        }
        let (name, kind) = (child.name_any(), K::kind(&()));
        let message = match in_place(self.ctx, self.cluster, child).await {
            Err(Obstacle::Refused(message)) => message,
            Err(failed @ Obstacle::Failed(_)) if is_founded(self.cluster) => {
                let words = failed.answered()?;
                format!("the server does not take {kind} {name}: {words}")
            }
            outcome => return outcome,
        };
        self.note(Invalid { reason: "Rejected", message }, past);
        Ok(())
    }

    /// The first volume belongs to the cluster itself if a backup was brought onto it. The StatefulSet sees to
    /// what belongs to it.
    async fn keep_first_volume(&self, found: &Objects) -> Result<(), Obstacle> {
        let volume = found.volumes.get(&names::volume(self.cluster, 0));
        match volume.filter(|_| self.cluster.spec.volume_reclaim == VolumeReclaim::Retain) {
            Some(volume) => go_with(self.ctx, self.cluster, &**volume, None).await,
            None => Ok(()),
        }
    }

    fn note(&self, invalid: Invalid, past: &mut Past) {
        past.refused = Some(Refused::new(self.cluster, invalid, self.ctx.now()));
    }

    /// What instances run.
    fn files(&self) -> BTreeMap<String, String> {
        config::files(config::my_cnf(&self.accepted.settings, self.accepted.memory))
    }

    /// Why the image cannot be run.
    fn refusal(&self) -> Option<Invalid> {
        let instances = self.cluster.status.iter().flat_map(|status| &status.instances);
        let versions = instances.filter_map(|one| one.version.as_deref()?.parse::<Version>().ok());
        let unusable = check_image(&self.cluster.spec.image, versions.max()).err()?;
        Some(Invalid { reason: unusable.reason(), message: unusable.to_string() })
    }

    /// How many Pods there have to be.
    fn count(&self) -> usize {
        let memory = self.cluster.status.as_ref().map(|status| status.replication.clone());
        replicas(&self.cluster.name_any(), &memory.unwrap_or_default(), self.accepted.replicas)
    }

    /// The cluster's objects, as the cache has them.
    pub(crate) fn objects(&self) -> Result<Objects, ReconcileError> {
        let Self { ctx, cluster, .. } = self;
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let set = ctx.get::<StatefulSet>(namespace.as_deref(), &name)?;
        let set = set.filter(|set| is_of(*cluster, &**set));
        let owner = set.as_ref().and_then(|set| set.uid());
        // Without a StatefulSet, as while it is made anew, they have no owner.
        let labels = names::selector(cluster);
        let is_labelled = |found: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| found.get(key) == Some(value))
        };
        let is_ours = |pod: &Arc<Pod>| {
            let owners = pod.owner_references();
            is_labelled(pod.labels())
                && (owners.is_empty() || owners.iter().any(|one| Some(&one.uid) == owner.as_ref()))
        };
        let (mut pods, mut volumes) = (BTreeMap::new(), BTreeMap::new());
        // By their names: there may be thousands of others with such a label.
        for ordinal in 0..names::MAX_INSTANCES {
            let pod = names::instance(cluster, ordinal);
            let found = ctx.get::<Pod>(namespace.as_deref(), &pod)?.filter(is_ours);
            pods.extend(found.map(|found| (pod, found)));
            let volume = names::volume(cluster, ordinal);
            let found = ctx.get::<PersistentVolumeClaim>(namespace.as_deref(), &volume)?;
            let found = found.filter(|found| is_labelled(found.labels()));
            volumes.extend(found.map(|found| (volume, found)));
        }
        Ok(Objects { count: self.count(), pods, volumes, set })
    }

    /// Asks for more space on a volume. Returns why the server does not take that, if so.
    async fn grow(&self, volume: &str) -> Result<Option<Invalid>, Obstacle> {
        let volumes: Api<PersistentVolumeClaim> = self.api();
        let patch =
            json!({"spec": {"resources": {"requests": {"storage": self.cluster.spec.storage}}}});
        match volumes.patch(volume, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(None),
            Err(error) => {
                let Some(words) = refusal(&error) else {
                    let words = Obstacle::from(error).answered()?;
                    let message = format!("the server does not let volume {volume} grow: {words}");
                    return Ok(Some(Invalid { reason: "Rejected", message }));
                };
                let message = format!(
                    "the server refuses to let volume {volume} grow: {words}; its StorageClass has to \
                     allow expansion (allowVolumeExpansion), or set spec.storage as it was"
                );
                Ok(Some(Invalid { reason: "StorageNotExpandable", message }))
            }
        }
    }

    /// Deletes the StatefulSet without its Pods. Returns why the server does not take that, if so.
    async fn remake(&self, uid: &str) -> Result<Option<Invalid>, Obstacle> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let sets: Api<StatefulSet> = self.api();
        let name = self.cluster.name_any();
        match sets.delete(&name, &params).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => {
                let words = Obstacle::from(error).answered()?;
                let message = format!(
                    "the server does not let StatefulSet {name} be deleted without its Pods, which is how it \
                     gets larger volumes for later instances: {words}; allow it"
                );
                Ok(Some(Invalid { reason: "Rejected", message }))
            }
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.ctx.client(), &self.cluster.namespace().unwrap_or_default())
    }
}

/// The objects of a cluster's instances.
pub(crate) struct Objects {
    count: usize,
    pods: BTreeMap<String, Arc<Pod>>,
    volumes: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    set: Option<Arc<StatefulSet>>,
}

impl Objects {
    fn volumes(&self) -> impl Iterator<Item = &PersistentVolumeClaim> {
        self.volumes.values().map(|volume| &**volume)
    }

    /// The digest of what Pods are made from now: by the StatefulSet or, while it is made anew, as they all
    /// have it.
    fn template(&self) -> Option<String> {
        if let Some(set) = &self.set {
            return Some(template_of(set).unwrap_or_default());
        }
        let pods = self.pods.values();
        let mut all: BTreeSet<_> = pods.map(|pod| PodSeen::of(pod).template).collect();
        all.pop_first().filter(|_| all.is_empty())
    }

    /// The instances whose container runs.
    pub(crate) fn running(&self) -> impl Iterator<Item = &str> {
        let running = self.pods.iter().filter(|(_, pod)| PodSeen::of(pod).is_running);
        running.map(|(name, _)| name.as_str())
    }

    /// Everything together.
    pub(crate) fn observed(
        &self,
        cluster: &MySQLCluster,
        wanted: Wanted,
        memory: Memory,
        looks: BTreeMap<String, Result<Look, Silence>>,
        (past, now): (&Past, Timestamp),
    ) -> Observed {
        let seen = |pod: &Pod| PodSeen {
            keeps_label: pod.uid().is_some_and(|uid| past.unlabelled.contains_key(&uid)),
            ..PodSeen::of(pod)
        };
        let pods: BTreeMap<_, _> =
            self.pods.iter().map(|(name, pod)| (name.clone(), seen(pod))).collect();
        let volumes: BTreeMap<_, _> = self
            .volumes
            .iter()
            .map(|(name, volume)| (name.clone(), VolumeSeen::of(volume)))
            .collect();
        let last = pods.keys().filter_map(|name| names::ordinal(cluster, name)).max();
        let count = self.count.max(last.map_or(0, |last| last + 1));
        let instances = instances_of(&cluster.name_any(), count, &pods, &volumes, looks);
        Observed {
            wanted,
            memory,
            instances,
            has_begun: false,
            earlier: None,
            last: None,
            now,
            #[cfg(test)]
            bug: None,
        }
    }
}

fn growing(message: String, pause: Duration) -> Readiness {
    Readiness::Waits(Waiting { reason: "Growing", message, is_stuck: false, pause })
}

/// The digest of what a StatefulSet's Pods are made from.
fn template_of(set: &StatefulSet) -> Option<String> {
    let template = &set.spec.template;
    template.metadata.as_ref()?.annotations.as_ref()?.get(names::TEMPLATE).cloned()
}
