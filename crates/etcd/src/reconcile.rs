//! The shell of an EtcdCluster: cache and etcd in, one step out.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use operands::archive::restore::restoring_job;
use operands::children::{Obstacle, go_with, in_place};
use sdk::{
    Action, Context, Controller, ControllerSpec, ObjectKey, ReconcileError, Reconciler, Selector,
    Watch, mapping, spread,
};

use crate::api::{EtcdCluster, EtcdClusterStatus};
use crate::asking::ask;
use crate::calls::{Gateway, Trust};
use crate::certificates::Certificates;
use crate::names::{self, CLUSTER_LABEL};
use crate::objects;
use crate::observed::{Observed, Seen, pods_of, volumes_of};
use crate::plan::plan;
use crate::report::{report, report_invalid};
use crate::step::{POLL, SOON, Step, Waiting};
use crate::steps::{StepOutcome, Taker};
use crate::wanted::{Invalid, Wanted, is_established, read};

/// How often a settled cluster is looked at, plus up to a quarter.
const CHECK: Duration = Duration::from_secs(60);
/// How often a cluster is looked at that waits for a person.
const STUCK: Duration = Duration::from_secs(30);
/// How long a reconcile may take: the slowest step writes a whole database anew.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Reconciles EtcdClusters.
struct EtcdReconciler {
    gateway: Arc<dyn Gateway>,
    certificates: Certificates,
}

/// The controller, with this many workers, over this gateway.
pub(crate) fn controller(workers: usize, gateway: Arc<dyn Gateway>) -> ControllerSpec {
    let labelled = || -> Selector { CLUSTER_LABEL.parse().expect("a label's key is a selector") };
    Controller::for_kind::<EtcdCluster>(crate::NAME)
        .owns_with(Watch::<Pod>::all().labels(labelled()))
        .owns_with(Watch::<Service>::all().labels(labelled()))
        .owns_with(Watch::<PodDisruptionBudget>::all().labels(labelled()))
        // Those that should stay have no owner.
        .watches_with(
            Watch::<PersistentVolumeClaim>::all().labels(labelled()),
            mapping::named_by_label(CLUSTER_LABEL),
        )
        .field_manager(crate::FIELD_MANAGER)
        .workers(workers)
        .timeout(TIMEOUT)
        .reconciler(EtcdReconciler { gateway, certificates: Certificates::default() })
}

impl Reconciler for EtcdReconciler {
    type Kind = EtcdCluster;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(cluster) = ctx.get::<EtcdCluster>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            // The garbage collector deletes what the cluster owns; no finalizer is needed.
            return Ok(Action::Done);
        }
        let (wanted, invalid) = read(&cluster);
        if let Some(invalid) = invalid.as_ref().filter(|_| !is_established(&cluster)) {
            let status = report_invalid(&cluster, invalid, ctx.now());
            written(ctx, &cluster, status).await?;
            return Ok(Action::Done);
        }
        let (wanted, invalid) = (&wanted, invalid.as_ref());
        Round { reconciler: self, ctx, cluster: &cluster, wanted, invalid }.run().await
    }
}

/// One reconcile of one cluster.
struct Round<'a> {
    reconciler: &'a EtcdReconciler,
    ctx: &'a Context,
    cluster: &'a EtcdCluster,
    wanted: &'a Wanted,
    invalid: Option<&'a Invalid>,
}

/// What is there before etcd is asked.
#[derive(Default)]
struct Basis {
    trust: Option<Trust>,
    /// What the server does not take of what else belongs to the cluster. Members are looked after all the
    /// same.
    rejected: Option<String>,
}

