//! A scenario: how many clusters, replicas and objects, and which changes at which rate.
//!
//! It is read from TOML and validated; all problems are reported at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::climb::{Curve, Goal, MAX_STEPS};
use crate::durations::{duration, seconds};
use crate::faults::{self, Fault};
use crate::growth;
use crate::slo::{Measure, Slo};

/// The most clusters of one run, all on one machine; those that make trouble are some of them.
const MAX_CLUSTERS: u32 = 10_000;
/// The most manager processes of one run at a time. A rolling update has one more for a moment.
const MAX_REPLICAS: u32 = 20;
/// The most objects of one run, and of all flooded clusters together.
const MAX_OBJECTS: u32 = 200_000;
/// The most bytes of padding of all objects together: servers keep them in memory, with their last versions.
const MAX_PADDING: f64 = 4e9;
/// The highest goal, in times what the first number of replicas has.
const MAX_TIMES: f64 = 1_000.0;
/// The most changes per second of one run, of all kinds together.
const MAX_RATE: f64 = 5_000.0;
/// The fewest changes of a rate of a curve, so that its 99th percentile is not that of the slowest.
const MIN_CHANGES: f64 = 200.0;
/// The most changes of one run. The latency of each is kept.
const MAX_CHANGES: f64 = 20e6;
/// The longest name of a scenario.
const MAX_NAME: usize = 63;
/// The keys of a manager's configuration without which it would not be measured: the load test gives them.
const GIVEN: [&str; 6] = ["home", "namespace", "identity", "clusters", "controllers", "admin"];

/// One load test, as written in a scenario file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The scenario's name, used in the report and for the folder of its results: a DNS label.
    pub name: String,
    /// What runs.
    pub fleet: FleetSize,
    /// The objects of the managers' clusters.
    pub objects: Objects,
    /// What changes.
    pub load: Load,
    /// What goes wrong in other clusters: while the load is made a second time, or from the start.
    #[serde(default)]
    pub troubles: Option<Troubles>,
    /// What goes wrong inside the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// The limits that its figures are judged by.
    #[serde(default, skip_serializing_if = "Slo::is_empty")]
    pub slo: Slo,
    /// How `loadtest curves` finds the capacity of so many replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    /// The numbers of replicas with which `loadtest curves` runs all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vary: Option<Vary>,
    /// Bounds of concurrency and time.
    pub limits: Limits,
}

/// What runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FleetSize {
    /// Workload clusters, each an embedded API server.
    pub clusters: u32,
    /// Manager processes.
    pub replicas: u32,
    /// Workers of each controller in each replica.
    pub workers: u32,
    /// Controllers that run beside `tdset`, and find nothing to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// What the managers' configuration says beside, with its keys: `upstream`, `budget` and others.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
}

/// The objects of the managers' clusters.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Objects {
    /// TDSets that exist when the load begins.
    pub count: u32,
    /// Namespaces per cluster.
    pub namespaces: u32,
    /// Bytes of an annotation that each has, so that they are as large as real ones.
    #[serde(default)]
    pub padding: u32,
    /// Whether they exist before the managers start. Then the run measures how soon new managers
    /// have reconciled them.
    #[serde(default)]
    pub existing: bool,
    /// How many objects of each cluster run a Pod, which stays; all others run none. Otherwise each object
    /// runs one and two by turns, which is too many for a real node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<u32>,
}

/// The numbers of replicas with which a scenario is run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// Numbers of replicas. The first is what the others are compared with.
    pub replicas: Vec<u32>,
    /// The share of a core that each replica gets, if not all of it together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// How much memory of the largest replica is little enough: without it, whatever is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// What changes, and for how long.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// How long changes are made.
    #[serde(deserialize_with = "duration", serialize_with = "seconds")]
    pub duration: Duration,
    /// The gaps between changes of one kind.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Spec changes of existing objects per second, over the whole fleet.
    pub updates_per_second: f64,
    /// New objects per second.
    pub creates_per_second: f64,
    /// Deletions per second.
    pub deletes_per_second: f64,
}

/// The gaps between changes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// All the same.
    #[default]
    Even,
    /// Random, as of many users who know nothing of each other: a Poisson process by the seed.
    Poisson,
}

/// Clusters that are not measured and make trouble.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Troubles {
    /// Whether they exist before the managers start. Otherwise the load is made once without them,
    /// and once with them.
    #[serde(default)]
    pub from_start: bool,
    /// Clusters that accept connections and never answer.
    pub dead: u32,
    /// Clusters whose objects change all the time.
    pub flooded: u32,
    /// Objects in each flooded cluster.
    pub flooded_objects: u32,
    /// Changes a second in each flooded cluster.
    pub flood_per_second: f64,
}

