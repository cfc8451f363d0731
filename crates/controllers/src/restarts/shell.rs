//! Takes the steps of a restart, one at a time. Shell.
//!
//! Whoever calls records what a step says before the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{
    Api, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, Preconditions,
};
use sdk::refusal::{is_gone, refusal, refused};
use sdk::{Context, ReconcileError};
use serde_json::json;

use super::discovery::Discovery;
use super::evict::{self, Eviction};
use super::follow::{Stage, Trouble, stage};
use super::pending::{
    LONGEST_LOOK, MAX_TARGETS, Pending, PodRef, Workload, WorkloadKind, listed, pending,
    replica_sets, restartable, workload_of,
};
use super::record::{Decision, Record, next_second};
use super::search::Search;

/// How many workloads are asked at once, one request each: a server far away answers each after long.
const AT_ONCE: usize = 16;
/// How many rollouts begin before that is recorded: a reconcile that is broken off goes on from there.
const BATCH: usize = 50;
/// How many workloads one page of a search has.
const PAGE: u32 = 500;
/// The most pages of a kind: 10,000 workloads of a server that has no more than 50 in a page.
const MAX_PAGES: usize = 200;
/// The trouble of a restart that is done, while an annotation cannot be read: perhaps others were meant.
pub(crate) const UNREAD: &str = "AnnotationUnread";

/// Restarts Pods of one namespace.
pub(crate) struct Restarts<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) namespace: &'a str,
    /// Selects the Pods, as text; none are if there is none.
    pub(crate) selector: Option<String>,
    /// What the workloads are searched for, if they are.
    pub(crate) discovery: Option<Discovery>,
    /// Whether Pods without a controller are evicted too.
    pub(crate) bare: bool,
    /// How long changes count as one.
    pub(crate) window: Duration,
    /// The annotation of Pod templates with the content of their last rollout.
    pub(crate) annotation: String,
}

/// What a step has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is nothing to restart.
    Current,
    /// The content changed, and may change again.
    Settling,
    /// A restart is decided.
    Decided(Pending),
    /// It has begun, and waits: for these words, or because of this.
    Waiting(Trouble),
    /// It is finished; something was left.
    Restarted(Pending, Option<Trouble>),
    /// The server refuses it.
    Refused(String),
    /// It would be of too many.
    TooMany(usize),
}

/// What to do after a step is recorded.
#[derive(Debug)]
pub(crate) enum Then {
    /// The next step.
    GoOn,
    /// Nothing, until something changes.
    Rest,
    /// Look again after this time.
    Again(Duration),
    /// Fail.
    Fail(kube::Error),
}

/// One step: what to record, and what then.
#[derive(Debug)]
pub(crate) struct Advance {
    pub(crate) record: Record,
    pub(crate) outcome: Outcome,
    pub(crate) then: Then,
}

