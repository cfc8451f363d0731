//! One configured cluster as the registry keeps it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use marks::{Sightings, Standing};
use model::{Budget, Cluster, ClusterName, ClusterSet, ClusterState, ClusterUid, Identity, Moment};
use tokio::task::AbortHandle;

use crate::connect::Life;
use crate::identity::Flips;
use crate::merge::Right;
use crate::probe::{Finding, PROBE_INTERVAL};
use crate::provider::{Fingerprint, Source};
use crate::status::{ClusterStatus, State};

/// The reason of a cluster whose client is not ready when the set is published.
pub(crate) const CONNECTING: &str = "its client is not ready yet: its credential plugin is slow, or its API server has not answered yet";
/// A server that does not tell which cluster it is, or lets us write no mark, is asked again with every so
/// many probes: each time, it may log a refusal.
const ASK_EVERY: u32 = 30;
/// The marks are looked at with every so many probes.
const LOOK_EVERY: u32 = 3;

/// How often in a row a server must refuse before that is believed: one that is just starting refuses what it allows a
/// moment later, when it has read its rights.
const LASTING: u32 = 4;
/// Up to so many refusals in a row, it is asked again with every probe: for five minutes after the first is believed.
const RECENT: u32 = LASTING + 30;

/// The most destinations that are remembered of a name at which the fleet knows another cluster by it. Whoever writes the
/// source may name another each time.
const MAX_STRANGERS: usize = 64;

/// A source that has not changed for so long has come to rest.
pub(crate) const CALM: Duration = Duration::from_secs(600);
/// So many changes in a row are those of a person at work.
const EDITS: u32 = 10;
/// So many reasons why a cluster cannot be used are told within [`CALM`]: its server may give another each time.
const REASONS: u32 = 10;

/// A configured cluster.
pub(crate) struct Entry {
    pub(crate) source: Source,
    /// Where the source leads: it takes a hash of all that leads there, and is asked for with each probe.
    pub(crate) destination: Option<Fingerprint>,
    /// When its source changed last, and how often in a row.
    pub(crate) changed: Option<(Moment, u32)>,
    /// Since when reasons are counted why it cannot be used, and how many there were.
    reasons: Option<(Moment, u32)>,
    /// Whether a log was told that it does not answer, and not yet that it does again.
    is_told: bool,
    /// The place of its source in the configuration.
    pub(crate) place: usize,
    /// How much is kept of it.
    pub(crate) budget: Option<Budget>,
    /// Where the client led that was engaged last.
    pub(crate) engaged: Option<Fingerprint>,
    /// Where the fleet knows another cluster by this name.
    strangers: HashSet<Fingerprint>,
    /// Which cluster its server said it is, and how that server was reached.
    known: Option<(ClusterUid, Option<Fingerprint>)>,
    /// How often its server said lately that it is another, or that another fleet works there after ours did.
    pub(crate) flips: Flips,
    /// Whether its server has just told which cluster it is: then it need not be asked at once.
    pub(crate) just_told: bool,
    /// Why its server does not tell, and how often in a row it did not.
    untold: Option<(Arc<str>, u32)>,
    /// How often in a row its server let us write no mark.
    denials: u32,
    /// The probes since it was configured: the number of the present one.
    pub(crate) probes: u32,
    /// Whether our fleet works there, and since when marks are as they are.
    pub(crate) standing: Standing,
    pub(crate) sightings: Sightings,
    /// The life of its client's credential.
    pub(crate) life: Option<Life>,
    pub(crate) serving: Serving,
    /// The result of the last probe, and whether it came soon.
    pub(crate) finding: Option<Finding>,
    pub(crate) is_prompt: bool,
    /// The task that makes a client, or waits before the next attempt.
    pub(crate) making: Option<AbortHandle>,
    /// The task of the next probe.
    pub(crate) probing: Option<AbortHandle>,
}

/// The published state of a cluster.
pub(crate) enum Serving {
    /// Nothing yet: its first client is not ready.
    Connecting,
    /// A client.
    Engaged(Cluster),
    /// A reason.
    Down(Arc<str>),
}

