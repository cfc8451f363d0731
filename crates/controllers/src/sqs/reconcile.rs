//! The shell of Queue: cache in, plan, SQS and the fenced client out.
//!
//! ```text
//!   finalizer ▶ intent (status: name, region) ▶ CreateQueue with owner tag ▶ status: url, arn
//! ```
//! A crash between any two of these repeats nothing and loses nothing: the name is recorded before
//! the queue exists, its tag says that it is ours, and each request changes only what differs from
//! the spec.

use aws_sdk_sqs::config::SharedHttpClient;
use jiff::Timestamp;
use kube::ResourceExt;
use sdk::ObjectKey;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Lifecycle, ReconcileError, Reconciler,
};

use super::api::Queue;
use super::client::{TO_LOOK, TO_MAKE};
use super::credentials::{Location, Sessions};
use super::desired::{Desired, desired, source};
use super::ending;
use super::environment::AwsEnvironment;
use super::name::OWNER_TAG;
use super::plan::{Observed, Step, plan};
use super::record::record;
use super::requests::{Requests, Stop, WAIT, announce};
use super::status::{Outcome, Recheck, intent, rests_until};
use super::{FIELD_MANAGER, FINALIZER};

/// The index of Queues by the dead-letter queue that they name, as `namespace/name`.
const REFERRERS: &str = "redriveTarget";
/// Steps of one reconcile: create, adopt, correct, and a last check.
const MAX_STEPS: usize = 4;

/// Reconciles Queues.
#[derive(Debug)]
pub(super) struct QueueReconciler {
    sessions: Sessions,
}

/// The controller, with this many workers, over connections of its own.
pub(super) fn controller(workers: usize) -> ControllerSpec {
    build(workers, Sessions::new(None, AwsEnvironment::of_process()))
}

/// The controller, with this many workers, over a given HTTP client and environment: for tests.
pub fn controller_over(
    workers: usize,
    http: SharedHttpClient,
    environment: AwsEnvironment,
) -> ControllerSpec {
    build(workers, Sessions::new(Some(http), environment))
}

fn build(workers: usize, sessions: Sessions) -> ControllerSpec {
    Controller::for_kind::<Queue>(super::BUILTIN.name)
        .index::<Queue>(REFERRERS, |queue| {
            let namespace = queue.namespace().unwrap_or_default();
            let policy = queue.spec.redrive_policy.iter();
            policy.map(|policy| format!("{namespace}/{}", policy.queue_ref.name)).collect()
        })
        .watches::<Queue>(|target, lookup| {
            let namespace = target.namespace().unwrap_or_default();
            let name = format!("{namespace}/{}", target.name_any());
            let referrers = lookup.indexed::<Queue>(REFERRERS, &name);
            referrers.iter().map(|queue| (queue.namespace(), queue.name_any())).collect()
        })
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .reconciler(QueueReconciler { sessions })
}

impl Reconciler for QueueReconciler {
    type Kind = Queue;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(queue) = ctx.get::<Queue>(key.namespace.as_deref(), &key.name)? else {
            return Ok(Action::Done);
        };
        match ctx.finalizer(&*queue, FINALIZER).await? {
            Lifecycle::Over => Ok(Action::Done),
            Lifecycle::Ending => ending::end(&self.sessions, ctx, &queue).await,
            Lifecycle::Live(queue) => self.look(ctx, &queue).await,
        }
    }
}

/// The state of a queue's dead-letter queue.
enum Target {
    NotWanted,
    Known(String),
    Awaited(String),
}

