//! How the demo ended: the figures, the proof, and whether it was a success. Pure.

use std::fmt;
use std::time::Duration;

use crate::examples::Progress;
use crate::overlap::Evidence;
use crate::track::Latency;
use crate::view::time;

/// From the start of the demo to its first reconcile, at most.
pub(crate) const FIRST_RECONCILE_GOAL: Duration = Duration::from_secs(5);

/// How the demo ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// How long it ran.
    pub ran: Duration,
    /// Clusters, home not counted, and replicas.
    pub clusters: usize,
    /// Replicas.
    pub replicas: usize,
    /// Shards in all.
    pub shards: usize,
    /// How often a shard changed owners.
    pub moves: u64,
    /// Objects in all.
    pub objects: usize,
    /// Of those, the ones that had converged at the end.
    pub converged: usize,
    /// Some that had not, and why.
    pub lagging: Vec<String>,
    /// When the last object converged for the first time.
    pub settled: Option<Duration>,
    /// The results of the examples of further controllers.
    pub examples: Progress,
    /// Changes made.
    pub changes: u64,
    /// Requests of the demo itself that failed.
    pub failed_requests: u64,
    /// From change to converged, of every change.
    pub latency: Option<Latency>,
    /// The same without the changes that a takeover delayed.
    pub undisturbed: Option<Latency>,
    /// Whether the demo ended by itself, so that every object must have converged.
    pub complete: bool,
    /// The replicas that were killed, if any was.
    pub kill: Option<Kill>,
    /// What the journals say; `Err` if they cannot be read.
    pub journals: Option<Result<Evidence, String>>,
    /// From the start to the end of the first reconcile.
    pub first_reconcile: Option<Duration>,
    /// Replicas that did not end when asked and were killed.
    pub stubborn: Vec<String>,
    /// Why the demo ended before its time.
    pub failure: Option<String>,
}

/// Killed replicas and their shards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kill {
    /// The name of each, and how it ended.
    pub replicas: Vec<String>,
    /// Each of their shards: the time without an owner and the next owner, if any.
    pub gaps: Vec<(String, Option<(Duration, String)>)>,
    /// Whether all of them were started again.
    pub restarted: bool,
}

impl Summary {
    /// The reasons why the demo failed; none if it is a success.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self.failure.iter().cloned().collect();
        if self.complete && self.converged < self.objects {
            let missing = self.objects - self.converged;
            failures.push(format!("{missing} of {} objects did not converge", self.objects));
        }
        if self.complete && !self.examples.is_complete() {
            let idle = self.examples.iter().filter(|(_, shown)| shown.is_none());
            let idle: Vec<_> = idle.map(|(controller, _)| controller).collect();
            failures.push(format!("the examples of {} showed no result", idle.join(", ")));
        }
        match &self.journals {
            Some(Ok(evidence)) if evidence.overlaps > 0 => {
                failures.push(format!("{} dispatches of a key overlapped", evidence.overlaps));
            }
            Some(Err(error)) => failures.push(format!("the journals prove nothing: {error}")),
            _ => {}
        }
        let orphans = self.kill.iter().flat_map(|kill| &kill.gaps).filter(|gap| gap.1.is_none());
        match orphans.count() {
            0 => {}
            count => failures.push(format!("{count} shards never got an owner again")),
        }
        failures
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clusters, replicas, objects, converged, changes, .. } = self;
        writeln!(f, "Summary")?;
        writeln!(
            f,
            "  ran              {}: {replicas} replicas, {clusters} clusters and a home cluster",
            seconds(self.ran)
        )?;
        writeln!(f, "  shards           {} changes of owner among {}", self.moves, self.shards)?;
        let settled = self
            .settled
            .map(|at| format!("; each for the first time within {}", seconds(at)))
            .unwrap_or_default();
        writeln!(f, "  converged        {converged} of {objects} objects{settled}")?;
        for lagging in &self.lagging {
            writeln!(f, "    not: {lagging}")?;
        }
        for (controller, shown) in self.examples.iter() {
            writeln!(f, "  {controller:<16} {}", shown.unwrap_or("no result"))?;
        }
        self.first_reconcile(f)?;
        let failed = match self.failed_requests {
            0 => String::new(),
            count => format!(" ({count} requests failed)"),
        };
        writeln!(f, "  changes          {changes} made{failed}")?;
        self.latencies(f)?;
        self.takeover(f)?;
        self.evidence(f)?;
        for replica in &self.stubborn {
            writeln!(f, "  stopped          {replica} did not end in time and was killed")?;
        }
        match self.failures().as_slice() {
            [] => write!(f, "  result           ok"),
            failures => write!(f, "  result           FAILED: {}", failures.join("; ")),
        }
    }
}

impl Summary {
    fn first_reconcile(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.first_reconcile else { return Ok(()) };
        let goal = FIRST_RECONCILE_GOAL.as_secs();
        let late = if first > FIRST_RECONCILE_GOAL { ", missed" } else { "" };
        writeln!(f, "  first reconcile  {} after the start (goal: {goal} s{late})", seconds(first))
    }