impl Restarts<'_> {
    /// Objects of the namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.ctx.client(), self.namespace)
    }

    /// The next step for content `hash`, of which `record` is the record. Nothing is recorded where the server refuses to
    /// say what must be known for it.
    ///
    /// # Errors
    /// If the state of the cluster cannot be read for another reason, or an eviction fails.
    pub(crate) async fn step(
        &self,
        record: Record,
        hash: String,
    ) -> Result<Advance, ReconcileError> {
        match self.take(record.clone(), hash).await {
            Err(error) => {
                let outcome = Outcome::Refused(refused(error)?);
                Ok(Advance { record, outcome, then: Then::Again(LONGEST_LOOK) })
            }
            taken => taken,
        }
    }

    async fn take(&self, record: Record, hash: String) -> Result<Advance, ReconcileError> {
        let now = self.ctx.now();
        let step = |record, outcome, then| Ok(Advance { record, outcome, then });
        match record.decide(&hash, now, self.window) {
            Decision::Current => step(record.seen(hash), Outcome::Current, Then::Rest),
            Decision::Wait(rest) => step(record.changed(now), Outcome::Settling, Then::Again(rest)),
            Decision::Restart => {
                let pending = self.pending(hash).await?;
                match pending.targets() {
                    0 => Ok(finished(record, pending, None, now)),
                    count if count > MAX_TARGETS => {
                        step(record, Outcome::TooMany(count), Then::Again(LONGEST_LOOK))
                    }
                    _ => {
                        let outcome = Outcome::Decided(pending.clone());
                        step(record.decided(pending), outcome, Then::GoOn)
                    }
                }
            }
            Decision::Follow(pending) if !pending.started => self.begin(record, pending).await,
            Decision::Follow(pending) => self.follow(record, pending, None).await,
        }
    }

    /// The restart of the Pods that are selected now, and of the workloads that are found now.
    async fn pending(&self, hash: String) -> Result<Pending, ReconcileError> {
        let mut pods = self.pods(self.selector.as_deref()).await?;
        pods.retain(restartable);
        let sets: Vec<_> = replica_sets(&pods).into_iter().map(|name| self.owner(name)).collect();
        let rolled_out: Vec<_> = stream::iter(sets).buffered(AT_ONCE).try_collect().await?;
        let rolled_out: BTreeMap<_, _> = rolled_out.into_iter().flatten().collect();
        let decided_at = Some(next_second(self.ctx.now()));
        let selected = pending(hash, &pods, &rolled_out, self.bare);
        let selector = self.selector.clone().filter(|_| !selected.pods.is_empty());
        let selected = Pending { decided_at, selector, ..selected };
        let (workloads, unread) = self.discovered().await?;
        Ok(selected.with(workloads).with_unread(&unread))
    }

    /// A ReplicaSet, and the workload that rolls it out.
    async fn owner(&self, name: String) -> Result<Option<(String, Workload)>, kube::Error> {
        let found = self.api::<ReplicaSet>().get_metadata_opt(&name).await?;
        let owners = found.map(|set| set.metadata.owner_references.unwrap_or_default());
        Ok(owners.as_deref().and_then(workload_of).map(|workload| (name, workload)))
    }

    /// The workloads that restart for what changed, or some more than may restart at once; and what annotations say that
    /// cannot be read. Read from the server, page by page.
    async fn discovered(&self) -> Result<(Vec<Workload>, Vec<String>), ReconcileError> {
        let Some(changed) = &self.discovery else { return Ok((Vec::new(), Vec::new())) };
        let mut search = Search::of(changed);
        for kind in WorkloadKind::ALL {
            let (workloads, mut params) = (self.workloads(kind), ListParams::default().limit(PAGE));
            for number in 1.. {
                let page = match workloads.list(&params).await {
                    // A cluster without Argo Rollouts.
                    Err(error) if is_gone(&error) => break,
                    page => page?,
                };
                page.items.iter().for_each(|object| search.look(changed, kind, object));
                if search.count() > MAX_TARGETS {
                    let (mut found, unread) = search.found();
                    found.truncate(MAX_TARGETS + 1);
                    return Ok((found, unread));
                }
                match next_page(params, number, page.metadata.continue_)? {
                    Some(next) => params = next,
                    None => break,
                }
            }
        }
        Ok(search.found())
    }

    /// The Pods that a selector selects now, whatever their state. Read from the server, because what is decided
    /// about them cannot be undone.
    async fn pods(&self, selector: Option<&str>) -> Result<Vec<Pod>, kube::Error> {
        let Some(selector) = selector else { return Ok(Vec::new()) };
        Ok(self.api::<Pod>().list(&ListParams::default().labels(selector)).await?.items)
    }

    /// Begins the next rollouts, also beside some that are refused. What has begun is recorded before the next ones, and
    /// is never begun again: others may have taken the rollout back since.
    async fn begin(&self, record: Record, pending: Pending) -> Result<Advance, ReconcileError> {
        let waiting = pending.waiting();
        if waiting.is_empty() {
            return self.follow(record, Pending { started: true, ..pending }, None).await;
        }
        let mut refused = None;
        for batch in waiting.chunks(BATCH) {
            let TriedRollouts { begun, failure, refusal } = self.begin_batch(batch, &pending).await;
            if begun.is_empty() {
                match failure {
                    Some(error) => return Err(error.into()),
                    None => refused = refused.or(refusal),
                }
                continue;
            }
            let pending = pending.begun(&begun);
            let outcome = Outcome::Decided(pending.clone());
            let then = failure.map_or(Then::GoOn, Then::Fail);
            return Ok(Advance { record: record.decided(pending), outcome, then });
        }
        self.follow(record, pending, refused).await
    }

    /// Begins these rollouts, some at once.
    async fn begin_batch(&self, batch: &[Workload], pending: &Pending) -> TriedRollouts {
        let tries: Vec<_> = batch.iter().map(|workload| self.roll_out(workload, pending)).collect();
        let tried: Vec<_> = stream::iter(tries).buffered(AT_ONCE).collect().await;
        let mut found = TriedRollouts::default();
        for (workload, tried) in batch.iter().zip(tried) {
            match tried {
                Err(error) if !is_gone(&error) => match refusal(&error) {
                    Some(words) => found.refusal = found.refusal.or(Some((words, error))),
                    None => found.failure = found.failure.or(Some(error)),
                },
                _ => found.begun.push(workload.clone()),
            }
        }
        found
    }

    /// Writes the restart's stamp into the Pod template, or the time of the decision into a Rollout. If it is
    /// there already the server changes nothing, so no rollout begins twice after a crash.
    ///
    /// A merge patch touches this one field. Server-side apply would drop the annotations of other monitors
    /// of the same workload, as all of them share our field manager.
    async fn roll_out(&self, workload: &Workload, pending: &Pending) -> Result<(), kube::Error> {
        let (annotation, stamp) = (&self.annotation, pending.stamp());
        let patch = match workload.kind {
            WorkloadKind::Rollout => json!({"spec": {"restartAt": pending.decided_at}}),
            _ => json!({"spec": {"template": {"metadata": {"annotations": {annotation: stamp}}}}}),
        };
        let params = PatchParams::apply(self.ctx.field_manager());
        let workloads = self.workloads(workload.kind);
        workloads.patch_metadata(&workload.name, &params, &Patch::Merge(patch)).await.map(drop)
    }

    fn workloads(&self, kind: WorkloadKind) -> Api<DynamicObject> {
        let kind = kind.kind().api_resource();
        Api::namespaced_with(self.ctx.client(), self.namespace, &kind)
    }

    /// Looks how far a restart is that has begun, and evicts the next Pod. What has not begun is refused.
    async fn follow(
        &self,
        record: Record,
        pending: Pending,
        refused: Option<(String, kube::Error)>,
    ) -> Result<Advance, ReconcileError> {
        let (mut rolling, mut held, mut ended) = (Vec::new(), None, None);
        let begun = pending.workloads.iter().filter(|one| pending.started || one.begun);
        let begun: Vec<_> = begun.collect();
        let looks: Vec<_> = begun.iter().map(|workload| self.look(workload, &pending)).collect();
        let stages: Vec<_> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        for (workload, stage) in begun.into_iter().zip(stages) {
            match stage {
                Stage::Done => {}
                Stage::Rolling => rolling.push(workload.label()),
                Stage::Held(trouble) => held = held.or(Some(trouble)),
                Stage::Ended(trouble) => ended = ended.or(Some(trouble)),
            }
        }
        let now = self.ctx.now();
        let mut wait = pending.next_look(now);
        let (pending, eviction) = self.evict(pending).await?;
        match eviction {
            Evicted::All => {}
            Evicted::Waits(words, rest) => {
                rolling.push(words);
                wait = rest.unwrap_or(wait).min(wait);
            }
            Evicted::Held(trouble) => held = held.or(Some(trouble)),
        }
        if let Some((words, error)) = refused {
            let also = held.or(ended).map(|trouble| format!("; {}", trouble.words));
            let words = words + &also.unwrap_or_default();
            let (record, then) = (record.decided(pending), Then::Fail(error));
            return Ok(Advance { record, outcome: Outcome::Refused(words), then });
        }
        let waits = (!rolling.is_empty())
            .then(|| Trouble::new("RollingOut", format!("waits: {}", listed(&rolling))));
        if let Some(trouble) = held.or(waits) {
            let record = record.decided(pending);
            let then = Then::Again(wait);
            return Ok(Advance { record, outcome: Outcome::Waiting(trouble), then });
        }
        Ok(finished(record, pending, ended, now))
    }

    /// How far the rollout of a workload is. One that is gone has nothing left to roll out.
    async fn look(&self, workload: &Workload, pending: &Pending) -> Result<Stage, ReconcileError> {
        let found = self.workloads(workload.kind).get_opt(&workload.name).await?;
        let Some(found) = found else { return Ok(Stage::Done) };
        let found = serde_json::to_value(found).map_err(ReconcileError::terminal)?;
        Ok(stage(workload, &found, &self.annotation, pending))
    }

    /// Evicts the next Pod, if it is its turn.
    async fn evict(&self, pending: Pending) -> Result<(Pending, Evicted), ReconcileError> {
        if pending.pods.is_empty() {
            return Ok((pending, Evicted::All));
        }
        let selector = pending.selector.as_deref().or(self.selector.as_deref());
        let (pods, now) = (self.pods(selector).await?, self.ctx.now());
        let pending = evict::counted(pending, &pods, now);
        let evicted = match evict::next(&pending, &pods, now) {
            Eviction::Done => Evicted::All,
            Eviction::Wait(words, rest) => Evicted::Waits(words, rest),
            Eviction::Held(trouble) => Evicted::Held(trouble),
            Eviction::Next(pods) => self.evict_first(&pods).await?,
        };
        Ok((pending, evicted))
    }

    /// Evicts the first of these Pods that may be evicted.
    async fn evict_first(&self, pods: &[PodRef]) -> Result<Evicted, kube::Error> {
        let mut held = None;
        for pod in pods {
            match self.evict_one(pod).await? {
                Evicted::Held(trouble) => held = held.or(Some(trouble)),
                evicted => return Ok(evicted),
            }
        }
        Ok(held.map_or(Evicted::All, Evicted::Held))
    }

    /// Evicts one incarnation of a Pod. A budget may not allow it at present.
    async fn evict_one(&self, PodRef { name, uid, .. }: &PodRef) -> Result<Evicted, kube::Error> {
        let uid = Some(uid.clone());
        let pinned = Preconditions { uid, resource_version: None };
        let delete_options = Some(DeleteParams::default().preconditions(pinned));
        let params = EvictParams { delete_options, ..EvictParams::default() };
        let evicted = || Evicted::Waits(format!("Pod {name} is evicted"), None);
        match self.api::<Pod>().evict(name, &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422 | 429 | 500) => {
                let reason = if status.code == 429 { "DisruptionBudget" } else { "NotEvicted" };
                let words = sdk::error::foreign(&status.message);
                Ok(Evicted::Held(Trouble::new(reason, format!("Pod {name}: {words}"))))
            }
            // It is gone or replaced.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(evicted()),
            answer => answer.map(|_| evicted()),
        }
    }
}

