//! The marks of fleets in a cluster (S8): which fleets work there, and with which controllers. Two fleets
//! with one cluster and the same controllers would do everything twice. The second one refuses the cluster
//! and names the first; its other clusters go on.
//!
//! ```text
//!  Lease kube-public/leasehold-fleets, annotations:
//!    fleet.leasehold.dev/FLEET: {"installation", "namespace", "by", "beat", "controllers": {"tdset": ["shop"]}}
//!
//!             look (every third probe)         nothing of another fleet meets our claim
//!  cluster ───────────────────────▶ decide ─┬─▶ ours is there and fresh ──────────▶ engaged
//!                ▲                          ├─▶ ours is missing, old, too narrow ─▶ write by compare-and-swap
//!                │ conflict: look again     └─▶ another fleet's claim meets ours ─▶ refused, looked at again
//!                └───────────────────────────── write                                with each probe
//! ```
//!
//! # Why so
//! - **Where.** All fleets must look in one place. `kube-public` exists in every cluster and holds nothing that
//!   the right to create Leases could harm, unlike `kube-system`, which managed clusters also close to their
//!   users. A Lease, because no controller of ours watches Leases, and one object for all fleets,
//!   because then a compare-and-swap decides between two that begin at once.
//! - **Who.** Every member looks, because every member engages the cluster. Whoever first finds that its
//!   fleet's mark has not changed for `RENEW_AFTER` renews it; the others see that it changed. So a cluster
//!   gets one write in that time from a fleet of any size.
//! - **Which fleet.** [`FleetId`], the uid of home's namespace, which belongs to one installation. A home that
//!   is restored keeps it. In a home that was emptied it is another one: a member that runs on learns it and
//!   replaces the mark of its former id, so that members that join later find their own.
//! - **What.** A claim names controllers, their selectors and namespaces. Fleets whose claims do not meet share
//!   a cluster: also those that select by different selectors, because people divide objects so. A mark that cannot be
//!   read claims everything.
//! - **How it ends.** Nobody takes a mark away: a member that loses a cluster does not know which others still
//!   work there. A mark is stale when the looking member has seen no change for [`STALE_AFTER`] on its own
//!   clock; wall clocks are not compared. Of a time in which looks got no answer little counts: perhaps the other
//!   could not renew its mark either. A paused fleet renews its mark: who pauses means to go on. Where somebody
//!   deleted the Lease, a fleet that was refused waits until those that work there have marked it again; whoever
//!   takes away a single mark means it.
//! - **Rights.** A cluster never fails for want of them: it is worked on as before, and says once what to grant.
//!   A server that does not answer a look changes nothing either. One that is just starting refuses what it allows a
//!   moment later: a refusal of a look counts when there were several in a row, and never ends another fleet's claim;
//!   a refusal of a write does, because by then nobody else's claim was seen.
//!
//! # Invariants
//! - A fleet writes its mark only over the version in which it saw no fresh claim that meets its own. So of two
//!   fleets that begin at once one is refused.
//! - Who is refused writes nothing.
//! - The mark guards against mistakes in configurations. It is no fence: a fleet that was cut off from the
//!   cluster for longer than [`STALE_AFTER`] notices its successor with its next look, not before. A copy of
//!   home has its fleet's id: it works beside the first for some two minutes, until it knows ([`copy`]).

mod claim;
mod copy;
pub mod fleet_id;
mod lease;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use model::error::foreign;
use model::{FleetId, Living, Moment};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use self::claim::Claim;
use self::copy::Writers;
pub use self::lease::{Looked, look};

/// The namespace of the Lease, and its name.
pub const NAMESPACE: &str = "kube-public";
/// See [`NAMESPACE`].
pub const NAME: &str = "leasehold-fleets";
/// What annotations with marks begin with; the id of the fleet follows.
const PREFIX: &str = "fleet.leasehold.dev/";
/// How long a fleet's mark must have been the same before a member of it renews it.
const RENEW_AFTER: Duration = Duration::from_secs(45);
/// How long another fleet's mark must have been the same before it counts no more: several renewals, and the
/// looks between them.
pub const STALE_AFTER: Duration = Duration::from_secs(180);
/// So much counts of a time in which a look got no answer: what mostly is between two looks.
const UNSEEN_COUNTS: Duration = Duration::from_secs(30);
/// How long a fleet that was refused waits when the Lease is gone: by then every member that works there has looked.
const RETURN: Duration = Duration::from_secs(60);
/// The most fleets whose marks are read, ours not counted, and so the most that share a cluster.
const MAX_OTHERS: usize = 15;
/// The longest mark. One of ours that would be longer claims everything instead.
const MAX_MARK_BYTES: usize = 8 << 10;
/// The most former ids that a member remembers.
const MAX_FORMER: usize = 8;