impl Entry {
    pub(crate) fn new(source: Source, place: usize) -> Self {
        Self {
            destination: source.destination(),
            changed: None,
            reasons: None,
            is_told: false,
            source,
            place,
            budget: None,
            engaged: None,
            strangers: HashSet::new(),
            known: None,
            flips: Flips::default(),
            just_told: false,
            untold: None,
            denials: 0,
            probes: 0,
            standing: Standing::default(),
            sightings: Sightings::default(),
            life: None,
            serving: Serving::Connecting,
            finding: None,
            is_prompt: true,
            making: None,
            probing: None,
        }
    }

    /// How much right a source has to its name.
    pub(crate) fn right_of(&self, source: &Source) -> Right {
        let is_same = source.fingerprint == self.source.fingerprint;
        let leads_to = if is_same { self.destination } else { source.destination() };
        let is_stranger = leads_to.is_some_and(|to| self.strangers.contains(&to));
        let was_engaged = self.engaged.is_some();
        let leads_there = was_engaged && leads_to == self.engaged;
        (!is_stranger, leads_there, was_engaged && source.origin == self.source.origin)
    }

    /// Takes in which cluster the fleet knows by its name, if that is another. Returns whether that is news: then
    /// another source of the name has more right to it.
    pub(crate) fn heed(&mut self, fleets: Option<&ClusterUid>) -> bool {
        let (Some(own), Some(leads_to)) = (self.identity(), self.destination) else {
            return false;
        };
        match fleets {
            Some(fleets) if own.uid != *fleets => {
                let is_known = self.strangers.contains(&leads_to);
                if !is_known && self.strangers.len() >= MAX_STRANGERS {
                    self.strangers.clear();
                }
                self.strangers.insert(leads_to)
            }
            None if matches!(self.serving, Serving::Engaged(_)) => {
                self.strangers.clear();
                false
            }
            _ => false,
        }
    }

    /// So much is kept of it from now on, whatever it is engaged with.
    pub(crate) fn keep(&mut self, budget: Option<Budget>) {
        self.budget = budget;
        if let Serving::Engaged(cluster) = &mut self.serving {
            cluster.budget = budget;
        }
    }

    /// It is engaged with this client.
    pub(crate) fn engage(&mut self, cluster: Cluster) {
        self.stop();
        self.finding = self.just_told.then_some(Ok(()));
        self.engaged = self.destination;
        self.serving = Serving::Engaged(cluster);
    }