impl QueueReconciler {
    async fn look(&self, ctx: &Context, queue: &Queue) -> Result<Action, ReconcileError> {
        let now = ctx.now();
        let target = target(ctx, queue)?;
        let redrive = match &target {
            Target::Known(arn) => Some(arn.as_str()),
            Target::NotWanted | Target::Awaited(_) => None,
        };
        let desired = match desired(queue, ctx.cluster().as_str(), redrive) {
            Ok(desired) => desired,
            Err(invalid) => {
                return record(ctx, queue, None, redrive, Outcome::Invalid(invalid)).await;
            }
        };
        if let Target::Awaited(message) = &target {
            let message = message.clone();
            let ready = queue.status.as_ref().is_some_and(|status| status.arn.is_some());
            let (reason, recheck) = ("RedriveTargetNotReady", Recheck::OnChange);
            let blocked = Outcome::Blocked { reason, message, ready, recheck };
            return record(ctx, queue, Some(&desired), redrive, blocked).await;
        }
        if let Some(next) = rests_until(queue, redrive, now) {
            return Ok(Action::RequeueAfter(next.duration_since(now).unsigned_abs()));
        }
        let mut queue = queue.clone();
        let outcome = match self.bring(ctx, &mut queue, &desired).await {
            Ok(outcome) => outcome,
            Err(Stop::Outcome(outcome)) => *outcome,
            Err(Stop::Error(error)) => return Err(error),
        };
        record(ctx, &queue, Some(&desired), redrive, outcome).await
    }

    /// Brings the queue to the desired state. `queue` is updated to the object as it is then.
    async fn bring(
        &self,
        ctx: &Context,
        queue: &mut Queue,
        desired: &Desired,
    ) -> Result<Outcome, Stop> {
        let now = ctx.now();
        let invalid = |invalid| Stop::Outcome(Box::new(Outcome::Invalid(invalid)));
        let source = source(&queue.spec).map_err(invalid)?;
        let spec = queue.spec.clone();
        let location = Location { region: &spec.region, endpoint: spec.endpoint.as_deref() };
        let namespace = queue.namespace().unwrap_or_default();
        let is_made = queue.status.as_ref().is_some_and(|status| status.arn.is_some());
        let requests = if is_made { TO_LOOK } else { TO_MAKE };
        let session = self.sessions.open(ctx, &namespace, source, location, requests).await;
        let session = session.map_err(|error| Stop::no_session(error, now))?;
        let origin = session.origin.clone();
        let outcome = Bringing {
            turn: Requests { ctx, session, now },
            queue,
            desired,
            changed: false,
            drifted: false,
        }
        .run()
        .await;
        if matches!(&outcome, Err(Stop::Outcome(blocked))
            if matches!(**blocked, Outcome::Blocked { reason: "AccessDenied", .. }))
        {
            self.sessions.forget(&origin);
        }
        outcome
    }
}

struct Bringing<'a, 'q> {
    turn: Requests<'a>,
    queue: &'q mut Queue,
    desired: &'a Desired,
    changed: bool,
    drifted: bool,
}

impl Bringing<'_, '_> {
    async fn run(mut self) -> Result<Outcome, Stop> {
        let known = self.queue.status.as_ref().and_then(|status| status.url.clone());
        let mut seen = self.turn.observe(known.as_ref(), &self.desired.name).await?;
        for _ in 0..MAX_STEPS {
            let status = self.queue.status.clone().unwrap_or_default();
            match plan(self.desired, seen.as_ref(), &status, self.turn.now) {
                Step::Create { anew } => seen = Some(self.create(anew).await?),
                Step::Adopt { from } => seen = self.adopt(seen, from).await?,
                Step::Foreign { owner } => return Err(self.foreign(owner)),
                Step::Correct { attributes, tags } => {
                    let Some(found) = seen else { break };
                    let name = &self.desired.name;
                    let changes = self.turn.change(&found, name, &attributes, &tags).await;
                    changes.map_err(Stop::while_ready)?;
                    for changes in [&attributes, &tags] {
                        announce(self.turn.ctx, self.queue, name, changes).await;
                        self.drifted |= changes.iter().any(|change| change.drift);
                    }
                    self.changed = true;
                    seen = Some(found.with(&attributes, &tags));
                }
                Step::Settle { until } => return Err(self.settling(until, seen.is_some())),
                Step::Keep => {
                    let Some(observed) = seen else { break };
                    let Self { changed, drifted, .. } = self;
                    return Ok(Outcome::Synced { observed, changed, drifted });
                }
            }
        }
        Err(self.settling(self.turn.now + WAIT, false))
    }

