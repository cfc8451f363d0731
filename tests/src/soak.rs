//! Runs many seeds on all processors, and reduces the faults of what fails.
#![expect(clippy::disallowed_methods, reason = "a soak measures real time")]

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::oracle::{self, Violation};
use crate::world;
use crate::world::plan::Plan;

/// The number of failures after which a soak ends.
const MAX_FAILURES: usize = 5;
/// After so many seeds it says how far it is.
const TOLD_EVERY: u64 = 1_000;

/// A plan that fails.
#[derive(Debug)]
pub struct Failure {
    /// The plan, with as few faults as are enough for it to fail.
    pub plan: Plan,
    /// How many faults it had.
    pub faults: usize,
    /// The rules that were broken.
    pub violations: Vec<Violation>,
}

/// How a soak went.
#[derive(Debug, Default)]
pub struct SoakReport {
    /// Seeds that were run.
    pub seeds: u64,
    /// Virtual time in all worlds.
    pub survived: Duration,
    /// Real time.
    pub took: Duration,
    /// What failed, in order of the seeds.
    pub failures: Vec<Failure>,
}

/// Runs a plan and checks it. A panic in any code is a failure too.
pub fn attempt(plan: &Plan) -> Vec<Violation> {
    let attempt = || oracle::check(&world::run(plan.clone()));
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| {
        let text = "the world panicked, see above".to_owned();
        vec![Violation { rule: "panic", at_us: 0, text }]
    })
}

/// Removes faults from a failing plan, one at a time, as long as it breaks the same rule.
pub fn minimised(mut plan: Plan, violations: Vec<Violation>) -> Failure {
    let faults = plan.faults.len();
    let mut violations = violations;
    let rule = violations.first().map(|violation| violation.rule);
    let mut index = 0;
    while index < plan.faults.len() {
        let mut smaller = plan.clone();
        smaller.faults.remove(index);
        let found = attempt(&smaller);
        if found.iter().any(|violation| Some(violation.rule) == rule) {
            (plan, violations) = (smaller, found);
        } else {
            index += 1;
        }
    }
    Failure { plan, faults, violations }
}

/// Runs all these seeds, or as many as fit into the limit.
pub fn soak(seeds: Range<u64>, limit: Option<Duration>) -> SoakReport {
    let began = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let report = Mutex::new(SoakReport::default());
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let over = limit.is_some_and(|limit| began.elapsed() > limit);
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if over || seed >= seeds.end || !one(seed, &report) {
                        return;
                    }
                }
            });
        }
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = began.elapsed();
    report.failures.sort_by_key(|failure| failure.plan.seed);
    report
}

/// Runs one seed. Returns whether to continue.
fn one(seed: u64, report: &Mutex<SoakReport>) -> bool {
    let plan = Plan::of(seed);
    let survived = Duration::from_micros(plan.setup.end_us);
    let violations = attempt(&plan);
    let failure = (!violations.is_empty()).then(|| minimised(plan, violations));
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
    report.seeds += 1;
    report.survived += survived;
    report.failures.extend(failure);
    if report.seeds.is_multiple_of(TOLD_EVERY) {
        eprintln!("{} seeds, {} failed", report.seeds, report.failures.len());
    }
    report.failures.len() < MAX_FAILURES
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, faults, violations } = self;
        writeln!(f, "it fails with {} of {faults} faults:", plan.faults.len())?;
        write!(f, "{plan}")?;
        violations.iter().take(5).try_for_each(|violation| writeln!(f, "  ! {violation}"))
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        let Self { seeds, survived, took, failures } = self;
        let rate = *seeds as f64 / took.as_secs_f64();
        let hours = survived.as_secs_f64() / 3_600.0;
        write!(
            f,
            "{seeds} seeds in {:.1}s ({rate:.1} seeds/s), {hours:.1} virtual hours, {} failed",
            took.as_secs_f64(),
            failures.len()
        )
    }
}
