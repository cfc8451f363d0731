//! Carries the plan out, step by step, and looks at queues that are only observed. Shell.

use jiff::Timestamp;
use sdk::Event;
use sdk::condition::{rest, whole_seconds};

use super::api::{Queue, QueueStatus};
use super::desired::Desired;
use super::documents::REDRIVE_POLICY;
use super::owner::{OWNER_TAG, Place, Whose};
use super::plan::{Observed, SETTLED_AFTER, Step, attribute_changes, plan, tag_changes};
use super::record::write;
use super::requests::{Requests, Stop, WAIT, announce, other_account};
use super::status::{Lack, Outcome, Recheck, intent};

/// Steps of one reconcile: create, adopt, correct, and a last check.
const MAX_STEPS: usize = 4;

/// One queue on its way to the desired state.
pub(super) struct Bringing<'a, 'q> {
    pub(super) turn: &'a Requests<'a>,
    pub(super) queue: &'q mut Queue,
    pub(super) place: &'a Place<'a>,
    pub(super) desired: &'a Desired,
    pub(super) changed: bool,
    pub(super) drifted: bool,
}

impl Bringing<'_, '_> {
    /// Looks at the queue, and says how it differs from the desired state.
    pub(super) async fn observe(self) -> Result<Outcome, Stop> {
        let name = &self.desired.name;
        let Some(observed) = self.seen().await? else {
            let message = format!(
                "there is no queue {name} to observe: create it, or set spec.management to Manage"
            );
            return Err(Stop::blocked("QueueMissing", message, Recheck::Soon));
        };
        let status = QueueStatus::default();
        let attributes = attribute_changes(self.desired, &observed, &status);
        let tags = tag_changes(self.desired, &observed, &status);
        let differing: Vec<_> =
            attributes.iter().chain(&tags).map(|change| change.name.as_str()).collect();
        let lack = (!differing.is_empty()).then(|| {
            let message = format!(
                "queue {name} differs from the spec in {}; spec.management is Observe, so it is left \
                 alone",
                differing.join(", ")
            );
            Lack { reason: "Differs", message }
        });
        Ok(Outcome::Synced { observed, changed: false, drifted: false, lack })
    }

    /// The queue as SQS shows it, if it is where it was made.
    async fn seen(&self) -> Result<Option<Observed>, Stop> {
        let known = self.queue.status.as_ref().and_then(QueueStatus::made_at);
        let seen = self.turn.observe(known, &self.desired.name).await?;
        self.in_place(seen.as_ref())?;
        Ok(seen)
    }

    /// The account in which the queue was made.
    fn pinned(&self) -> Option<&str> {
        self.queue.status.as_ref().and_then(QueueStatus::pinned)
    }

    fn in_place(&self, seen: Option<&Observed>) -> Result<(), Stop> {
        match (self.pinned(), seen.and_then(Observed::account)) {
            (Some(pinned), Some(found)) if pinned != found => {
                Err(other_account(pinned, found, &self.desired.name))
            }
            _ => Ok(()),
        }
    }

    /// Brings the queue to the desired state.
    pub(super) async fn run(mut self) -> Result<Outcome, Stop> {
        let mut seen = self.seen().await?;
        let (mut desired, mut lack) = (self.desired.clone(), None);
        for _ in 0..MAX_STEPS {
            let status = self.queue.status.as_ref().map(QueueStatus::as_set).unwrap_or_default();
            match plan(&desired, self.place, seen.as_ref(), &status, self.turn.now) {
                Step::Create { anew } => seen = Some(self.create(anew).await?),
                Step::Adopt { from } => seen = self.adopt(seen, from).await?,
                Step::Foreign { owner, adoptable } => {
                    return Err(self.foreign(owner, adoptable));
                }
                Step::Correct { mut attributes, tags } => {
                    let Some(found) = seen else { break };
                    let name = &self.desired.name;
                    let changes = self.turn.change(&found, name, &attributes, &tags).await;
                    for (refused, why) in changes.map_err(Stop::while_ready)? {
                        // What it has stays.
                        desired.attributes.remove(&*refused);
                        attributes.retain(|change| change.name != refused);
                        lack = lack.or(Some(why));
                    }
                    for changes in [&attributes, &tags] {
                        announce(self.turn.ctx, self.queue, name, changes).await;
                        self.drifted |= changes.iter().any(|change| change.drift);
                        self.changed |= !changes.is_empty();
                    }
                    seen = Some(found.with(&attributes, &tags));
                }
                Step::Settle { until } => return Err(self.settling(until, seen.is_some())),
                Step::Keep => {
                    let Some(observed) = seen else { break };
                    let Self { changed, drifted, .. } = self;
                    return Ok(Outcome::Synced { observed, changed, drifted, lack });
                }
            }
        }
        Err(self.settling(self.turn.now + WAIT, false))
    }

