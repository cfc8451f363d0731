//! The requests that one reconcile sends to SQS, and what ends it early. Shell.

use std::time::Duration;

use jiff::Timestamp;
use sdk::{Context, Event, ExternalError, ReconcileError};

use super::api::Queue;
use super::client::{Failure, Refusal};
use super::credentials::{Session, SessionError};
use super::desired::Desired;
use super::documents::{POLICY, REDRIVE_POLICY};
use super::plan::{Change, Observed};
use super::status::{Lack, Outcome, Recheck};
use super::sts::StsError;

/// How long to wait for what cannot be watched: a Secret, or the name of a deleted queue, which SQS
/// gives free after as long
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html>).
pub(super) const WAIT: Duration = Duration::from_secs(60);

/// What ends a reconcile early: an outcome to record, or an error to retry.
#[derive(Debug)]
pub(super) enum Stop {
    Outcome(Box<Outcome>),
    /// AWS is out of reach; what is known of it, and the error.
    Outage(String, ReconcileError),
    Error(ReconcileError),
}

impl From<ReconcileError> for Stop {
    fn from(error: ReconcileError) -> Self {
        Self::Error(error)
    }
}

impl Stop {
    pub(super) fn blocked(reason: &'static str, message: String, recheck: Recheck) -> Self {
        Self::Outcome(Box::new(Outcome::Blocked { reason, message, ready: false, recheck }))
    }

    /// What the status says in an outage; `ready` says whether the queue exists and is ours. The engine decides
    /// when to try again.
    pub(super) fn told(said: &str, ready: bool) -> Outcome {
        let message = format!("{said}; it is tried again until it succeeds");
        Outcome::Blocked { reason: "Unavailable", message, ready, recheck: Recheck::OnChange }
    }

    /// Whether the credentials were refused.
    pub(super) fn is_denial(&self) -> bool {
        let Self::Outcome(outcome) = self else { return false };
        matches!(**outcome, Outcome::Blocked { reason: "AccessDenied", .. })
    }

    /// The same, of a queue that exists and is ours.
    pub(super) fn while_ready(self) -> Self {
        match self {
            Self::Outcome(outcome) => Self::Outcome(Box::new(match *outcome {
                Outcome::Blocked { reason, message, recheck, .. } => {
                    Outcome::Blocked { reason, message, recheck, ready: true }
                }
                outcome => outcome,
            })),
            error => error,
        }
    }

    /// What it means that there is no session.
    pub(super) fn no_session(error: SessionError, now: Timestamp) -> Self {
        match error {
            SessionError::Failed(error) => Self::Error(error),
            SessionError::Outage(said, error) => Self::Outage(said, error),
            SessionError::Missing(why) => {
                Self::blocked("CredentialsMissing", why, Recheck::At(now + WAIT))
            }
            SessionError::NotPermitted(why) => Self::blocked("NotPermitted", why, Recheck::Soon),
        }
    }
}

/// One reconcile with its session.
pub(super) struct Requests<'a> {
    pub(super) ctx: &'a Context,
    pub(super) session: Session,
    pub(super) now: Timestamp,
}

