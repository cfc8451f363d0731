//! Compares what the clusters show with what was asked for: which objects have converged, and how long
//! each change took. Measured from outside, by watches of the clusters only.
//!
//! Pure: it gets what watches deliver and the changes made; `now` is an argument. One task owns it.
//!
//! A TDSet has converged when its status says so for the newest spec *and* its Deployment has the
//! desired image and the replicas of this hour. A ConfigMonitor has converged when its status says so
//! *and* its Deployment was rolled out after the ConfigMap changed.

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;
use jiff::Timestamp;
use model::{ClusterName, Moment, ObjectKey};

use crate::generate::{Change, Kind, Planned, Target, Want};

/// Latencies are kept in microseconds, from 1 us to 10 minutes, to three digits.
const LONGEST_US: u64 = 600_000_000;
const DIGITS: u8 = 3;

/// What a watch delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A TDSet or ConfigMonitor.
    Object(Target, ObjectState),
    /// A Deployment.
    Deployment(ObjectKey, DeploymentState),
    /// A TDSet or ConfigMonitor was deleted.
    ObjectGone(Target),
    /// A Deployment was deleted.
    DeploymentGone(ObjectKey),
}

/// A TDSet or ConfigMonitor as its cluster shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectState {
    /// The number of the last change that is in it.
    pub change: u64,
    /// Whether its status describes its present spec and calls it ready.
    pub ready: bool,
}

/// A Deployment as its cluster shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeploymentState {
    /// The generation of its spec.
    pub generation: i64,
    /// Desired replicas.
    pub replicas: i64,
    /// Ready replicas of the present spec.
    pub ready: i64,
    /// The image of its first container.
    pub image: String,
}

/// The state of all objects of the demo.
#[derive(Debug)]
pub(crate) struct Tracker {
    objects: BTreeMap<Target, Tracked>,
    deployments: BTreeMap<ObjectKey, DeploymentState>,
    converged: BTreeSet<Target>,
    /// Objects that have not converged yet.
    fresh: BTreeSet<Target>,
    changes: u64,
    settled_at: Option<Moment>,
    all: Histogram<u64>,
    undisturbed: Histogram<u64>,
    disturbance: Disturbance,
}

#[derive(Debug)]
struct Tracked {
    want: Want,
    /// The Deployment that shows the outcome.
    deployment: ObjectKey,
    seen: Option<ObjectState>,
    changes: u64,
    /// When the change that has not converged yet was sent.
    pending_since: Option<Moment>,
    /// A ConfigMonitor's Deployment must have gone beyond this generation.
    beyond_generation: i64,
}

/// Clusters whose shards have no owner for a while: their latencies are counted apart.
#[derive(Clone, Debug, Default)]
struct Disturbance {
    clusters: BTreeSet<ClusterName>,
    from: Option<Moment>,
    until: Option<Moment>,
}

/// How long changes took to converge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latency {
    /// Changes measured.
    pub count: u64,
    /// Half of them took at most this long, in microseconds.
    pub p50_us: u64,
    /// All but one in a hundred took at most this long, in microseconds.
    pub p99_us: u64,
    /// The longest, in microseconds.
    pub max_us: u64,
}

impl Tracker {
    /// Tracks these objects, none of which exists yet.
    pub(crate) fn new(planned: &[Planned]) -> Self {
        let tracked = |planned: &Planned| {
            let key = &planned.target.key;
            let deployment = match &planned.want {
                Want::TdSet { .. } => key.clone(),
                Want::ConfigMonitor { deployment, .. } => {
                    ObjectKey::new(key.cluster.clone(), key.namespace.as_deref(), deployment)
                }
            };
            let tracked = Tracked {
                want: planned.want.clone(),
                deployment,
                seen: None,
                changes: 0,
                pending_since: None,
                beyond_generation: 0,
            };
            (planned.target.clone(), tracked)
        };
        let histogram = || {
            Histogram::new_with_max(LONGEST_US, DIGITS).expect("three digits below ten minutes fit")
        };
        Self {
            objects: planned.iter().map(tracked).collect(),
            deployments: BTreeMap::new(),
            converged: BTreeSet::new(),
            fresh: planned.iter().map(|planned| planned.target.clone()).collect(),
            changes: 0,
            settled_at: None,
            all: histogram(),
            undisturbed: histogram(),
            disturbance: Disturbance::default(),
        }
    }