impl Round<'_> {
    async fn run(self) -> Result<Action, ReconcileError> {
        let Self { reconciler, ctx, cluster, wanted, .. } = self;
        let mut observed = self.observed().await?;
        let Basis { trust, rejected } = match self.prepared(&observed).await {
            Ok(basis) => basis,
            Err(Obstacle::Failed(error)) => return Err(error),
            Err(Obstacle::Blocked(message)) => {
                let step = Waiting::stuck("InTheWay", message);
                return self.conclude(&observed, observed.refreshed(), &step).await;
            }
            Err(Obstacle::Refused(message)) => {
                let step = Waiting::stuck("Rejected", message);
                return self.conclude(&observed, observed.refreshed(), &step).await;
            }
        };
        let gateway = &*reconciler.gateway;
        observed.etcd = ask(ctx, gateway, trust.as_ref(), &observed).await;
        if observed.etcd.trouble.is_some() {
            // Perhaps its certificates were replaced by hand.
            reconciler.certificates.forget(ctx, cluster);
        }
        let status = observed.refreshed();
        let step = plan(&observed, &status);
        tracing::debug!(?step, "planned");
        let taker = Taker { ctx, gateway, trust: trust.as_ref(), cluster, wanted };
        let is_idle = matches!(step, Step::Rest | Step::Wait(Waiting { is_stuck: false, .. }));
        match taker.take(&step, &status).await? {
            StepOutcome::Taken if let Some(message) = rejected.filter(|_| is_idle) => {
                let told = Waiting::stuck("Rejected", message);
                self.conclude(&observed, status, &told).await
            }
            StepOutcome::Taken => self.conclude(&observed, status, &step).await,
            StepOutcome::Recorded(mut changed) => {
                report(&observed, &mut changed, &step);
                written(ctx, cluster, *changed).await?;
                Ok(Action::RequeueAfter(SOON))
            }
            StepOutcome::Blocked(waiting) => {
                self.conclude(&observed, status, &Step::Wait(waiting)).await
            }
            StepOutcome::Outdated => Ok(Action::RequeueAfter(SOON)),
        }
    }

    /// The objects of the cluster, as the cache has them.
    async fn observed(&self) -> Result<Observed<'_>, ReconcileError> {
        let Self { ctx, cluster, wanted, invalid, .. } = self;
        let uid = cluster.uid().unwrap_or_default();
        let pods = ctx.owned_by::<Pod>(&uid)?;
        let volumes = self.volumes()?;
        Ok(Observed {
            cluster,
            wanted,
            invalid: *invalid,
            pods: pods_of(cluster, pods.iter().map(|pod| &**pod)),
            volumes: volumes_of(cluster, volumes.iter().map(|volume| &**volume)),
            restored: self.is_restored().await?,
            etcd: Seen::default(),
            now: ctx.now(),
        })
    }

    /// The volumes of this cluster and of others that had its name.
    fn volumes(&self) -> Result<Vec<Arc<PersistentVolumeClaim>>, ReconcileError> {
        let selector = format!("{CLUSTER_LABEL}={}", self.cluster.name_any());
        let selector = selector.parse().map_err(ReconcileError::terminal)?;
        self.ctx.list(self.cluster.namespace().as_deref(), &selector)
    }

    /// Sees to it that the volumes go with the cluster, or stay, as the spec says now.
    async fn reclaim(&self, observed: &Observed<'_>) -> Result<(), Obstacle> {
        for volume in self.volumes()? {
            let name = volume.name_any();
            if !observed.volumes.contains_key(&name) {
                continue;
            }
            let wanted = objects::volume(self.cluster, &name);
            go_with(self.ctx, self.cluster, &*volume, wanted.owner_references().first()).await?;
        }
        Ok(())
    }

    /// Whether the Job that restores has ended well, for the volume that the status has. It matters only
    /// before the cluster is founded.
    async fn is_restored(&self) -> Result<bool, ReconcileError> {
        let status = self.cluster.status.as_ref();
        let founder = status.and_then(|status| status.members.first());
        let is_founded = status.is_some_and(|status| status.cluster_id.is_some());
        let volume = founder.and_then(|founder| founder.volume_uid.as_ref());
        let (Some(volume), false, true) =
            (volume, is_founded, self.cluster.spec.restore_from.is_some())
        else {
            return Ok(self.cluster.spec.restore_from.is_none() || is_founded);
        };
        let job = restoring_job(self.ctx, self.cluster, &names::restore(self.cluster)).await?;
        Ok(job.is_some_and(|job| job.is_done_for(volume)))
    }

    /// Sees to what Pods need before they exist. The Service for clients comes when the cluster is
    /// founded: nobody writes before that.
    async fn prepared(&self, observed: &Observed<'_>) -> Result<Basis, Obstacle> {
        let Self { reconciler, ctx, cluster, wanted, .. } = self;
        let status = cluster.status.as_ref();
        let members: Vec<_> = status
            .into_iter()
            .flat_map(|status| status.members.iter().map(|member| member.name.clone()))
            .collect();
        let mut basis = Basis::default();
        if members.is_empty() && observed.pods.is_empty() {
            return Ok(basis);
        }
        let [peers, clients] = objects::services(cluster);
        if status.is_none_or(|status| status.cluster_id.is_none()) {
            in_place(ctx, *cluster, peers).await?;
        } else {
            let budget = objects::budget(cluster, wanted);
            for outcome in [
                in_place(ctx, *cluster, peers).await,
                in_place(ctx, *cluster, clients).await,
                in_place(ctx, *cluster, budget).await,
                self.reclaim(observed).await,
            ] {
                let Err(obstacle) = outcome else { continue };
                let words = obstacle.answered()?;
                basis.rejected.get_or_insert(words);
            }
        }
        if cluster.spec.tls.enabled {
            let certificates = &reconciler.certificates;
            let ensured = certificates.ensure(ctx, cluster, &members, wanted.valid).await?;
            let (trust, unrenewed) = ensured;
            basis.trust = Some(trust);
            basis.rejected = basis.rejected.or(unrenewed);
        }
        Ok(basis)
    }

    /// Writes the status and says when to look again.
    async fn conclude(
        &self,
        observed: &Observed<'_>,
        mut status: EtcdClusterStatus,
        step: &Step,
    ) -> Result<Action, ReconcileError> {
        report(observed, &mut status, step);
        written(self.ctx, self.cluster, status).await?;
        Ok(Action::RequeueAfter(match step {
            Step::Rest => spread(CHECK, self.cluster),
            Step::Wait(Waiting { is_stuck: true, .. }) => spread(STUCK, self.cluster),
            Step::Wait(_) => POLL,
            _ => SOON,
        }))
    }
}

/// Writes the status if it says something new, with Events for that. It replaces exactly the version that was
/// read, so a decision on an old one fails here.
async fn written(
    ctx: &Context,
    cluster: &EtcdCluster,
    status: EtcdClusterStatus,
) -> Result<(), ReconcileError> {
    if cluster.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let before = cluster.status.clone().unwrap_or_default();
    let news = crate::events::news(&before, &status);
    let changed = EtcdCluster { status: Some(status), ..cluster.clone() };
    operands::report::written(ctx, cluster, &changed, news).await
}
