//! The shell of a MySQLCluster: cache and instances in, one step out.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use operands::archive::Settings;
use operands::children::Obstacle;
use operands::spec::Invalid;
use sdk::{
    Action, Context, Controller, ControllerSpec, ObjectKey, ReconcileError, Reconciler, Selector,
    Watch, mapping, spread,
};

use crate::api::MySQLCluster;
use crate::asking::{Asked, ask};
use crate::backup::{MySQLBackup, begins_with};
use crate::calls::Gateway;
use crate::certificates::Certificates;
use crate::names::{self, CLUSTER_LABEL};
use crate::observed::Observed;
use crate::plan::decide;
use crate::prepare::{Prepared, Preparing, Readiness};
use crate::remembered::{Past, Remembered};
use crate::report::{Findings, report, report_invalid};
use crate::rotator::{Rotator, shut_out};
use crate::status::MySQLClusterStatus;
use crate::step::{Change, Step, Waiting};
use crate::steps::{StepOutcome, Taker};
use crate::wanted::{Accepted, is_founded, read, together};

/// How often a settled cluster is looked at at least, plus up to a quarter. Changes of Pods end it earlier.
const CHECK: Duration = Duration::from_secs(60);
/// How often at most.
const MIN_CHECK: Duration = Duration::from_secs(5);
/// How often a cluster is looked at that waits for a person.
const STUCK: Duration = Duration::from_secs(30);
/// The pause after a decision from an object that had changed.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a reconcile may take: instances that do not answer are waited for.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Reconciles MySQLClusters.
struct MySQLReconciler {
    gateway: Arc<dyn Gateway>,
    certificates: Certificates,
    remembered: Remembered,
    settings: Settings,
    random: fn() -> String,
}

/// The controller, with this many workers, over this gateway; `random` makes passwords.
pub(crate) fn controller(
    workers: usize,
    gateway: Arc<dyn Gateway>,
    settings: Settings,
    random: fn() -> String,
) -> ControllerSpec {
    let labelled = || -> Selector { CLUSTER_LABEL.parse().expect("a label's key is a selector") };
    Controller::for_kind::<MySQLCluster>(crate::NAME)
        .owns_with(Watch::<StatefulSet>::all().labels(labelled()))
        .owns_with(Watch::<Service>::all().labels(labelled()))
        .owns_with(Watch::<ConfigMap>::all().labels(labelled()))
        .owns_with(Watch::<PodDisruptionBudget>::all().labels(labelled()))
        // They belong to the StatefulSet.
        .watches_with(
            Watch::<Pod>::all().labels(labelled()),
            mapping::named_by_label(CLUSTER_LABEL),
        )
        .watches_with(
            Watch::<PersistentVolumeClaim>::all().labels(labelled()),
            mapping::named_by_label(CLUSTER_LABEL),
        )
        // A backup that appears or ends is what a new cluster waits for.
        .watches::<MySQLBackup>(|backup, lookup| {
            let all = lookup.list::<MySQLCluster>(backup.namespace().as_deref(), &Selector::all());
            let waiting = all.iter().filter(|one| begins_with(one, &backup.name_any()));
            waiting.map(|one| (one.namespace(), one.name_any())).collect()
        })
        .field_manager(crate::FIELD_MANAGER)
        .workers(workers)
        .timeout(TIMEOUT)
        .reconciler(MySQLReconciler {
            gateway,
            certificates: Certificates::default(),
            remembered: Remembered::default(),
            settings,
            random,
        })
}

impl Reconciler for MySQLReconciler {
    type Kind = MySQLCluster;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(cluster) = ctx.get::<MySQLCluster>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            // The garbage collector deletes what the cluster owns; no finalizer is needed.
            return Ok(Action::Done);
        }
        let (accepted, problems) = read(&cluster);
        let invalid = (!problems.is_empty()).then(|| together(&problems));
        if let Some(invalid) = invalid.as_ref().filter(|_| !is_founded(&cluster)) {
            let status = report_invalid(&cluster, invalid, ctx.now());
            written(ctx, &cluster, status, None).await?;
            return Ok(Action::Done);
        }
        let mut past = self.remembered.take(ctx, &cluster);
        let (accepted, invalid) = (&accepted, invalid.as_ref());
        let round = Round { reconciler: self, ctx, cluster: &cluster, accepted, invalid };
        let outcome = round.run(&mut past).await;
        self.remembered.put(ctx, &cluster, past);
        outcome
    }
}

/// One reconcile of one cluster.
struct Round<'a> {
    reconciler: &'a MySQLReconciler,
    ctx: &'a Context,
    cluster: &'a MySQLCluster,
    accepted: &'a Accepted,
    invalid: Option<&'a Invalid>,
}

