//! Lists and watches Leases, Members and ShardMaps of the home cluster.
//!
//! One task per kind: a consistent list, then a watch from its version. When a watch ends, the task opens
//! another from the last version seen; if that version is gone, it starts again with a list. If the
//! server does not end a watch in time, the task ends it, because the connection may be dead.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Message;
use crate::lease;
use crate::problem::{self, Operation};
use crate::read;
use crate::record::{Kind, Object, Observation};

/// How long the server keeps a watch open.
pub(super) const WATCH_SECONDS: u32 = 60;
/// How long the task waits for a watch to show something or to end.
pub(super) const WATCH_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// How long a list may take.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Objects in one page of a list.
const PAGE: u32 = 500;
/// The first pause after a failure; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Starts the three watches. They end with the loop that receives their messages. `number` tells what they
/// show from what earlier watches showed.
pub(crate) fn spawn(
    tasks: &mut JoinSet<()>,
    client: &Client,
    namespace: &str,
    messages: &mpsc::Sender<Message>,
    rng: &mut fastrand::Rng,
    number: u64,
) {
    let mut watch = |kind| Follow {
        kind,
        number,
        namespace: namespace.to_owned(),
        messages: messages.clone(),
        rng: rng.fork(),
    };
    for kind in [Kind::Lease, Kind::Member, Kind::Map] {
        tasks.spawn(watch(kind).run(read::api(client, namespace, kind)));
    }
}

struct Follow {
    kind: Kind,
    number: u64,
    namespace: String,
    messages: mpsc::Sender<Message>,
    rng: fastrand::Rng,
}

/// Why a list or watch ended.
enum End {
    /// The loop is gone.
    Closed,
    /// The version to watch from is no longer known.
    Relist,
    /// Something failed.
    Failed(String),
}

impl Follow {
    async fn run(mut self, api: Api<DynamicObject>) {
        let mut failures = 0u32;
        loop {
            let (verb, end) = self.list_and_watch(&api, &mut failures).await;
            let text = match end {
                End::Closed => return,
                End::Relist => {
                    tokio::time::sleep(FIRST_PAUSE).await;
                    continue;
                }
                End::Failed(text) => text,
            };
            if self.report(verb, Some(text)).await.is_err() {
                return;
            }
            let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(MAX_PAUSE);
            failures += 1;
            tokio::time::sleep(pause.mul_f64(0.5 + 0.5 * self.rng.f64())).await;
        }
    }

    /// One list and the watches that follow it, until something fails. Returns the verb that failed.
    async fn list_and_watch(
        &mut self,
        api: &Api<DynamicObject>,
        failures: &mut u32,
    ) -> (&'static str, End) {
        let mut version = match self.list(api).await {
            Ok(version) => version,
            Err(end) => return ("list", end),
        };
        loop {
            if let Err(end) = self.watch(api, &mut version, failures).await {
                return ("watch", end);
            }
        }
    }

    async fn list(&self, api: &Api<DynamicObject>) -> Result<String, End> {
        let mut objects = Vec::new();
        let mut params = ListParams { limit: Some(PAGE), ..self.selection() };
        let version = loop {
            let page = tokio::time::timeout(LIST_TIMEOUT, api.list(&params)).await;
            let page = page
                .map_err(|_| {
                    End::Failed(problem::timed_out(&self.operation("list"), LIST_TIMEOUT))
                })?
                .map_err(|error| self.end("list", &error))?;
            for object in page.items {
                objects.extend(self.read("list", object)?);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => break page.metadata.resource_version.unwrap_or_default(),
            }
        };
        self.send(Observation::Listed(self.kind, version.clone(), objects)).await?;
        self.report("list", None).await?;
        Ok(version)
    }

    /// One watch, until the server ends it.
    async fn watch(
        &self,
        api: &Api<DynamicObject>,
        version: &mut String,
        failures: &mut u32,
    ) -> Result<(), End> {
        let selection = self.selection();
        let params = WatchParams {
            label_selector: selection.label_selector,
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let silent = || End::Failed(problem::timed_out(&self.operation("watch"), WATCH_TIMEOUT));
        let stream = tokio::time::timeout(LIST_TIMEOUT, api.watch(&params, version))
            .await
            .map_err(|_| silent())?
            .map_err(|error| self.end("watch", &error))?;
        *failures = 0;
        self.report("watch", None).await?;
        let mut stream = pin!(stream);
        while let Some(event) =
            tokio::time::timeout(WATCH_TIMEOUT, stream.next()).await.map_err(|_| silent())?
        {
            match event.map_err(|error| self.end("watch", &error))? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.pass_on(object, version, Observation::Applied).await?;
                }
                WatchEvent::Deleted(object) => {
                    self.pass_on(object, version, Observation::Deleted).await?;
                }
                WatchEvent::Bookmark(mark) => *version = mark.metadata.resource_version,
                WatchEvent::Error(status) => {
                    return Err(self.end("watch", &kube::Error::Api(status)));
                }
            }
        }
        Ok(())
    }

    async fn pass_on(
        &self,
        object: DynamicObject,
        version: &mut String,
        observed: fn(Object) -> Observation,
    ) -> Result<(), End> {
        let Some(object) = self.read("watch", object)? else { return Ok(()) };
        version.clone_from(&object.version().resource);
        self.send(observed(object)).await
    }

    fn read(&self, verb: &'static str, object: DynamicObject) -> Result<Option<Object>, End> {
        let unreadable = |error| End::Failed(problem::unreadable(&self.operation(verb), &error));
        read::object(self.kind, object).map_err(unreadable)
    }

    fn selection(&self) -> ListParams {
        match self.kind {
            Kind::Lease => ListParams::default().labels(&lease::selector()),
            Kind::Member | Kind::Map => ListParams::default(),
        }
    }

    fn end(&self, verb: &'static str, error: &kube::Error) -> End {
        match error {
            kube::Error::Api(status) if status.code == 410 => End::Relist,
            _ => End::Failed(problem::explain(&self.operation(verb), error)),
        }
    }

    fn operation(&self, verb: &'static str) -> Operation {
        Operation { verb, resource: self.kind.resource(), namespace: self.namespace.clone() }
    }

    async fn send(&self, observation: Observation) -> Result<(), End> {
        let message = Message::Home(self.number, Box::new(observation));
        self.messages.send(message).await.map_err(|_| End::Closed)
    }

    async fn report(&self, verb: &'static str, text: Option<String>) -> Result<(), End> {
        let message = Message::Problem(self.operation(verb), text);
        self.messages.send(message).await.map_err(|_| End::Closed)
    }
}
