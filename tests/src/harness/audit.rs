//! Audit logs of API servers: who wrote what when, and on whose behalf.
//!
//! The API servers are the witnesses, not the managers: the home's log holds each version of each
//! ShardMap with the time at which it was committed, and each cluster's log holds each write with a
//! `User-Agent` that names the member and the shard. All servers run on one machine, so their times
//! can be compared. Pure, but for [`read`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::manager::is_incarnation;

/// What the name of a member's Lease begins with.
const LEASE_PREFIX: &str = "leasehold-member-";

/// One line of an audit log, without what does not matter here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `create`, `update`, `patch`, `list`, ...
    pub verb: String,
    /// A request can have a line for each of several stages.
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    response_status: Option<Status>,
    #[serde(default)]
    response_object: Value,
    /// When the server received the request.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    /// When the server had answered.
    #[serde(rename = "stageTimestamp")]
    pub answered: Timestamp,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

/// A member renewed its own Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The member.
    pub member: String,
    /// When the API server received it.
    pub at: Timestamp,
}

/// On whose behalf a write says it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The member.
    pub member: String,
    /// The shard, as in `east/tdset/0/1`.
    pub shard: String,
    /// The epoch at which the member says it owns the shard.
    pub epoch: u64,
    /// The key that was reconciled.
    pub key: String,
}

/// The events of an audit log. A line that is cut short, because the server was killed, is skipped.
pub fn read(path: &Path) -> Result<Vec<AuditEvent>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Ok(parse(&text))
}

/// The events of the text of a log; see [`read`].
pub fn parse(text: &str) -> Vec<AuditEvent> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The requests of `user` that were refused for lack of rights, a line for each.
pub fn denied(events: &[AuditEvent], user: &str) -> Vec<String> {
    let by_user = events.iter().filter(|event| event.user.username == user);
    by_user.filter(|event| event.code() == 403).map(AuditEvent::line).collect()
}

/// How many requests of `user` were answered.
pub fn answered(events: &[AuditEvent], user: &str) -> usize {
    events.iter().filter(|event| event.user.username == user).count()
}

/// Every committed write to objects of one resource in one namespace.
pub fn committed<'a>(
    events: &'a [AuditEvent],
    resource: &str,
    namespace: &str,
) -> impl Iterator<Item = &'a AuditEvent> {
    let is_meant = move |event: &&AuditEvent| {
        let object = &event.object_ref;
        object.resource == resource && object.namespace == namespace && event.is_committed_write()
    };
    events.iter().filter(is_meant)
}

/// Every successful renewal of a member's Lease. The user tells a renewal from a takeover, so each
/// replica must be a user with its identity as the name.
pub fn renewals(home: &[AuditEvent]) -> Vec<Renewal> {
    let of_lease = |event: &AuditEvent| {
        let object = &event.object_ref;
        let member = object.name.strip_prefix(LEASE_PREFIX)?;
        let is_own = object.resource == "leases" && is_incarnation(&event.user.username, member);
        is_own.then(|| Renewal { member: member.to_owned(), at: event.received })
    };
    home.iter().filter(|event| event.is_committed_write()).filter_map(of_lease).collect()
}

/// Writes of a manager to objects of `resources` that do not say on whose behalf they were made.
pub fn unattributed(events: &[AuditEvent], resources: &[&str]) -> Vec<String> {
    let ours = events.iter().filter(|event| {
        event.is_write()
            && event.user_agent.starts_with("leasehold/")
            && resources.contains(&event.object_ref.resource.as_str())
    });
    let unnamed = ours.filter(|event| Attribution::parse(&event.user_agent).is_none());
    unnamed.map(|event| format!("{} by {}", event.line(), event.user_agent)).collect()
}

impl AuditEvent {
    /// The verb and the request's URI.
    pub fn line(&self) -> String {
        format!("{} {}", self.verb, self.request_uri)
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        match self.object_ref.name.as_str() {
            // The server made up the name of an object that was created.
            "" => self.response_object["metadata"]["name"].as_str().unwrap_or_default(),
            name => name,
        }
    }

    /// The object as the server stored it; `Null` if the audit policy does not keep it.
    pub fn object(&self) -> &Value {
        &self.response_object
    }

    /// On whose behalf it wrote, if it is a completed write of a reconciler. A manager's other
    /// requests to the home cluster are on behalf of no shard.
    pub fn attribution(&self) -> Option<Attribution> {
        let agent = self.user_agent.strip_prefix("leasehold/")?;
        let counts = self.stage == "ResponseComplete" && self.is_write();
        Attribution::parse(agent).filter(|_| counts)
    }

    /// Whether it committed a ShardMap, or deleted one.
    pub fn is_of_shard_map(&self) -> bool {
        self.object_ref.resource == "shardmaps" && self.is_committed_write()
    }

    fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    fn is_committed_write(&self) -> bool {
        self.is_write() && self.stage == "ResponseComplete" && self.code() / 100 == 2
    }

    fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }
}

impl Attribution {
    /// Reads `... (member=M; shard=S; epoch=E; key=K)`.
    fn parse(user_agent: &str) -> Option<Self> {
        let (_, rest) = user_agent.split_once('(')?;
        let fields: BTreeMap<&str, &str> = rest
            .strip_suffix(')')?
            .split(';')
            .filter_map(|field| field.trim().split_once('='))
            .collect();
        let text = |name| fields.get(name).map(|value| (*value).to_owned());
        Some(Self {
            member: text("member")?,
            shard: text("shard")?,
            epoch: fields.get("epoch")?.parse().ok()?,
            key: text("key")?,
        })
    }
}