    /// Takes in what a watch delivered.
    pub(crate) fn apply(&mut self, seen: Seen, now: Moment, wall: Timestamp) {
        match seen {
            Seen::Object(target, state) => {
                if let Some(tracked) = self.objects.get_mut(&target) {
                    tracked.seen = Some(state);
                    self.check(&target, now, wall);
                }
            }
            Seen::ObjectGone(target) => {
                if let Some(tracked) = self.objects.get_mut(&target) {
                    tracked.seen = None;
                    self.check(&target, now, wall);
                }
            }
            Seen::Deployment(key, state) => {
                self.deployments.insert(key.clone(), state);
                self.check_users(&key, now, wall);
            }
            Seen::DeploymentGone(key) => {
                self.deployments.remove(&key);
                self.check_users(&key, now, wall);
            }
        }
    }

    /// The next object to change: a random one that has converged.
    pub(crate) fn pick(&self, rng: &mut fastrand::Rng) -> Option<(Target, Want, u64)> {
        let nth = rng.usize(0..self.converged.len().max(1));
        let target = self.converged.iter().nth(nth)?;
        let tracked = self.objects.get(target)?;
        Some((target.clone(), tracked.want.clone(), tracked.changes + 1))
    }

    /// Notes a change that is about to be sent.
    pub(crate) fn sent(&mut self, change: &Change, now: Moment) {
        let Some(tracked) = self.objects.get_mut(&change.target) else { return };
        let deployment = self.deployments.get(&tracked.deployment);
        tracked.beyond_generation = deployment.map_or(0, |deployment| deployment.generation);
        tracked.want = change.want.clone();
        tracked.changes = change.number;
        tracked.pending_since = Some(now);
        self.converged.remove(&change.target);
        self.changes += 1;
    }

    /// Checks every object again: at the turn of an hour the desired replicas change without an event.
    pub(crate) fn check_all(&mut self, now: Moment, wall: Timestamp) {
        let targets: Vec<_> = self.objects.keys().cloned().collect();
        targets.iter().for_each(|target| self.check(target, now, wall));
    }

    /// Notes that the shards of these clusters have no owner since `from`: objects that converge late
    /// there were delayed by the takeover.
    pub(crate) fn disturbed(&mut self, clusters: BTreeSet<ClusterName>, from: Moment) {
        self.disturbance = Disturbance { clusters, from: Some(from), until: None };
    }

    /// Every shard has its owner again.
    pub(crate) fn undisturbed_again(&mut self, until: Moment) {
        self.disturbance.until.get_or_insert(until);
    }

    /// Objects that have converged.
    pub(crate) fn converged(&self) -> usize {
        self.converged.len()
    }

    /// Objects in all.
    pub(crate) fn total(&self) -> usize {
        self.objects.len()
    }

    /// Changes made so far, the creation of objects not counted.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// When the last object converged for the first time.
    pub(crate) fn settled_at(&self) -> Option<Moment> {
        self.settled_at
    }

    /// From change to convergence: of every change, and of those that no takeover delayed.
    pub(crate) fn latency(&self) -> (Option<Latency>, Option<Latency>) {
        (Latency::of(&self.all), Latency::of(&self.undisturbed))
    }

    /// Up to `limit` objects that have not converged, and why.
    pub(crate) fn lagging(&self, limit: usize, wall: Timestamp) -> Vec<String> {
        let lagging = self.objects.iter().filter(|(target, _)| !self.converged.contains(*target));
        lagging
            .take(limit)
            .map(|(target, tracked)| {
                let why = self.missing(tracked, wall).unwrap_or("not checked yet");
                format!("{} {}: {why}", target.kind.name(), target.key)
            })
            .collect()
    }

    /// Checks the objects whose result a Deployment shows: the TDSet of its name, and monitors.
    fn check_users(&mut self, deployment: &ObjectKey, now: Moment, wall: Timestamp) {
        let users: Vec<Target> = match self
            .objects
            .get_key_value(&Target { kind: Kind::TdSet, key: deployment.clone() })
        {
            Some((target, _)) => vec![target.clone()],
            None => self
                .objects
                .range(monitors_from(deployment)..)
                .take_while(|(target, _)| target.key.cluster == deployment.cluster)
                .filter(|(_, tracked)| tracked.deployment == *deployment)
                .map(|(target, _)| target.clone())
                .collect(),
        };
        users.iter().for_each(|target| self.check(target, now, wall));
    }

