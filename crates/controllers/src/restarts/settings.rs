//! What the administrator says to the controllers that restart: whether they may watch Secrets. Pure.

use k8s_openapi::api::rbac::v1::PolicyRule;
use sdk::rbac::rule;
use serde_json::Value;

/// The key that says so.
pub(crate) const WATCH_SECRETS: &str = "watchSecrets";
/// The keys of such a section of the configuration that are its own.
pub(crate) const KEYS: &[&str] = &[WATCH_SECRETS];

/// Checks what the section has under those keys.
///
/// # Errors
/// What is wrong.
pub(crate) fn check(settings: &Value) -> Result<(), String> {
    match settings.get(WATCH_SECRETS) {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(other) => Err(format!("{WATCH_SECRETS} is {other}: write true or false")),
    }
}

/// Whether Secrets are watched. They are not unless somebody says so: the right to watch them is the right to
/// read them all.
pub(crate) fn watches_secrets(settings: &Value) -> bool {
    settings[WATCH_SECRETS] == true
}

/// The rights to restart what rolls Pods out, with these verbs, or to evict Pods.
pub(crate) fn restarting(verbs: &[&str]) -> Vec<PolicyRule> {
    vec![
        rule("", &["pods/eviction"], &["create"]),
        rule("apps", &["replicasets"], &["get"]),
        // Searched for what changed, restarted, and read until they are.
        rule("apps", &["daemonsets", "deployments", "statefulsets"], verbs),
        rule("argoproj.io", &["rollouts"], verbs),
        sdk::rbac::events(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_watched_only_if_somebody_says_so() {
        for (settings, expect) in [
            (json!(null), Ok(false)),
            (json!({}), Ok(false)),
            (json!({"watchSecrets": null}), Ok(false)),
            (json!({"watchSecrets": false}), Ok(false)),
            (json!({"watchSecrets": true}), Ok(true)),
            (json!({"watchSecrets": "yes"}), Err("watchSecrets is \"yes\": write true or false")),
        ] {
            let found = check(&settings).map(|()| watches_secrets(&settings));
            assert_eq!(found, expect.map_err(str::to_owned), "{settings}");
        }
    }
}