    /// Which cluster it is, if its server said so and is still reached in the same way.
    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        let (uid, destination) = self.known.as_ref()?;
        let origin = Arc::clone(&self.source.origin);
        let identity = Identity { uid: uid.clone(), origin, place: self.place };
        (*destination == self.destination).then(|| Arc::new(identity))
    }

    /// The same, before it is engaged for the first time: its marks may not be looked at yet.
    pub(crate) fn told(&self) -> Option<Arc<Identity>> {
        self.identity().filter(|_| self.engaged.is_none())
    }

    /// Its server said which cluster it is. Returns which one it was until now, if that is another.
    pub(crate) fn identified(&mut self, uid: ClusterUid) -> Option<ClusterUid> {
        let before = self.identity().map(|before| before.uid.clone());
        self.untold = None;
        self.known = Some((uid.clone(), self.destination));
        let before = before.filter(|before| *before != uid);
        if before.is_some() {
            self.forget_marks();
        }
        before
    }

    /// Its server does not tell which cluster it is. Returns whether that is news.
    pub(crate) fn not_told(&mut self, reason: Arc<str>) -> bool {
        let before = self.untold.take().map_or(0, |(_, times)| times);
        self.untold = Some((reason, before.saturating_add(1)));
        before == 0
    }

    /// Whether another reason why it cannot be used is told. If not, the one before it stands.
    pub(crate) fn is_news(&mut self, now: Moment) -> bool {
        let lately = self.reasons.filter(|(since, _)| now < *since + CALM);
        let (since, times) = lately.unwrap_or((now, 0));
        self.reasons = Some((since, times.saturating_add(1)));
        times < REASONS
    }

    /// Takes in what a probe found. Returns whether a log is told.
    pub(crate) fn probed(&mut self, found: &Finding, now: Moment) -> bool {
        let before = self.finding.replace(found.clone()).filter(Result::is_err);
        if found.is_ok() {
            return std::mem::take(&mut self.is_told);
        }
        let tells = before.as_ref() != Some(found) && self.is_news(now);
        self.is_told |= tells;
        self.finding = before.filter(|_| !tells).or(self.finding.take());
        tells
    }

    /// Counts a look at its marks.
    pub(crate) fn looked(&mut self, found: &Standing) {
        self.denials = match found {
            Standing::Unmarked(_) => self.denials.saturating_add(1),
            Standing::Unknown => self.denials,
            Standing::Marked | Standing::Refused(_) => 0,
        };
    }

    /// How often its server has not told which cluster it is, as long as it may tell a moment later.
    pub(crate) fn may_tell(&self) -> Option<u32> {
        passing(self.untold.as_ref().map_or(0, |(_, times)| *times))
    }

    /// How often a look at its marks was denied, as long as that may pass.
    pub(crate) fn may_be_marked(&self) -> Option<u32> {
        passing(self.denials)
    }

    /// Its source is another now. Other credentials lead to the same cluster. Returns as which attempt its client
    /// will be made: one that changes again and again waits as one does that fails.
    pub(crate) fn replace(&mut self, source: Source, now: Moment) -> u32 {
        self.change(now);
        let attempt = self.attempt();
        self.reasons = self.reasons.filter(|_| attempt > 0);
        let before = self.destination;
        self.destination = source.destination();
        self.source = source;
        if self.destination != before {
            self.forget_marks();
            self.flips = Flips::default();
        }
        attempt
    }

    /// Its source changes or goes. Returns when, and how often in a row.
    pub(crate) fn change(&mut self, now: Moment) -> (Moment, u32) {
        let lately = self.changed.filter(|(last, _)| now <= *last + CALM);
        *self.changed.insert((now, lately.map_or(1, |(_, times)| times + 1)))
    }

    /// As which attempt its client is made after these changes.
    pub(crate) fn attempt(&self) -> u32 {
        self.changed.map_or(0, |(_, times)| times.saturating_sub(EDITS))
    }

    /// What was seen of marks may have been another cluster's.
    fn forget_marks(&mut self) {
        (self.standing, self.sightings) = (Standing::default(), Sightings::default());
        self.denials = 0;
    }

    /// Whether the next probe asks which cluster it is.
    pub(crate) fn asks_identity(&mut self) -> bool {
        self.probes = self.probes.wrapping_add(1);
        let is_lasting = self.untold.as_ref().is_some_and(|(_, times)| *times > RECENT);
        !is_lasting || self.probes.is_multiple_of(ASK_EVERY)
    }

    /// Whether it looks at the marks too.
    pub(crate) fn asks_marks(&self) -> bool {
        match &self.standing {
            Standing::Unknown => true,
            Standing::Unmarked(_) if self.denials > RECENT => self.probes.is_multiple_of(ASK_EVERY),
            Standing::Unmarked(_) => true,
            Standing::Marked | Standing::Refused(_) => self.probes.is_multiple_of(LOOK_EVERY),
        }
    }

    /// Another fleet keeps ours away. Returns for how long it is left alone: a server may show another fleet's mark and
    /// take it away again and again.
    pub(crate) fn refused(&mut self, now: Moment) -> Duration {
        let is_new = matches!(self.serving, Serving::Engaged(_));
        let wait = if is_new { self.flips.flipped(now) } else { Duration::ZERO };
        wait.max(PROBE_INTERVAL)
    }

    /// Whether another fleet keeps ours away.
    pub(crate) fn is_refused(&self) -> bool {
        matches!((&self.serving, &self.standing), (Serving::Down(_), Standing::Refused(_)))
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.serving, Serving::Connecting)
    }

    /// As the rest of the manager sees it.
    pub(crate) fn state(&self) -> ClusterState {
        match &self.serving {
            Serving::Connecting => ClusterState::Down(CONNECTING.into()),
            Serving::Engaged(cluster) => ClusterState::Engaged(cluster.clone()),
            Serving::Down(reason) => ClusterState::Down(Arc::clone(reason)),
        }
    }

    /// As people see it.
    pub(crate) fn status(&self, name: &ClusterName) -> ClusterStatus {
        let unanswered = self.finding.as_ref().and_then(|found| found.as_ref().err()).cloned();
        let (state, incarnation, reason) = match &self.serving {
            Serving::Connecting => (State::Connecting, None, Some(CONNECTING.into())),
            Serving::Engaged(cluster) => (State::Engaged, Some(cluster.incarnation), unanswered),
            Serving::Down(reason) => (State::Down, None, Some(Arc::clone(reason))),
        };
        let unmarked = match &self.standing {
            Standing::Unmarked(reason) => Some(Arc::clone(reason)),
            _ => None,
        };
        ClusterStatus {
            name: name.clone(),
            state,
            origin: Arc::clone(&self.source.origin),
            incarnation,
            uid: self.identity().map(|identity| identity.uid.clone()),
            unidentified: self.untold.as_ref().map(|(reason, _)| Arc::clone(reason)),
            unmarked,
            refused: self.is_refused(),
            credential: self.life.as_ref().and_then(|life| *life.borrow()),
            answers: self.finding.as_ref().map(Result::is_ok),
            reason,
        }
    }

    pub(crate) fn stop_making(&mut self) {
        if let Some(task) = self.making.take() {
            task.abort();
        }
    }

    /// Stops its tasks.
    pub(crate) fn stop(&mut self) {
        self.stop_making();
        if let Some(task) = self.probing.take() {
            task.abort();
        }
    }
}

