//! The `Queue` resource (`sqs.leasehold.dev/v1alpha1`): what a user writes and what the controller
//! records.
//!
//! The status is also the controller's memory: the name and the region of the queue, its last known
//! attributes, and the time of the next look.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A queue of Amazon SQS, kept as the spec says.
///
/// Bounds and defaults are those of SQS's `CreateQueue` and `SetQueueAttributes`
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html>).
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sqs.leasehold.dev",
    version = "v1alpha1",
    kind = "Queue",
    plural = "queues",
    singular = "queue",
    shortname = "sqsq",
    category = "leasehold",
    namespaced,
    status = "QueueStatus",
    derive = "PartialEq",
    doc = "A Queue keeps a queue of Amazon SQS as its spec says: it creates, corrects and deletes it.",
    printcolumn(name = "Queue", type_ = "string", json_path = ".status.queueName"),
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.region"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Synced",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Synced")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Visible", type_ = "integer", json_path = ".status.messages.visible"),
    printcolumn(name = "Checked", type_ = "date", json_path = ".status.lastChecked"),
    printcolumn(name = "ARN", type_ = "string", json_path = ".status.arn", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([
    {
        "rule": "has(self.queueName) == has(oldSelf.queueName) \
                 && (!has(self.queueName) || self.queueName == oldSelf.queueName)",
        "message": "queueName cannot be changed: delete this Queue and create another",
    },
    {
        "rule": "!has(self.queueName) || self.fifo || !self.queueName.endsWith('.fifo')",
        "message": "queueName ends in .fifo: set fifo, or give another name",
    },
    {
        "rule": "!has(self.queueName) || !self.fifo || self.queueName.endsWith('.fifo') \
                 || size(self.queueName) <= 75",
        "message": "queueName may have 75 characters before .fifo, which is appended",
    },
    {
        "rule": "self.fifo == oldSelf.fifo",
        "message": "fifo cannot be changed: delete this Queue and create another",
    },
    {
        "rule": "self.region == oldSelf.region",
        "message": "region cannot be changed: delete this Queue and create another",
    },
])))]
pub struct QueueSpec {
    /// The queue's name in SQS: letters, digits, `-` and `_`, at most 80; `.fifo` is appended to
    /// that of a FIFO queue if it is missing. Without it `<namespace>-<name>-<hash>`: the hash is of
    /// cluster, namespace and name. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 80), regex(pattern = r"^[A-Za-z0-9_-]+(\.fifo)?$"))]
    pub queue_name: Option<String>,
    /// A FIFO queue. Cannot be changed.
    #[serde(default)]
    pub fifo: bool,
    /// FIFO queues only: the hash of a message's body is its deduplication id.
    #[serde(default)]
    pub content_based_deduplication: bool,
    /// FIFO queues only: whether a deduplication id counts in the whole queue or in its message group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplication_scope: Option<DeduplicationScope>,
    /// FIFO queues only: what the limit of messages a second is for. `PerMessageGroup`, which is high
    /// throughput, needs `deduplicationScope: MessageGroup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fifo_throughput_limit: Option<FifoThroughputLimit>,
    /// How long a message that was received stays hidden from other consumers.
    #[serde(default = "default_visibility_timeout")]
    #[schemars(range(min = 0, max = 43_200))]
    pub visibility_timeout_seconds: i32,
    /// How long a message is kept if nobody deletes it.
    #[serde(default = "default_retention")]
    #[schemars(range(min = 60, max = 1_209_600))]
    pub message_retention_seconds: i32,
    /// How long a new message stays hidden.
    #[serde(default)]
    #[schemars(range(min = 0, max = 900))]
    pub delay_seconds: i32,
    /// The largest message. Without it SQS's own limit applies, which is not the same everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_024, max = 1_048_576))]
    pub maximum_message_size_bytes: Option<i32>,
    /// How long a receive waits for a message: long polling.
    #[serde(default)]
    #[schemars(range(min = 0, max = 20))]
    pub receive_wait_time_seconds: i32,
    /// The queue for messages that were received too often. Without it there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_policy: Option<RedrivePolicy>,
    /// Which queues may name this one as their dead-letter queue. Without it all of the account may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_allow_policy: Option<RedriveAllowPolicy>,
    /// The queue's resource policy, as JSON: who else may send or receive, such as SNS, S3 or EventBridge.
    /// One that is taken out of the spec is removed; one that the spec never had is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 10_000))]
    pub policy: Option<String>,
    /// Encryption at rest. Without it the controller leaves encryption as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
    /// Tags of the queue. Tags that others set under other keys are left alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 48))]
    pub tags: BTreeMap<String, String>,
    /// The region, such as `eu-west-1`. Cannot be changed.
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9-]+$"))]
    pub region: String,
    /// The address of SQS, if not AWS's own for the region: a URL such as
    /// `https://vpce-1a2b.sqs.eu-west-1.vpce.amazonaws.com`. The manager's configuration must list it for
    /// this namespace. Cannot be changed once the queue is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https?://[^\s@]+$"))]
    pub endpoint: Option<String>,
    /// The credentials for SQS: exactly one source. Without it, what the manager's configuration gives
    /// this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialsSource>,
    /// What happens to the queue when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Take over an existing queue of that name that belongs to nobody: it has no owner tag, or that of
    /// an earlier object of this name.
    #[serde(default)]
    pub adopt: bool,
    /// What the controller may do with the queue.
    #[serde(default)]
    pub management: Management,
    /// Tells consumers in this namespace where the queue is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// How often the queue is compared with this spec, plus or minus a tenth.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 30, max = 86_400))]
    pub drift_check_interval_seconds: i32,
}