/// What a fleet writes into its clusters, and what tells it apart.
#[derive(Clone, Debug)]
pub struct Marker {
    /// Which fleet it is, once home has said so. Without it nothing is marked.
    pub fleet: watch::Receiver<Option<FleetId>>,
    /// The name of its installation, for people.
    pub installation: String,
    /// Its namespace in the home cluster, for people.
    pub namespace: String,
    /// The identity of this process, for people.
    pub by: String,
    /// What it does.
    pub claim: Claim,
    /// Who else of the fleet lives.
    pub living: watch::Receiver<Arc<Living>>,
}

/// Our fleet, as a look needs it.
#[derive(Clone, Debug)]
pub struct Own {
    id: FleetId,
    former: Vec<FleetId>,
    installation: String,
    namespace: String,
    by: String,
    claim: Claim,
    living: watch::Receiver<Arc<Living>>,
}

/// A mark as it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mark {
    installation: String,
    namespace: String,
    /// Who wrote it.
    by: String,
    /// Rises with each writing, so that each changes the text.
    beat: u64,
    controllers: Claim,
}

/// The marks of a cluster: the text of each fleet's.
type Marks = BTreeMap<String, String>;

/// Since when each mark has been as it is, by the clock of who looks, and who wrote ours.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    since: BTreeMap<String, (u64, Moment)>,
    writers: Writers,
    /// When the marks were seen last.
    seen: Option<Moment>,
    /// The looks since then, with the present one.
    looks: u32,
    /// When that was seen by which ours is refused, if it is.
    refused: Option<Moment>,
    /// Who lived when the marks were seen last.
    lived: Arc<Living>,
}

/// How our fleet stands in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has looked, or a look got no answer.
    #[default]
    Unknown,
    /// It has its mark there.
    Marked,
    /// It cannot mark. The text says why and what to do.
    Unmarked(Arc<str>),
    /// Another fleet is there.
    Refused(Refusal),
}

/// Why a fleet does not work in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The other fleet, as its mark's annotation names it.
    other: String,
    /// Names both fleets, where the mark is and what to do.
    pub reason: Arc<str>,
}

/// What follows from a look.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Our mark is there.
    Stands,
    /// Our mark must be written, unless somebody writes meanwhile.
    Write(Change),
    /// Another fleet is there.
    Refused(Refusal),
    /// There is no place for another fleet's mark.
    Full,
}

/// A change of the marks.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    put: (String, String),
    remove: Vec<String>,
}

// === impl Own ===

impl Own {
    /// The fleet of a marker, if home has said which it is. `before` is what it was until now.
    pub fn of(marker: &mut Marker, before: Option<&Self>) -> Option<Self> {
        let id = marker.fleet.borrow_and_update().clone()?;
        let mut former = before.map_or_else(Vec::new, |before| before.former.clone());
        former.extend(before.map(|before| before.id.clone()));
        former.retain(|one| *one != id);
        former.drain(..former.len().saturating_sub(MAX_FORMER));
        let Marker { installation, namespace, by, claim, living, .. } = marker.clone();
        Some(Self { id, former, installation, namespace, by, claim, living })
    }

    /// Whether it is not that of `before`.
    pub fn is_another(&self, before: &Self) -> bool {
        self.id != before.id
    }

    /// Its mark among those in a cluster, if it can be read.
    fn mark(&self, marks: &Marks) -> Option<Mark> {
        Mark::read(marks.get(self.id.as_str())?)
    }

    fn living(&self) -> Arc<Living> {
        Arc::clone(&self.living.borrow())
    }

    /// Whether a mark is ours, by its fleet.
    fn is(&self, fleet: &str) -> bool {
        self.id.as_str() == fleet || self.former.iter().any(|former| former.as_str() == fleet)
    }