    fn latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(all) = self.latency else { return Ok(()) };
        writeln!(f, "  to converged     {}", figures(all))?;
        match self.undisturbed {
            Some(rest) if self.kill.is_some() && rest != all => {
                writeln!(f, "    beside takeover {}", figures(rest))
            }
            _ => Ok(()),
        }
    }

    fn takeover(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kill) = &self.kill else { return Ok(()) };
        let again = if kill.restarted { ", and started again later" } else { "" };
        for replica in &kill.replicas {
            writeln!(f, "  killed           {replica}{again}")?;
        }
        if kill.gaps.is_empty() {
            writeln!(f, "    without a shard")?;
        }
        for (shard, gap) in &kill.gaps {
            match gap {
                Some((gap, owner)) => {
                    writeln!(
                        f,
                        "    {shard} without an owner for {}, then {owner}",
                        seconds(*gap)
                    )?;
                }
                None => writeln!(f, "    {shard} without an owner since then")?,
            }
        }
        Ok(())
    }

    fn evidence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evidence = match &self.journals {
            None => return Ok(()),
            Some(Err(error)) => return writeln!(f, "  journals         {error}"),
            Some(Ok(evidence)) => evidence,
        };
        let Evidence { dispatches, keys, members, overlaps, .. } = evidence;
        let found = match overlaps {
            0 => "no key was dispatched by two members at once".to_owned(),
            count => format!("{count} OVERLAPS"),
        };
        writeln!(
            f,
            "  journals         {found}: {dispatches} dispatches of {keys} keys by {members} members"
        )?;
        evidence.examples.iter().try_for_each(|overlap| writeln!(f, "    {overlap}"))
    }
}

fn figures(latency: Latency) -> String {
    let Latency { count, p50_us, p99_us, max_us } = latency;
    format!(
        "p50 {}, p99 {}, at most {} ({count} changes)",
        time(p50_us),
        time(p99_us),
        time(max_us)
    )
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Summary {
        let latency = |count, max_us| Latency { count, p50_us: 31_000, p99_us: 97_000, max_us };
        Summary {
            ran: Duration::from_secs(40),
            clusters: 3,
            replicas: 3,
            shards: 3,
            moves: 2,
            objects: 1000,
            converged: 1000,
            settled: Some(Duration::from_millis(7_300)),
            changes: 290,
            latency: Some(latency(290, 9_100_000)),
            undisturbed: Some(latency(270, 120_000)),
            complete: true,
            kill: Some(Kill {
                replicas: vec!["replica-1, SIGKILL".to_owned()],
                gaps: vec![(
                    "west/tdset".to_owned(),
                    Some((Duration::from_millis(8_900), "replica-2-ab".to_owned())),
                )],
                restarted: true,
            }),
            journals: Some(Ok(Evidence {
                dispatches: 4000,
                keys: 1000,
                members: 4,
                ..Evidence::default()
            })),
            first_reconcile: Some(Duration::from_millis(2_240)),
            ..Summary::default()
        }
    }

    #[test]
    fn a_success_says_what_was_measured_and_proved() {
        let expect = "\
Summary
  ran              40.0 s: 3 replicas, 3 clusters and a home cluster
  shards           2 changes of owner among 3
  converged        1000 of 1000 objects; each for the first time within 7.3 s
  first reconcile  2.2 s after the start (goal: 5 s)
  changes          290 made
  to converged     p50 31 ms, p99 97 ms, at most 9.10 s (290 changes)
    beside takeover p50 31 ms, p99 97 ms, at most 120 ms (270 changes)
  killed           replica-1, SIGKILL, and started again later
    west/tdset without an owner for 8.9 s, then replica-2-ab
  journals         no key was dispatched by two members at once: 4000 dispatches of 1000 keys by 4 members
  result           ok";
        assert_eq!(good().to_string(), expect);
    }

    #[test]
    fn what_makes_a_failure() {
        let evidence = |overlaps| Evidence { overlaps, ..Evidence::default() };
        type Spoil = fn(&mut Summary);
        let cases: [(Spoil, &str); 6] = [
            (|s| s.converged = 998, "2 of 1000 objects did not converge"),
            (
                |s| {
                    s.converged = 998;
                    s.complete = false;
                },
                "",
            ),
            (|s| s.journals = Some(Err("torn".into())), "the journals prove nothing: torn"),
            (|s| s.failure = Some("replica-0 exited".into()), "replica-0 exited"),
            (
                |s| {
                    if let Some(kill) = &mut s.kill {
                        kill.gaps[0].1 = None;
                    }
                },
                "1 shards never got an owner again",
            ),
            (|s| s.first_reconcile = Some(Duration::from_secs(9)), ""),
        ];
        for (spoil, expect) in cases {
            let mut summary = good();
            spoil(&mut summary);
            assert_eq!(summary.failures().join("; "), expect);
        }
        let overlapped = Summary { journals: Some(Ok(evidence(3))), ..good() };
        assert_eq!(overlapped.failures(), ["3 dispatches of a key overlapped"]);
        assert!(overlapped.to_string().ends_with("FAILED: 3 dispatches of a key overlapped"));
    }
}
