//! The shell of Queue: cache in, plan, SQS and the fenced client out.
//!
//! ```text
//!   finalizer ▶ intent (status: name, region) ▶ CreateQueue with owner tag ▶ status: url, arn
//! ```
//! A crash between any two of these repeats nothing and loses nothing: the name is recorded before
//! the queue exists, its tag says that it is ours, and each request changes only what differs from
//! the spec.

use aws_sdk_sqs::config::SharedHttpClient;
use kube::ResourceExt;
use sdk::{
    Action, Context, Controller, ControllerSpec, Lifecycle, ObjectKey, ReconcileError, Reconciler,
};
use serde_json::Value;

use super::access::{Asked, Settings};
use super::api::{Management, Queue, QueueRef, QueueStatus};
use super::bringing::Bringing;
use super::client::{TO_LOOK, TO_MAKE};
use super::connection;
use super::credentials::{Location, SessionError, Sessions};
use super::desired::{Desired, desired};
use super::documents::REDRIVE_POLICY;
use super::ending;
use super::environment::AwsEnvironment;
use super::gauges::Gauges;
use super::holding::Held;
use super::owner::Place;
use super::record::record;
use super::referrers::{REFERRERS, by_name, targets};
use super::requests::{Requests, Stop};
use super::status::{Lack, Outcome, Recheck, outage_matters, rests_until};
use super::{FIELD_MANAGER, FINALIZER};

/// Reconciles Queues.
#[derive(Debug)]
pub(super) struct QueueReconciler {
    sessions: Sessions,
    held: Held,
    gauges: Gauges,
}

/// The controller, with this many workers, over connections of its own.
///
/// # Panics
/// If the settings were not checked.
pub fn controller(workers: usize, settings: &Value) -> ControllerSpec {
    let settings = Settings::parse(settings).expect("the configuration was checked");
    build(workers, Sessions::new(None, AwsEnvironment::of_process(), settings))
}

/// The controller, with this many workers and settings, over a given HTTP client and environment: for
/// tests.
///
/// # Panics
/// If the settings have another form.
pub fn controller_over(
    workers: usize,
    http: SharedHttpClient,
    environment: AwsEnvironment,
    settings: &Value,
) -> ControllerSpec {
    let settings = Settings::parse(settings).expect("a test's settings are valid");
    build(workers, Sessions::new(Some(http), environment, settings))
}

fn build(workers: usize, sessions: Sessions) -> ControllerSpec {
    let gauges = Gauges::new();
    Controller::for_kind::<Queue>(super::NAME)
        .index::<Queue>(REFERRERS, targets)
        // Those that name a queue wait for its ARN; a queue that ends waits for those that name it.
        .watches::<Queue>(|queue, lookup| {
            let arn = queue.status.as_ref().and_then(|status| status.arn.clone());
            let keys = [Some(by_name(queue)), arn].into_iter().flatten();
            let referrers = keys.flat_map(|key| lookup.indexed_names::<Queue>(REFERRERS, &key));
            let target = queue.spec.redrive_policy.as_ref().and_then(|to| to.queue_ref.clone());
            let target = target.map(|target| (queue.namespace(), target.name));
            referrers.chain(target).collect()
        })
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .collector(gauges.clone())
        .reconciler(QueueReconciler { sessions, held: Held::default(), gauges })
}

impl Reconciler for QueueReconciler {
    type Kind = Queue;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(queue) = ctx.get::<Queue>(key.namespace.as_deref(), &key.name)? else {
            self.gauges.end(ctx);
            self.held.leave(ctx, None).await?;
            return Ok(Action::Done);
        };
        self.held.leave(ctx, Some(&*queue)).await?;
        self.held.remember(ctx, &queue);
        let ends = queue.metadata.deletion_timestamp.is_some();
        if queue.spec.management == Management::Observe && !ends {
            return self.observe(ctx, &queue).await;
        }
        match ctx.finalizer(&*queue, FINALIZER).await? {
            Lifecycle::Over => {
                self.held.leave(ctx, None).await?;
                Ok(Action::Done)
            }
            Lifecycle::Ending => ending::end(&self.sessions, &self.held, ctx, &queue).await,
            Lifecycle::Live(queue) => self.look(ctx, &queue).await,
        }
    }
}

