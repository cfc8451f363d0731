//! What a monitor watches, and what its status says. Pure.
//!
//! What is recorded of a restart, and why a crash repeats nothing, is in [`crate::restarts`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sdk::condition::{Finding, conditions};

use super::api::{ConfigMonitor, ConfigMonitorSpec, ConfigMonitorStatus};
use crate::restarts::{ContentKind, ContentRef, MAX_TARGETS, Outcome, Record, Trouble, UNREAD};

/// A spec that names nothing to watch, or two objects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSpec {
    /// Nothing is named.
    #[error("spec.configMap is missing: name the ConfigMap to watch, or a Secret in spec.secret")]
    Nameless,
    /// Both are given and differ.
    #[error("spec.configMap is {config_map:?} and spec.configmap is {lowercase:?}: give one")]
    Ambiguous { config_map: String, lowercase: String },
    /// Both a ConfigMap and a Secret are named.
    #[error("spec.configMap and spec.secret are both given: write a ConfigMonitor for each")]
    Both,
    /// The labels can be those of no Pod.
    #[error("spec.podSelector cannot be used: {0}")]
    Selector(String),
}

/// What a reconcile found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "each reconcile has one")]
pub(super) enum Found {
    /// The spec cannot be acted on.
    Invalid(InvalidSpec),
    /// This object is absent.
    Missing(ContentRef),
    /// Secrets are not watched, but this one should be.
    Unwatched(ContentRef),
    /// The outcome of a step for this object.
    Step(ContentRef, Outcome),
}

/// The ConfigMap or Secret to watch.
///
/// # Errors
/// [`InvalidSpec`] when there is none, or more than one.
pub(super) fn watched(spec: &ConfigMonitorSpec) -> Result<ContentRef, InvalidSpec> {
    let config_map = match (&spec.config_map, &spec.config_map_lowercase) {
        (Some(one), Some(other)) if one != other => {
            let [config_map, lowercase] = [one, other].map(|name| sdk::error::foreign(name));
            return Err(InvalidSpec::Ambiguous { config_map, lowercase });
        }
        (one, other) => one.as_ref().or(other.as_ref()),
    };
    match (config_map, &spec.secret) {
        (Some(_), Some(_)) => Err(InvalidSpec::Both),
        (Some(name), None) => Ok(ContentRef::config_map(name)),
        (None, Some(name)) => Ok(ContentRef::secret(name)),
        (None, None) => Err(InvalidSpec::Nameless),
    }
}

/// Whether the selector matches these labels.
pub(super) fn selects(spec: &ConfigMonitorSpec, labels: Option<&BTreeMap<String, String>>) -> bool {
    // An empty selector would restart a whole namespace; the schema refuses it, and so do we.
    let selector = spec.pod_selector.as_ref().filter(|selector| !selector.is_empty());
    selector.is_some_and(|selector| {
        let has = |(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value));
        selector.iter().all(has)
    })
}

/// The record of a monitor. One of another object says nothing about this one.
pub(super) fn record(monitor: &ConfigMonitor, content: &ContentRef) -> Record {
    let status = monitor.status.clone().unwrap_or_default();
    match [&status.config_map, &status.secret] == names(content).each_ref() {
        true => status.record,
        false => Record { restarts: status.record.restarts, ..Record::default() },
    }
}

/// The names of a ConfigMap and of a Secret, of which one is there.
fn names(content: &ContentRef) -> [Option<String>; 2] {
    let name = Some(content.name.clone());
    match content.kind {
        ContentKind::ConfigMap => [name, None],
        ContentKind::Secret => [None, name],
    }
}