    /// Creates the queue, then looks at it: SQS also accepts a queue of that name that exists already,
    /// and that one may have another owner.
    async fn create(&mut self, anew: bool) -> Result<Observed, Stop> {
        self.intend().await?;
        let (turn, name) = (self.turn, &self.desired.name);
        if let Some(pinned) = self.pinned() {
            turn.in_account(pinned, name).await?;
        }
        let url = turn.create(self.desired, self.place.mark()).await?;
        let found = match turn.observe(url.as_ref(), name).await {
            Ok(Some(found)) => found,
            unseen => {
                self.made(url).await?;
                unseen?;
                return Err(self.settling(turn.now + WAIT, false));
            }
        };
        self.in_place(Some(&found))?;
        let mark = found.tags.get(OWNER_TAG).map(String::as_str);
        if self.place.whose(mark) == Whose::Ours {
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

    /// Records the name and the region of the queue before it is created, and when that is: an end waits until SQS
    /// shows it, also where it is created again or was refused before. Its dead-letter queue is set after that, which
    /// corrects nothing that others did.
    async fn intend(&mut self) -> Result<(), Stop> {
        let (mut before, now) = (self.queue.status.clone().unwrap_or_default(), self.turn.now);
        before.attributes.remove(REDRIVE_POLICY);
        let last = before.last_change.as_ref().map(|last| last.0);
        let is_recent = last.and_then(|last| rest(last, SETTLED_AFTER / 2, now)).is_some();
        let status = match before.queue_name {
            None => intent(self.queue, self.desired, now),
            Some(_) if is_recent => return Ok(()),
            Some(_) => QueueStatus { last_change: Some(whole_seconds(now)), ..before },
        };
        Ok(write(self.turn.ctx, self.queue, status).await?)
    }

    /// Records where the queue was made that no look shows yet: no other one is made elsewhere.
    async fn made(&mut self, url: Option<String>) -> Result<(), Stop> {
        // https://sqs.REGION.amazonaws.com/ACCOUNT/NAME
        let account = url.as_ref().and_then(|url| url.rsplit('/').nth(1));
        let is_account = |found: &&str| found.bytes().all(|digit| digit.is_ascii_digit());
        let Some(account) = account.filter(is_account).map(str::to_owned) else { return Ok(()) };
        let status = QueueStatus {
            url,
            account: Some(account),
            endpoint: self.queue.spec.endpoint.clone(),
            last_change: Some(whole_seconds(self.turn.now)),
            observed: false,
            ..self.queue.status.clone().unwrap_or_default()
        };
        Ok(write(self.turn.ctx, self.queue, status).await?)
    }

    async fn adopt(
        &mut self,
        seen: Option<Observed>,
        from: Option<String>,
    ) -> Result<Option<Observed>, Stop> {
        let Some(mut found) = seen else { return Ok(None) };
        self.intend().await?;
        let (name, owner) = (&self.desired.name, self.place.mark());
        let tag = (OWNER_TAG.to_owned(), owner.clone());
        self.turn.tag(&found, name, vec![tag]).await?;
        let from = from.filter(|owner| !owner.is_empty());
        let from =
            from.map_or_else(|| "without an owner".to_owned(), |owner| format!("of {owner}"));
        let note = format!("adopted queue {name}, which was {from}");
        self.turn.ctx.publish(Event::normal(&*self.queue, "Adopted", "Adopt", note)).await;
        found.tags.insert(OWNER_TAG.to_owned(), owner);
        self.changed = true;
        Ok(Some(found))
    }

    fn foreign(&self, owner: Option<String>, adoptable: bool) -> Stop {
        let name = &self.desired.name;
        let created = self.queue.metadata.creation_timestamp.as_ref();
        let left = created.and_then(|created| rest(created.0, SETTLED_AFTER, self.turn.now));
        if let (true, Some(of), Some(left)) = (adoptable, &owner, left)
            && !of.is_empty()
        {
            let message = format!(
                "queue {name} is that of an earlier object of this name, with which it may have been deleted: SQS \
                 shows it for a minute then"
            );
            return Stop::blocked("Settling", message, Recheck::At(self.turn.now + left));
        }
        let whose = match owner {
            Some(owner) => format!("belongs to {owner} by its tag {OWNER_TAG}"),
            None => format!("has no tag {OWNER_TAG}"),
        };
        let fix = if adoptable {
            "set spec.adopt to take it over, or delete this Queue".to_owned()
        } else {
            "remove that tag and set spec.adopt to take it over, or delete this Queue".to_owned()
        };
        let message = format!("queue {name} exists and {whose}: {fix}");
        Stop::blocked("NotOwned", message, Recheck::Soon)
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
