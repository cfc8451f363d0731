//! What etcd is asked, as its gRPC gateway has it in JSON. Pure but for [`Session`], the seam behind
//! which a connection or a stand-in answers.
//!
//! Paths and fields are those of `etcdserverpb/rpc.proto`; numbers of 64 bits are strings in JSON.

use std::time::Duration;

use futures::future::BoxFuture;
use sdk::{Context, ReconcileError};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// How long an answer may take.
const QUICK: Duration = Duration::from_secs(10);
/// How long a defragmentation may take: it writes the whole database anew.
const LONG: Duration = Duration::from_secs(40);
/// The most members that an answer may list. etcd itself advises at most seven.
const MAX_MEMBERS: usize = 64;
/// The longest text of an answer that is kept, in characters.
const MAX_TEXT: usize = 300;

/// Why etcd was not asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// There is no connection.
    #[error("reach etcd in Pod {pod}")]
    Unreached {
        /// The Pod.
        pod: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no answer yet.
    #[error("ask etcd in Pod {pod} for {path}: no answer after {seconds} s")]
    Slow {
        /// The Pod.
        pod: String,
        /// What was asked.
        path: &'static str,
        /// How long that took.
        seconds: u64,
    },
    /// etcd refuses.
    #[error("ask etcd in Pod {pod} for {path}: it answers {code}: {message}")]
    Refused {
        /// The Pod.
        pod: String,
        /// What was asked.
        path: &'static str,
        /// The code of HTTP.
        code: u16,
        /// etcd's words.
        message: String,
    },
    /// The answer is no answer of etcd.
    #[error("ask etcd in Pod {pod} for {path}: the answer is unreadable")]
    Unreadable {
        /// The Pod.
        pod: String,
        /// What was asked.
        path: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl From<EtcdError> for ReconcileError {
    fn from(error: EtcdError) -> Self {
        Self::transient(error)
    }
}

impl EtcdError {
    /// Whether the leader finds that a learner lags behind.
    pub(crate) fn lags(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("in sync with leader"))
    }

    /// Whether etcd asks for a user, which the controller is not.
    pub(crate) fn wants_user(&self) -> bool {
        let signs = ["user name is empty", "permission denied", "invalid auth token"];
        matches!(self, Self::Refused { message, .. } if signs.iter().any(|sign| message.contains(sign)))
    }
}

/// A member to be asked, and how it proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The namespace of its Pod.
    pub namespace: String,
    /// Its Pod.
    pub pod: String,
    /// Its DNS name, which its certificate must have.
    pub host: String,
    /// What to trust and to show, with TLS.
    pub trust: Option<Trust>,
}

/// What to trust and to show.
#[derive(Clone, PartialEq, Eq)]
pub struct Trust {
    /// The certificate of the authority, as PEM.
    pub authority: String,
    /// Our certificate, as PEM.
    pub certificate: String,
    /// Its private key, as PEM.
    pub key: String,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust").finish_non_exhaustive()
    }
}

/// Opens connections to members. A test has a stand-in of etcd here.
pub trait Gateway: Send + Sync + 'static {
    /// A connection to a member.
    fn open<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, EtcdError>>;
}

/// A connection to a member.
pub trait Session: Send {
    /// The answer to a request: the JSON of a good one.
    fn post<'a>(
        &'a mut self,
        path: &'static str,
        body: Value,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Value, EtcdError>>;

    /// The Pod.
    fn pod(&self) -> &str;
}

/// A member as etcd lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Listed {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(crate) id: u64,
    /// Empty until it has started.
    pub(crate) name: String,
    #[serde(rename = "peerURLs")]
    pub(crate) peer_urls: Vec<String>,
    #[serde(rename = "isLearner")]
    pub(crate) is_learner: bool,
}

/// All members, by a linearizable read: a majority agreed on it after it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Roster {
    header: Header,
    pub(crate) members: Vec<Listed>,
}

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Look {
    pub(crate) version: String,
    #[serde(rename = "dbSize", deserialize_with = "signed")]
    pub(crate) db_size: i64,
    #[serde(rename = "dbSizeInUse", deserialize_with = "signed")]
    pub(crate) in_use: i64,
    /// 0 where etcd is older than 3.6.
    #[serde(rename = "dbSizeQuota", deserialize_with = "signed")]
    pub(crate) quota: i64,
    /// Who leads by its own view; 0 if nobody.
    #[serde(deserialize_with = "number")]
    pub(crate) leader: u64,
    #[serde(rename = "isLearner")]
    pub(crate) is_learner: bool,
    /// Alarms among them.
    pub(crate) errors: Vec<String>,
}

/// An alarm that a member raised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Alarm {
    #[serde(rename = "memberID", deserialize_with = "number")]
    pub(crate) member: u64,
    /// `NOSPACE` or `CORRUPT`.
    pub(crate) alarm: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Header {
    #[serde(deserialize_with = "number")]
    cluster_id: u64,
}

