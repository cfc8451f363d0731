//! A spec as a queue of SQS: its name, its attributes, its tags. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::api::{CredentialsSource, Encryption, Environment, Queue, QueueSpec, QueueStatus};
use super::name::{BadName, MAX_TAG_KEY, MAX_TAG_VALUE, OWNER_TAG, owner, queue_name};

/// The attribute that holds the dead-letter queue.
pub(super) const REDRIVE_POLICY: &str = "RedrivePolicy";

/// A queue as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    /// Its name.
    pub name: String,
    /// A FIFO queue.
    pub fifo: bool,
    /// Its attributes, by SQS's names, as SQS writes them. One that should be absent is empty.
    pub attributes: BTreeMap<&'static str, String>,
    /// Its tags, the owner's included.
    pub tags: BTreeMap<String, String>,
    /// The owner tag's value.
    pub owner: String,
    /// Whether a queue that is not ours is taken over.
    pub adopt: bool,
}

/// A spec that cannot be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSpec {
    /// The queue's name.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A field changed that cannot.
    #[error(
        "spec.{field} cannot be changed from {from:?} to {to:?}: put it back, or delete this Queue \
         and create another"
    )]
    Immutable {
        /// The field.
        field: &'static str,
        /// What it was when the queue was made.
        from: String,
        /// What it is.
        to: String,
    },
    /// Not exactly one of several fields is given.
    #[error("spec.{field} has {count} of {choices}: give exactly one")]
    NotOne {
        /// The field.
        field: &'static str,
        /// How many are given.
        count: usize,
        /// Which there are.
        choices: &'static str,
    },
    /// Content-based deduplication without FIFO.
    #[error("spec.contentBasedDeduplication is for FIFO queues: set spec.fifo too, or remove it")]
    NotFifo,
    /// A queue that is its own dead-letter queue.
    #[error("spec.redrivePolicy.queueRef names this Queue itself: name another")]
    OwnTarget,
    /// A tag that SQS would refuse, or that is ours.
    #[error("spec.tags has {key:?}: {why}")]
    Tag {
        /// Its key.
        key: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A token file outside of the folder that is allowed.
    #[error(
        "spec.credentials.webIdentity.serviceAccountTokenFile is {path:?}: name a file below \
         /var/run/secrets/ that is not the manager's own Kubernetes token"
    )]
    TokenFile {
        /// The path.
        path: String,
    },
}

/// Where a spec says that credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A Secret of the object's namespace.
    Secret(String),
    /// A role, and the file of the token to assume it with.
    WebIdentity {
        /// The role.
        role: String,
        /// The file, if not the manager's own.
        file: Option<String>,
    },
    /// The manager's environment.
    Environment,
}

/// The queue that the object wants. `redrive` is the ARN of its dead-letter queue, if it wants one.
///
/// # Errors
/// If the spec cannot be acted on.
pub(super) fn desired(
    queue: &Queue,
    cluster: &str,
    redrive: Option<&str>,
) -> Result<Desired, InvalidSpec> {
    let spec = &queue.spec;
    let (namespace, name) = (queue.namespace().unwrap_or_default(), queue.name_any());
    let queue_name = queue_name(spec.queue_name.as_deref(), &namespace, &name, spec.fifo)?;
    if let Some(status) = &queue.status {
        unchanged(spec, status, &queue_name)?;
    }
    if spec.content_based_deduplication && !spec.fifo {
        return Err(InvalidSpec::NotFifo);
    }
    if spec.redrive_policy.as_ref().is_some_and(|policy| policy.queue_ref.name == name) {
        return Err(InvalidSpec::OwnTarget);
    }
    source(spec)?;
    let owner = owner(cluster, &namespace, &name, &queue.uid().unwrap_or_default());
    Ok(Desired {
        name: queue_name,
        fifo: spec.fifo,
        attributes: attributes(spec, redrive)?,
        tags: tags(spec, &owner)?,
        owner,
        adopt: spec.adopt,
    })
}

