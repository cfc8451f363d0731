//! How an object is deleted: at once, or in stages while finalizers or a grace period keep it.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{deleting, finalizers, meta, set_meta};
use crate::clock;
use crate::kinds::KindInfo;
use crate::status::{ApiError, FieldError};

/// Finalizer of foreground deletion: dependents are deleted first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of orphaning: dependents are released first.
pub const ORPHAN: &str = "orphan";

/// What happens to dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They are kept.
    Orphan,
}

/// `DeleteOptions`, as far as they matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// Seconds until the object may be removed; the kind's default if absent.
    pub grace_period_seconds: Option<i64>,
    /// What must hold of the object for the request to apply.
    pub preconditions: Option<Preconditions>,
    /// The older way to say [`Propagation::Orphan`].
    pub orphan_dependents: Option<bool>,
    /// What happens to dependents.
    pub propagation_policy: Option<String>,
    /// `All`, or empty.
    pub dry_run: Vec<String>,
}

/// What must hold of the object for a delete to apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub resource_version: Option<String>,
}

impl Options {
    /// Checks the options and reads the propagation out of them.
    ///
    /// # Errors
    /// 422 for options that contradict each other or mean nothing.
    pub fn propagation(&self) -> Result<Option<Propagation>, ApiError> {
        let refuse = |error| ApiError::invalid_kind("meta.k8s.io", "DeleteOptions", "", &[error]);
        match (self.propagation_policy.as_deref(), self.orphan_dependents) {
            (Some(policy), Some(_)) => Err(refuse(FieldError::invalid(
                "propagationPolicy",
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            ))),
            (Some("Background"), None) => Ok(Some(Propagation::Background)),
            (Some("Foreground"), None) => Ok(Some(Propagation::Foreground)),
            (Some("Orphan"), None) => Ok(Some(Propagation::Orphan)),
            (Some(other), None) => Err(refuse(FieldError::not_supported(
                "propagationPolicy",
                other,
                &["Background", "Foreground", "Orphan", "nil"],
            ))),
            (None, Some(true)) => Ok(Some(Propagation::Orphan)),
            (None, Some(false)) => Ok(Some(Propagation::Background)),
            (None, None) => Ok(None),
        }
    }
}

/// What a delete does to the stored object.
#[derive(Debug, PartialEq)]
pub enum DeletionStep {
    /// It is removed.
    Remove,
    /// It stays for now, in this form.
    Mark(Value),
    /// It is already being deleted, and nothing changes.
    Wait,
}