/// Bounds of concurrency and time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Concurrent requests while the objects are created.
    pub create_concurrency: u32,
    /// How long all changes may take to converge, at the start and at the end.
    #[serde(deserialize_with = "duration", serialize_with = "seconds")]
    pub settle: Duration,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("read scenario {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not a scenario.
    #[error("parse scenario {path}")]
    Parse {
        /// The file.
        path: String,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// Values are out of bounds.
    #[error("scenario {path} is not runnable:\n  {}", problems.join("\n  "))]
    Invalid {
        /// The file.
        path: String,
        /// One line for each problem.
        problems: Vec<String>,
    },
}

/// The scenario files of a folder, by their names; a file by itself.
///
/// # Errors
/// If the folder cannot be read, or has none.
pub fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files = std::fs::read_dir(path).with_context(|| format!("read {}", path.display()))?;
    let mut files: Vec<PathBuf> =
        files.map(|file| Ok(file?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|kind| kind == "toml"));
    ensure!(!files.is_empty(), "{} has no scenario: no file NAME.toml", path.display());
    files.sort();
    Ok(files)
}

/// Fails if two scenarios have one name.
///
/// # Errors
/// Names it.
pub fn are_distinct<'a>(all: impl IntoIterator<Item = &'a Scenario>) -> anyhow::Result<()> {
    let mut names = BTreeSet::new();
    for Scenario { name, .. } in all {
        ensure!(
            names.insert(name),
            "two scenarios have the name {name}, and one folder for their results: rename one"
        );
    }
    Ok(())
}

