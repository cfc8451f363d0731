//! Evidence from audit logs: who owned a shard when, and whether every write was its owner's.
//!
//! The API servers are the witnesses, not the managers: the home's log holds each version of each
//! ShardMap with the time it was committed, and each cluster's log holds each write with the
//! `User-Agent` that says on whose behalf it was made. All servers run on one machine, so their
//! times can be compared.
//!
//! ```text
//! log lines ─▶ Event ─┬─ ShardMap versions ─▶ Ownership: shard ─▶ tenures (epoch, owner, from..until)
//!                     └─ attributed writes ─────────────────────▶ violations
//! ```
//!
//! Pure, but for [`read`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// One line of an audit log, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// `create`, `update`, `patch`, `list`, ...
    pub verb: String,
    /// The stage that is told of; a request can have several lines.
    pub stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    response_object: Option<Value>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

/// Who owned what when.
#[derive(Debug, Default)]
pub struct Ownership {
    /// By shard, as in `east/tdset/0/1`; each list in order of its epochs.
    pub tenures: BTreeMap<String, Vec<Tenure>>,
    /// What the ShardMaps themselves did wrong.
    pub violations: Vec<String>,
}

/// One owner's time with one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Which of its owners this is.
    pub epoch: u64,
    /// The member.
    pub owner: String,
    /// The earliest moment at which it can have been committed.
    pub from: Timestamp,
    /// The latest moment at which it can have been committed.
    pub committed: Timestamp,
    /// When it was first told to drain, if it was.
    pub draining: Option<Timestamp>,
    /// The latest moment at which its end can have been committed; `None` if it did not end.
    pub until: Option<Timestamp>,
}

/// A Lease of a member was written by its own process.
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
    /// The epoch it says it has the shard at.
    pub epoch: u64,
    key: String,
}

/// What came of holding the writes against the ownership.
#[derive(Debug, Default)]
pub struct Report {
    /// Attributed writes, whatever became of them.
    pub writes: usize,
    /// Members that wrote.
    pub members: BTreeSet<String>,
    /// Tenures over all shards.
    pub tenures: usize,
    /// Everything that should not have been; a sentence each.
    pub violations: Vec<String>,
}

/// The events of an audit log. A line that is cut short (the server was killed) ends it, or is
/// followed by those of the server's next start.
///
/// # Errors
/// If the file cannot be read.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(parse(&text))
}

/// The events of the text of a log; see [`read`].
pub fn parse(text: &str) -> Vec<Event> {
    let event = |line| serde_json::from_str(line).ok();
    text.lines().filter_map(event).collect()
}

/// The requests by `user` that were refused for want of rights; a line each.
pub fn denied(events: &[Event], user: &str) -> Vec<String> {
    let by_user = events.iter().filter(|event| event.user.username == user);
    by_user
        .filter(|event| event.response_status.as_ref().is_some_and(|status| status.code == 403))
        .map(|event| format!("{} {}", event.verb, event.request_uri))
        .collect()
}

/// The requests that were answered for `user`.
pub fn answered(events: &[Event], user: &str) -> usize {
    events.iter().filter(|event| event.user.username == user).count()
}

/// Every renewal of a member's Lease that succeeded. Tells a renewal from a takeover by the user,
/// so each replica must come as a user that is called as its identity.
pub fn renewals(home: &[Event]) -> Vec<Renewal> {
    let done = home.iter().filter(|event| event.is_write() && event.succeeded());
    let of_lease = |event: &Event| {
        let lease = event.object_ref.as_ref().filter(|object| object.resource == "leases")?;
        let member = lease.name.strip_prefix("leasehold-member-")?;
        let own = member.rsplit_once('-')?.0 == event.user.username;
        own.then(|| Renewal { member: member.to_owned(), at: event.request_received_timestamp })
    };
    done.filter_map(of_lease).collect()
}

/// Holds every attributed write in `clusters` (by name) against the ownership told by `home`.
pub fn verify(home: &[Event], clusters: &[(&str, &[Event])]) -> Report {
    let ownership = Ownership::from_events(home);
    let mut report = Report {
        tenures: ownership.tenures.values().map(Vec::len).sum(),
        violations: ownership.violations.clone(),
        ..Report::default()
    };
    for (cluster, events) in clusters {
        for event in *events {
            let Some(attribution) = event.attribution() else { continue };
            report.writes += 1;
            report.violations.extend(ownership.violation(&attribution, cluster, event));
            report.members.insert(attribution.member);
        }
    }
    report
}

/// Writes to objects of `resources` in a cluster that say they are a manager's and do not say on
/// whose behalf.
pub fn unattributed(events: &[Event], resources: &[&str]) -> Vec<String> {
    let ours = events
        .iter()
        .filter(|event| event.is_write() && event.user_agent.starts_with("leasehold/"));
    ours.filter(|event| {
        let resource = event.object_ref.as_ref().map_or("", |object| object.resource.as_str());
        resources.contains(&resource) && Attribution::parse(&event.user_agent).is_none()
    })
    .map(|event| format!("{} {} by {}", event.verb, event.request_uri, event.user_agent))
    .collect()
}

impl Event {
    fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    fn succeeded(&self) -> bool {
        self.stage == "ResponseComplete"
            && self.response_status.as_ref().is_some_and(|status| status.code / 100 == 2)
    }