/// Where the spec says that credentials come from.
///
/// # Errors
/// If there is not exactly one, or its file is out of bounds.
pub(super) fn source(spec: &QueueSpec) -> Result<Source, InvalidSpec> {
    let default =
        || CredentialsSource { environment: Some(Environment {}), ..CredentialsSource::default() };
    let given = spec.credentials.clone().unwrap_or_else(default);
    match (given.secret_ref, given.web_identity, given.environment) {
        (Some(secret), None, None) => Ok(Source::Secret(secret.name)),
        (None, Some(web), None) => match web.service_account_token_file {
            Some(path) if !is_token_file(&path) => Err(InvalidSpec::TokenFile { path }),
            file => Ok(Source::WebIdentity { role: web.role_arn, file }),
        },
        (None, None, Some(_)) => Ok(Source::Environment),
        (secret, web, environment) => Err(InvalidSpec::NotOne {
            field: "credentials",
            count: [secret.is_some(), web.is_some(), environment.is_some()]
                .into_iter()
                .filter(|given| *given)
                .count(),
            choices: "secretRef, webIdentity and environment",
        }),
    }
}

/// Whoever may write a Queue chooses the file. It must not be just any file that the manager can
/// read, nor the manager's own token for its API server.
fn is_token_file(path: &str) -> bool {
    path.starts_with("/var/run/secrets/")
        && !path.starts_with("/var/run/secrets/kubernetes.io/")
        && !path.split('/').any(|part| part == ".." || part == ".")
        && !path.contains("//")
}

fn unchanged(spec: &QueueSpec, status: &QueueStatus, name: &str) -> Result<(), InvalidSpec> {
    let recorded =
        [("queueName", &status.queue_name, name), ("region", &status.region, spec.region.as_str())];
    for (field, recorded, wanted) in recorded {
        if let Some(from) = recorded.as_ref().filter(|from| *from != wanted) {
            let fifo = from.ends_with(".fifo") != wanted.ends_with(".fifo");
            let field = if fifo { "fifo" } else { field };
            return Err(InvalidSpec::Immutable { field, from: from.clone(), to: wanted.into() });
        }
    }
    Ok(())
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
        (REDRIVE_POLICY, redrive_policy(spec, redrive)),
    ]);
    if let Some(size) = spec.maximum_message_size_bytes {
        attributes.insert("MaximumMessageSize", size.to_string());
    }
    if spec.fifo {
        let value = spec.content_based_deduplication.to_string();
        attributes.insert("ContentBasedDeduplication", value);
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

fn redrive_policy(spec: &QueueSpec, redrive: Option<&str>) -> String {
    match (&spec.redrive_policy, redrive) {
        (Some(policy), Some(arn)) => canonical_redrive(
            &json!({"deadLetterTargetArn": arn, "maxReceiveCount": policy.max_receive_count}),
        ),
        _ => String::new(),
    }
}

/// A redrive policy in one spelling: SQS takes the count as a number or as text, and returns what it
/// was given.
pub(super) fn normalised_redrive(policy: &str) -> String {
    serde_json::from_str(policy)
        .map_or_else(|_| policy.to_owned(), |policy| canonical_redrive(&policy))
}

fn canonical_redrive(policy: &Value) -> String {
    let count = match &policy["maxReceiveCount"] {
        Value::String(count) => count.clone(),
        count => count.to_string(),
    };
    let target = policy["deadLetterTargetArn"].as_str().unwrap_or_default();
    format!(r#"{{"deadLetterTargetArn":"{target}","maxReceiveCount":{count}}}"#)
}

fn tags(spec: &QueueSpec, owner: &str) -> Result<BTreeMap<String, String>, InvalidSpec> {
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
    let mut tags = spec.tags.clone();
    tags.insert(OWNER_TAG.to_owned(), owner.to_owned());
    Ok(tags)
}
