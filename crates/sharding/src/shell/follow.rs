//! Lists and watches objects of the home cluster.
//!
//! A consistent list, then a watch from its version. When a watch ends, another begins from the last version
//! seen; if that version is gone, it starts again with a list. If the server does not end a watch in time, this
//! ends it, because the connection may be dead. Failures, and watches that end at once, are followed by
//! growing pauses.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use model::{Clock, doubled};

use crate::problem::{self, Operation};
use crate::read::Unreadable;

/// How long the server keeps a watch open.
const WATCH_SECONDS: u32 = 60;
/// How long a watch may show nothing and not end.
const WATCH_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// How long a list may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// The first pause after a failure; doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// A watch that ends sooner counts as a failure.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// What is followed, and where what it shows goes.
pub(super) trait Sink: Send {
    /// An object, as it is kept.
    type Item: Send;
    /// The most pages that are read. Further objects are seen when they change.
    const MAX_PAGES: usize = usize::MAX;
    /// Whether a list counts that has more pages: without the objects of those.
    const COUNTS_IN_PART: bool = true;

    /// Which objects.
    fn selection(&self) -> ListParams {
        ListParams::default()
    }

    /// Objects in one page of a list: so many of the largest fit into the answer that is read.
    fn page(&self) -> u32;

    /// An operation on them.
    fn operation(&self, verb: &'static str) -> Operation;

    /// Reads an object; `None` if it does not matter.
    fn read(&self, object: DynamicObject) -> Result<Option<Self::Item>, Unreadable>;

    /// Takes in what a list or watch shows.
    fn show(&mut self, shown: Shown<Self::Item>)
    -> impl Future<Output = Result<(), Closed>> + Send;

    /// Takes in that an operation fails, or works. Returns the least pause before the next attempt.
    fn report(
        &mut self,
        operation: Operation,
        failure: Option<Failure>,
    ) -> impl Future<Output = Result<Duration, Closed>> + Send;
}

/// What a list or watch shows.
pub(super) enum Shown<T> {
    /// A complete, consistent list with its version.
    Listed(String, Vec<T>),
    /// An object was added or changed.
    Applied(T),
    /// An object was deleted. This is its last state.
    Deleted(T),
}

/// Why an operation fails.
pub(super) struct Failure {
    /// The status of the answer, if there is one.
    pub(super) code: Option<u16>,
    /// Operation, object, cause and fix.
    pub(super) text: String,
}

/// The one who takes in what is shown is gone.
pub(super) struct Closed;

/// Why a list or watch ended.
enum End {
    Closed,
    /// The version to watch from is no longer known.
    Relist,
    Failed(Failure),
}

impl From<Closed> for End {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

/// Follows objects until the sink is closed.
pub(super) async fn follow<S: Sink>(
    api: Api<DynamicObject>,
    mut sink: S,
    clock: Arc<dyn Clock>,
    mut rng: fastrand::Rng,
) {
    let mut follow = Follow { api, clock, failures: 0 };
    loop {
        let (verb, end) = follow.list_and_watch(&mut sink, &mut rng).await;
        let failure = match end {
            End::Closed => return,
            End::Relist => {
                tokio::time::sleep(follow.pause(&mut rng)).await;
                continue;
            }
            End::Failed(failure) => failure,
        };
        let Ok(least) = sink.report(sink.operation(verb), Some(failure)).await else { return };
        let pause = follow.pause(&mut rng);
        tokio::time::sleep(pause.max(least)).await;
    }
}

struct Follow {
    api: Api<DynamicObject>,
    clock: Arc<dyn Clock>,
    /// Failures since something worked.
    failures: u32,
}

impl Follow {
    /// The pause after one more failure.
    fn pause(&mut self, rng: &mut fastrand::Rng) -> Duration {
        let pause = doubled(FIRST_PAUSE, self.failures, MAX_PAUSE);
        self.failures += 1;
        pause.mul_f64(0.5 + 0.5 * rng.f64())
    }

