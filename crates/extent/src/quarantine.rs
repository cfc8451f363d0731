//! Clusters that exceed their budget: nothing is kept of them until a pause is over, and each further pause is
//! longer. Pure but for a lock.
//!
//! Every member that gets such a cluster's shards comes to the same end, one after the other. That costs each
//! of them one budget for a while, and no more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use model::{Budget, ClusterName, Moment, doubled};
use serde::Serialize;

/// The first pause.
pub const FIRST_PAUSE: Duration = Duration::from_secs(15);
/// The longest pause.
pub const MAX_PAUSE: Duration = Duration::from_secs(30 * 60);
/// A cluster that has kept within its budget for so long after a pause begins with the first one again.
pub const FORGIVEN_AFTER: Duration = Duration::from_secs(60 * 60);
/// So many pauses in a row end early if the cluster may have more. Whoever changes its budget more often waits for the
/// end of the later ones: else each change would begin its lists anew.
const EARLY_ENDS: u32 = 3;

/// A cluster that exceeded its budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuarantineStatus {
    /// The cluster.
    pub cluster: ClusterName,
    /// How it exceeds its budget, and what to do.
    pub reason: Arc<str>,
    /// How often in a row.
    pub times: u32,
    /// Seconds until it is tried again; none while it is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_seconds: Option<f64>,
}

/// The clusters that exceeded their budget lately. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Quarantines(Arc<Mutex<BTreeMap<ClusterName, Quarantine>>>);

#[derive(Debug)]
struct Quarantine {
    /// Where the cluster's client leads: of another server nothing is known.
    destination: u64,
    /// What it exceeded.
    budget: Budget,
    reason: Arc<str>,
    word: &'static str,
    times: u32,
    until: Moment,
}

