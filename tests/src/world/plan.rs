//! What a seed means: how large the world is, and what goes wrong in it when.
//!
//! A plan is data: it can be printed, and faults can be removed one by one without changing the
//! rest.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use model::Purpose;
use sharding::LeaseTimings;

use super::planted::Planted;

/// One second, in the world's microseconds.
pub const SECOND_US: u64 = 1_000_000;
/// How long the world runs before the first fault.
const CALM_S: u64 = 5;
/// When the last fault ends.
const FAULTS_UNTIL_S: u64 = 30;
/// How long the world runs after that.
const QUIET_S: u64 = 45;
/// How long a world with one busy object runs.
const HOT_S: u64 = 300;
/// The most faults in one plan.
const MAX_FAULTS: u64 = 10;

/// Everything about one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides whatever the plan does not say.
    pub seed: u64,
    /// How large the world is.
    pub setup: Setup,
    /// The faults, in the order in which they begin.
    pub faults: Vec<Fault>,
    /// The bug that every process has; no seed has one.
    pub bug: Option<Planted>,
}

/// How large a world is.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Replicas of the manager.
    pub replicas: usize,
    /// How many clusters there are; the first is home.
    pub clusters: usize,
    /// Whether home is a workload cluster too.
    pub home_works: bool,
    /// How many objects the test controller has in each cluster.
    pub sources: usize,
    /// How many `TDSet`s each cluster has; if none, their controller does not run.
    pub sets: usize,
    /// Whether the first object of the test controller in each cluster is the only busy one: it is
    /// reconciled every second.
    pub hot: bool,
    /// The timings of Leases.
    pub lease: LeaseTimings,
    /// Whether clocks run at different rates.
    pub drift: bool,
    /// When the next release comes out, if one does: processes that start later speak the next
    /// version of the protocol too.
    pub update_us: Option<u64>,
    /// When faults end.
    pub heal_us: u64,
    /// When the run ends.
    pub end_us: u64,
}

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins.
    pub from_us: u64,
    /// When it ends.
    pub until_us: u64,
    /// What goes wrong.
    pub kind: Kind,
}

/// What goes wrong. `replica` and `cluster` are numbers.
#[expect(missing_docs, reason = "each variant's text explains its fields")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The process is killed; another is started at the end.
    Crash { replica: usize },
    /// The process is asked to leave; another is started when it has.
    Leave { replica: usize },
    /// All replicas are replaced, one after the other.
    Roll,
    /// Another replica joins for good.
    Join,
    /// The process is drained for maintenance, and taken back into the fleet at the end.
    Drain { replica: usize },
    /// The process is stopped until the end (SIGSTOP, SIGCONT).
    Pause { replica: usize },
    /// Its machine sleeps: its clocks count the time, its timers do not.
    Suspend { replica: usize },
    /// Its machine sleeps until the end, from the moment at which such a check allows an act, the next or
    /// the one after: it acts after waking. What it sent just before lies in its buffers until then, or
    /// has left it.
    Stumble { replica: usize, after: Purpose, skip: u8 },
    /// Its wall clock is set to another time.
    Step { replica: usize, seconds: i64 },
    /// Nothing passes between it and a cluster in these directions. At the end connections break,
    /// or recover and deliver late.
    Cut { replica: usize, cluster: usize, out: bool, back: bool, reset: bool },
    /// Its watches of a cluster get no events. At the end they continue, or break and the server
    /// has forgotten the past.
    Freeze { replica: usize, cluster: usize, gap: bool },
    /// Some requests to a cluster fail, whoever sends them.
    Requests { cluster: usize, percent: u32, how: RequestFault },
    /// A server is down, and comes back with or without its window of past events.
    Restart { cluster: usize, forgets: bool },
    /// The configuration of a cluster changes, and changes back at the end.
    Churn { cluster: usize, how: Churn },
}

/// How requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// They are lost before the server sees them.
    Lost,
    /// They are carried out, and the answer is lost.
    AnswerLost,
    /// They are carried out twice, the second time later.
    Repeated,
    /// They, or their answers, are up to three seconds late.
    Slow,
    /// They are refused with this status.
    Refused(u16),
    /// Lists show a past state.
    Stale,
}

/// How a configuration changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Churn {
    /// The cluster is removed.
    Removed,
    /// Its kubeconfig becomes unusable.
    Unusable,
    /// Its credentials are rotated.
    Rotated,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut setup = Setup::draw(&mut rng);
        let count = rng.u64(0..=MAX_FAULTS);
        let mut faults: Vec<_> = (0..count).map(|_| Fault::draw(&mut rng, &setup)).collect();
        // Last, so that these draws change no other.
        setup.update_us = (rng.u8(0..3) == 0).then(|| rng.u64(0..FAULTS_UNTIL_S * SECOND_US));
        if rng.bool() {
            let kind = Kind::stumble(&mut rng, &setup);
            faults.push(Fault { kind, ..Fault::draw(&mut rng, &setup) });
        }
        faults.sort_by_key(|fault| fault.from_us);
        Self { seed, setup, faults, bug: None }
    }

    /// A plan of a fleet in which one object takes nearly all work, for longer than loads are remembered.
    /// Nothing goes wrong in it, and users change nothing.
    pub fn hot(seed: u64) -> Self {
        let mut plan = Self::of(seed).calm();
        let Setup { home_works, replicas, lease, drift, .. } = plan.setup;
        plan.setup = Setup {
            replicas,
            clusters: 1 + usize::from(!home_works),
            home_works,
            sources: 4,
            sets: 0,
            hot: true,
            lease,
            drift,
            update_us: None,
            heal_us: SECOND_US / 10,
            end_us: HOT_S * SECOND_US,
        };
        plan
    }

    /// The same plan without faults.
    #[must_use]
    pub fn calm(mut self) -> Self {
        self.faults.clear();
        self
    }
}

