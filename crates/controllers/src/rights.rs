//! Shorthand for the tables of rights.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// One rule: `verbs` on `resources` of `group`.
pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// What every controller that publishes Events needs: a new one, or one more of a series.
pub(crate) fn events() -> PolicyRule {
    rule("events.k8s.io", &["events"], &["create", "patch"])
}