    /// One list and the watches that follow it, until something fails. Returns the verb that failed.
    async fn list_and_watch<S: Sink>(
        &mut self,
        sink: &mut S,
        rng: &mut fastrand::Rng,
    ) -> (&'static str, End) {
        let mut version = match self.list(sink).await {
            Ok(version) => version,
            Err(end) => return ("list", end),
        };
        loop {
            let opened = self.clock.now();
            let ended = self.watch(sink, &mut version).await;
            let is_short = self.clock.now().since(opened) < SHORT_WATCH;
            if !is_short {
                self.failures = 0;
            }
            match ended {
                Err(end) => return ("watch", end),
                Ok(()) if is_short => tokio::time::sleep(self.pause(rng)).await,
                Ok(()) => {}
            }
        }
    }

    async fn list<S: Sink>(&self, sink: &mut S) -> Result<String, End> {
        let mut objects = Vec::new();
        let mut params = ListParams { limit: Some(sink.page()), ..sink.selection() };
        let mut version = String::new();
        for _ in 0..S::MAX_PAGES {
            let page = tokio::time::timeout(LIST_TIMEOUT, self.api.list(&params)).await;
            let page = page.map_err(|_| timed_out(sink, "list", LIST_TIMEOUT))?;
            let page = page.map_err(|error| end(sink, "list", &error))?;
            for object in page.items {
                objects.extend(read(sink, "list", object)?);
            }
            version = page.metadata.resource_version.unwrap_or_default();
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                break;
            }
        }
        if params.continue_token.is_some() && !S::COUNTS_IN_PART {
            return Err(too_many(sink, S::MAX_PAGES));
        }
        sink.show(Shown::Listed(version.clone(), objects)).await?;
        sink.report(sink.operation("list"), None).await?;
        Ok(version)
    }

    /// One watch, until the server ends it.
    async fn watch<S: Sink>(&mut self, sink: &mut S, version: &mut String) -> Result<(), End> {
        let ListParams { label_selector, field_selector, .. } = sink.selection();
        let params = WatchParams {
            label_selector,
            field_selector,
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let stream = tokio::time::timeout(LIST_TIMEOUT, self.api.watch(&params, version)).await;
        let stream = stream.map_err(|_| timed_out(sink, "watch", LIST_TIMEOUT))?;
        let mut stream = pin!(stream.map_err(|error| end(sink, "watch", &error))?);
        sink.report(sink.operation("watch"), None).await?;
        loop {
            let event = tokio::time::timeout(WATCH_TIMEOUT, stream.next()).await;
            let Some(event) = event.map_err(|_| timed_out(sink, "watch", WATCH_TIMEOUT))? else {
                return Ok(());
            };
            let event = event.map_err(|error| end(sink, "watch", &error))?;
            if !matches!(event, WatchEvent::Error(_)) {
                self.failures = 0;
            }
            let (object, is_there) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
                WatchEvent::Deleted(object) => (object, false),
                WatchEvent::Bookmark(mark) => {
                    *version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => {
                    return Err(end(sink, "watch", &kube::Error::Api(status)));
                }
            };
            if let Some(seen) = &object.metadata.resource_version {
                version.clone_from(seen);
            }
            if let Some(item) = read(sink, "watch", object)? {
                let shown = if is_there { Shown::Applied(item) } else { Shown::Deleted(item) };
                sink.show(shown).await?;
            }
        }
    }
}

fn read<S: Sink>(
    sink: &S,
    verb: &'static str,
    object: DynamicObject,
) -> Result<Option<S::Item>, End> {
    let unreadable = |error| {
        let text = problem::unreadable(&sink.operation(verb), &error);
        End::Failed(Failure { code: None, text })
    };
    sink.read(object).map_err(unreadable)
}

fn timed_out<S: Sink>(sink: &S, verb: &'static str, after: Duration) -> End {
    let text = problem::timed_out(&sink.operation(verb), after);
    End::Failed(Failure { code: None, text })
}

fn too_many<S: Sink>(sink: &S, pages: usize) -> End {
    let Operation { verb, resource, namespace } = sink.operation("list");
    let most = pages.saturating_mul(sink.page() as usize);
    let text = format!(
        "{verb} {resource} in namespace {namespace} of the home cluster: there are more than {most}, so none is read, and \
         what was read before holds; fix: delete some"
    );
    End::Failed(Failure { code: None, text })
}

fn end<S: Sink>(sink: &S, verb: &'static str, error: &kube::Error) -> End {
    let code = match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    };
    match code {
        Some(410) => End::Relist,
        _ => End::Failed(Failure { code, text: problem::explain(&sink.operation(verb), error) }),
    }
}