impl Setup {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        let home_works = rng.bool();
        let workloads = if rng.u8(0..4) == 0 { 2 } else { 1 };
        let quick = LeaseTimings {
            duration: Duration::from_secs(3),
            renew_interval: Duration::from_secs(1),
            margin: Duration::from_millis(300),
        };
        Self {
            replicas: rng.usize(2..=3),
            clusters: workloads + usize::from(!home_works),
            home_works,
            sources: rng.usize(2..=5),
            sets: rng.usize(0..8).saturating_sub(6),
            hot: false,
            lease: if rng.u8(0..5) == 0 { LeaseTimings::default() } else { quick },
            drift: rng.u8(0..4) > 0,
            update_us: None,
            heal_us: FAULTS_UNTIL_S * SECOND_US,
            end_us: (FAULTS_UNTIL_S + QUIET_S) * SECOND_US,
        }
    }

    /// The numbers of the clusters that controllers work on.
    pub fn workloads(&self) -> Range<usize> {
        usize::from(!self.home_works)..self.clusters
    }
}

impl Fault {
    fn draw(rng: &mut fastrand::Rng, setup: &Setup) -> Self {
        let from_us = rng.u64(CALM_S * SECOND_US..(FAULTS_UNTIL_S - 1) * SECOND_US);
        // Most are short; some are much longer than a Lease.
        let longest = if rng.bool() { 3 } else { 15 };
        let lasts_us = rng.u64(SECOND_US / 10..longest * SECOND_US);
        let until_us = (from_us + lasts_us).min(FAULTS_UNTIL_S * SECOND_US);
        Self { from_us, until_us, kind: Kind::draw(rng, setup) }
    }
}

impl Kind {
    fn draw(rng: &mut fastrand::Rng, setup: &Setup) -> Self {
        let replica = rng.usize(0..setup.replicas);
        let cluster = rng.usize(0..setup.clusters);
        match rng.u8(0..21) {
            0 | 1 => Self::Crash { replica },
            2 => Self::Leave { replica },
            3 => Self::Roll,
            4 => Self::Join,
            5..=7 => Self::Pause { replica },
            8 => Self::Suspend { replica },
            9 => Self::Step { replica, seconds: rng.i64(-90_000..90_000) },
            10 | 11 => {
                let (out, back) = [(true, true), (true, false), (false, true)][rng.usize(0..3)];
                Self::Cut { replica, cluster, out, back, reset: rng.bool() }
            }
            12 | 13 => Self::Freeze { replica, cluster, gap: rng.bool() },
            14 | 15 => Self::Restart { cluster, forgets: rng.bool() },
            16 => {
                let how = [Churn::Removed, Churn::Unusable, Churn::Rotated][rng.usize(0..3)];
                Self::Churn { cluster: rng.usize(setup.workloads()), how }
            }
            17 => Self::Drain { replica },
            _ => Self::Requests { cluster, percent: rng.u32(5..60), how: RequestFault::draw(rng) },
        }
    }

    fn stumble(rng: &mut fastrand::Rng, setup: &Setup) -> Self {
        let after = [Purpose::Dispatch, Purpose::Run, Purpose::Write][rng.usize(0..3)];
        Self::Stumble { replica: rng.usize(0..setup.replicas), after, skip: rng.u8(0..2) }
    }
}

impl RequestFault {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(0..9) {
            0 => Self::Lost,
            1 => Self::AnswerLost,
            2 => Self::Repeated,
            3 => Self::Slow,
            4 => Self::Stale,
            n => Self::Refused([429, 410, 500, 503][usize::from(n) - 5]),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { replicas, clusters, home_works, sources, sets, lease, drift, .. } = self.setup;
        let also = if home_works { ", one of them home" } else { "" };
        let (lease, drift) = (lease.duration, if drift { "drifting" } else { "even" });
        writeln!(
            f,
            "seed {}: {replicas} replicas, {clusters} clusters{also}, {sources} sources and {sets} \
             TDSets each, Leases of {lease:?}, {drift} clocks",
            self.seed
        )?;
        if self.setup.hot {
            writeln!(f, "  the first source is busy, and nothing else")?;
        }
        if let Some(update_us) = self.setup.update_us {
            let at_s = Duration::from_micros(update_us).as_secs_f64();
            writeln!(f, "  from {at_s:.3}s on, new processes speak the next version too")?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |us: u64| Duration::from_micros(us).as_secs_f64();
        write!(f, "{:.3}s to {:.3}s: {:?}", s(self.from_us), s(self.until_us), self.kind)
    }
}