impl Scenario {
    /// Reads and validates a scenario file.
    ///
    /// # Errors
    /// See [`ScenarioError`].
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: shown.clone(), source })?;
        let scenario: Self = toml::from_str(&text).map_err(|source| ScenarioError::Parse {
            path: shown.clone(),
            source: Box::new(source),
        })?;
        let problems = scenario.problems();
        if problems.is_empty() {
            Ok(scenario)
        } else {
            Err(ScenarioError::Invalid { path: shown, problems })
        }
    }

    /// The scenario over so many clusters that run already, with so many objects.
    ///
    /// # Errors
    /// Why it cannot be run there.
    pub fn attached(mut self, clusters: usize, objects: Option<u32>) -> Result<Self, Vec<String>> {
        self.fleet.clusters = u32::try_from(clusters).unwrap_or(u32::MAX);
        self.objects.count = objects.unwrap_or(self.objects.count);
        let mut problems = self.problems();
        if self.troubles.is_some() {
            problems.push("troubles: no clusters are added to a fleet that runs".to_owned());
        }
        if self.objects.existing {
            problems.push("objects.existing: the managers run before the objects".to_owned());
        }
        let FleetSize { beside, config, .. } = &self.fleet;
        let given = [("beside", !beside.is_empty()), ("config", !config.is_empty())];
        let given = given.into_iter().filter(|(_, given)| *given);
        problems.extend(given.map(|(key, _)| {
            format!("fleet.{key}: the managers run already, as whoever started them said")
        }));
        problems.extend(self.of_curves());
        for (n, fault) in self.faults.iter().enumerate() {
            if fault.kind != faults::Kind::Kill || fault.back_after.is_some() {
                problems.push(format!(
                    "faults[{n}]: only `kill` is made in a fleet that runs, and without back_after: the kubelet \
                     starts the container again"
                ));
            }
        }
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// Why `loadtest curves` runs it, and nothing else does.
    pub fn of_curves(&self) -> Option<String> {
        let key = match (&self.curve, &self.vary) {
            (Some(_), _) => "curve",
            (None, Some(_)) => "vary",
            (None, None) => return None,
        };
        Some(format!("{key}: says how `loadtest curves` runs it: run that, or remove the key"))
    }

    /// Limits of what this load does not measure, which would fail whatever the managers do.
    fn slo_problems(&self) -> impl Iterator<Item = String> {
        let is_short = self.load.duration < growth::LEAST_LOAD;
        let converging = self.load.updates_per_second + self.load.creates_per_second;
        let changes = converging + self.load.deletes_per_second;
        self.slo.keys().filter_map(move |measure| {
            let lacks = match measure {
                Measure::CalmP99Ms | Measure::FaultP99Ms if self.faults.is_empty() => "faults",
                Measure::ConvergedP50Ms
                | Measure::ConvergedP99Ms
                | Measure::CalmP99Ms
                | Measure::FaultP99Ms
                    if converging <= 0.0 =>
                {
                    "updates or creations in the load"
                }
                Measure::GeneratorLagP99Ms if changes <= 0.0 => "changes in the load",
                Measure::RssGrowthMibPerHour
                | Measure::SeriesGrowthPerHour
                | Measure::TasksGrowthPerHour
                | Measure::OpenFilesGrowthPerHour
                    if is_short =>
                {
                    "a load of ten minutes or more"
                }
                _ => return None,
            };
            let (key, _, _) = measure.words();
            Some(format!("slo.{key}: nothing would be measured: it needs {lacks}"))
        })
    }

    /// Goals of numbers of replicas that are not run, and what nobody would judge or make.
    fn goal_problems(&self) -> Vec<String> {
        let curve = self.curve.as_ref().map(|curve| ("curve", curve.goal, &curve.replicas));
        let vary = self.vary.as_ref().map(|vary| ("vary", vary.goal, &vary.replicas));
        let goals = curve.into_iter().chain(vary).filter_map(|(key, goal, run)| {
            let replicas = goal?.replicas;
            let others = run.get(1..).unwrap_or_default();
            let missing = !others.contains(&replicas) || run.first() == Some(&replicas);
            missing.then(|| {
                format!(
                    "{key}.goal: {replicas} is none of {key}.replicas that the first is compared with"
                )
            })
        });
        let beside = [
            ("slo", !self.slo.is_empty()),
            ("faults", !self.faults.is_empty()),
            ("troubles", self.troubles.is_some()),
            ("vary", self.vary.is_some()),
        ];
        let beside = beside.into_iter().filter(|(_, given)| *given && self.curve.is_some());
        let beside = beside.map(|(key, _)| format!("{key}: means nothing beside curve"));
        goals.chain(beside).collect()
    }

    fn problems(&self) -> Vec<String> {
        let mut bounds = Bounds::default();
        self.of_load(&mut bounds);
        self.of_troubles(&mut bounds);
        for (measure, limit) in &self.slo {
            let key = format!("slo.{}", measure.words().0);
            bounds.within(&key, *limit, 0.0, measure.highest_limit());
        }
        self.of_replicas(&mut bounds);
        let mut problems = bounds.0;
        problems.extend(self.goal_problems());
        problems.extend(self.slo_problems());
        let given = GIVEN.iter().filter(|key| self.fleet.config.contains_key(**key));
        problems.extend(given.map(|key| format!("fleet.config.{key}: the load test gives it")));
        // Those that run a Pod stay as they are.
        let unchanged =
            u64::from(self.objects.pods.unwrap_or_default()) * u64::from(self.fleet.clusters);
        let changes = self.load.updates_per_second + self.load.deletes_per_second;
        if changes > 0.0 && u64::from(self.objects.count) <= unchanged {
            problems.push(format!(
                "objects.count: found {}, and from {} on there are objects to change: objects.pods of each cluster run \
                 a Pod and stay as they are",
                self.objects.count,
                unchanged + 1
            ));
        }
        if !is_label(&self.name) {
            problems.push(format!(
                "name: found {:?}, allowed: 1 to {MAX_NAME} of a-z, 0-9 and -, no - at an end",
                self.name
            ));
        }
        problems.extend(faults::problems(
            &self.faults,
            (self.fleet.clusters, self.fleet.replicas),
            self.load.duration,
            MAX_REPLICAS,
        ));
        problems
    }

    /// The fleet, its objects and how they change.
    fn of_load(&self, bounds: &mut Bounds) {
        let Self { fleet, objects, limits, load, .. } = self;
        let mut within = |key, value, low, high| bounds.within(key, value, low, high);
        within("fleet.clusters", fleet.clusters.into(), 1.0, MAX_CLUSTERS.into());
        within("fleet.replicas", fleet.replicas.into(), 1.0, MAX_REPLICAS.into());
        within("fleet.workers", fleet.workers.into(), 1.0, 256.0);
        within("objects.count", objects.count.into(), 1.0, MAX_OBJECTS.into());
        within("objects.pods", objects.pods.unwrap_or_default().into(), 0.0, MAX_OBJECTS.into());
        within("objects.padding", objects.padding.into(), 0.0, 200_000.0);
        let padding = f64::from(objects.padding) * f64::from(objects.count);
        within("objects.padding (of all objects)", padding, 0.0, MAX_PADDING);
        within("objects.namespaces", objects.namespaces.into(), 1.0, 1_000.0);
        within("limits.create_concurrency", limits.create_concurrency.into(), 1.0, 256.0);
        within("load.updates_per_second", load.updates_per_second, 0.0, MAX_RATE);
        within("load.creates_per_second", load.creates_per_second, 0.0, MAX_RATE);
        within("load.deletes_per_second", load.deletes_per_second, 0.0, MAX_RATE);
        let rate = load.creates_per_second + load.updates_per_second + load.deletes_per_second;
        within("load (changes in all)", rate * load.duration.as_secs_f64(), 0.0, MAX_CHANGES);
        within("load.duration (seconds)", load.duration.as_secs_f64(), 1.0, 86_400.0);
        within("limits.settle (seconds)", limits.settle.as_secs_f64(), 1.0, 86_400.0);
    }

    fn of_troubles(&self, bounds: &mut Bounds) {
        let Some(troubles) = &self.troubles else { return };
        let &Troubles { dead, flooded, flooded_objects, flood_per_second, .. } = troubles;
        let mut within = |key, value, low, high| bounds.within(key, value, low, high);
        within("troubles.dead", dead.into(), 0.0, MAX_CLUSTERS.into());
        within("troubles.flooded", flooded.into(), 0.0, MAX_CLUSTERS.into());
        let clusters = [self.fleet.clusters, dead, flooded].map(f64::from);
        let all = clusters.iter().sum::<f64>();
        within("fleet.clusters, troubles.dead and .flooded", all, 1.0, MAX_CLUSTERS.into());
        within("troubles.flooded_objects", flooded_objects.into(), 1.0, MAX_OBJECTS.into());
        let objects = f64::from(flooded) * f64::from(flooded_objects);
        within("troubles.flooded_objects (of all)", objects, 0.0, MAX_OBJECTS.into());
        within("troubles.flood_per_second", flood_per_second, 0.0, MAX_RATE);
    }

    /// The numbers of replicas that are compared, and how.
    fn of_replicas(&self, bounds: &mut Bounds) {
        let mut within = |key, value, low, high| bounds.within(key, value, low, high);
        if let Some(curve) = &self.curve {
            let Curve { replicas, share, balance, p99_ms, factor, .. } = curve;
            let Curve { resolution, steps, others_cores, .. } = curve;
            let changes = self.load.updates_per_second * self.load.duration.as_secs_f64();
            within("load (updates of a curve's first rate)", changes, MIN_CHANGES, MAX_CHANGES);
            // Its rates are those of updates.
            within("load.creates_per_second (of a curve)", self.load.creates_per_second, 0.0, 0.0);
            within("load.deletes_per_second (of a curve)", self.load.deletes_per_second, 0.0, 0.0);
            within("curve.balance (seconds)", balance.as_secs_f64(), 1.0, 3_600.0);
            within("curve.replicas (how many)", replicas.len() as f64, 1.0, MAX_REPLICAS.into());
            for replicas in replicas {
                within("curve.replicas", (*replicas).into(), 1.0, MAX_REPLICAS.into());
            }
            within("curve.share", *share, 0.05, 1.0);
            within("curve.p99_ms", *p99_ms, 1.0, 60_000.0);
            within("curve.factor", *factor, 1.05, 10.0);
            within("curve.resolution", *resolution, 1.01, *factor);
            within("curve.others_cores", *others_cores, 0.0, 1_000.0);
            within("curve.steps", (*steps).into(), 2.0, MAX_STEPS.into());
        }
        if let Some(Vary { replicas, share, .. }) = &self.vary {
            within("vary.replicas (how many)", replicas.len() as f64, 1.0, MAX_REPLICAS.into());
            for replicas in replicas {
                within("vary.replicas", (*replicas).into(), 1.0, MAX_REPLICAS.into());
            }
            within("vary.share", share.unwrap_or(1.0), 0.05, 1.0);
        }
        let curve = self.curve.as_ref().and_then(|curve| curve.goal);
        let vary = self.vary.as_ref().and_then(|vary| vary.goal);
        for (key, goal) in [("curve.goal.times", curve), ("vary.goal.times", vary)] {
            within(key, goal.map_or(1.0, |goal| goal.times), 0.01, MAX_TIMES);
        }
    }
}

/// What is out of its bounds.
#[derive(Default)]
struct Bounds(Vec<String>);

impl Bounds {
    fn within(&mut self, key: &str, value: f64, low: f64, high: f64) {
        if !(low..=high).contains(&value) {
            self.0.push(format!("{key}: found {value}, allowed {low} to {high}"));
        }
    }
}

/// Whether it is a DNS label, and so the name of a folder and no path.
fn is_label(name: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(known)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests;
