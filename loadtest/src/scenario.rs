//! A scenario: how many clusters, replicas and objects, and which changes at which rate.
//!
//! It is read from TOML and validated; all problems are reported at once.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

/// The most clusters of one run, all on one machine.
const MAX_CLUSTERS: u32 = 1_000;
/// The most manager processes of one run.
const MAX_REPLICAS: u32 = 20;
/// The most objects of one run.
const MAX_OBJECTS: u32 = 200_000;
/// The most changes per second of one run, of all kinds together.
const MAX_RATE: f64 = 5_000.0;

/// One load test, as written in a scenario file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The scenario's name, used in the report.
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
}

/// The objects of the managers' clusters.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Objects {
    /// TDSets that exist when the load begins.
    pub count: u32,
    /// Namespaces per cluster.
    pub namespaces: u32,
    /// Whether they exist before the managers start. Then the run measures how soon new managers
    /// have reconciled them.
    #[serde(default)]
    pub existing: bool,
}

/// What changes, and for how long.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// How long changes are made.
    #[serde(deserialize_with = "duration", serialize_with = "seconds")]
    pub duration: Duration,
    /// Spec changes of existing objects per second, over the whole fleet.
    pub updates_per_second: f64,
    /// New objects per second.
    pub creates_per_second: f64,
    /// Deletions per second.
    pub deletes_per_second: f64,
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

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut within = |key: &str, value: f64, low: f64, high: f64| {
            if !(low..=high).contains(&value) {
                problems.push(format!("{key}: found {value}, allowed {low} to {high}"));
            }
        };
        within("fleet.clusters", self.fleet.clusters.into(), 1.0, MAX_CLUSTERS.into());
        within("fleet.replicas", self.fleet.replicas.into(), 1.0, MAX_REPLICAS.into());
        within("fleet.workers", self.fleet.workers.into(), 1.0, 256.0);
        within("objects.count", self.objects.count.into(), 1.0, MAX_OBJECTS.into());
        within("objects.namespaces", self.objects.namespaces.into(), 1.0, 1_000.0);
        within("limits.create_concurrency", self.limits.create_concurrency.into(), 1.0, 256.0);
        within("load.updates_per_second", self.load.updates_per_second, 0.0, MAX_RATE);
        within("load.creates_per_second", self.load.creates_per_second, 0.0, MAX_RATE);
        within("load.deletes_per_second", self.load.deletes_per_second, 0.0, MAX_RATE);
        within("load.duration (seconds)", self.load.duration.as_secs_f64(), 1.0, 86_400.0);
        within("limits.settle (seconds)", self.limits.settle.as_secs_f64(), 1.0, 86_400.0);
        if let Some(troubles) = &self.troubles {
            let &Troubles { dead, flooded, flooded_objects, flood_per_second, .. } = troubles;
            within("troubles.dead", dead.into(), 0.0, MAX_CLUSTERS.into());
            within("troubles.flooded", flooded.into(), 0.0, MAX_CLUSTERS.into());
            within("troubles.flooded_objects", flooded_objects.into(), 1.0, MAX_OBJECTS.into());
            within("troubles.flood_per_second", flood_per_second, 0.0, MAX_RATE);
        }
        problems
    }
}

/// A duration in jiff's friendly format: `60s`, `2m`, `500ms`.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span: jiff::SignedDuration = text.parse().map_err(|error| {
        serde::de::Error::custom(format!("{text:?} is not a duration like 60s or 2m: {error}"))
    })?;
    Duration::try_from(span).map_err(|_| serde::de::Error::custom(format!("{text:?} is negative")))
}

fn seconds<S: serde::Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}s", value.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Scenario, Box<toml::de::Error>> {
        toml::from_str(text).map_err(Box::new)
    }

    const BASIC: &str = include_str!("../scenarios/basic.toml");

    const FAIRNESS: &str = include_str!("../scenarios/fairness.toml");

    const THOUSAND: &str = include_str!("../scenarios/thousand.toml");

    #[test]
    fn the_scenarios_in_the_repository_are_runnable() {
        let all = [BASIC, FAIRNESS, THOUSAND].map(|text| parse(text).unwrap());
        assert_eq!(all.each_ref().map(Scenario::problems), [const { Vec::<String>::new() }; 3]);
        let [basic, fairness, thousand] = all;
        assert!(basic.objects.count >= 3000 && basic.fleet.clusters >= 5);
        assert!(
            fairness.troubles.is_some_and(|troubles| troubles.dead > 0 && troubles.flooded > 0)
        );
        let dead = thousand.troubles.map_or(0, |troubles| troubles.dead);
        assert!(dead >= 100 && thousand.fleet.clusters + dead >= 1000);
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let text = BASIC
            .replace("clusters = 5 ", "clusters = 0 ")
            .replace("updates_per_second = 40.0", "updates_per_second = -1.0");
        assert_eq!(
            parse(&text).unwrap().problems(),
            [
                "fleet.clusters: found 0, allowed 1 to 1000",
                "load.updates_per_second: found -1, allowed 0 to 5000",
            ]
        );
        let text = FAIRNESS.replace("flood_per_second = 1000.0", "flood_per_second = 1e9");
        assert_eq!(
            parse(&text).unwrap().problems(),
            ["troubles.flood_per_second: found 1000000000, allowed 0 to 5000"]
        );
    }

    #[test]
    fn misspelled_keys_and_durations_are_refused() {
        assert!(parse(&BASIC.replace("replicas", "replica")).is_err());
        let error = parse(&BASIC.replace("\"60s\"", "\"soon\"")).unwrap_err().to_string();
        assert!(error.contains("\"soon\" is not a duration like 60s"), "{error}");
    }
}