    fn check(&mut self, target: &Target, now: Moment, wall: Timestamp) {
        let Some(tracked) = self.objects.get(target) else { return };
        if self.missing(tracked, wall).is_some() {
            self.converged.remove(target);
            return;
        }
        self.converged.insert(target.clone());
        let since = self.objects.get_mut(target).and_then(|tracked| tracked.pending_since.take());
        if let Some(since) = since {
            self.measure(target, since, now);
        }
        if self.fresh.remove(target) && self.fresh.is_empty() {
            self.settled_at = Some(now);
        }
    }

    fn measure(&mut self, target: &Target, since: Moment, now: Moment) {
        let took_us = u64::try_from(now.since(since).as_micros()).unwrap_or(LONGEST_US);
        self.all.saturating_record(took_us.max(1));
        if !self.disturbance.delays(&target.key.cluster, since, now) {
            self.undisturbed.saturating_record(took_us.max(1));
        }
    }

    /// Why an object has not converged yet.
    fn missing(&self, tracked: &Tracked, wall: Timestamp) -> Option<&'static str> {
        let Some(seen) = &tracked.seen else { return Some("not seen in its cluster") };
        if !seen.ready {
            return Some("its status does not call its present spec ready");
        }
        let Some(deployment) = self.deployments.get(&tracked.deployment) else {
            return Some("no Deployment");
        };
        match &tracked.want {
            Want::TdSet { .. } if seen.change < tracked.changes => {
                Some("the last change has not been seen")
            }
            Want::TdSet { image, .. } if deployment.image != *image => {
                Some("its Deployment has another image")
            }
            Want::TdSet { schedule, .. } if deployment.replicas != schedule.replicas(wall) => {
                Some("its Deployment has other replicas than the schedule asks for")
            }
            Want::ConfigMonitor { .. } if deployment.generation <= tracked.beyond_generation => {
                Some("its Deployment was not rolled out since the ConfigMap changed")
            }
            _ if deployment.ready < deployment.replicas => Some("its Pods are not ready"),
            _ => None,
        }
    }
}

/// The first key a ConfigMonitor of that cluster can have.
fn monitors_from(deployment: &ObjectKey) -> Target {
    Target { kind: Kind::ConfigMonitor, key: ObjectKey::new(deployment.cluster.clone(), None, "") }
}