fn default_visibility_timeout() -> i32 {
    30
}

fn default_retention() -> i32 {
    345_600
}

fn default_interval() -> i32 {
    300
}

/// Where messages go that were received too often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedrivePolicy {
    /// The dead-letter queue, another Queue of the same namespace. Either this or `queueArn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ref: Option<QueueRef>,
    /// The dead-letter queue by its ARN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 20, max = 256),
        regex(pattern = r"^arn:[a-z-]+:sqs:[a-z0-9-]+:[0-9]+:[A-Za-z0-9_.-]+$")
    )]
    pub queue_arn: Option<String>,
    /// How often a message is received before it goes there.
    #[schemars(range(min = 1, max = 1_000))]
    pub max_receive_count: i32,
}

/// A Queue of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Where a deduplication id counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeduplicationScope {
    /// In the whole queue.
    Queue,
    /// In the message group.
    MessageGroup,
}

/// What the limit of messages a second is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FifoThroughputLimit {
    /// The whole queue.
    PerQueue,
    /// Each message group: high throughput.
    PerMessageGroup,
}

/// Which queues may name a queue as their dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedriveAllowPolicy {
    /// Who may.
    pub permission: RedrivePermission,
    /// With `ByQueue`, the ARNs of those that may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub source_queue_arns: Vec<String>,
}

/// Who may name a queue as the dead-letter queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RedrivePermission {
    /// Every queue of the account and region.
    AllowAll,
    /// None.
    DenyAll,
    /// Those of `sourceQueueArns`.
    ByQueue,
}

/// Encryption at rest: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// With keys that SQS manages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sqs_managed: Option<SqsManaged>,
    /// With a key of KMS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kms: Option<Kms>,
}

/// Encryption with keys that SQS manages; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SqsManaged {}

/// Encryption with a key of KMS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kms {
    /// The key's id, ARN or alias.
    #[schemars(length(min = 1, max = 2_048))]
    pub key_id: String,
    /// How long a data key is reused before KMS is asked for a new one.
    #[serde(default = "default_reuse")]
    #[schemars(range(min = 60, max = 86_400))]
    pub data_key_reuse_period_seconds: i32,
}

fn default_reuse() -> i32 {
    300
}

/// The credentials for SQS: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsSource {
    /// A Secret of the same namespace with `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and perhaps
    /// `AWS_SESSION_TOKEN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// A role that the manager assumes with its service account's token. The manager's configuration
    /// must list it for this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_identity: Option<WebIdentity>,
    /// A role that the manager assumes with its own identity. The manager's configuration must list it
    /// for this namespace, and has its external id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assume_role: Option<AssumeRole>,
    /// The manager's own identity. The manager's configuration must allow that for this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
}