    /// When its request arrived.
    pub fn at(&self) -> Timestamp {
        self.request_received_timestamp
    }

    /// On whose behalf it wrote, if it is a completed write by a reconciler. The manager's own
    /// dealings with the home cluster are nobody's shard.
    pub fn attribution(&self) -> Option<Attribution> {
        let agent = self.user_agent.strip_prefix("leasehold/")?;
        let counts = self.stage == "ResponseComplete" && self.is_write();
        Attribution::parse(agent).filter(|_| counts)
    }

    /// The name and content of the ShardMap this event committed; `Null` if it was deleted.
    fn shard_map(&self) -> Option<(&str, &Value)> {
        let object = self.object_ref.as_ref().filter(|object| object.resource == "shardmaps")?;
        if !self.is_write() || !self.succeeded() {
            return None;
        }
        if self.verb == "delete" {
            return Some((&object.name, &Value::Null));
        }
        let content = self.response_object.as_ref()?;
        Some((content["metadata"]["name"].as_str()?, content))
    }
}

impl Ownership {
    /// The ownership that the home cluster's audit log tells of.
    pub fn from_events(events: &[Event]) -> Self {
        let mut versions: Vec<(&Event, &str, &Value)> = events
            .iter()
            .filter_map(|event| event.shard_map().map(|(name, content)| (event, name, content)))
            .collect();
        // One after the other as they were committed: each replaces exactly the one before.
        versions.sort_by_key(|(event, _, content)| {
            let version = content["metadata"]["resourceVersion"].as_str();
            (event.stage_timestamp, version.and_then(|text| text.parse::<u64>().ok()))
        });
        let mut this = Self::default();
        for (event, cluster, content) in versions {
            this.commit(event, cluster, content);
        }
        this
    }

    fn commit(&mut self, event: &Event, cluster: &str, content: &Value) {
        let entries = content["spec"]["shards"].as_array().map_or(&[][..], Vec::as_slice);
        let mut owned = BTreeSet::new();
        for entry in entries {
            let (Some(path), Some(epoch)) = (entry["shard"].as_str(), entry["epoch"].as_u64())
            else {
                self.violations.push(format!("ShardMap {cluster}: {entry} is no entry"));
                continue;
            };
            if let Some(owner) = entry["owner"].as_str() {
                let shard = format!("{cluster}/{path}");
                self.own(event, &shard, epoch, owner);
                if entry["phase"] == "Draining" {
                    self.drain(event, &shard);
                }
                owned.insert(shard);
            }
        }
        // What this version does not give to anybody is nobody's from now on.
        for (shard, tenures) in &mut self.tenures {
            let of_cluster = shard.split('/').next() == Some(cluster);
            if of_cluster && !owned.contains(shard) {
                end_last(tenures, event.stage_timestamp);
            }
        }
    }

    fn own(&mut self, event: &Event, shard: &str, epoch: u64, owner: &str) {
        let tenures = self.tenures.entry(shard.to_owned()).or_default();
        if let Some(last) = tenures.last() {
            if last.epoch == epoch && last.owner == owner && last.until.is_none() {
                return;
            }
            if last.epoch >= epoch {
                self.violations.push(format!(
                    "{shard}: {owner} got it at epoch {epoch} after {} at epoch {}",
                    last.owner, last.epoch
                ));
            }
        }
        end_last(tenures, event.stage_timestamp);
        let from = event.request_received_timestamp;
        let (owner, committed) = (owner.to_owned(), event.stage_timestamp);
        tenures.push(Tenure { epoch, owner, from, committed, draining: None, until: None });
    }

    fn drain(&mut self, event: &Event, shard: &str) {
        if let Some(last) = self.tenures.get_mut(shard).and_then(|tenures| tenures.last_mut()) {
            last.draining.get_or_insert(event.stage_timestamp);
        }
    }

    /// What is wrong with a write in `cluster`, if anything is; a sentence.
    pub fn violation(&self, by: &Attribution, cluster: &str, event: &Event) -> Option<String> {
        let reason = self.allows(by, cluster, event).err()?;
        let Attribution { member, shard, epoch, key } = by;
        Some(format!(
            "{} {} in {cluster} by {member} for {shard} at epoch {epoch} (key {key}): {reason}",
            event.verb, event.request_uri
        ))
    }

    fn allows(&self, by: &Attribution, cluster: &str, event: &Event) -> Result<(), String> {
        if by.shard.split('/').next() != Some(cluster) {
            return Err("that shard is another cluster's".to_owned());
        }
        let tenures = self.tenures.get(&by.shard).map_or(&[][..], Vec::as_slice);
        let Some(tenure) = tenures.iter().find(|tenure| tenure.epoch == by.epoch) else {
            return Err("nobody owned it at that epoch".to_owned());
        };
        if tenure.owner != by.member {
            return Err(format!("{} owned it at that epoch", tenure.owner));
        }
        let (sent, done) = (event.request_received_timestamp, event.stage_timestamp);
        if sent < tenure.from {
            return Err(format!("{sent} is before it owned it, {}", tenure.from));
        }
        match tenure.until {
            Some(until) if done > until => {
                Err(format!("{done} is after its ownership ended, {until}"))
            }
            _ => Ok(()),
        }
    }
}

fn end_last(tenures: &mut [Tenure], at: Timestamp) {
    if let Some(last) = tenures.last_mut() {
        last.until.get_or_insert(at);
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

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
