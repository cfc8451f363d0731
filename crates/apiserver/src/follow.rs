//! Follows one kind: list, then watch, for ever. For the server's stand-ins (`workloads`, `gc`),
//! which are ordinary clients and need what every client needs.
//!
//! # Invariants
//! - The first message is a complete [`FollowEvent::Reset`]; there is another whenever events may
//!   have been missed.
//! - Messages are in the order of the server. The channel is bounded, so a slow receiver slows the
//!   watch instead of filling memory.

use std::future::Future;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use kube::api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams};
use kube::core::ObjectList;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
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

/// Something that can be listed and watched.
pub(crate) trait Source: Send {
    /// Its objects.
    type Object: ResourceExt + Clone + DeserializeOwned + Send + 'static;

    /// One page.
    fn list(
        &self,
        params: &ListParams,
    ) -> impl Future<Output = kube::Result<ObjectList<Self::Object>>> + Send;

    /// Events after a resource version.
    fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> impl Future<
        Output = kube::Result<impl Stream<Item = kube::Result<WatchEvent<Self::Object>>> + Send>,
    > + Send;
}

/// Whole objects.
pub(crate) struct Objects<K>(pub(crate) Api<K>);

/// Only their metadata.
pub(crate) struct Metadata<K>(pub(crate) Api<K>);

// === impl Objects ===

impl<K> Source for Objects<K>
where
    K: ResourceExt + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    type Object = K;

    async fn list(&self, params: &ListParams) -> kube::Result<ObjectList<K>> {
        self.0.list(params).await
    }

    async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<K>>> + Send> {
        self.0.watch(params, version).await
    }
}

// === impl Metadata ===

impl Source for Metadata<kube::core::DynamicObject> {
    type Object = PartialObjectMeta;

    async fn list(&self, params: &ListParams) -> kube::Result<ObjectList<PartialObjectMeta>> {
        self.0.list_metadata(params).await
    }

    async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<PartialObjectMeta>>> + Send> {
        self.0.watch_metadata(params, version).await
    }
}

/// The number inside a resource version; 0 if there is none.
pub(crate) fn version_number(version: Option<&str>) -> u64 {
    version.and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Follows `source` until `shutdown` or until nobody listens, wrapping each change into a message.
pub(crate) async fn follow<S: Source, M: Send>(
    source: S,
    wrap: impl Fn(FollowEvent<S::Object>) -> M + Send,
    messages: mpsc::Sender<M>,
    shutdown: CancellationToken,
) {
    let mut backoff = MIN_BACKOFF;
    let work = async {
        loop {
            let progress = match list_and_watch(&source, &wrap, &messages).await {
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
    };
    tokio::select! {
        () = work => {}
        () = shutdown.cancelled() => {}
    }
}

/// Why a watch ended early.
enum Interruption {
    /// Nobody listens any more.
    Closed,
    /// The server or the connection failed; `progress` says whether anything was received.
    Failed { error: kube::Error, progress: bool },
}

async fn list_and_watch<S: Source, M>(
    source: &S,
    wrap: &impl Fn(FollowEvent<S::Object>) -> M,
    messages: &mpsc::Sender<M>,
) -> Result<(), Interruption> {
    let failed = |progress: bool| move |error| Interruption::Failed { error, progress };
    let send = async |change| messages.send(wrap(change)).await.map_err(|_| Interruption::Closed);
    let (objects, mut version) = list_all(source).await.map_err(failed(false))?;
    send(FollowEvent::Reset(objects, version_number(Some(&version)))).await?;

    let params = WatchParams { timeout: Some(WATCH_TIMEOUT_SECONDS), ..WatchParams::default() };
    loop {
        let from = version.clone();
        let events = source.watch(&params, &from).await.map_err(failed(true))?;
        let mut events = std::pin::pin!(events.into_stream());
        while let Some(event) = events.next().await {
            let change = match event.map_err(failed(true))? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    FollowEvent::Applied(object)
                }
                WatchEvent::Deleted(object) => FollowEvent::Deleted(object),
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    send(FollowEvent::Bookmark(version_number(Some(&version)))).await?;
                    continue;
                }
                // Probably expired: only a new list helps.
                WatchEvent::Error(status) => {
                    return Err(failed(true)(kube::Error::Api(status)));
                }
            };
            if let FollowEvent::Applied(object) | FollowEvent::Deleted(object) = &change
                && let Some(next) = object.resource_version()
            {
                version = next;
            }
            send(change).await?;
        }
        // A pause, so as not to flood a server that closes every watch at once.
        tokio::time::sleep(MIN_BACKOFF).await;
    }
}

async fn list_all<S: Source>(source: &S) -> kube::Result<(Vec<S::Object>, String)> {
    let mut params = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = source.list(&params).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok((objects, page.metadata.resource_version.unwrap_or_default())),
        }
    }
}
