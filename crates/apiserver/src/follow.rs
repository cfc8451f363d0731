//! Follows one kind: list, then watch, for ever. For the server's stand-ins (`workloads`, `gc`),
//! which are ordinary clients and need what every client needs.
//!
//! # Invariants
//! - The first message is a complete [`FollowEvent::Reset`]; there is another whenever events may
//!   have been missed.
//! - Messages are in the order of the server. The channel is bounded, so a slow receiver slows the
//!   watch instead of filling memory.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    ManagedFieldsEntry, ObjectMeta, OwnerReference, Time,
};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Objects per page of a list.
const PAGE: u32 = 500;
/// Seconds a watch may last before it is renewed.
const WATCH_TIMEOUT_SECONDS: u32 = 290;
/// First pause after a failure; doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(50);
/// Longest pause after failures.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// What happened to a kind.
#[derive(Debug)]
pub(crate) enum FollowEvent<K> {
    /// These are all objects; they replace whatever was known before.
    Reset(Vec<K>, u64),
    /// An object was added or changed.
    Applied(K),
    /// An object was deleted; this is its last state.
    Deleted(K),
    /// Nothing else happened up to this resource version.
    Bookmark(u64),
}

/// What can be listed and watched: a kind.
pub(crate) struct Source {
    pub(crate) client: Client,
    /// The path of all its objects.
    pub(crate) path: String,
    /// Whether only their metadata is wanted.
    pub(crate) metadata: bool,
}

/// An object of which only the metadata matter.
#[derive(Debug, Deserialize)]
pub(crate) struct Bare {
    #[serde(with = "Metadata")]
    pub(crate) metadata: ObjectMeta,
}

/// Metadata without managedFields, which are long and which no stand-in reads.
#[derive(Deserialize)]
#[serde(remote = "ObjectMeta", rename_all = "camelCase")]
pub(crate) struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    generate_name: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(skip)]
    managed_fields: Option<Vec<ManagedFieldsEntry>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    self_link: Option<String>,
    uid: Option<String>,
}

/// An object of which only the version matters: a bookmark, or the answer to a write.
#[derive(Deserialize)]
pub(crate) struct Versioned {
    metadata: Version,
}

/// A page of a list. Its objects are read later, as their type: so this is compiled once for all.
#[derive(Deserialize)]
struct Page {
    metadata: Version,
    items: Vec<Box<RawValue>>,
}

/// A line of a watch.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

/// Reads what is sent, and wraps it into a message.
type Wrap<'a, M> = dyn Fn(FollowEvent<&str>) -> serde_json::Result<Wrapped<M>> + Send + Sync + 'a;

/// A message about an object, and the object's resource version.
struct Wrapped<M> {
    message: M,
    version: Option<String>,
}