/// What asks for the page after the one that `params` asked for, which was the `number`th; none after the last.
///
/// # Errors
/// If the list comes to no end.
fn next_page(
    params: ListParams,
    number: usize,
    token: Option<String>,
) -> Result<Option<ListParams>, ReconcileError> {
    let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(None) };
    if number >= MAX_PAGES || params.continue_token.as_ref() == Some(&token) {
        let why = "the server's list of workloads does not end: it repeats a continue token, or has too many pages";
        return Err(ReconcileError::transient(why));
    }
    Ok(Some(params.continue_token(&token)))
}

/// What became of some rollouts that were to begin.
#[derive(Default)]
struct TriedRollouts {
    /// They have begun, or are of workloads that are gone.
    begun: Vec<Workload>,
    /// The first failure that is no refusal.
    failure: Option<kube::Error>,
    /// The first refusal, and the server's words.
    refusal: Option<(String, kube::Error)>,
}

/// How far evictions are.
enum Evicted {
    All,
    Waits(String, Option<Duration>),
    Held(Trouble),
}

/// The end of a restart.
fn finished(record: Record, pending: Pending, ended: Option<Trouble>, now: Timestamp) -> Advance {
    let trouble = ended.or_else(|| left_alone(&pending));
    let record = record.restarted(&pending, now);
    Advance { record, outcome: Outcome::Restarted(pending, trouble), then: Then::Rest }
}