impl Requests<'_> {
    /// The queue as SQS shows it: by its `url` if that is known, else by its name.
    pub(super) async fn observe(
        &self,
        url: Option<&String>,
        name: &str,
    ) -> Result<Option<Observed>, Stop> {
        let Session { sqs, upstream, .. } = &self.session;
        let url = match url {
            Some(url) => url.clone(),
            None => match upstream.read("GetQueueUrl", sqs.url(name)).await {
                Err(error) if is(&error, Refusal::NoQueue) => return Ok(None),
                answer => answer.map_err(|error| self.stop("look for", name, error))?,
            },
        };
        let attributes = upstream.read("GetQueueAttributes", sqs.attributes(&url)).await;
        let attributes = match attributes {
            Err(error) if is(&error, Refusal::NoQueue) => return Ok(None),
            answer => answer.map_err(|error| self.stop("look at", name, error))?,
        };
        let tags = match upstream.read("ListQueueTags", sqs.tags(&url)).await {
            Err(error) if is(&error, Refusal::NoQueue) => return Ok(None),
            answer => answer.map_err(|error| self.stop("look at the tags of", name, error))?,
        };
        Ok(Some(Observed { url, attributes, tags }))
    }

    /// Queues whose dead-letter queue this is, by their URLs, and whether there are more; `None` if we may not ask.
    pub(super) async fn sources(
        &self,
        observed: &Observed,
        name: &str,
    ) -> Result<Option<(Vec<String>, bool)>, Stop> {
        let Session { sqs, upstream, .. } = &self.session;
        match upstream.read("ListDeadLetterSourceQueues", sqs.sources(&observed.url)).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if is(&error, Refusal::Denied) || is(&error, Refusal::NoQueue) => Ok(None),
            Err(error) => Err(self.stop("list the sources of", name, error)),
        }
    }

    /// Whether the session's identity is of the account in which the queue was made. Another account's
    /// queue of the same name is another queue.
    pub(super) async fn in_account(&self, pinned: &str, name: &str) -> Result<(), Stop> {
        match self.session.account(self.ctx).await {
            Ok(Some(found)) if found != pinned => Err(other_account(pinned, &found, name)),
            Ok(_) => Ok(()),
            Err(StsError::Failed(error)) => Err(Stop::Error(error)),
            Err(StsError::Outage(said, error)) => Err(Stop::Outage(said, error)),
            Err(StsError::Refused(said)) => {
                let message = format!(
                    "STS does not say whose the credentials are, so nobody knows whether queue {name} is \
                     gone: {said}; use credentials that AWS knows"
                );
                Err(Stop::blocked("AccessDenied", message, Recheck::Soon))
            }
        }
    }

    /// Creates the queue with this owner tag, and no dead-letter queue yet. `None` if one of that name exists with
    /// other attributes.
    pub(super) async fn create(
        &self,
        desired: &Desired,
        mark: String,
    ) -> Result<Option<String>, Stop> {
        let (sqs, wanted) = (self.session.sqs.clone(), desired.clone());
        let name = &desired.name;
        let made = self.session.upstream.write("CreateQueue", |_| sqs.create(wanted, mark)).await;
        match made {
            Ok(url) => Ok(Some(url)),
            Err(error) if is(&error, Refusal::NameExists) => Ok(None),
            Err(error) if is(&error, Refusal::DeletedRecently) => Err(Stop::blocked(
                "DeletedRecently",
                format!(
                    "a queue {name} was deleted within the last minute: SQS frees a name one \
                     minute after the deletion, and the queue is created then"
                ),
                Recheck::At(self.now + WAIT),
            )),
            Err(error) => Err(self.stop("create", name, error)),
        }
    }

    /// Makes the changes, last and one by one the policies that name others. Returns those of them that SQS refuses,
    /// and what the queue lacks then.
    pub(super) async fn change(
        &self,
        observed: &Observed,
        name: &str,
        attributes: &[Change],
        tags: &[Change],
    ) -> Result<Vec<(String, Lack)>, Stop> {
        let Session { sqs, upstream, .. } = &self.session;
        let url = || observed.url.clone();
        let (policies, changes): (Vec<_>, Vec<_>) =
            attributes.iter().cloned().partition(|change| {
                matches!(&*change.name, POLICY | REDRIVE_POLICY)
                    && change.to.as_ref().is_some_and(|to| !to.is_empty())
            });
        if !changes.is_empty() {
            let sqs = sqs.clone();
            let set = upstream.write("SetQueueAttributes", |_| sqs.set(url(), changes)).await;
            set.map_err(|error| self.stop("set attributes of", name, error))?;
        }
        let wanted = |change: &Change| Some((change.name.clone(), change.to.clone()?));
        let set: Vec<_> = tags.iter().filter_map(wanted).collect();
        if !set.is_empty() {
            self.tag(observed, name, set).await?;
        }
        let unwanted = tags.iter().filter(|change| change.to.is_none());
        let unwanted: Vec<_> = unwanted.map(|change| change.name.clone()).collect();
        if !unwanted.is_empty() {
            let sqs = sqs.clone();
            let removed = upstream.write("UntagQueue", |_| sqs.untag(url(), unwanted)).await;
            removed.map_err(|error| self.stop("remove tags of", name, error))?;
        }
        let mut lacks = Vec::new();
        for change in policies {
            let policy = change.name.clone();
            let lack = self.set_policy(observed, name, change).await?;
            lacks.extend(lack.map(|lack| (policy, lack)));
        }
        Ok(lacks)
    }

    /// Sets a policy that names others, who may not exist, or refuse this queue: that is no reason to leave the rest.
    async fn set_policy(
        &self,
        observed: &Observed,
        name: &str,
        change: Change,
    ) -> Result<Option<Lack>, Stop> {
        use Refusal::{Denied, NoQueue, Rejected};
        let Session { sqs, upstream, .. } = &self.session;
        let (sqs, url) = (sqs.clone(), observed.url.clone());
        let is_redrive = change.name == REDRIVE_POLICY;
        let set = upstream.write("SetQueueAttributes", |_| sqs.set(url, vec![change])).await;
        let Err(error) = set else { return Ok(None) };
        let what = if is_redrive { "set the dead-letter queue of" } else { "set the policy of" };
        let (reason, fix) = match error.failure().map(|said| said.refusal) {
            Some(NoQueue | Rejected | Denied) if is_redrive => (
                "RedriveTargetNotReady",
                "see that the one of spec.redrivePolicy exists, takes messages of this one, and \
                 that the credentials may set it",
            ),
            Some(Rejected) => ("Rejected", "change spec.policy: all whom it names must exist"),
            _ => return Err(self.stop(what, name, error)),
        };
        let said = error.failure().map(ToString::to_string).unwrap_or_default();
        let message = format!("SQS will not {what} queue {name}: {said}; {fix}");
        Ok(Some(Lack { reason, message }))
    }

    /// Sets tags.
    pub(super) async fn tag(
        &self,
        observed: &Observed,
        name: &str,
        tags: Vec<(String, String)>,
    ) -> Result<(), Stop> {
        let (sqs, url) = (self.session.sqs.clone(), observed.url.clone());
        let set = self.session.upstream.write("TagQueue", |_| sqs.tag(url, tags)).await;
        set.map_err(|error| self.stop("tag", name, error))
    }

    /// Deletes the queue; one that is gone is no error.
    pub(super) async fn delete(&self, observed: &Observed, name: &str) -> Result<(), Stop> {
        let (sqs, url) = (self.session.sqs.clone(), observed.url.clone());
        match self.session.upstream.write("DeleteQueue", |_| sqs.delete(url)).await {
            Err(error) if is(&error, Refusal::NoQueue) => Ok(()),
            answer => answer.map_err(|error| self.stop("delete", name, error)),
        }
    }

    /// A refusal that a retry would not change is an outcome, anything else an error.
    fn stop(&self, what: &str, name: &str, error: ExternalError<Failure>) -> Stop {
        if let Some(said) = error.outage() {
            let said = format!("SQS does not answer the request to {what} queue {name}: {said}");
            return Stop::Outage(said, error.into());
        }
        let Some(said) = error.failure() else { return Stop::Error(error.into()) };
        let message = |fix: &str| format!("SQS will not {what} queue {name}: {said}; {fix}");
        match said.refusal {
            Refusal::Denied => {
                let fix =
                    "give the credentials of spec.credentials that right, or other credentials";
                Stop::blocked("AccessDenied", message(fix), Recheck::Soon)
            }
            Refusal::Rejected => {
                Stop::blocked("Rejected", message("change the spec"), Recheck::Soon)
            }
            // It was deleted between two of our requests.
            Refusal::NoQueue | Refusal::NameExists | Refusal::DeletedRecently => Stop::blocked(
                "Settling",
                message("it is checked again in a minute"),
                Recheck::At(self.now + WAIT),
            ),
            Refusal::Throttled | Refusal::Unavailable | Refusal::Unanswered => {
                Stop::Error(error.into())
            }
        }
    }
}