impl Round<'_> {
    async fn run(&self, past: &mut Past) -> Result<Action, ReconcileError> {
        let Self { reconciler, ctx, cluster, accepted, invalid } = self;
        let preparing = Preparing {
            ctx,
            cluster,
            accepted,
            invalid: *invalid,
            certificates: &reconciler.certificates,
            settings: &reconciler.settings,
            random: reconciler.random,
        };
        let prepared = match preparing.prepare(past).await {
            Ok(Readiness::Ready(prepared)) => prepared,
            Ok(Readiness::Waits(waiting)) => return self.halt(waiting).await,
            Err(Obstacle::Blocked(message) | Obstacle::Refused(message)) => {
                let Step::Wait(waiting) = Waiting::stuck("InTheWay", message) else {
                    return Ok(Action::RequeueAfter(AGAIN));
                };
                return self.halt(waiting).await;
            }
            Err(Obstacle::Failed(error)) => return Err(error),
        };
        let (mut observed, mut asked) = self.observe(&preparing, &prepared, past).await?;
        if asked.is_denied {
            past.passwords = None;
        }
        past.kept.round(&mut observed);
        let step = decide(&observed);
        tracing::debug!(?step, "planned");
        let taker = Taker { ctx, gateway: &*reconciler.gateway, cluster, prepared: &prepared };
        let outcome = taker.take(&step, &mut asked, past).await?;
        if matches!(outcome, StepOutcome::Outdated) {
            return Ok(Action::RequeueAfter(AGAIN));
        }
        let mut told = None;
        if !step.is_deed() {
            taker.upkeep(&observed, &mut asked, past).await;
            let rotator =
                Rotator { taker: &taker, every: accepted.rotation, random: reconciler.random };
            told = rotator.turn(&observed, &mut asked, past).await.map(Step::Wait);
            told = told.filter(|told| is_louder(told, &step));
        }
        if let StepOutcome::Refused(waiting) = outcome {
            told = Some(Step::Wait(waiting));
        }
        let lost = shut_out(&names::accounts(cluster), &cluster.spec.secret, &asked, past);
        drop(asked);
        self.conclude(&observed, &prepared, past, step, lost.or(told)).await
    }

    /// The cluster's Pods and volumes, and what its instances say.
    async fn observe(
        &self,
        preparing: &Preparing<'_>,
        prepared: &Prepared,
        past: &Past,
    ) -> Result<(Observed, Asked), ReconcileError> {
        let objects = preparing.objects()?;
        let memory = self.cluster.status.as_ref().map(|status| status.replication.clone());
        let memory = memory.unwrap_or_default();
        let last = memory.primary.clone().or_else(|| memory.former.clone());
        let addresses =
            objects.running().map(|name| prepared.address(self.cluster, name)).collect();
        let gateway = &*self.reconciler.gateway;
        let patience = |name: &str| past.kept.patience(name, memory.primary.as_deref());
        let asked = ask(self.ctx, gateway, addresses, last.as_deref(), patience).await;
        let wanted = prepared.wanted(self.cluster, self.accepted);
        let looks = asked.looks.clone();
        Ok((objects.observed(self.cluster, wanted, memory, looks, (past, self.ctx.now())), asked))
    }

    /// Nothing can be done before something else is.
    async fn halt(&self, waiting: Waiting) -> Result<Action, ReconcileError> {
        let pause = if waiting.is_stuck { spread(STUCK, self.cluster) } else { waiting.pause };
        let mut status = self.cluster.status.clone().unwrap_or_default();
        Findings::halted(&waiting, &status).record(self.cluster, &mut status, self.ctx.now());
        written(self.ctx, self.cluster, status, None).await?;
        Ok(Action::RequeueAfter(pause))
    }

    /// Writes the status and says when to look again. What is told may be something else than the step.
    async fn conclude(
        &self,
        observed: &Observed,
        prepared: &Prepared,
        past: &mut Past,
        step: Step,
        told: Option<Step>,
    ) -> Result<Action, ReconcileError> {
        let mut status = self.cluster.status.clone().unwrap_or_default();
        status.passwords_rotated = Some(format!("{:.0}", prepared.passwords.keyring.rotated));
        let unlabelled = past.unlabelled.values().map(|refused| &refused.invalid);
        let untaken = prepared.untaken.iter().chain(unlabelled).next();
        let refusal = prepared.refusal.as_ref().or(untaken);
        report(observed, self.cluster, refusal, &mut status, told.as_ref().unwrap_or(&step));
        if let Step::Remember { memory, change } = &step {
            status.replication = (**memory).clone();
            if let Err(error) = written(self.ctx, self.cluster, status, Some(change)).await {
                past.kept.doubt();
                return Err(error);
            }
            if *change == Change::Begin {
                past.kept.begin(memory.reign);
            }
        } else {
            written(self.ctx, self.cluster, status, None).await?;
        }
        let pause = past.kept.pause(&step, self.accepted.failover_after);
        Ok(Action::RequeueAfter(match &step {
            Step::Rest if let Some(Step::Wait(waiting)) = &told => waiting.pause,
            Step::Rest if is_well(observed) && !past.kept.is_doubtful() => {
                spread(calm(self.accepted), self.cluster)
            }
            Step::Wait(Waiting { is_stuck: true, .. }) => spread(STUCK, self.cluster),
            _ => pause,
        }))
    }
}

/// How long nothing is done if all is well. That a network fails is seen only by looking, and matters where
/// another instance can take over.
fn calm(accepted: &Accepted) -> Duration {
    match accepted.replicas {
        1 => CHECK,
        _ => (accepted.failover_after * 2).clamp(MIN_CHECK, CHECK),
    }
}

/// Whether a rotation is what a person should hear of, and not the step.
fn is_louder(rotation: &Step, step: &Step) -> bool {
    let is_stuck = |step: &Step| matches!(step, Step::Wait(Waiting { is_stuck: true, .. }));
    *step == Step::Rest || (is_stuck(rotation) && !is_stuck(step))
}

fn is_well(observed: &Observed) -> bool {
    observed.instances.iter().all(|seen| seen.unwell.is_none())
}

/// Writes the status if it says something new, with Events for that, which say why the memory changes. It replaces
/// exactly the version that was read, so a decision on an old one fails here.
async fn written(
    ctx: &Context,
    cluster: &MySQLCluster,
    status: MySQLClusterStatus,
    change: Option<&Change>,
) -> Result<(), ReconcileError> {
    if cluster.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let before = cluster.status.clone().unwrap_or_default();
    let news = crate::events::news(&before, &status, change);
    let changed = MySQLCluster { status: Some(status), ..cluster.clone() };
    operands::report::written(ctx, cluster, &changed, news).await
}