/// What to say of Pods that nothing would create again, or not where they were, and of annotations that cannot be read.
fn left_alone(pending: &Pending) -> Option<Trouble> {
    let pods = (pending.kept > 0).then(|| {
        format!(
            "left {} Pods alone: nothing creates one without a controller again, and one of a Job would begin anew",
            pending.kept
        )
    });
    let reason = if pods.is_some() { "PodsLeft" } else { UNREAD };
    let words: Vec<_> = pods.into_iter().chain(pending.unread.clone()).collect();
    (!words.is_empty()).then(|| Trouble::new(reason, words.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token of the page that follows; none at the end of a list.
    fn after(number: usize, asked: Option<&str>, token: &str) -> Result<Option<String>, String> {
        let continue_token = asked.map(str::to_owned);
        let params = ListParams { continue_token, ..ListParams::default().limit(PAGE) };
        let next = next_page(params, number, Some(token.to_owned()));
        let next = next.map_err(|error| error.to_string())?;
        Ok(next.and_then(|next| next.continue_token.filter(|_| next.limit == Some(PAGE))))
    }

    #[test]
    fn a_list_that_leads_nowhere_is_a_failure() {
        assert_eq!(after(1, None, ""), Ok(None));
        assert_eq!(after(1, None, "a"), Ok(Some("a".to_owned())));
        assert_eq!(after(2, Some("a"), "b"), Ok(Some("b".to_owned())));
        assert_eq!(after(MAX_PAGES, Some("a"), ""), Ok(None));
        assert!(after(2, Some("a"), "a").is_err());
        assert!(after(MAX_PAGES, Some("a"), "b").is_err());
    }
}
