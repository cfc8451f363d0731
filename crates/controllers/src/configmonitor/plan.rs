//! From what is observed to what to restart and what to record. Pure.
//!
//! A restart is recorded in the status first, so that a crash at any point repeats nothing:
//!
//! ```text
//! hash = H0 ──content is H1──▶ pending = {H1, targets} ──restart them──▶ hash = H1, no pending
//!                                   │  after a crash or an error the same is done again. A rollout
//!                                   └─ whose template already has H1, and a Pod whose uid is
//!                                      gone, are not touched twice.
//! ```
//!
//! Each arrow is one write of the status, by resourceVersion. `pending` names uids, so Pods that
//! replace deleted ones are never mistaken for them. Content that changes while a restart is pending
//! is the next change, also when it changes back.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use sdk::condition::{Finding, conditions, whole_seconds};

use super::api::{ConfigMonitor, ConfigMonitorSpec, ConfigMonitorStatus};
use crate::restarts::{Change, MAX_TARGETS, Pending, change, hash};

/// A spec that names no ConfigMap, or two.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSpec {
    /// Neither spelling is given.
    #[error("spec.configMap is missing: name the ConfigMap to watch")]
    Nameless,
    /// Both are given and differ.
    #[error("spec.configMap is {config_map:?} and spec.configmap is {lowercase:?}: give one")]
    Ambiguous {
        /// The value of `configMap`.
        config_map: String,
        /// The value of `configmap`.
        lowercase: String,
    },
}

/// What to do about a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Its spec cannot be acted on.
    Invalid(InvalidSpec),
    /// The ConfigMap is absent.
    Missing {
        /// Its name.
        config_map: String,
    },
    /// The content is the recorded one, or is seen for the first time.
    Current {
        /// The ConfigMap's name.
        config_map: String,
        /// The content to have on record.
        hash: String,
    },
    /// The content changed: restart the Pods that are selected now.
    Restart {
        /// The ConfigMap's name.
        config_map: String,
        /// The content to restart for.
        hash: String,
    },
    /// A restart for this content is recorded and may not be finished.
    Resume(Pending),
}

/// The outcome of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing is restarted.
    Undisturbed(Decision),
    /// A restart is decided and about to be carried out.
    Decided {
        /// The ConfigMap's name.
        config_map: String,
        /// The restart.
        pending: Pending,
    },
    /// The recorded restart is finished.
    Restarted(Pending),
    /// The recorded restart was refused.
    Refused(String),
    /// The selector matches more than [`MAX_TARGETS`] targets.
    TooMany(usize),
}

/// The name of the ConfigMap to watch.
///
/// # Errors
/// [`InvalidSpec`] when there is none, or more than one.
pub(super) fn config_map_name(spec: &ConfigMonitorSpec) -> Result<&str, InvalidSpec> {
    match (&spec.config_map, &spec.config_map_lowercase) {
        (Some(one), Some(other)) if one != other => {
            Err(InvalidSpec::Ambiguous { config_map: one.clone(), lowercase: other.clone() })
        }
        (Some(name), _) | (None, Some(name)) => Ok(name),
        (None, None) => Err(InvalidSpec::Nameless),
    }
}

/// Whether the selector matches these labels.
pub(super) fn selects(spec: &ConfigMonitorSpec, labels: Option<&BTreeMap<String, String>>) -> bool {
    // An empty selector would restart a whole namespace; the schema refuses it, and so do we.
    !spec.pod_selector.is_empty()
        && spec
            .pod_selector
            .iter()
            .all(|(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value)))
}

/// The decision for a monitor and its ConfigMap.
pub(super) fn decide(monitor: &ConfigMonitor, config_map: Option<&ConfigMap>) -> Decision {
    let name = match config_map_name(&monitor.spec) {
        Ok(name) => name.to_owned(),
        Err(invalid) => return Decision::Invalid(invalid),
    };
    let Some(found) = config_map else { return Decision::Missing { config_map: name } };
    let hash = hash(found);
    // A record of another ConfigMap says nothing about this one.
    let record = monitor.status.as_ref().filter(|status| status.config_map.as_ref() == Some(&name));
    let pending = record.and_then(|status| status.pending.as_ref());
    let recorded = record.and_then(|status| status.hash.as_deref());
    match change(recorded, pending, &hash) {
        Change::Resume(pending) => Decision::Resume(pending.clone()),
        Change::None => Decision::Current { config_map: name, hash },
        Change::Restart => Decision::Restart { config_map: name, hash },
    }
}

/// The status after `outcome`, with `selected` Pods.
pub(super) fn status(
    monitor: &ConfigMonitor,
    outcome: &Outcome,
    selected: usize,
    now: Timestamp,
) -> ConfigMonitorStatus {
    let before = monitor.status.clone().unwrap_or_default();
    let findings = findings(monitor, outcome);
    let generation = monitor.metadata.generation;
    let conditions = conditions(findings, &before.conditions, generation, now);
    let mut status = ConfigMonitorStatus {
        observed_generation: generation,
        selected_pods: i32::try_from(selected).unwrap_or(i32::MAX),
        conditions,
        ..before
    };
    match outcome {
        Outcome::Undisturbed(Decision::Current { config_map, hash }) => {
            status.config_map = Some(config_map.clone());
            status.hash = Some(hash.clone());
            status.pending = None;
        }
        Outcome::Decided { config_map, pending } => {
            status.config_map = Some(config_map.clone());
            status.pending = Some(pending.clone());
        }
        Outcome::Restarted(pending) => {
            status.hash = Some(pending.hash.clone());
            status.pending = None;
            if pending.targets() > 0 {
                status.restarts += 1;
                status.last_restart = Some(whole_seconds(now));
            }
        }
        Outcome::Undisturbed(_) | Outcome::Refused(_) | Outcome::TooMany(_) => {}
    }
    status
}

fn findings(monitor: &ConfigMonitor, outcome: &Outcome) -> Vec<Finding> {
    let (ready, reason, message) = match outcome {
        Outcome::Undisturbed(Decision::Invalid(invalid)) => (false, "Invalid", invalid.to_string()),
        Outcome::Undisturbed(Decision::Missing { config_map }) => {
            (false, "ConfigMapMissing", format!("ConfigMap {config_map} does not exist"))
        }
        Outcome::Undisturbed(_) | Outcome::Restarted(_) => {
            let name = config_map_name(&monitor.spec).unwrap_or_default();
            (true, "Watching", format!("Pods restart when ConfigMap {name} changes"))
        }
        Outcome::Decided { pending, .. } => {
            (false, "Restarting", format!("restarting {}", pending.summary()))
        }
        Outcome::Refused(words) => (false, "Rejected", words.clone()),
        Outcome::TooMany(count) => (
            false,
            "TooManyTargets",
            format!("{count} to restart, {MAX_TARGETS} allowed: narrow spec.podSelector"),
        ),
    };
    let invalid = reason == "Invalid";
    vec![
        Finding { type_: "Ready", holds: ready, reason, message: message.clone() },
        Finding {
            type_: "Invalid",
            holds: invalid,
            reason: if invalid { "Invalid" } else { "Valid" },
            message: if invalid { message } else { "the spec can be acted on".to_owned() },
        },
    ]
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
