//! The attributes of a queue that are JSON: policies, and the one spelling in which they are compared. SQS returns
//! some of them in another spelling than it was given. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::api::{QueueSpec, QueueStatus, RedriveAllowPolicy, RedrivePermission};
use super::invalid::InvalidSpec;

/// The attribute that holds the dead-letter queue.
pub(super) const REDRIVE_POLICY: &str = "RedrivePolicy";
/// The attribute that says whose dead-letter queue a queue may be.
pub(super) const REDRIVE_ALLOW_POLICY: &str = "RedriveAllowPolicy";
/// The attribute that holds the resource policy.
pub(super) const POLICY: &str = "Policy";

/// The version of a policy that names none: SQS adds it.
const FIRST_VERSION: &str = "2008-10-17";

/// What every queue of the account may do by default.
const ALLOW_ALL: &str = r#"{"redrivePermission":"allowAll"}"#;

/// The policies of the spec. One that the spec had before and has no longer is reset.
///
/// # Errors
/// If one cannot be used.
pub(super) fn attributes(
    spec: &QueueSpec,
    status: &QueueStatus,
) -> Result<BTreeMap<&'static str, String>, InvalidSpec> {
    // Once it is reset it is left alone like one that the spec never had.
    let reset = |name: &str, to: &str| {
        let had = status.attributes.get(name).filter(|value| !value.is_empty() && *value != to);
        had.map(|_| to.to_owned())
    };
    let allow = match &spec.redrive_allow_policy {
        Some(policy) => Some(redrive_allow(policy)?),
        None => reset(REDRIVE_ALLOW_POLICY, ALLOW_ALL),
    };
    let policy = match &spec.policy {
        Some(text) => Some(checked(text)?),
        None => reset(POLICY, ""),
    };
    let found = [(REDRIVE_ALLOW_POLICY, allow), (POLICY, policy)];
    Ok(found.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// The redrive policy to this dead-letter queue.
pub(super) fn redrive(arn: &str, max_receive_count: i32) -> String {
    format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{max_receive_count}}}"#)
}

fn redrive_allow(policy: &RedriveAllowPolicy) -> Result<String, InvalidSpec> {
    let permission = match policy.permission {
        RedrivePermission::AllowAll => "allowAll",
        RedrivePermission::DenyAll => "denyAll",
        RedrivePermission::ByQueue => "byQueue",
    };
    let mut arns = policy.source_queue_arns.clone();
    let by_queue = policy.permission == RedrivePermission::ByQueue;
    if by_queue == arns.is_empty() {
        return Err(InvalidSpec::Sources);
    }
    arns.sort();
    let document = if by_queue {
        json!({"redrivePermission": permission, "sourceQueueArns": arns})
    } else {
        json!({"redrivePermission": permission})
    };
    Ok(document.to_string())
}

/// A resource policy as it was written: what an account is in another partition SQS knows.
fn checked(text: &str) -> Result<String, InvalidSpec> {
    match serde_json::from_str(text) {
        Ok(Value::Object(_)) => Ok(text.to_owned()),
        Ok(_) => Err(InvalidSpec::Policy { why: "it is another value".to_owned() }),
        Err(error) => Err(InvalidSpec::Policy { why: error.to_string() }),
    }
}

/// The attribute, as it is given to SQS or as SQS shows it, in the spelling of this module.
pub(super) fn normalised(name: &str, value: String) -> String {
    let Ok(mut document) = serde_json::from_str::<Value>(&value) else { return value };
    match name {
        REDRIVE_POLICY => {
            // The count is a number or text, as it was given.
            let count = match &document["maxReceiveCount"] {
                Value::String(count) => count.parse().ok(),
                count => count.as_i64().and_then(|count| i32::try_from(count).ok()),
            };
            match (document["deadLetterTargetArn"].as_str(), count) {
                (Some(arn), Some(count)) => redrive(arn, count),
                _ => value,
            }
        }
        REDRIVE_ALLOW_POLICY => {
            if let Some(arns) = document["sourceQueueArns"].as_array_mut() {
                arns.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
            }
            document.to_string()
        }
        POLICY => {
            if let Value::Object(policy) = &mut document {
                policy.entry("Version").or_insert_with(|| FIRST_VERSION.into());
            }
            one_spelling(None, document).to_string()
        }
        _ => value,
    }
}