    fn text(&self, beat: u64, controllers: Claim) -> String {
        let mark = |controllers| Mark {
            installation: self.installation.clone(),
            namespace: self.namespace.clone(),
            by: self.by.clone(),
            beat,
            controllers,
        };
        let text = mark(controllers).text();
        if text.len() <= MAX_MARK_BYTES { text } else { mark(Claim::everything()).text() }
    }

    /// What both claim, this fleet and that of a mark; one that cannot be read claims everything.
    fn meets(&self, mark: Option<&Mark>) -> Option<String> {
        let everything = Claim::everything();
        self.claim.meets(mark.map_or(&everything, |mark| &mark.controllers))
    }

    /// Why it is refused where a copy of this fleet works.
    fn copied(&self, by: &str) -> Refusal {
        let Self { id, installation, namespace, .. } = self;
        let by = foreign(by);
        let reason = format!(
            "a copy of this fleet works there: {by:?} writes the mark of {id} (installation {installation:?}, \
             namespace {namespace:?}) in Lease {NAMESPACE}/{NAME}, and is no living member of this fleet. Home was \
             copied, or restored elsewhere while the first goes on; fix: stop one of the two, or remove the cluster \
             from it; this one goes on {}s after the other has stopped",
            STALE_AFTER.as_secs(),
        );
        Refusal { other: id.to_string(), reason: reason.into() }
    }

    /// Why it is refused.
    fn refusal(&self, other: &str, mark: Option<&Mark>, both: &str) -> Refusal {
        let whose = mark.map_or_else(
            || "whose mark cannot be read".to_owned(),
            |mark| {
                let Mark { installation, namespace, by, .. } = mark;
                format!("installation {installation:?}, namespace {namespace:?}, marked by {by:?}")
            },
        );
        let Self { id, installation, namespace, .. } = self;
        let reason = format!(
            "another fleet works there with {both}: {other} ({}); this fleet is {id} (installation \
             {installation:?}, namespace {namespace:?}). Its mark is in Lease {NAMESPACE}/{NAME}; fix: remove \
             the cluster, or those controllers, from one of the two; if the other fleet is gone, wait {}s or: \
             kubectl --namespace {NAMESPACE} annotate lease {NAME} {PREFIX}{other}-",
            foreign(&whose),
            STALE_AFTER.as_secs(),
        );
        Refusal { other: other.to_owned(), reason: reason.into() }
    }
}

impl Mark {
    /// Reads it; `None` if it is none of this release, or too long.
    fn read(text: &str) -> Option<Self> {
        if text.len() > MAX_MARK_BYTES { None } else { serde_json::from_str(text).ok() }
    }

    fn text(&self) -> String {
        serde_json::to_string(self).expect("names and numbers are JSON")
    }
}

// === impl Sightings ===

impl Sightings {
    /// A look begins.
    fn look(&mut self) {
        self.looks = self.looks.saturating_add(1);
    }

    /// Takes in what a look saw.
    fn observe(&mut self, own: &Own, marks: &Marks, now: Moment) {
        let gap = self.seen.replace(now).map_or(Duration::ZERO, |seen| now.since(seen));
        let unseen = match std::mem::take(&mut self.looks) {
            0 | 1 => Duration::ZERO,
            _ => gap.saturating_sub(UNSEEN_COUNTS),
        };
        let before = std::mem::take(&mut self.since);
        let since = |(fleet, text): (&String, &String)| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            let hash = hasher.finish();
            let same = before.get(fleet).filter(|(before, _)| *before == hash);
            // Ours is due whatever was seen.
            let unseen = if own.is(fleet) { Duration::ZERO } else { unseen };
            (fleet.clone(), (hash, same.map_or(now, |(_, since)| *since + unseen)))
        };
        self.since = marks.iter().map(since).collect();
        let hash = |seen: &BTreeMap<_, (u64, Moment)>| seen.get(own.id.as_str()).map(|seen| seen.0);
        let is_new = hash(&before).is_some_and(|before| Some(before) != hash(&self.since));
        let living = own.living();
        let lived = std::mem::replace(&mut self.lived, Arc::clone(&living));
        if let Some(mark) = own.mark(marks).filter(|_| is_new) {
            self.writers.wrote(&mark.by, &living, &lived);
        }
    }

    /// Takes in what followed from what it saw.
    fn decided(&mut self, decision: &Decision, now: Moment) {
        self.refused = matches!(decision, Decision::Refused(_)).then_some(now);
    }

    /// Whether ours was refused by what was seen last.
    fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Whether ours was refused a moment ago: who works there may not have looked since.
    fn waits(&self, now: Moment) -> bool {
        self.refused.is_some_and(|refused| now.since(refused) < RETURN)
    }

    /// How long the mark of a fleet has been as it is.
    fn age(&self, fleet: &str, now: Moment) -> Duration {
        self.since.get(fleet).map_or(Duration::ZERO, |(_, since)| now.since(*since))
    }
}

