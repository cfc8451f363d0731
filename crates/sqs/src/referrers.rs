//! The index of Queues by the dead-letter queue that they name. Pure.

use kube::ResourceExt;

use super::api::Queue;

/// The name of the index. Its values are those of [`by_name`], and ARNs.
pub(super) const REFERRERS: &str = "redriveTarget";

/// The dead-letter queues that a Queue names, as values of the index.
pub(super) fn targets(queue: &Queue) -> Vec<String> {
    let Some(policy) = &queue.spec.redrive_policy else { return Vec::new() };
    let namespace = queue.namespace().unwrap_or_default();
    let named = policy.queue_ref.as_ref().map(|to| value(&namespace, &to.name));
    named.into_iter().chain(policy.queue_arn.clone()).collect()
}

/// The value under which those are that name this Queue by its name.
pub(super) fn by_name(queue: &Queue) -> String {
    value(&queue.namespace().unwrap_or_default(), &queue.name_any())
}

fn value(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}
