//! Whether a Pod may be evicted: which budgets it has, what they say, and what follows. Pure.
//!
//! A real server reads a budget's status, which the disruption controller writes. This server has
//! no such controller: unless somebody has written the status (it has an `observedGeneration`, or
//! allows disruptions), it counts the Pods itself, by that controller's rules.

use serde_json::{Value, json};

use super::{deleting, meta};
use crate::selector::{LabelSelector, label};
use crate::status::{ApiError, Cause, Details, Reason};

/// The most evictions that a budget's controller may not have noticed yet.
const MAX_DISRUPTED: usize = 2000;
const CAUSE: &str = "DisruptionBudget";
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// What a budget says now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Pods that are Ready.
    pub current: i64,
    /// Pods that must be Ready.
    pub desired: i64,
    /// How many more may be disrupted.
    pub allowed: i64,
    /// Why that could not be found out.
    pub failure: Option<String>,
}

/// Whether an eviction needs no budget: the Pod does not run, or does not run any longer.
pub fn is_free(pod: &Value) -> bool {
    deleting(pod)
        || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"))
}

/// Whether the Pod could still become Ready, so that its version matters.
pub fn may_run(pod: &Value) -> bool {
    !deleting(pod) && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether a Pod is Ready.
pub fn is_ready(pod: &Value) -> bool {
    conditions(&pod["status"]).any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Whether a budget is about a Pod of its namespace.
pub fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    let parsed = LabelSelector::parse(&label::terms(selector).join(","));
    !selector.is_null() && parsed.is_ok_and(|selector| selector.matches(pod))
}

/// Whether somebody writes the budget's status.
pub fn is_controlled(budget: &Value) -> bool {
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    status("observedGeneration") != 0 || status("disruptionsAllowed") != 0
}

/// What the budget's status says.
pub fn written(budget: &Value) -> Health {
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    Health {
        current: status("currentHealthy"),
        desired: status("desiredHealthy"),
        allowed: status("disruptionsAllowed"),
        failure: condition(budget).filter(|(reason, _)| reason == "SyncFailed").map(|(_, why)| why),
    }
}

/// What the disruption controller would write: `scale` is how many Pods the controller of a Pod
/// should have, and who that is.
pub fn counted(
    budget: &Value,
    pods: &[Value],
    scale: impl Fn(&Value) -> Option<(String, i64)>,
) -> Health {
    let current = pods.iter().filter(|pod| !deleting(pod) && is_ready(pod)).count();
    let current = i64::try_from(current).unwrap_or(i64::MAX);
    match wanted(&budget["spec"], pods, scale) {
        Err(why) => Health { current: 0, desired: 0, allowed: 0, failure: Some(why) },
        Ok((expected, desired)) => {
            let allowed = if expected > 0 { (current - desired).max(0) } else { 0 };
            Health { current, desired, allowed, failure: None }
        }
    }
}

/// How many Pods there should be, and how many of them Ready.
fn wanted(
    spec: &Value,
    pods: &[Value],
    scale: impl Fn(&Value) -> Option<(String, i64)>,
) -> Result<(i64, i64), String> {
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !most.is_null() {
        let expected = expected(pods, scale)?;
        return Ok((expected, (expected - share(most, expected)?).max(0)));
    }
    match least {
        Value::Null => Ok((0, 0)),
        Value::Number(_) => Ok((i64::try_from(pods.len()).unwrap_or(i64::MAX), share(least, 0)?)),
        _ => {
            let expected = expected(pods, scale)?;
            Ok((expected, share(least, expected)?))
        }
    }
}

/// The sum of what the controllers of these Pods should have; Pods without one do not count.
fn expected(
    pods: &[Value],
    scale: impl Fn(&Value) -> Option<(String, i64)>,
) -> Result<i64, String> {
    let mut controllers = std::collections::BTreeMap::new();
    for pod in pods.iter().filter(|pod| controller_of(pod).is_some()) {
        let found = scale(pod);
        let missing = || format!("found no controllers for pod {:?}", meta(pod, "name"));
        let (uid, replicas) = found.ok_or_else(missing)?;
        controllers.insert(uid, replicas);
    }
    Ok(controllers.values().fold(0, |sum: i64, replicas| sum.saturating_add(*replicas)))
}

/// The owner reference of an object's controller.
pub fn controller_of(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// A number, or a percentage of `total`, rounded up.
fn share(value: &Value, total: i64) -> Result<i64, String> {
    if let Some(number) = value.as_i64() {
        return Ok(number);
    }
    let text = value.as_str().unwrap_or_default();
    let percent: Option<i64> = text.strip_suffix('%').and_then(|number| number.parse().ok());
    let percent =
        percent.ok_or("invalid value for IntOrString: invalid type: string is not a percentage")?;
    let parts = total.saturating_mul(percent);
    Ok(parts.div_euclid(100) + i64::from(parts.rem_euclid(100) > 0))
}

/// Whether a Pod that is not Ready may go without counting as a disruption.
pub fn spares_unready(budget: &Value, health: &Health) -> bool {
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || health.desired > 0 && health.current >= health.desired
}

/// Checks that a budget allows one more disruption.
///
/// # Errors
/// 429 if it does not, 403 if its status makes no sense.
pub fn check(budget: &Value, health: &Health) -> Result<(), ApiError> {
    let name = meta(budget, "name");
    let observed = budget["status"]["observedGeneration"].as_i64().unwrap_or(0);
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if is_controlled(budget) && observed < generation {
        return Err(unobserved(name));
    }
    if health.allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(nonsense(name, why, why));
    }
    let disrupted = budget["status"]["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
    if disrupted > MAX_DISRUPTED {
        return Err(nonsense(
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if health.allowed > 0 {
        return Ok(());
    }
    Err(refused(exhausted(budget, health)))
}

/// 429 because the budget's status is not of its newest spec, or the Pod has changed meanwhile.
pub fn unobserved(name: &str) -> ApiError {
    refused(format!("The disruption budget {name} is still being processed by the server."))
        .retry_after(10)
}

fn refused(why: String) -> ApiError {
    let cause = Cause { reason: CAUSE.into(), message: why, field: String::new() };
    let details = Details { causes: vec![cause], ..Details::default() };
    let error = ApiError::new(Reason::TooManyRequests, VIOLATES);
    ApiError { details: Some(Box::new(details)), ..error }
}

fn nonsense(name: &str, why: &str, cause: &str) -> ApiError {
    let message =
        format!("The disruption budget {name} does not allow evicting pods currently: {cause}");
    let details = Details {
        name: name.into(),
        group: "policy".into(),
        kind: "poddisruptionbudget".into(),
        causes: vec![Cause { reason: CAUSE.into(), message, field: String::new() }],
        ..Details::default()
    };
    let text = format!("poddisruptionbudget.policy {name:?} is forbidden: {why}");
    ApiError { details: Some(Box::new(details)), ..ApiError::new(Reason::Forbidden, text) }
}

fn exhausted(budget: &Value, health: &Health) -> String {
    let name = meta(budget, "name");
    let Health { current, desired, .. } = health;
    match (&health.failure, condition(budget)) {
        (Some(why), _) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
        ),
        _ if current <= desired => format!(
            "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        ),
        (None, Some((reason, why))) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {why}"
        ),
        (None, None) => {
            format!("The disruption budget {name} does not allow evicting pods currently")
        }
    }
}

/// Reason and message of the condition that no disruption is allowed, if it says why.
fn condition(budget: &Value) -> Option<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions(&budget["status"])
        .find(|c| c["type"] == "DisruptionAllowed")
        .filter(|c| c["status"] == "False" && !text(&c["message"]).is_empty())
        .map(|c| (text(&c["reason"]), text(&c["message"])))
}

/// The budget after one more disruption, of this Pod at this time.
pub fn disrupted(budget: &Value, pod: &str, now: &str) -> Value {
    let mut next = budget.clone();
    let generation = budget["metadata"]["generation"].clone();
    let status = &mut next["status"];
    let left = status["disruptionsAllowed"].as_i64().unwrap_or(0).saturating_sub(1);
    status["disruptionsAllowed"] = json!(left);
    if !status["disruptedPods"].is_object() {
        status["disruptedPods"] = json!({});
    }
    status["disruptedPods"][pod] = json!(now);
    if left == 0 {
        let exhausted = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
            "message": "", "lastTransitionTime": now, "observedGeneration": generation,
        });
        set_condition(status, exhausted);
    }
    next
}

/// The Pod with the condition that tells why it ends.
pub fn marked(pod: &Value, now: &str) -> Value {
    let mut next = pod.clone();
    let target = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": now,
    });
    set_condition(&mut next["status"], target);
    next
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    status["conditions"].as_array().into_iter().flatten()
}

/// Sets a condition; its time stays if its status does.
fn set_condition(status: &mut Value, mut condition: Value) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(all) = status["conditions"].as_array_mut() else { return };
    match all.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(present) => {
            if present["status"] == condition["status"] {
                condition["lastTransitionTime"] = present["lastTransitionTime"].clone();
            }
            *present = condition;
        }
        None => all.push(condition),
    }
}

#[cfg(test)]
mod tests;
