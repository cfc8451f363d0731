//! A spec as a queue of SQS: its name, its attributes, its tags. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::api::{
    DeduplicationScope, Encryption, FifoThroughputLimit, Queue, QueueSpec, QueueStatus,
};
use super::documents::{self, REDRIVE_POLICY};
use super::invalid::{InvalidSpec, MAX_REGION};
use super::name::{FIFO_SUFFIX, queue_name};
use super::owner::{MAX_TAG_KEY, MAX_TAG_VALUE, OWNER_TAG, Place};
use super::source::{Source, source};

/// A queue as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    /// Its name.
    pub name: String,
    /// A FIFO queue.
    pub fifo: bool,
    /// Its attributes, by SQS's names, as SQS writes them. One that should be absent is empty.
    pub attributes: BTreeMap<&'static str, String>,
    /// Its tags, but for the owner's.
    pub tags: BTreeMap<String, String>,
    /// Whether a queue that is nobody's is taken over.
    pub adopt: bool,
    /// Where its credentials come from.
    pub source: Source,
}

/// The queue that the object wants. Its name is that of the queue it has, once it has one. `redrive` is
/// the ARN of the dead-letter queue of its spec, if that is known: until then what it has stays.
///
/// # Errors
/// If the spec cannot be acted on.
pub(super) fn desired(
    queue: &Queue,
    place: &Place<'_>,
    redrive: Option<&str>,
) -> Result<Desired, InvalidSpec> {
    let status = queue.status.as_ref().map(QueueStatus::as_set).unwrap_or_default();
    let spec = &queue.spec;
    unchanged(spec, &status)?;
    region(&spec.region)?;
    let name = match (&spec.queue_name, &status.queue_name) {
        (None, Some(recorded)) => recorded.clone(),
        (given, recorded) => {
            let wanted = queue_name(given.as_deref(), place, spec.fifo)?;
            same("queueName", recorded.as_ref(), &wanted)?;
            wanted
        }
    };
    consistent(spec, &queue.name_any())?;
    let target = spec.redrive_policy.as_ref().and_then(|policy| policy.queue_arn.as_deref());
    if target.is_some_and(|arn| is_own(arn, spec, &status, &name)) {
        return Err(InvalidSpec::OwnTarget);
    }
    let source = source(spec)?;
    let mut attributes = attributes(spec, redrive)?;
    attributes.extend(documents::attributes(spec, &status)?);
    let (tags, adopt) = (tags(spec)?, spec.adopt);
    Ok(Desired { name, fifo: spec.fifo, attributes, tags, adopt, source })
}

/// Whether AWS can have a region of that name: it becomes part of addresses, and of what is remembered.
///
/// # Errors
/// If not.
pub(super) fn region(name: &str) -> Result<(), InvalidSpec> {
    let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    match (1..=MAX_REGION).contains(&name.len()) && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(InvalidSpec::Region),
    }
}

/// Whether what cannot be changed is as it was when the queue was made.
fn unchanged(spec: &QueueSpec, status: &QueueStatus) -> Result<(), InvalidSpec> {
    let fifo = status.queue_name.as_ref().map(|name| name.ends_with(FIFO_SUFFIX).to_string());
    same("fifo", fifo.as_ref(), &spec.fifo.to_string())?;
    same("region", status.region.as_ref(), &spec.region)?;
    if status.account.is_some() && !status.observed {
        let or_aws = |endpoint: &Option<String>| endpoint.clone().unwrap_or_else(|| "AWS".into());
        same("endpoint", Some(&or_aws(&status.endpoint)), &or_aws(&spec.endpoint))?;
    }
    Ok(())
}

fn same(field: &'static str, recorded: Option<&String>, wanted: &str) -> Result<(), InvalidSpec> {
    match recorded.filter(|from| *from != wanted) {
        Some(from) => Err(InvalidSpec::Immutable { field, from: from.clone(), to: wanted.into() }),
        None => Ok(()),
    }
}

/// Whether an ARN is that of the queue itself, as far as its account is known.
fn is_own(arn: &str, spec: &QueueSpec, status: &QueueStatus, name: &str) -> bool {
    let parts: Vec<_> = arn.split(':').collect();
    let [_, _, _, region, account, last] = parts[..] else { return false };
    let is_account = status.account.as_deref().is_none_or(|own| own == account);
    region == spec.region && last == name && is_account
}