/// Decides a delete of `current`.
///
/// # Errors
/// 409 for failed preconditions, 422 for unusable options.
pub fn decide(
    kind: &KindInfo,
    current: &Value,
    options: &Options,
    now: Timestamp,
) -> Result<DeletionStep, ApiError> {
    let propagation = options.propagation()?;
    check_preconditions(kind, current, options.preconditions.as_ref())?;
    let mut next = current.clone();
    set_propagation(&mut next, propagation);
    let grace = grace_period(kind, current, options);
    let held = finalizers(&next).next().is_some() || grace > 0 || held_by_spec(kind, current);
    if !held {
        return Ok(DeletionStep::Remove);
    }
    let first = !deleting(current);
    let shorter =
        current["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|g| grace < g);
    if first || shorter {
        let at = now + Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        set_meta(&mut next, "deletionTimestamp", Some(json!(clock::seconds(at))));
        set_meta(&mut next, "deletionGracePeriodSeconds", Some(json!(grace)));
    }
    if first {
        if let Some(generation) = current["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
            set_meta(&mut next, "generation", Some(json!(generation + 1)));
        }
        if kind.is("", "namespaces") {
            set_meta(&mut next, "deletionGracePeriodSeconds", None);
            next["status"]["phase"] = json!("Terminating");
        }
    }
    Ok(if next == *current { DeletionStep::Wait } else { DeletionStep::Mark(next) })
}

/// Whether an object whose deletion has begun may be removed now.
pub fn finished(kind: &KindInfo, object: &Value) -> bool {
    deleting(object)
        && finalizers(object).next().is_none()
        && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && !held_by_spec(kind, object)
}

/// Kinds whose delete answers with the object rather than with a Status.
pub fn returns_object(kind: &KindInfo) -> bool {
    const KINDS: &[&str] = &[
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
        "storageclasses",
    ];
    let plural = kind.plural.as_str();
    !kind.custom && (kind.group.is_empty() || plural == "storageclasses") && KINDS.contains(&plural)
}

/// The finalizers in its spec keep a namespace too.
fn held_by_spec(kind: &KindInfo, object: &Value) -> bool {
    kind.is("", "namespaces")
        && object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
}

/// Only Pods on a node get a grace period.
fn grace_period(kind: &KindInfo, current: &Value, options: &Options) -> i64 {
    let phase = current["status"]["phase"].as_str().unwrap_or_default();
    let on_a_node = current["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty());
    if !kind.is("", "pods") || !on_a_node || phase == "Succeeded" || phase == "Failed" {
        return 0;
    }
    let default = current["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let already = current["metadata"]["deletionGracePeriodSeconds"].as_i64();
    match options.grace_period_seconds.or(already).unwrap_or(default) {
        // As on a real server: a negative period means one second.
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

fn set_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let mut kept: Vec<Value> =
        finalizers(object).filter(|f| *f != FOREGROUND && *f != ORPHAN).map(Value::from).collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => kept.push(json!(FOREGROUND)),
        Propagation::Orphan => kept.push(json!(ORPHAN)),
    }
    set_meta(object, "finalizers", (!kept.is_empty()).then_some(Value::Array(kept)));
}

/// Checks that an object is the one that a delete is about.
///
/// # Errors
/// 409 if it is not.
pub fn check_preconditions(
    kind: &KindInfo,
    current: &Value,
    preconditions: Option<&Preconditions>,
) -> Result<(), ApiError> {
    let Some(preconditions) = preconditions else { return Ok(()) };
    // The real server puts the kind where the resource belongs, and so do we.
    let refuse = |why: String| {
        let kind = KindInfo { plural: kind.kind.clone(), ..kind.clone() };
        Err(ApiError::conflict_because(&kind, meta(current, "name"), &why))
    };
    let (uid, version) = (meta(current, "uid"), meta(current, "resourceVersion"));
    if let Some(wanted) = preconditions.uid.as_deref().filter(|wanted| *wanted != uid) {
        return refuse(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ));
    }
    if let Some(wanted) =
        preconditions.resource_version.as_deref().filter(|wanted| *wanted != version)
    {
        return refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn kind(plural: &str) -> KindInfo {
        kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap()
    }

    fn object(finalizers: &[&str]) -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "generation": 1, "finalizers": finalizers}})
    }

    fn delete(current: &Value, options: &Options) -> Result<DeletionStep, u16> {
        decide(&kind("configmaps"), current, options, Timestamp::UNIX_EPOCH).map_err(|e| e.code)
    }

    fn policy(policy: &str) -> Options {
        Options { propagation_policy: Some(policy.into()), ..Options::default() }
    }

    #[test]
    fn only_finalizers_hold_an_ordinary_object() {
        assert_eq!(delete(&object(&[]), &Options::default()), Ok(DeletionStep::Remove));
        let Ok(DeletionStep::Mark(marked)) = delete(&object(&["x/y"]), &Options::default()) else {
            panic!("a finalizer holds the object")
        };
        assert_eq!(marked["metadata"]["deletionTimestamp"], "1970-01-01T00:00:00Z");
        assert_eq!(marked["metadata"]["generation"], 2);
        assert_eq!(delete(&marked, &Options::default()), Ok(DeletionStep::Wait));
        assert!(!finished(&kind("configmaps"), &marked));
        let mut freed = marked;
        set_meta(&mut freed, "finalizers", None);
        assert!(finished(&kind("configmaps"), &freed));
    }

    #[test]
    fn propagation_is_a_finalizer() {
        let Ok(DeletionStep::Mark(marked)) = delete(&object(&[]), &policy("Foreground")) else {
            panic!("dependents hold the object")
        };
        assert_eq!(marked["metadata"]["finalizers"], json!([FOREGROUND]));
        assert_eq!(delete(&marked, &policy("Background")), Ok(DeletionStep::Remove));
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let both = Options { orphan_dependents: Some(true), ..policy("Orphan") };
        assert_eq!(delete(&object(&[]), &both), Err(422));
        assert_eq!(delete(&object(&[]), &policy("Sideways")), Err(422));
        for preconditions in [
            Preconditions { uid: Some("v".into()), resource_version: None },
            Preconditions { uid: None, resource_version: Some("4".into()) },
        ] {
            let options = Options { preconditions: Some(preconditions), ..Options::default() };
            assert_eq!(delete(&object(&[]), &options), Err(409));
        }
    }

    #[test]
    fn a_pod_on_a_node_gets_its_grace() {
        let pods = kind("pods");
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 7}});
        let now = Timestamp::UNIX_EPOCH;
        let Ok(DeletionStep::Mark(marked)) = decide(&pods, &pod, &Options::default(), now) else {
            panic!("a running pod is given time")
        };
        assert_eq!(marked["metadata"]["deletionTimestamp"], "1970-01-01T00:00:07Z");
        let force = Options { grace_period_seconds: Some(0), ..Options::default() };
        assert_eq!(decide(&pods, &marked, &force, now), Ok(DeletionStep::Remove));
    }
}