/// Lists are sets, and one of one element is that element, except for statements, which are always a list; a number or
/// a truth value is its text; the root of an account as a principal is the account, and anybody is any of AWS.
fn one_spelling(key: Option<&str>, value: Value) -> Value {
    let is_statement = key == Some("Statement");
    let is_principal = matches!(key, Some("Principal" | "NotPrincipal"));
    match value {
        Value::Object(_) if is_statement => one_spelling(key, Value::Array(vec![value])),
        Value::Object(map) => {
            let spelt = map.into_iter().map(|(key, value)| {
                let value = one_spelling(Some(&key), value);
                (key, value)
            });
            Value::Object(spelt.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let of_item = key.filter(|_| !is_statement);
            let mut items: Vec<_> =
                items.into_iter().map(|item| one_spelling(of_item, item)).collect();
            items.sort_by_cached_key(Value::to_string);
            items.dedup();
            match items.len() == 1 && !is_statement {
                true => items.remove(0),
                false => Value::Array(items),
            }
        }
        Value::String(text) if key == Some("AWS") => Value::String(principal(text)),
        Value::String(text) if is_principal && text == "*" => json!({"AWS": "*"}),
        Value::Bool(_) | Value::Number(_) => Value::String(value.to_string()),
        other => other,
    }
}

/// `arn:<partition>:iam::<account>:root` is the account, whatever the partition.
fn principal(text: String) -> String {
    match text.split(':').collect::<Vec<_>>()[..] {
        ["arn", _, "iam", "", account, "root"] => account.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_document_has_one_spelling() {
        for (name, one, other) in [
            (
                REDRIVE_POLICY,
                r#"{"maxReceiveCount": "5", "deadLetterTargetArn": "arn:x"}"#,
                r#"{"deadLetterTargetArn":"arn:x","maxReceiveCount":5}"#,
            ),
            (
                REDRIVE_ALLOW_POLICY,
                r#"{"sourceQueueArns": ["b", "a"], "redrivePermission": "byQueue"}"#,
                r#"{"redrivePermission":"byQueue","sourceQueueArns":["a","b"]}"#,
            ),
            (
                POLICY,
                r#"{"Version": "2012-10-17", "Statement": [{"Action": ["sqs:SendMessage"],
                    "Principal": {"AWS": ["123456789012"]}}]}"#,
                r#"{"Statement":[{"Action":"sqs:SendMessage","Principal":{"AWS":"123456789012"}}],"Version":"2012-10-17"}"#,
            ),
            (
                POLICY,
                r#"{"Statement": {"Principal": {"AWS": ["arn:aws-cn:iam::123456789012:root", "arn:aws:iam::1:user/a"]}}}"#,
                r#"{"Statement":[{"Principal":{"AWS":["123456789012","arn:aws:iam::1:user/a"]}}],"Version":"2008-10-17"}"#,
            ),
            (
                POLICY,
                r#"{"Version": "2012-10-17", "Statement": [
                    {"Sid": "b", "Principal": "*", "Condition": {"Bool": {"aws:SecureTransport": false}}},
                    {"Sid": "a", "Action": ["sqs:SendMessage", "sqs:GetQueueUrl"]}]}"#,
                r#"{"Statement":[{"Action":["sqs:GetQueueUrl","sqs:SendMessage"],"Sid":"a"},{"Condition":{"Bool":{"aws:SecureTransport":"false"}},"Principal":{"AWS":"*"},"Sid":"b"}],"Version":"2012-10-17"}"#,
            ),
            (
                POLICY,
                r#"{"Version": "2012-10-17", "Statement": {"Effect": "Deny", "NotPrincipal": "*"}}"#,
                r#"{"Statement":[{"Effect":"Deny","NotPrincipal":{"AWS":"*"}}],"Version":"2012-10-17"}"#,
            ),
            ("DelaySeconds", "5", "5"),
            (POLICY, "not JSON", "not JSON"),
        ] {
            assert_eq!(normalised(name, one.to_owned()), other);
            assert_eq!(normalised(name, other.to_owned()), other);
        }
    }

    #[test]
    fn a_policy_that_the_spec_gives_up_is_reset_and_others_are_left_alone() {
        let spec = |more: Value| -> QueueSpec {
            let mut spec = json!({"region": "eu-west-1"});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(spec).unwrap()
        };
        let nothing = QueueStatus::default();
        assert!(attributes(&spec(json!({})), &nothing).unwrap().is_empty());
        let wanted = json!({"policy": "{}", "redriveAllowPolicy": {"permission": "DenyAll"}});
        let wanted = attributes(&spec(wanted), &nothing).unwrap();
        let named = wanted.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let before = QueueStatus { attributes: named.collect(), ..nothing };
        let reset = attributes(&spec(json!({})), &before).unwrap();
        // What is sent is what was written.
        let written = r#"{ "Statement": {"Principal": {"AWS": "123456789012"}} }"#;
        let wanted = attributes(&spec(json!({"policy": written})), &before).unwrap();
        assert_eq!(wanted[POLICY], written);
        assert_eq!(
            reset,
            [(POLICY, String::new()), (REDRIVE_ALLOW_POLICY, ALLOW_ALL.into())].into()
        );
        // Once that is done, what others set is theirs.
        let done = reset.into_iter().map(|(name, value)| (name.to_owned(), value));
        let after = QueueStatus { attributes: done.collect(), ..QueueStatus::default() };
        assert!(attributes(&spec(json!({})), &after).unwrap().is_empty());
        for bad in [
            json!({"policy": "[]"}),
            json!({"policy": "{"}),
            json!({"redriveAllowPolicy": {"permission": "ByQueue"}}),
            json!({"redriveAllowPolicy": {"permission": "AllowAll", "sourceQueueArns": ["a"]}}),
        ] {
            assert!(attributes(&spec(bad.clone()), &before).is_err(), "{bad}");
        }
    }
}