/// The status after what was found, with the record as it then is and `selected` Pods.
pub(super) fn status(
    monitor: &ConfigMonitor,
    found: &Found,
    record: Option<Record>,
    selected: usize,
    now: Timestamp,
) -> ConfigMonitorStatus {
    let before = monitor.status.clone().unwrap_or_default();
    let generation = monitor.metadata.generation;
    let mut conditions = conditions(findings(found), &before.conditions, generation, now);
    let of = [before.config_map.clone(), before.secret.clone()];
    let [config_map, secret] = match found {
        Found::Step(content, _) => names(content),
        _ => of.clone(),
    };
    if !conditions.iter().any(|condition| condition.type_ == RESTARTED) {
        let is_same = [&config_map, &secret] == of.each_ref();
        let is_end = |old: &&Condition| {
            old.type_ == RESTARTED && is_same && ENDS.contains(&old.reason.as_str())
        };
        conditions.extend(before.conditions.iter().filter(is_end).cloned());
    }
    ConfigMonitorStatus {
        observed_generation: generation,
        config_map,
        secret,
        record: record.unwrap_or(before.record),
        selected_pods: i32::try_from(selected).unwrap_or(i32::MAX),
        conditions,
    }
}

/// The condition that tells of the last restart, until the next one. There is none before the first change, nor after a
/// change that was taken back.
const RESTARTED: &str = "Restarted";
/// Its reasons when the restart is over.
const ENDS: [&str; 4] = ["RolledOut", "PodsLeft", "Reverted", UNREAD];

fn findings(found: &Found) -> Vec<Finding> {
    let restarted = |holds, reason, message| Finding { type_: RESTARTED, holds, reason, message };
    let (ready, reason, message, last) = match found {
        Found::Invalid(invalid) => (false, "Invalid", invalid.to_string(), None),
        Found::Missing(content) => {
            let reason = match content.kind {
                ContentKind::ConfigMap => "ConfigMapMissing",
                ContentKind::Secret => "SecretMissing",
            };
            (false, reason, format!("{content} does not exist"), None)
        }
        Found::Unwatched(content) => (false, "SecretsNotWatched", unwatched(content), None),
        Found::Step(content, outcome) => {
            let watching = || format!("Pods restart when {content} changes");
            match outcome {
                Outcome::Current => (true, "Watching", watching(), None),
                Outcome::Restarted(pending, trouble) => {
                    let last = match trouble {
                        Some(Trouble { reason, words }) => restarted(false, *reason, words.clone()),
                        None => restarted(true, "RolledOut", done(&pending.summary())),
                    };
                    (true, "Watching", watching(), Some(last))
                }
                unfinished => {
                    let (reason, message) = words(unfinished);
                    let last = restarted(false, reason, message.clone());
                    (false, reason, message, Some(last))
                }
            }
        }
    };
    let invalid = reason == "Invalid";
    let validity = if invalid { message.clone() } else { "the spec can be acted on".to_owned() };
    let validity = Finding {
        type_: "Invalid",
        holds: invalid,
        reason: if invalid { "Invalid" } else { "Valid" },
        message: validity,
    };
    let ready = Finding { type_: "Ready", holds: ready, reason, message };
    [ready, validity].into_iter().chain(last).collect()
}

fn unwatched(content: &ContentRef) -> String {
    format!(
        "{content} is not watched: the administrator must set controllers.configmonitor.watchSecrets, and give the \
         right to watch Secrets"
    )
}

fn done(summary: &str) -> String {
    match summary {
        "" => "no Pods to restart".to_owned(),
        summary => format!("restarted {summary}"),
    }
}

/// Why a restart is not finished.
fn words(outcome: &Outcome) -> (&'static str, String) {
    match outcome {
        Outcome::Settling => ("Settling", "the content changed, and may change again".to_owned()),
        Outcome::Decided(pending) => ("Restarting", format!("restarting {}", pending.summary())),
        Outcome::Waiting(Trouble { reason, words }) => (reason, words.clone()),
        Outcome::Refused(words) => ("Rejected", words.clone()),
        Outcome::TooMany(count) => (
            "TooManyTargets",
            format!("{count} to restart, {MAX_TARGETS} allowed: name fewer by spec.podSelector"),
        ),
        Outcome::Current | Outcome::Restarted(..) => ("Watching", String::new()),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
