//! Writes a status only if it changes, and keeps the times of unchanged conditions.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::action::{Action, ObjectRef};

/// The write that turns `current` into `desired`, if they differ. Zero counts are left out, as real
/// controllers leave them out.
pub(crate) fn patch(key: ObjectRef, current: &Value, desired: Value) -> Option<Action> {
    let Value::Object(mut desired) = desired else { return None };
    for name in current.as_object().into_iter().flat_map(|current| current.keys()) {
        desired.entry(name.as_str()).or_insert(Value::Null);
    }
    let changed = desired.iter().any(|(name, value)| {
        let now = current.get(name).unwrap_or(&Value::Null);
        now != value
    });
    changed.then(|| Action::PatchStatus { key, body: json!({ "status": desired }) })
}

/// Whether any of these fields is another one in `current`.
pub(crate) fn differs(current: &Value, told: &Value) -> bool {
    let told = told.as_object().into_iter().flatten();
    told.into_iter().any(|(name, value)| current.get(name).unwrap_or(&Value::Null) != value)
}

/// Drops the named counts where they are zero.
pub(crate) fn omit_zero(status: &mut Value, names: &[&str]) {
    if let Value::Object(status) = status {
        status.retain(|name, value| *value != 0 || !names.contains(&name.as_str()));
    }
}

/// A condition to be reported.
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) status: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: String,
}

/// The condition as JSON: its transition time moves with its status, its update time with its
/// reason.
pub(crate) fn condition(current: Option<&Value>, new: &Condition<'_>, now: Timestamp) -> Value {
    let status = if new.status { "True" } else { "False" };
    let stamp = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let same_status = current.filter(|c| c["status"] == status);
    let same_reason = same_status.filter(|c| c["reason"] == new.reason);
    let time = |from: Option<&Value>, field: &str| {
        from.and_then(|c| c.get(field)).filter(|t| !t.is_null()).cloned().unwrap_or(stamp.clone())
    };
    json!({
        "type": new.kind,
        "status": status,
        "reason": new.reason,
        "message": new.message,
        "lastUpdateTime": time(same_reason, "lastUpdateTime"),
        "lastTransitionTime": time(same_status, "lastTransitionTime"),
    })
}