impl Quarantines {
    /// Begins the quarantine of a cluster. Returns its pause, unless it is under quarantine.
    pub fn impose(
        &self,
        cluster: &ClusterName,
        (destination, budget): (u64, Budget),
        (word, reason): (&'static str, Arc<str>),
        now: Moment,
    ) -> Option<Duration> {
        let mut all = self.lock();
        let before = all.get(cluster).filter(|known| known.destination == destination);
        let before = before.filter(|known| now < known.until + FORGIVEN_AFTER);
        if before.is_some_and(|known| now < known.until) {
            return None;
        }
        let times = before.map_or(0, |known| known.times).saturating_add(1);
        let pause = doubled(FIRST_PAUSE, times - 1, MAX_PAUSE);
        let until = now + pause;
        let quarantine = Quarantine { destination, budget, reason, word, times, until };
        all.insert(cluster.clone(), quarantine);
        Some(pause)
    }

    /// Ends the pauses of clusters that may have more than they exceeded, but only the first few in a row. If that is
    /// too little again, the next pause is longer all the same.
    pub fn release(&self, budget_of: impl Fn(&ClusterName) -> Option<Budget>, now: Moment) {
        for (cluster, known) in self.lock().iter_mut() {
            let Some(budget) = budget_of(cluster) else { continue };
            let before = std::mem::replace(&mut known.budget, budget);
            let is_more = budget.max_objects > before.max_objects
                || budget.max_cache_bytes > before.max_cache_bytes
                || budget.max_json_bytes > before.max_json_bytes;
            if is_more && known.times <= EARLY_ENDS {
                known.until = known.until.min(now);
            }
        }
    }

    /// Forgets what is over, and the clusters that are configured no more or lead elsewhere. One that is down
    /// leads nowhere, and stays: else it would have another chance each time it goes down.
    pub fn forget(&self, configured: &BTreeMap<ClusterName, Option<u64>>, now: Moment) {
        self.lock().retain(|cluster, known| {
            let leads_to = configured.get(cluster);
            let stays = leads_to.is_some_and(|to| to.is_none_or(|to| to == known.destination));
            stays && now < known.until + FORGIVEN_AFTER
        });
    }

    /// Whether nothing is kept of a cluster now.
    pub fn holds(&self, cluster: &ClusterName, now: Moment) -> bool {
        self.lock().get(cluster).is_some_and(|known| now < known.until)
    }

    /// When the next pause ends.
    pub fn next_end(&self, now: Moment) -> Option<Moment> {
        self.lock().values().map(|known| known.until).filter(|until| *until > now).min()
    }

    /// How a cluster exceeded its budget lately, also while it is tried again.
    pub fn last_reason(&self, cluster: &ClusterName, now: Moment) -> Option<Arc<str>> {
        let all = self.lock();
        let known = all.get(cluster).filter(|known| now < known.until + FORGIVEN_AFTER)?;
        Some(Arc::clone(&known.reason))
    }

    /// The clusters of which nothing is kept, and why.
    pub fn failing(&self, now: Moment) -> BTreeMap<ClusterName, Arc<str>> {
        let all = self.lock();
        let held = all.iter().filter(|(_, known)| now < known.until);
        held.map(|(cluster, known)| (cluster.clone(), Arc::clone(&known.reason))).collect()
    }

    /// The same with the word for it in metrics.
    pub fn words(&self, now: Moment) -> Vec<(ClusterName, &'static str)> {
        let all = self.lock();
        let held = all.iter().filter(|(_, known)| now < known.until);
        held.map(|(cluster, known)| (cluster.clone(), known.word)).collect()
    }

    /// All that is remembered, ordered by name.
    pub fn status(&self, now: Moment) -> Vec<QuarantineStatus> {
        let all = self.lock();
        let status = |(cluster, known): (&ClusterName, &Quarantine)| QuarantineStatus {
            cluster: cluster.clone(),
            reason: Arc::clone(&known.reason),
            times: known.times,
            retry_seconds: (now < known.until).then(|| now.until(known.until).as_secs_f64()),
        };
        all.iter().map(status).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterName, Quarantine>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn impose(all: &Quarantines, destination: u64, now: u64) -> u64 {
        let reason = ("objects", Arc::from("too many"));
        let exceeded = (destination, Budget::default());
        let pause = all.impose(&"east".parse().unwrap(), exceeded, reason, at(now));
        pause.expect("it is not under quarantine").as_secs()
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_good_conduct_ends_that() {
        let all = Quarantines::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pauses.push(impose(&all, 1, now));
            now += pauses.last().unwrap() + 5;
        }
        assert_eq!(pauses, [15, 30, 60, 120, 240, 480, 960, 1800, 1800]);
        assert_eq!(impose(&all, 2, now), 15, "another server");
        let forgiven = now + 15 + FORGIVEN_AFTER.as_secs();
        assert_eq!(impose(&all, 2, forgiven), 15);
        assert_eq!(impose(&all, 2, forgiven + 15 + FORGIVEN_AFTER.as_secs() - 1), 30);
    }

    #[test]
    fn a_cluster_that_may_have_more_is_tried_at_once_and_its_next_pause_is_longer() {
        let (all, east) = (Quarantines::default(), "east".parse::<ClusterName>().unwrap());
        assert_eq!(impose(&all, 1, 0), 15);
        let with = |max_objects| Some(Budget { max_objects, ..Budget::default() });
        let default = Budget::default().max_objects;
        let budgets = [None, with(default), with(default - 1), with(default)];
        let held = budgets.map(|budget| {
            all.release(|_| budget, at(5));
            all.holds(&east, at(5))
        });
        assert_eq!(held, [true, true, true, false]);
        assert_eq!(impose(&all, 1, 6), 30);
    }

    #[test]
    fn who_lowers_and_raises_a_budget_again_and_again_waits() {
        let (all, east) = (Quarantines::default(), "east".parse::<ClusterName>().unwrap());
        let raised = Budget { max_objects: Budget::default().max_objects + 1, ..Budget::default() };
        let held = [0, 1, 2, 3].map(|now| {
            impose(&all, 1, now);
            all.release(|_| Some(raised), at(now));
            all.holds(&east, at(now))
        });
        assert_eq!(held, [false, false, false, true]);
    }

    #[test]
    fn a_cluster_is_held_until_its_pause_is_over() {
        let (all, east) = (Quarantines::default(), "east".parse::<ClusterName>().unwrap());
        assert!(!all.holds(&east, at(0)));
        assert_eq!(impose(&all, 1, 0), 15);
        assert!(all.holds(&east, at(14)) && !all.holds(&east, at(15)));
        let exceeded = (1, Budget::default());
        assert_eq!(all.impose(&east, exceeded, ("objects", Arc::from("x")), at(14)), None);
        assert_eq!((all.next_end(at(14)), all.next_end(at(15))), (Some(at(15)), None));
        assert_eq!(all.failing(at(14)).len(), 1);
        let forgiven = 15 + FORGIVEN_AFTER.as_secs();
        assert!(all.last_reason(&east, at(forgiven - 1)).is_some());
        assert_eq!(all.last_reason(&east, at(forgiven)), None);
        assert_eq!((all.failing(at(15)).len(), all.words(at(15)).len()), (0, 0));
        assert_eq!(all.status(at(5))[0].retry_seconds, Some(10.0));
        assert_eq!((all.status(at(15))[0].retry_seconds, all.status(at(15))[0].times), (None, 1));
        for leads_to in [Some(1), None] {
            all.forget(&[(east.clone(), leads_to)].into(), at(20));
            assert_eq!(all.status(at(20)).len(), 1, "{leads_to:?}");
        }
        all.forget(&[(east, Some(2))].into(), at(20));
        assert!(all.status(at(20)).is_empty());
    }
}