/// Whether fields fit together.
fn consistent(spec: &QueueSpec, own_name: &str) -> Result<(), InvalidSpec> {
    let of_fifo = [
        ("contentBasedDeduplication", spec.content_based_deduplication),
        ("deduplicationScope", spec.deduplication_scope.is_some()),
        ("fifoThroughputLimit", spec.fifo_throughput_limit.is_some()),
    ];
    if let Some((field, _)) = of_fifo.into_iter().find(|(_, given)| *given && !spec.fifo) {
        return Err(InvalidSpec::NotFifo { field });
    }
    let groups = spec.deduplication_scope == Some(DeduplicationScope::MessageGroup);
    if spec.fifo_throughput_limit == Some(FifoThroughputLimit::PerMessageGroup) && !groups {
        return Err(InvalidSpec::Throughput);
    }
    let Some(policy) = &spec.redrive_policy else { return Ok(()) };
    match (&policy.queue_ref, &policy.queue_arn) {
        (Some(target), None) if target.name == own_name => Err(InvalidSpec::OwnTarget),
        (None, Some(arn)) if arn.ends_with(FIFO_SUFFIX) != spec.fifo => Err(InvalidSpec::OtherKind),
        (Some(_), None) | (None, Some(_)) => Ok(()),
        (by_name, _) => Err(InvalidSpec::NotOne {
            field: "redrivePolicy",
            count: if by_name.is_some() { 2 } else { 0 },
            choices: "queueRef and queueArn",
        }),
    }
}

fn attributes(
    spec: &QueueSpec,
    redrive: Option<&str>,
) -> Result<BTreeMap<&'static str, String>, InvalidSpec> {
    let mut attributes = BTreeMap::from([
        ("VisibilityTimeout", spec.visibility_timeout_seconds.to_string()),
        ("MessageRetentionPeriod", spec.message_retention_seconds.to_string()),
        ("DelaySeconds", spec.delay_seconds.to_string()),
        ("ReceiveMessageWaitTimeSeconds", spec.receive_wait_time_seconds.to_string()),
    ]);
    match (redrive, &spec.redrive_policy) {
        (Some(arn), Some(policy)) => {
            attributes.insert(REDRIVE_POLICY, documents::redrive(arn, policy.max_receive_count));
        }
        (_, None) => {
            attributes.insert(REDRIVE_POLICY, String::new());
        }
        (None, Some(_)) => {}
    }
    if let Some(size) = spec.maximum_message_size_bytes {
        attributes.insert("MaximumMessageSize", size.to_string());
    }
    if spec.fifo {
        let value = spec.content_based_deduplication.to_string();
        attributes.insert("ContentBasedDeduplication", value);
    }
    if let Some(scope) = spec.deduplication_scope {
        let scope = match scope {
            DeduplicationScope::Queue => "queue",
            DeduplicationScope::MessageGroup => "messageGroup",
        };
        attributes.insert("DeduplicationScope", scope.to_owned());
    }
    if let Some(limit) = spec.fifo_throughput_limit {
        let limit = match limit {
            FifoThroughputLimit::PerQueue => "perQueue",
            FifoThroughputLimit::PerMessageGroup => "perMessageGroupId",
        };
        attributes.insert("FifoThroughputLimit", limit.to_owned());
    }
    if let Some(encryption) = &spec.encryption {
        attributes.extend(encrypted(encryption)?);
    }
    Ok(attributes)
}

/// The two kinds exclude each other: one ends the other.
fn encrypted(encryption: &Encryption) -> Result<Vec<(&'static str, String)>, InvalidSpec> {
    match (&encryption.sqs_managed, &encryption.kms) {
        (Some(_), None) => {
            Ok(vec![("SqsManagedSseEnabled", "true".to_owned()), ("KmsMasterKeyId", String::new())])
        }
        (None, Some(kms)) => Ok(vec![
            ("KmsMasterKeyId", kms.key_id.clone()),
            ("KmsDataKeyReusePeriodSeconds", kms.data_key_reuse_period_seconds.to_string()),
        ]),
        (managed, kms) => Err(InvalidSpec::NotOne {
            field: "encryption",
            count: usize::from(managed.is_some()) + usize::from(kms.is_some()),
            choices: "sqsManaged and kms",
        }),
    }
}

fn tags(spec: &QueueSpec) -> Result<BTreeMap<String, String>, InvalidSpec> {
    for (key, value) in &spec.tags {
        let why = if key == OWNER_TAG {
            "the controller sets that tag: it names the owner of the queue"
        } else if key.is_empty() || key.chars().count() > MAX_TAG_KEY {
            "a tag's key has 1 to 128 characters"
        } else if key.to_ascii_lowercase().starts_with("aws:") {
            "keys that begin with aws: are reserved for AWS"
        } else if value.chars().count() > MAX_TAG_VALUE {
            "a tag's value has at most 256 characters"
        } else {
            continue;
        };
        return Err(InvalidSpec::Tag { key: key.clone(), why });
    }
    Ok(spec.tags.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_region_is_one() {
        for good in ["eu-west-1", "us-gov-east-1", "r", &"r".repeat(32)] {
            assert_eq!(region(good), Ok(()), "{good}");
        }
        for bad in ["", "eu west", "EU-WEST-1", "x.example.com/", "é", &"r".repeat(33)] {
            assert_eq!(region(bad), Err(InvalidSpec::Region), "{bad}");
        }
    }
}