// === impl Standing ===

impl Standing {
    /// Takes in what a look found. A refusal by the same fleet stays as it is: its members take turns in
    /// renewing the mark, and that is no news.
    pub fn turn(&mut self, found: Self) {
        match (&*self, &found) {
            (Self::Refused(before), Self::Refused(now)) if before.other == now.other => {}
            // A look without an answer changes nothing.
            (_, Self::Unknown) => {}
            _ => *self = found,
        }
    }
}

/// Reads the marks among the annotations: ours, and as many others as are read, those that meet our claim
/// first. What is no id of a fleet is no mark: a server may send anything, and people paste it. Pure.
fn marks(own: &Own, annotations: &BTreeMap<String, String>) -> Marks {
    let all = annotations.iter().filter_map(|(key, text)| Some((key.strip_prefix(PREFIX)?, text)));
    let all = all.filter(|(fleet, _)| fleet.parse::<FleetId>().is_ok());
    let (ours, mut others): (Vec<_>, Vec<_>) = all.partition(|(fleet, _)| own.is(fleet));
    if others.len() > MAX_OTHERS {
        others.sort_by_cached_key(|(_, text)| own.meets(Mark::read(text).as_ref()).is_none());
    }
    let kept = ours.into_iter().chain(others.into_iter().take(MAX_OTHERS));
    kept.map(|(fleet, text)| (fleet.to_owned(), text.clone())).collect()
}

/// What follows from the marks in a cluster. Pure.
fn decide(own: &Own, marks: &Marks, sightings: &Sightings, now: Moment) -> Decision {
    let mut remove = Vec::new();
    let mut others = 0;
    for (fleet, text) in marks.iter().filter(|(fleet, _)| fleet.as_str() != own.id.as_str()) {
        if own.is(fleet) || sightings.age(fleet, now) >= STALE_AFTER {
            remove.push(fleet.clone());
            continue;
        }
        let mark = Mark::read(text);
        if let Some(both) = own.meets(mark.as_ref()) {
            return Decision::Refused(own.refusal(fleet, mark.as_ref(), &both));
        }
        others += 1;
    }
    if !marks.contains_key(own.id.as_str()) && others >= MAX_OTHERS {
        return Decision::Full;
    }
    let ours = own.mark(marks);
    let age = sightings.age(own.id.as_str(), now);
    if let Some(mark) = ours.as_ref().filter(|_| age < STALE_AFTER && sightings.writers.yields()) {
        return Decision::Refused(own.copied(&mark.by));
    }
    let covers = ours.as_ref().is_some_and(|mark| mark.controllers.covers(&own.claim));
    let renew_after = |mark: &Mark| sightings.writers.renew_after(&mark.by, &own.living());
    let is_due = ours.as_ref().is_none_or(|mark| age >= renew_after(mark));
    if covers && !is_due && remove.is_empty() {
        return Decision::Stands;
    }
    // Members with different configurations, as during an update, add to the mark and do not take away
    // from it what others of them do. A renewal says only what who renews does: so what ends, ends.
    let before = ours.as_ref().filter(|_| !is_due).map(|mark| &mark.controllers);
    let claim = before.map_or_else(|| own.claim.clone(), |before| own.claim.with(before));
    let beat = ours.map_or(0, |mark| mark.beat.wrapping_add(1));
    Decision::Write(Change { put: (own.id.to_string(), own.text(beat, claim)), remove })
}

#[cfg(test)]
mod tests;
