//! Shorthand for RBAC rules.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// One rule: `verbs` on `resources` of `group`, which is empty for the core group.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}