/// The dead-letter queue of a spec.
#[derive(Debug)]
enum Target {
    NotWanted,
    /// A queue of this namespace's Queues.
    Own(String),
    /// Another one, which the administrator's list must permit.
    Other(String),
    /// It has no ARN yet, or cannot be used; why.
    Awaited(String),
}

impl Target {
    fn arn(&self) -> Option<&str> {
        match self {
            Self::Own(arn) | Self::Other(arn) => Some(arn),
            Self::NotWanted | Self::Awaited(_) => None,
        }
    }

    /// The name of a queue that is not this namespace's own.
    fn other(&self) -> Option<&str> {
        let Self::Other(arn) = self else { return None };
        arn.rsplit(':').next()
    }

    /// What a queue lacks that is otherwise as desired.
    fn lack(&self) -> Option<Lack> {
        let Self::Awaited(message) = self else { return None };
        Some(Lack { reason: "RedriveTargetNotReady", message: message.clone() })
    }
}

impl QueueReconciler {
    /// Looks at a queue that is only observed. Nothing has to be done when its object goes, so nothing is held until
    /// then: neither the object nor a Secret.
    async fn observe(&self, ctx: &Context, queue: &Queue) -> Result<Action, ReconcileError> {
        let secret = |queue: &Queue| queue.status.as_ref().is_some_and(|it| it.secret.is_some());
        let is_held = queue.finalizers().iter().any(|found| found == FINALIZER);
        if !is_held && !secret(queue) {
            return self.look(ctx, queue).await;
        }
        let mut queue = queue.clone();
        self.held.hold(ctx, &mut queue, None).await?;
        // While we may not let go of the Secret, the object remembers it.
        if !is_held || secret(&queue) {
            return self.look(ctx, &queue).await;
        }
        // The object changes, and is looked at then.
        ctx.remove_finalizer(&queue, FINALIZER).await?;
        Ok(Action::Done)
    }

    async fn look(&self, ctx: &Context, queue: &Queue) -> Result<Action, ReconcileError> {
        let now = ctx.now();
        if queue.spec.management == Management::Pause {
            self.gauges.end(ctx);
            let ready = queue.status.as_ref().is_some_and(QueueStatus::is_ours);
            let message = "spec.management is Pause: nothing is asked of SQS".to_owned();
            let (reason, recheck) = ("Paused", Recheck::OnChange);
            let paused = Outcome::Blocked { reason, message, ready, recheck };
            return record(ctx, queue, None, None, paused).await;
        }
        self.gauges.begin(ctx, queue.status.as_ref().and_then(|status| status.messages));
        let (target, place) = (target(ctx, queue)?, Place::of(ctx, queue));
        let redrive = target.arn();
        let desired = match desired(queue, &place, redrive) {
            Ok(desired) => desired,
            Err(invalid) => {
                return record(ctx, queue, None, redrive, Outcome::Invalid(invalid)).await;
            }
        };
        if let Some(next) = rests_until(queue, redrive, now) {
            return Ok(Action::RequeueAfter(next.duration_since(now).unsigned_abs()));
        }
        let mut queue = queue.clone();
        let outcome = match self.bring(ctx, &mut queue, &place, &desired, &target).await {
            Ok(outcome) => outcome,
            Err(Stop::Outcome(outcome)) => *outcome,
            Err(Stop::Outage(said, error)) => {
                if outage_matters(&queue, now) {
                    let ready = queue.status.as_ref().is_some_and(QueueStatus::is_ours);
                    let told = Stop::told(&said, ready);
                    record(ctx, &queue, Some(&desired), redrive, told).await?;
                }
                return Err(error);
            }
            Err(Stop::Error(error)) => return Err(error),
        };
        if let Outcome::Synced { observed, .. } = &outcome {
            self.gauges.show(ctx, observed.messages());
        }
        record(ctx, &queue, Some(&desired), redrive, outcome).await
    }