/// A Secret of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// A role that the manager assumes with its service account's token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebIdentity {
    /// The role.
    #[schemars(length(min = 20, max = 2_048))]
    pub role_arn: String,
    /// The file in the manager's container that holds the token: the one that the manager's
    /// configuration lists with the role. Without it, that one, or else
    /// `AWS_WEB_IDENTITY_TOKEN_FILE` of the manager's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub service_account_token_file: Option<String>,
}

/// A role that the manager assumes with its own identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssumeRole {
    /// The role.
    #[schemars(length(min = 20, max = 2_048))]
    pub role_arn: String,
}

/// What the controller may do with a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Management {
    /// It creates, corrects and deletes it.
    #[default]
    Manage,
    /// It looks at the queue and says how it differs from the spec, and changes nothing of it. It stays
    /// when this object is deleted.
    Observe,
    /// It does nothing, and asks nothing of SQS. While this object is being deleted, it waits.
    Pause,
}

/// Where consumers find out where a queue is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// A ConfigMap of the same namespace, which the controller makes, with `QUEUE_URL`, `QUEUE_ARN`,
    /// `QUEUE_NAME` and `AWS_REGION`. It goes with this object.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub config_map: String,
}

/// The manager's own environment; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {}

/// What happens to the queue when its object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is deleted with its messages. If its owner tag was removed or changed outside, the object
    /// waits and says so.
    #[default]
    Delete,
    /// It is deleted once two looks, a minute and a half apart, have shown no messages; until then the object
    /// waits.
    DeleteIfEmpty,
    /// It is left alone, with its tags.
    Retain,
    /// It is deleted, unless its owner tag was removed or changed outside: then it is left alone.
    OrphanOnUnmanaged,
}

/// What the controller last found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The queue's name; recorded before the queue is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_name: Option<String>,
    /// Its region; recorded before the queue is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Its address, if it is not AWS's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The account that it is in. From then on it is looked for in no other, and at no other address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Whether it was only observed, so that it never was this object's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observed: bool,
    /// The Secret that a finalizer holds for this object, until its queue needs it no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The ConfigMap that tells consumers where the queue is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<String>,
    /// Its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its ARN, once it is known to be this object's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arn: Option<String>,
    /// The ARN of the dead-letter queue that was asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrive_target: Option<String>,
    /// The attributes that the spec names, as last seen or set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// The tags that the spec names, as last seen or set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Approximate numbers of messages at the last recorded check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// While this object is being deleted: since when each look has shown no messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub empty_since: Option<Time>,
    /// How often somebody else had changed or deleted the queue, and it was corrected.
    #[serde(default)]
    pub drifts: i64,
    /// When the queue was last compared with the spec. Recorded with other changes, and when the
    /// recorded time is old: a quarter of an hour, or two fifths of an interval if that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub last_checked: Option<Time>,
    /// When it is compared next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub next_check: Option<Time>,
    /// When the controller last changed it. For a minute SQS may still show the state before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sdk::schema::time")]
    pub last_change: Option<Time>,
    /// `Ready`, `Synced` and `Invalid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl QueueStatus {
    /// Whether the queue is known to exist and to be this object's.
    pub(super) fn is_ours(&self) -> bool {
        self.arn.is_some() && !self.observed
    }

    /// This status without what was only observed: that was set by others, and is theirs.
    pub(super) fn as_set(&self) -> Self {
        match self.observed {
            true => Self { attributes: BTreeMap::new(), tags: BTreeMap::new(), ..self.clone() },
            false => self.clone(),
        }
    }

    /// The account in which the queue was made, once that is known.
    pub(super) fn pinned(&self) -> Option<&str> {
        self.account.as_deref().filter(|_| !self.observed)
    }

    /// The URL at which the queue was made, once that is known. One that was only observed may be elsewhere for other
    /// credentials, and is looked for by its name.
    pub(super) fn made_at(&self) -> Option<&String> {
        self.url.as_ref().filter(|_| !self.observed)
    }
}

/// Numbers of messages, of which SQS says that they are approximate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Messages {
    /// Messages that can be received.
    pub visible: i64,
    /// Messages that were received and not deleted yet.
    pub in_flight: i64,
    /// Messages that are still hidden.
    pub delayed: i64,
}