/// The queue is in another account than it was made in.
pub(super) fn other_account(pinned: &str, found: &str, name: &str) -> Stop {
    let message = format!(
        "queue {name} is in account {pinned}, and the credentials are of account {found}: put the \
         credentials back, or delete this Queue and create another"
    );
    Stop::blocked("OtherAccount", message, Recheck::Soon)
}

/// Publishes an Event for each change: what the spec asks for now, and what somebody else had changed.
pub(super) async fn announce(ctx: &Context, queue: &Queue, name: &str, changes: &[Change]) {
    for change in changes {
        let word = |value: &Option<String>| match value {
            Some(value) if !value.is_empty() => value.clone(),
            _ => "unset".to_owned(),
        };
        let (what, from, to) = (&change.name, word(&change.from), word(&change.to));
        let event = if change.drift {
            let note = format!("{what} of queue {name} was {from}, put back to {to}");
            Event::warning(queue, "Drifted", "Correct", note)
        } else {
            let note = format!("{what} of queue {name} changed from {from} to {to}");
            Event::normal(queue, "Updated", "Update", note)
        };
        ctx.publish(event).await;
    }
}

fn is(error: &ExternalError<Failure>, refusal: Refusal) -> bool {
    error.failure().is_some_and(|said| said.refusal == refusal)
}