    /// Brings the queue to the desired state. `queue` is updated to the object as it is then.
    async fn bring(
        &self,
        ctx: &Context,
        queue: &mut Queue,
        place: &Place<'_>,
        desired: &Desired,
        target: &Target,
    ) -> Result<Outcome, Stop> {
        let now = ctx.now();
        let is_made = queue.status.as_ref().is_some_and(QueueStatus::is_ours);
        if queue.spec.management == Management::Manage {
            let lacks = self.held.hold(ctx, queue, desired.source.secret()).await?;
            if let Some(why) = lacks.filter(|_| !is_made) {
                return Err(Stop::no_session(SessionError::Missing(why), now));
            }
        }
        let spec = queue.spec.clone();
        let location = Location { region: &spec.region, endpoint: spec.endpoint.as_deref() };
        let mut asked = Asked::of(place, &desired.name, location.endpoint, desired.source.clone());
        asked.target = target.other();
        let to_make = TO_MAKE + u32::from(target.arn().is_some());
        let requests = if is_made { TO_LOOK } else { to_make };
        let (mut desired, mut forbidden, mut more_tries) = (desired.clone(), None, 0..1);
        let outcome = loop {
            let session = match self.sessions.open(ctx, &asked, location, requests).await {
                // Its dead-letter queue may be what is not permitted. What it has stays, and the rest is kept right.
                Err(SessionError::NotPermitted(message)) if is_made && asked.target.is_some() => {
                    asked.target = None;
                    desired.attributes.remove(REDRIVE_POLICY);
                    forbidden = Some(Lack { reason: "NotPermitted", message });
                    continue;
                }
                session => session.map_err(|error| Stop::no_session(error, now))?,
            };
            let turn = &Requests { ctx, session, now };
            let (queue, desired) = (&mut *queue, &desired);
            let bringing = Bringing { turn, queue, place, desired, changed: false, drifted: false };
            let outcome = match spec.management {
                Management::Observe => bringing.observe().await,
                Management::Manage | Management::Pause => bringing.run().await,
            };
            let denied = outcome.as_ref().is_err_and(Stop::is_denial);
            // The Secret may have been given others since it was read.
            let again =
                denied && self.sessions.forget(&turn.session) && more_tries.next().is_some();
            if !again {
                break outcome?;
            }
        };
        let Outcome::Synced { observed, changed, drifted, lack } = outcome else {
            return Ok(outcome);
        };
        let connection = connection::tell(ctx, queue, &desired.name, &observed).await?;
        let lack = forbidden.or(lack).or_else(|| target.lack()).or(connection);
        Ok(Outcome::Synced { observed, changed, drifted, lack })
    }
}

/// The dead-letter queue of the spec.
fn target(ctx: &Context, queue: &Queue) -> Result<Target, ReconcileError> {
    let Some(policy) = &queue.spec.redrive_policy else { return Ok(Target::NotWanted) };
    if let Some(arn) = &policy.queue_arn {
        return Ok(Target::Other(arn.clone()));
    }
    let Some(QueueRef { name }) = &policy.queue_ref else { return Ok(Target::NotWanted) };
    let Some(target) = ctx.get::<Queue>(queue.namespace().as_deref(), name)? else {
        let why = format!("Queue {name} of spec.redrivePolicy does not exist: create it");
        return Ok(Target::Awaited(why));
    };
    if target.spec.fifo != queue.spec.fifo {
        let why = format!(
            "Queue {name} of spec.redrivePolicy and this one must both be FIFO queues, or neither: \
             name another"
        );
        return Ok(Target::Awaited(why));
    }
    let status = target.status.as_ref();
    match status.and_then(|status| status.arn.clone()) {
        Some(arn) if status.is_some_and(QueueStatus::is_ours) => Ok(Target::Own(arn)),
        // It is only observed, which makes it nobody's here.
        Some(arn) => Ok(Target::Other(arn)),
        None => {
            let why =
                format!("Queue {name} of spec.redrivePolicy has no ARN yet: see its conditions");
            Ok(Target::Awaited(why))
        }
    }
}