/// The refusals in a row, if there are some and they do not count yet.
fn passing(refusals: u32) -> Option<u32> {
    (1..LASTING).contains(&refusals).then_some(refusals)
}

/// Whether two sets are equal.
pub(crate) fn same(a: &ClusterSet, b: &ClusterSet) -> bool {
    use ClusterState::{Down, Engaged};
    (a.clusters.len(), &a.open, &a.told) == (b.clusters.len(), &b.open, &b.told)
        && a.clusters.iter().zip(&b.clusters).all(|(a, b)| match (a, b) {
            ((a_name, Engaged(a)), (b_name, Engaged(b))) => {
                (a_name, a.incarnation, &a.identity, a.budget)
                    == (b_name, b.incarnation, &b.identity, b.budget)
            }
            ((a_name, Down(a)), (b_name, Down(b))) => a_name == b_name && a == b,
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use kube::config::Kubeconfig;

    use super::*;
    use crate::provider::Access;

    fn source(server: &str, token: &str) -> Source {
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n\
             contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n"
        );
        let access = Access::own(Arc::new(Kubeconfig::from_yaml(&text).unwrap()), "east");
        let (name, origin) = ("east".parse().unwrap(), "east.yaml".into());
        let fingerprint = Fingerprint::of([text.as_bytes()]);
        Source { name, origin, fingerprint, access: Ok(access), asked: None }
    }

    #[test]
    fn a_source_that_leads_to_ever_more_strangers_takes_no_more_for_each() {
        let mut entry = Entry::new(source("https://a", "one"), 0);
        let [own, fleets]: [ClusterUid; 2] = ["own", "fleets"].map(|uid| uid.parse().unwrap());
        for number in 0..10 * MAX_STRANGERS {
            entry.replace(source(&format!("https://s{number}"), "one"), Moment::default());
            entry.identified(own.clone());
            assert!(entry.heed(Some(&fleets)), "it is news");
            let (is_familiar, ..) = entry.right_of(&entry.source);
            assert!(!is_familiar && entry.strangers.len() <= MAX_STRANGERS);
        }
    }

    /// A cluster of which nobody is asked anything.
    fn cluster(name: &ClusterName) -> Cluster {
        let nobody = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("nobody is asked"))
        });
        Cluster::new(name.clone(), kube::Client::new(nobody, "default"), 1)
    }

    #[tokio::test]
    async fn another_fleet_that_comes_and_goes_keeps_ours_away_for_longer_and_longer() {
        let mut entry = Entry::new(source("https://a", "one"), 0);
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let waits = [0, 60, 120, 180, 240].map(|now| {
            entry.engage(cluster(&entry.source.name));
            let wait = entry.refused(at(now));
            entry.serving = Serving::Down("another fleet works there".into());
            assert_eq!(entry.refused(at(now)), PROBE_INTERVAL, "that is no news");
            wait.as_secs()
        });
        assert_eq!(waits, [10, 10, 20, 40, 80]);
    }

    #[tokio::test]
    async fn another_budget_is_news_of_the_same_incarnation() {
        let name: ClusterName = "east".parse().unwrap();
        let mut entry = Entry::new(source("https://a", "one"), 0);
        entry.engage(cluster(&name));
        let set = |entry: &Entry| {
            let clusters = [(name.clone(), entry.state())].into();
            ClusterSet { clusters, ..ClusterSet::default() }
        };
        let before = set(&entry);
        assert!(same(&before, &set(&entry)));
        let budget = Some(Budget { max_objects: 7, ..Budget::default() });
        entry.keep(budget);
        let after = set(&entry);
        assert!(!same(&before, &after));
        let cluster = after.get(&name).unwrap();
        assert_eq!((cluster.incarnation, cluster.budget), (1, budget));
    }

    /// The time for which another fleet's mark has been seen goes on when a token is renewed.
    #[test]
    fn other_credentials_lead_to_the_same_marks_and_another_server_to_none() {
        let mut entry = Entry::new(source("https://a", "one"), 0);
        entry.standing = Standing::Marked;
        entry.replace(source("https://a", "two"), Moment::default());
        assert_eq!(entry.standing, Standing::Marked);
        entry.replace(source("https://b", "two"), Moment::default());
        assert_eq!(entry.standing, Standing::Unknown);
    }

    #[test]
    fn a_source_that_changes_again_and_again_waits_for_longer_and_longer() {
        let mut entry = Entry::new(source("https://a", "one"), 0);
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let mut change = |seconds| entry.replace(source("https://a", "two"), at(seconds));
        let attempts: Vec<_> = (0..14).map(&mut change).collect();
        assert_eq!(attempts, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(change(600), 5);
        assert_eq!(change(600 + CALM.as_secs() + 1), 0);
    }

    #[test]
    fn a_server_with_another_reason_each_time_is_told_of_now_and_then() {
        let mut entry = Entry::new(source("https://a", "one"), 0);
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let told = (0..1_000_u64).filter(|probe| entry.is_news(at(10 * *probe))).count();
        assert_eq!(told, 170, "ten times in ten minutes");
        entry.replace(source("https://a", "two"), at(9_990));
        assert!(entry.is_news(at(9_990)), "somebody is at work on it");
    }

    #[test]
    fn a_source_that_changes_again_and_again_is_told_of_now_and_then() {
        let mut entry = Entry::new(source("https://a", "one"), 0);
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let told = (0..1_000_u64).filter(|second| {
            entry.replace(source("https://a", &second.to_string()), at(*second));
            entry.is_news(at(*second))
        });
        // Each of the first ten edits, and then as of a server: ten times in ten minutes.
        assert_eq!(told.count(), 29);
    }

    #[test]
    fn a_server_that_answers_every_other_time_is_told_of_now_and_then() {
        let mut entry = Entry::new(source("https://a", "one"), 0);
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let found = |probe: u64| -> Finding {
            if probe.is_multiple_of(2) { Err("it does not answer".into()) } else { Ok(()) }
        };
        let told = (0..1_000).filter(|probe| entry.probed(&found(*probe), at(10 * probe)));
        assert_eq!(told.count(), 340, "ten times in ten minutes, and that it answers again");
        assert_eq!(entry.finding, Some(Ok(())));
        assert!(entry.probed(&Err("one".into()), at(20_000)));
        assert!(!entry.probed(&Err("one".into()), at(20_010)), "the same");
        let others: Vec<bool> =
            (2..20).map(|n: u32| entry.probed(&Err(n.to_string().into()), at(20_020))).collect();
        assert_eq!(others.iter().filter(|told| **told).count(), 9);
        assert_eq!(entry.finding, Some(Err("10".into())), "what was told stands");
    }
}