/// The number inside a resource version; 0 if there is none.
pub(crate) fn version_number(version: Option<&str>) -> u64 {
    version.and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Follows `source` until `shutdown` or until nobody listens, wrapping each change into a message.
pub(crate) async fn follow<K: AsRef<ObjectMeta> + DeserializeOwned, M: Send>(
    source: Source,
    wrap: impl Fn(FollowEvent<K>) -> M + Send + Sync,
    messages: mpsc::Sender<M>,
    shutdown: CancellationToken,
) {
    let wrap = |event: FollowEvent<&str>| {
        let event: FollowEvent<K> = event.read()?;
        let version = match &event {
            FollowEvent::Applied(object) | FollowEvent::Deleted(object) => {
                object.as_ref().resource_version.clone()
            }
            FollowEvent::Reset(..) | FollowEvent::Bookmark(_) => None,
        };
        Ok(Wrapped { message: wrap(event), version })
    };
    tokio::select! {
        () = keep_up(&source, &wrap, &messages) => {}
        () = shutdown.cancelled() => {}
    }
}

impl Bare {
    /// Its name, or empty.
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its uid, or empty.
    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
}

impl AsRef<ObjectMeta> for Bare {
    fn as_ref(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Versioned {
    /// The number inside its version; 0 if there is none.
    pub(crate) fn number(&self) -> u64 {
        version_number(Some(&self.metadata.resource_version))
    }
}

impl FollowEvent<&str> {
    /// The same with its objects read.
    fn read<K: DeserializeOwned>(self) -> serde_json::Result<FollowEvent<K>> {
        Ok(match self {
            Self::Reset(objects, version) => {
                let objects = objects.into_iter().map(serde_json::from_str);
                FollowEvent::Reset(objects.collect::<Result<_, _>>()?, version)
            }
            Self::Applied(object) => FollowEvent::Applied(serde_json::from_str(object)?),
            Self::Deleted(object) => FollowEvent::Deleted(serde_json::from_str(object)?),
            Self::Bookmark(version) => FollowEvent::Bookmark(version),
        })
    }
}

impl Source {
    fn request(&self) -> Request {
        Request::new(&self.path)
    }

    /// Every object, and the version of the list.
    async fn list(&self) -> kube::Result<(Vec<Box<RawValue>>, String)> {
        let mut params = ListParams::default().limit(PAGE);
        let mut objects = Vec::new();
        loop {
            let request = match self.metadata {
                true => self.request().list_metadata(&params),
                false => self.request().list(&params),
            };
            let request = request.map_err(kube::Error::BuildRequest)?;
            let Page { metadata, items } = self.client.request(request).await?;
            objects.extend(items);
            if metadata.next.is_empty() {
                return Ok((objects, metadata.resource_version));
            }
            params.continue_token = Some(metadata.next);
        }
    }

    /// A watch from `version` on, in lines.
    async fn watch(
        &self,
        version: &str,
    ) -> kube::Result<impl futures::Stream<Item = std::io::Result<String>> + use<>> {
        let params = WatchParams { timeout: Some(WATCH_TIMEOUT_SECONDS), ..WatchParams::default() };
        let request = match self.metadata {
            true => self.request().watch_metadata(&params, version),
            false => self.request().watch(&params, version),
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        Ok(self.client.request_stream(request).await?.lines())
    }
}

/// Why a watch ended early.
enum Interruption {
    /// Nobody listens any more.
    Closed,
    /// The server or the connection failed; `progress` says whether anything was received.
    Failed { error: kube::Error, progress: bool },
}

/// Lists and watches until nobody listens any more.
async fn keep_up<M: Send>(source: &Source, wrap: &Wrap<'_, M>, messages: &mpsc::Sender<M>) {
    let mut backoff = MIN_BACKOFF;
    loop {
        let progress = match list_and_watch(source, wrap, messages).await {
            Ok(()) => true,
            Err(Interruption::Closed) => return,
            Err(Interruption::Failed { error, progress }) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "follow: start over");
                progress
            }
        };
        backoff = if progress { MIN_BACKOFF } else { (backoff * 2).min(MAX_BACKOFF) };
        tokio::time::sleep(backoff).await;
    }
}

async fn list_and_watch<M>(
    source: &Source,
    wrap: &Wrap<'_, M>,
    messages: &mpsc::Sender<M>,
) -> Result<(), Interruption> {
    let failed = |progress: bool| move |error| Interruption::Failed { error, progress };
    let unread = |error| failed(true)(kube::Error::SerdeError(error));
    let send = async |event: FollowEvent<&str>| {
        let Wrapped { message, version } = wrap(event).map_err(unread)?;
        messages.send(message).await.map_err(|_| Interruption::Closed)?;
        Ok(version)
    };
    let (objects, mut version) = source.list().await.map_err(failed(false))?;
    let all = objects.iter().map(|object| object.get()).collect();
    send(FollowEvent::Reset(all, version_number(Some(&version)))).await?;
    drop(objects);
    loop {
        let mut lines = source.watch(&version).await.map_err(failed(true))?;
        // A connection that breaks ends the watch, and so does a line that it cuts off.
        while let Some(Ok(line)) = lines.next().await {
            let Line { kind, object } = match serde_json::from_str(&line) {
                Err(error) if error.is_eof() => break,
                line => line.map_err(unread)?,
            };
            let next = match kind {
                "ADDED" | "MODIFIED" => send(FollowEvent::Applied(object.get())).await?,
                "DELETED" => send(FollowEvent::Deleted(object.get())).await?,
                "BOOKMARK" => {
                    let mark: Versioned = serde_json::from_str(object.get()).map_err(unread)?;
                    send(FollowEvent::Bookmark(mark.number())).await?;
                    Some(mark.metadata.resource_version)
                }
                // Probably expired: only a new list helps.
                _ => {
                    let status: Status = serde_json::from_str(object.get()).map_err(unread)?;
                    return Err(failed(true)(kube::Error::Api(status.boxed())));
                }
            };
            version = next.unwrap_or(version);
        }
        // A pause, so as not to flood a server that closes every watch at once.
        tokio::time::sleep(MIN_BACKOFF).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_metadata_but_managed_fields_are_read() {
        let mut metadata = json!({
            "annotations": {"a": "1"}, "creationTimestamp": "2024-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 3, "deletionTimestamp": "2024-01-01T00:00:03Z",
            "finalizers": ["f"], "generateName": "x-", "generation": 2, "labels": {"l": "1"},
            "name": "x", "namespace": "n", "resourceVersion": "7", "selfLink": "s", "uid": "u",
            "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "o"}],
        });
        let whole: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
        metadata["managedFields"] = json!("whatever it is");
        let read: Bare = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        assert_eq!(read.metadata, whole);
    }
}