    /// Creates the queue, then looks at it: SQS also accepts a queue of that name that exists already,
    /// and that one may have another owner.
    async fn create(&mut self, anew: bool) -> Result<Observed, Stop> {
        self.intend().await?;
        let (turn, name) = (&self.turn, &self.desired.name);
        let url = turn.create(self.desired).await?;
        let Some(found) = turn.observe(url.as_ref(), name).await? else {
            return Err(self.settling(turn.now + WAIT, false));
        };
        if found.tags.get(OWNER_TAG) == Some(&self.desired.owner) {
            let region = &self.queue.spec.region;
            let event = if anew {
                let note =
                    format!("queue {name} in {region} was deleted outside: created it again");
                Event::warning(&*self.queue, "Recreated", "Create", note)
            } else {
                let note = format!("created queue {name} in {region}");
                Event::normal(&*self.queue, "Created", "Create", note)
            };
            turn.ctx.publish(event).await;
        }
        self.changed = true;
        self.drifted |= anew;
        Ok(found)
    }

    /// Records the name and the region of the queue before it is created.
    async fn intend(&mut self) -> Result<(), Stop> {
        let known = self.queue.status.as_ref().is_some_and(|status| status.queue_name.is_some());
        if known {
            return Ok(());
        }
        let status = intent(self.queue, self.desired, self.turn.now);
        let intended = Queue { status: Some(status), ..self.queue.clone() };
        match self.turn.ctx.update_status(&intended).await? {
            Some(queue) => *self.queue = queue,
            None => {
                let gone = format!("Queue {} is gone", self.queue.name_any());
                return Err(Stop::Error(ReconcileError::conflict(gone)));
            }
        }
        Ok(())
    }

    async fn adopt(
        &mut self,
        seen: Option<Observed>,
        from: Option<String>,
    ) -> Result<Option<Observed>, Stop> {
        let Some(mut found) = seen else { return Ok(None) };
        self.intend().await?;
        let Desired { name, owner, .. } = self.desired;
        let tag = (OWNER_TAG.to_owned(), owner.clone());
        self.turn.tag(&found, name, vec![tag]).await?;
        let from =
            from.map_or_else(|| "without an owner".to_owned(), |owner| format!("of {owner}"));
        let note = format!("adopted queue {name}, which was {from}");
        self.turn.ctx.publish(Event::normal(&*self.queue, "Adopted", "Adopt", note)).await;
        found.tags.insert(OWNER_TAG.to_owned(), owner.clone());
        self.changed = true;
        Ok(Some(found))
    }

    fn foreign(&self, owner: Option<String>) -> Stop {
        let name = &self.desired.name;
        let whose = match owner {
            Some(owner) => format!("belongs to {owner} by its tag {OWNER_TAG}"),
            None => format!("has no tag {OWNER_TAG}"),
        };
        let message = format!(
            "queue {name} exists and {whose}: set spec.adopt to take it over, or delete this Queue"
        );
        Stop::blocked("NotOwned", message, Recheck::NextCheck)
    }

    fn settling(&self, until: Timestamp, ready: bool) -> Stop {
        let name = &self.desired.name;
        let message = format!(
            "queue {name} was changed within the last minute, which SQS does not show everywhere yet"
        );
        let stop = Stop::blocked("Settling", message, Recheck::At(until));
        if ready { stop.while_ready() } else { stop }
    }
}

/// The dead-letter queue of the spec.
fn target(ctx: &Context, queue: &Queue) -> Result<Target, ReconcileError> {
    let Some(policy) = &queue.spec.redrive_policy else { return Ok(Target::NotWanted) };
    let name = &policy.queue_ref.name;
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
    match target.status.as_ref().and_then(|status| status.arn.clone()) {
        Some(arn) => Ok(Target::Known(arn)),
        None => {
            let why =
                format!("Queue {name} of spec.redrivePolicy has no ARN yet: see its conditions");
            Ok(Target::Awaited(why))
        }
    }
}