impl Disturbance {
    fn delays(&self, cluster: &ClusterName, since: Moment, now: Moment) -> bool {
        self.clusters.contains(cluster)
            && self.from.is_some_and(|from| from <= now)
            && self.until.is_none_or(|until| since <= until)
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            p50_us: histogram.value_at_quantile(0.5),
            p99_us: histogram.value_at_quantile(0.99),
            max_us: histogram.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fastrand::Rng;

    use super::*;
    use crate::generate::{change, objects};

    const WALL: Timestamp = Timestamp::UNIX_EPOCH;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    /// The two examples: at midnight the TDSet runs 3 replicas by default.
    fn examples() -> (Tracker, Target, Target) {
        let clusters = ["east", "west"].map(|name| name.parse().unwrap());
        let planned = objects(2, &clusters, &mut Rng::with_seed(1));
        let [tdset, monitor] = [0, 1].map(|index: usize| planned[index].target.clone());
        (Tracker::new(&planned), tdset, monitor)
    }

    fn deployment(generation: i64, replicas: i64, ready: i64, image: &str) -> DeploymentState {
        DeploymentState { generation, replicas, ready, image: image.to_owned() }
    }

    fn object(change: u64, ready: bool) -> ObjectState {
        ObjectState { change, ready }
    }

    #[test]
    fn a_tdset_converges_when_status_image_replicas_and_pods_agree() {
        let (mut tracker, tdset, _) = examples();
        let image = "crccheck/hello-world";
        for (state, shown, why) in [
            (None, None, "not seen in its cluster"),
            (Some(object(0, false)), None, "its status does not call its present spec ready"),
            (Some(object(0, true)), None, "no Deployment"),
            (
                Some(object(0, true)),
                Some(deployment(1, 3, 3, "other")),
                "its Deployment has another image",
            ),
            (
                Some(object(0, true)),
                Some(deployment(1, 5, 5, image)),
                "its Deployment has other replicas than the schedule asks for",
            ),
            (Some(object(0, true)), Some(deployment(1, 3, 2, image)), "its Pods are not ready"),
        ] {
            if let Some(state) = state {
                tracker.apply(Seen::Object(tdset.clone(), state), at(1), WALL);
            }
            if let Some(shown) = shown {
                tracker.apply(Seen::Deployment(tdset.key.clone(), shown), at(1), WALL);
            }
            let told = tracker.lagging(9, WALL);
            assert_eq!(told[0], format!("TDSet east/temp/tdset-hello-world: {why}"));
        }
        let last = Seen::Deployment(tdset.key.clone(), deployment(1, 3, 3, image));
        tracker.apply(last, at(1), WALL);
        assert_eq!((tracker.converged(), tracker.total()), (1, 2));
        assert_eq!(tracker.settled_at(), None);

        let nine: Timestamp = "1970-01-01T09:00:00Z".parse().unwrap();
        tracker.check_all(at(2), nine);
        assert_eq!(tracker.converged(), 0, "at nine it should run 5");
    }

    #[test]
    fn a_monitor_converges_when_its_deployment_was_rolled_out() {
        let (mut tracker, _, monitor) = examples();
        let frontend = ObjectKey::new("west".parse().unwrap(), Some("default"), "frontend");
        let shown =
            |generation| Seen::Deployment(frontend.clone(), deployment(generation, 1, 1, "flask"));
        tracker.apply(Seen::Object(monitor.clone(), object(0, true)), at(1), WALL);
        tracker.apply(shown(4), at(2), WALL);
        assert_eq!(tracker.converged(), 1);

        let (target, want, number) = tracker.pick(&mut Rng::with_seed(1)).unwrap();
        assert_eq!((&target, number), (&monitor, 1));
        let change = change(&target, &want, number, &mut Rng::with_seed(1));
        tracker.sent(&change, at(100));
        tracker.apply(shown(4), at(110), WALL);
        assert_eq!(tracker.converged(), 0, "the old rollout does not count");
        tracker.apply(shown(5), at(130), WALL);
        assert_eq!((tracker.converged(), tracker.changes()), (1, 1));
        let (all, _) = tracker.latency();
        assert_eq!(all.map(|l| (l.count, l.max_us / 100)), Some((1, 300)));
    }

    #[test]
    fn a_change_counts_from_its_sending_to_the_first_sight_of_its_outcome() {
        let (mut tracker, tdset, _) = examples();
        let Want::TdSet { image, .. } = &tracker.objects[&tdset].want else { panic!() };
        let image = image.clone();
        tracker.apply(Seen::Object(tdset.clone(), object(0, true)), at(0), WALL);
        let shown = |image: &str, replicas| {
            Seen::Deployment(tdset.key.clone(), deployment(1, replicas, replicas, image))
        };
        tracker.apply(shown(&image, 3), at(0), WALL);
        assert_eq!(tracker.converged(), 1);

        let (target, want, number) = tracker.pick(&mut Rng::with_seed(1)).unwrap();
        let change = change(&target, &want, number, &mut Rng::with_seed(1));
        let Want::TdSet { image, schedule } = &change.want else { panic!() };
        tracker.sent(&change, at(10));
        // What was seen before the change arrived still looks converged, and is not.
        tracker.apply(shown(image, schedule.replicas(WALL)), at(20), WALL);
        assert_eq!(tracker.converged(), 0);
        tracker.apply(Seen::Object(tdset.clone(), object(1, false)), at(30), WALL);
        tracker.apply(Seen::Object(tdset.clone(), object(1, true)), at(60), WALL);
        tracker.apply(Seen::Object(tdset.clone(), object(1, true)), at(90), WALL);
        let (all, undisturbed) = tracker.latency();
        assert_eq!(all, undisturbed);
        assert_eq!(all.map(|l| (l.count, l.p50_us / 100)), Some((1, 500)));
    }

    #[test]
    fn what_a_takeover_delays_is_kept_apart() {
        let east: ClusterName = "east".parse().unwrap();
        let disturbance = Disturbance {
            clusters: [east.clone()].into(),
            from: Some(at(100)),
            until: Some(at(200)),
        };
        for (since, now, expect) in [
            (10, 90, false),
            (90, 110, true),
            (150, 210, true),
            (200, 230, true),
            (201, 230, false),
        ] {
            assert_eq!(disturbance.delays(&east, at(since), at(now)), expect, "{since} {now}");
        }
        assert!(!disturbance.delays(&"west".parse().unwrap(), at(90), at(110)));
        assert!(!Disturbance::default().delays(&east, at(90), at(110)));
    }
}