impl Roster {
    /// etcd's id of the cluster, in hexadecimal as etcd's logs have it.
    pub(crate) fn cluster_id(&self) -> String {
        format!("{:x}", self.header.cluster_id)
    }
}

/// Lists the members.
pub(crate) async fn roster(session: &mut dyn Session) -> Result<Roster, EtcdError> {
    let body = json!({"linearizable": true});
    let path = "/v3/cluster/member/list";
    let roster: Roster = ask(session, path, body, QUICK).await?;
    if roster.members.len() > MAX_MEMBERS {
        // A part of the members decides nothing.
        let source = format!("more than {MAX_MEMBERS} members").into();
        return Err(EtcdError::Unreadable { pod: session.pod().to_owned(), path, source });
    }
    Ok(roster)
}

/// Asks a member about itself.
pub(crate) async fn look(session: &mut dyn Session) -> Result<Look, EtcdError> {
    let mut look: Look = ask(session, "/v3/maintenance/status", json!({}), QUICK).await?;
    look.errors.truncate(MAX_MEMBERS);
    look.errors.iter_mut().for_each(shorten);
    Ok(look)
}

/// Asks for the alarms. etcd makes a proposal of this, so it is asked only when a status names one.
pub(crate) async fn alarms(session: &mut dyn Session) -> Result<Vec<Alarm>, EtcdError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Answer {
        alarms: Vec<Alarm>,
    }
    let body = json!({"action": "GET"});
    let answer: Answer = ask(session, "/v3/maintenance/alarm", body, QUICK).await?;
    Ok(answer.alarms.into_iter().take(MAX_MEMBERS).collect())
}

/// Adds a learner.
pub(crate) async fn add_learner(session: &mut dyn Session, url: &str) -> Result<(), EtcdError> {
    let body = json!({"peerURLs": [url], "isLearner": true});
    session.post("/v3/cluster/member/add", body, QUICK).await.map(drop)
}

/// Gives a learner a vote, if it is in sync.
pub(crate) async fn promote(session: &mut dyn Session, id: u64) -> Result<(), EtcdError> {
    let body = json!({"ID": id.to_string()});
    session.post("/v3/cluster/member/promote", body, QUICK).await.map(drop)
}

/// Removes a member.
pub(crate) async fn remove(session: &mut dyn Session, id: u64) -> Result<(), EtcdError> {
    let body = json!({"ID": id.to_string()});
    session.post("/v3/cluster/member/remove", body, QUICK).await.map(drop)
}

/// Makes another member lead. Only the leader can be asked.
pub(crate) async fn move_leader(session: &mut dyn Session, to: u64) -> Result<(), EtcdError> {
    let body = json!({"targetID": to.to_string()});
    session.post("/v3/maintenance/transfer-leadership", body, QUICK).await.map(drop)
}

/// Gives unused space of a member's database back.
pub(crate) async fn defragment(session: &mut dyn Session) -> Result<(), EtcdError> {
    session.post("/v3/maintenance/defragment", json!({}), LONG).await.map(drop)
}

/// Ends the alarm of a full database.
pub(crate) async fn disarm(session: &mut dyn Session, member: u64) -> Result<(), EtcdError> {
    let member = member.to_string();
    let body = json!({"action": "DEACTIVATE", "memberID": member, "alarm": "NOSPACE"});
    session.post("/v3/maintenance/alarm", body, QUICK).await.map(drop)
}

async fn ask<T: for<'de> Deserialize<'de>>(
    session: &mut dyn Session,
    path: &'static str,
    body: Value,
    limit: Duration,
) -> Result<T, EtcdError> {
    let answer = session.post(path, body, limit).await?;
    T::deserialize(answer).map_err(|error| EtcdError::Unreadable {
        pod: session.pod().to_owned(),
        path,
        source: error.into(),
    })
}

/// The error for an answer that is not good.
pub(crate) fn refused(pod: &str, path: &'static str, code: u16, answer: &[u8]) -> EtcdError {
    let read = serde_json::from_slice::<Value>(answer).ok();
    let words = read
        .as_ref()
        .and_then(|read| read.get("message").or_else(|| read.get("error")).and_then(Value::as_str));
    let mut message =
        words.map_or_else(|| String::from_utf8_lossy(answer).into_owned(), str::to_owned);
    shorten(&mut message);
    EtcdError::Refused { pod: pod.to_owned(), path, code, message }
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number<T> {
    Text(String),
    Number(T),
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match Number::<u64>::deserialize(from)? {
        Number::Number(number) => Ok(number),
        Number::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

fn signed<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    match Number::<i64>::deserialize(from)? {
        Number::Number(number) => Ok(number),
        Number::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
