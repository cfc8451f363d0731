//! Lists and watches the Pods beside the Leases in the home cluster, for what they show of containers that
//! have ended ([`crate::death`]).
//!
//! It begins when a Member names a container, so a fleet outside of Kubernetes asks nobody for Pods. The
//! right to read them is optional, and so is this whole task: without it, silence decides.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tracing::{debug, info};

use super::Message;
use super::home::{LIST_TIMEOUT, WATCH_SECONDS, WATCH_TIMEOUT};
use crate::death::Ended;

/// Pods in one page of a list.
const PAGE: u32 = 100;
/// The most pages that are read. Containers of further Pods are seen when their Pods change.
const MAX_PAGES: usize = 50;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(2);
/// The pause where the right to read Pods is missing.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(300);

/// Follows the Pods until the loop is gone.
pub(crate) async fn follow(client: Client, namespace: String, messages: mpsc::Sender<Message>) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let api = Api::namespaced_with(client, &namespace, &resource);
    let mut was_forbidden = false;
    while let Err(error) = list_and_watch(&api, &messages).await {
        let Some(error) = error else { return };
        let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
        if is_forbidden && !was_forbidden {
            info!(
                namespace,
                "this member may not list and watch Pods in the home cluster: where a container ends and does not start again, its Lease decides when its shards move"
            );
        }
        was_forbidden |= is_forbidden;
        debug!("follow Pods: {}", model::error::chain(&error));
        tokio::time::sleep(if is_forbidden { FORBIDDEN_PAUSE } else { PAUSE }).await;
    }
}

/// A list and one watch after it. Fails with nothing when the loop is gone.
async fn list_and_watch(
    api: &Api<DynamicObject>,
    messages: &mpsc::Sender<Message>,
) -> Result<(), Option<kube::Error>> {
    let mut version = list(api, messages).await?;
    loop {
        watch(api, &mut version, messages).await?;
    }
}

async fn list(
    api: &Api<DynamicObject>,
    messages: &mpsc::Sender<Message>,
) -> Result<String, Option<kube::Error>> {
    let mut params = ListParams::default().limit(PAGE);
    let mut version = String::new();
    for _ in 0..MAX_PAGES {
        let page = tokio::time::timeout(LIST_TIMEOUT, api.list(&params)).await;
        let page = page.map_err(|_| Some(timed_out()))?.map_err(Some)?;
        version = page.metadata.resource_version.unwrap_or_default();
        pass_on(page.items.iter(), messages).await?;
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            break;
        }
    }
    Ok(version)
}

async fn watch(
    api: &Api<DynamicObject>,
    version: &mut String,
    messages: &mpsc::Sender<Message>,
) -> Result<(), Option<kube::Error>> {
    let params =
        WatchParams { timeout: Some(WATCH_SECONDS), bookmarks: true, ..WatchParams::default() };
    let stream = tokio::time::timeout(LIST_TIMEOUT, api.watch(&params, version)).await;
    let mut stream = pin!(stream.map_err(|_| Some(timed_out()))?.map_err(Some)?);
    loop {
        let event = tokio::time::timeout(WATCH_TIMEOUT, stream.next()).await;
        let Some(event) = event.map_err(|_| Some(timed_out()))? else { return Ok(()) };
        match event.map_err(Some)? {
            // What a Pod shows last is as true as what it showed before.
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => {
                if let Some(seen) = &pod.metadata.resource_version {
                    version.clone_from(seen);
                }
                pass_on([&pod].into_iter(), messages).await?;
            }
            WatchEvent::Bookmark(mark) => *version = mark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(Some(kube::Error::Api(status))),
        }
    }
}

async fn pass_on(
    pods: impl Iterator<Item = &DynamicObject>,
    messages: &mpsc::Sender<Message>,
) -> Result<(), Option<kube::Error>> {
    let shown = |pod: &DynamicObject| {
        let uid = pod.metadata.uid.as_deref()?;
        Some(Ended::shown_by(uid, &pod.data["status"]))
    };
    let ended: Vec<Ended> = pods.filter_map(shown).flatten().collect();
    if ended.is_empty() {
        return Ok(());
    }
    messages.send(Message::Ended(ended)).await.map_err(|_| None)
}

fn timed_out() -> kube::Error {
    kube::Error::Service("no answer in time".into())
}
