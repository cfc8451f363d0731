//! The index of Queues by the dead-letter queue that they name, and which of them keep that queue from being
//! deleted. Pure.
//!
//! Whoever may write a Queue may name any ARN, so a name is a claim. In the namespace of the queue a claim
//! counts: people there may delete both. A Queue of another namespace counts only if SQS accepted its claim:
//! its own queue was seen with that redrive policy, at the same address and in the same account. Beside these,
//! SQS itself lists the sources of a queue where the credentials may ask.

use kube::ResourceExt;

use super::api::{Queue, QueueStatus};
use super::documents::REDRIVE_POLICY;

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

/// Whether a Queue names the queue of `target` as its dead-letter queue.
pub(super) fn sends_to(queue: &Queue, target: &Queue) -> bool {
    let arn = target.status.as_ref().and_then(|status| status.arn.as_ref());
    targets(queue).iter().any(|named| *named == by_name(target) || Some(named) == arn)
}

/// Whether a Queue that names the queue of `target`, which has this ARN, keeps it from being deleted.
pub(super) fn counts(referrer: &Queue, target: &Queue, arn: &str) -> bool {
    let place = |queue: &Queue| {
        let status = queue.status.clone().filter(QueueStatus::is_ours)?;
        Some((status.endpoint, status.account))
    };
    let policies = referrer.status.as_ref().map(|status| &status.attributes);
    let accepted = policies.and_then(|seen| seen.get(REDRIVE_POLICY));
    let accepted = accepted.is_some_and(|policy| policy.contains(&format!("{arn:?}")));
    referrer.namespace() == target.namespace()
        || (accepted && place(referrer).is_some() && place(referrer) == place(target))
}

fn value(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ARN: &str = "arn:aws:sqs:eu-west-1:1:dead";

    fn queue(namespace: &str, status: Value) -> Queue {
        let spec = json!({"region": "eu-west-1"});
        let metadata = json!({"name": "q", "namespace": namespace});
        let object = json!({"metadata": metadata, "spec": spec, "status": status,
            "apiVersion": "sqs.leasehold.dev/v1alpha1", "kind": "Queue"});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_claim_of_another_namespace_counts_once_sqs_accepted_it() {
        let policy = super::super::documents::redrive(ARN, 3);
        let seen = |more: Value| {
            let mut status = json!({
                "arn": "arn:aws:sqs:eu-west-1:1:q", "account": "1", "drifts": 0,
                "attributes": {REDRIVE_POLICY: policy},
            });
            status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            status
        };
        let target = queue("a", seen(json!({"arn": ARN, "attributes": {}})));
        let other = super::super::documents::redrive("arn:aws:sqs:eu-west-1:1:dead-2", 3);
        for (referrer, expect) in [
            (queue("a", json!({"drifts": 0})), true),
            (queue("b", json!({"drifts": 0})), false),
            (queue("b", seen(json!({}))), true),
            (queue("b", seen(json!({"attributes": {REDRIVE_POLICY: other}}))), false),
            (queue("b", seen(json!({"attributes": {}}))), false),
            (queue("b", seen(json!({"account": "2"}))), false),
            (queue("b", seen(json!({"endpoint": "http://theirs"}))), false),
            (queue("b", seen(json!({"observed": true}))), false),
            (queue("b", seen(json!({"arn": null}))), false),
        ] {
            assert_eq!(counts(&referrer, &target, ARN), expect, "{:?}", referrer.status);
        }
    }
}
