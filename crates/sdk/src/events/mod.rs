//! Events (`events.k8s.io/v1`): what controllers report to people about objects.
//!
//! Best effort: an Event that cannot be written is logged and forgotten. Repeats of the same Event
//! become a series on the first one instead of new objects, a busy series is written at most once per
//! [`series::SERIES_INTERVAL`], and what one source may write about one object is bounded ([`series::SPAM`]).
//!
//! kube-runtime's `Recorder` is no substitute: it would bring all of kube-runtime into the product, and
//! does not limit the number of Events.

mod series;

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use model::{AnyObject, Clock, Kind};

use series::{Occurrence, Plan, Series, shortened};

/// How long writing one Event may delay its reconcile.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);
/// The API server's limit on notes, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// Its limit on the names of the reporter, in bytes.
const MAX_REPORTER_BYTES: usize = 128;

/// Something worth telling a person about an object.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use leasehold_sdk::Event;
///
/// let (map, secret) = (ConfigMap::default(), Secret::default());
/// let event = Event::warning(&map, "NotCopied", "Copy", "the Secret is another's").related(&secret);
/// # drop(event);
/// ```
#[derive(Clone, Debug)]
pub struct Event<'a> {
    warning: bool,
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    reason: &'a str,
    action: &'a str,
    note: Cow<'a, str>,
}

impl<'a> Event<'a> {
    /// Something that went well. `reason` and `action` are words in CamelCase, `note` is a sentence.
    pub fn normal<K: AnyObject>(
        regarding: &K,
        reason: &'a str,
        action: &'a str,
        note: impl Into<Cow<'a, str>>,
    ) -> Self {
        let regarding = reference(regarding);
        Self { warning: false, regarding, related: None, reason, action, note: note.into() }
    }

    /// Something that needs attention.
    pub fn warning<K: AnyObject>(
        regarding: &K,
        reason: &'a str,
        action: &'a str,
        note: impl Into<Cow<'a, str>>,
    ) -> Self {
        Self { warning: true, ..Self::normal(regarding, reason, action, note) }
    }

    /// Names a second object that the Event is about, such as the child that was created.
    #[must_use]
    pub fn related<K: AnyObject>(mut self, other: &K) -> Self {
        self.related = Some(reference(other));
        self
    }
}

/// Publishes Events outside of a reconcile: from another task of the program, or about objects that no
/// controller reconciles. Clones share their record of repeats.
///
/// It is not fenced: it writes with the given client. In a reconcile, use [`crate::Context::publish`].
///
/// ```no_run
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use leasehold_sdk::{Clock, Event, EventRecorder};
/// # async fn run(client: kube::Client, clock: Arc<dyn Clock>, map: ConfigMap) {
/// let events = EventRecorder::new(client, clock, "example.com/backup", "backup-7f9c");
/// events.publish(Event::normal(&map, "BackedUp", "BackUp", "copied to the archive")).await;
/// # }
/// ```
#[derive(Clone)]
pub struct EventRecorder {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    controller: Arc<str>,
    instance: Arc<str>,
    recorder: Arc<Recorder>,
}

impl EventRecorder {
    /// A recorder that writes to the client's cluster, as reporting controller `controller`, such as
    /// `example.com/backup`, and reporting instance `instance`, such as the Pod's name. At most 128
    /// bytes of each are kept.
    pub fn new(
        client: kube::Client,
        clock: Arc<dyn Clock>,
        controller: &str,
        instance: &str,
    ) -> Self {
        let [controller, instance] =
            [controller, instance].map(|name| shortened(name, MAX_REPORTER_BYTES).into());
        Self { client, clock, controller, instance, recorder: Arc::default() }
    }

    /// Publishes an Event, best effort: repeats within a few minutes become a series, too many about
    /// one object are dropped, failures are logged. Takes two seconds at most.
    pub async fn publish(&self, event: Event<'_>) {
        let source = Source { cluster: "", controller: &self.controller, instance: &self.instance };
        self.recorder.publish(&self.client, source, event, &*self.clock).await;
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder")
            .field("controller", &self.controller)
            .finish_non_exhaustive()
    }
}

/// Who reports an Event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// Distinguishes the clusters to which one recorder writes.
    pub(crate) cluster: &'a str,
    pub(crate) controller: &'a str,
    pub(crate) instance: &'a str,
}

/// Remembers recent Events, to write repeats as series and to limit their number.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Series>);

impl Recorder {
    /// Writes an Event or extends its series. In a box, so that it is compiled here and not in every
    /// crate that publishes.
    pub(crate) fn publish<'a>(
        &'a self,
        client: &'a kube::Client,
        source: Source<'a>,
        event: Event<'a>,
        clock: &'a dyn Clock,
    ) -> BoxFuture<'a, ()> {
        self.written(client, source, event, clock).boxed()
    }

    async fn written(
        &self,
        client: &kube::Client,
        source: Source<'_>,
        event: Event<'_>,
        clock: &dyn Clock,
    ) {
        let now = clock.wall();
        let (identity, subject) = digests(source, &event);
        let object = event.regarding.name.as_deref().unwrap_or("object");
        let at = (now, clock.now());
        let plan = self.series(|all| all.observe(Occurrence { identity, subject, object, at }));
        let namespace = event.regarding.namespace.as_deref().unwrap_or("default");
        let api: Api<ApiEvent> = Api::namespaced(client.clone(), namespace);
        let write = async {
            match &plan {
                Plan::Later => Ok(()),
                Plan::Spam => {
                    tracing::debug!(
                        object,
                        reason = event.reason,
                        "too many events: not published"
                    );
                    Ok(())
                }
                Plan::Create { name } => {
                    let body = api_event(name, namespace, source, &event, now);
                    api.create(&PostParams::default(), &body).await.map(drop)
                }
                Plan::Extend { name, count } => {
                    let series = json!({"count": count, "lastObservedTime": MicroTime(now)});
                    let patch = Patch::Merge(json!({"series": series}));
                    api.patch(name, &PatchParams::default(), &patch).await.map(drop)
                }
            }
        };
        let error = match tokio::time::timeout(PUBLISH_TIMEOUT, write).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => model::error::chain(&error),
            Err(_) => format!("no answer within {}s", PUBLISH_TIMEOUT.as_secs()),
        };
        // The next occurrence begins a new Event: the Event may have expired on the server.
        self.series(|all| all.forget(identity));
        tracing::debug!(reason = event.reason, error, "an event was not published");
    }

    fn series<T>(&self, act: impl FnOnce(&mut Series) -> T) -> T {
        act(&mut self.0.lock().expect("no holder of this lock panics"))
    }
}

/// An object as Events refer to it.
fn reference<K: AnyObject>(object: &K) -> ObjectReference {
    let of_type = K::static_kind().as_ref().map(Kind::type_meta);
    let types = of_type.or_else(|| object.type_meta().cloned());
    let (api_version, kind) = types.map(|types| (types.api_version, types.kind)).unzip();
    let ObjectMeta { name, namespace, uid, .. } = object.meta().clone();
    ObjectReference { api_version, kind, name, namespace, uid, ..ObjectReference::default() }
}

/// What is equal for repeats of an Event, and for all Events of its source about its object.
fn digests(source: Source<'_>, event: &Event<'_>) -> (u64, u64) {
    let mut hasher = DefaultHasher::new();
    let object = |found: &ObjectReference, hasher: &mut DefaultHasher| {
        (&found.kind, &found.uid, &found.namespace, &found.name).hash(hasher);
    };
    (source.cluster, source.controller, source.instance).hash(&mut hasher);
    object(&event.regarding, &mut hasher);
    let subject = hasher.finish();
    (event.warning, event.reason, event.action, &event.note).hash(&mut hasher);
    if let Some(related) = &event.related {
        object(related, &mut hasher);
    }
    (hasher.finish(), subject)
}

fn api_event(
    name: &str,
    namespace: &str,
    source: Source<'_>,
    event: &Event<'_>,
    now: Timestamp,
) -> ApiEvent {
    ApiEvent {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(event.reason.to_owned()),
        action: Some(event.action.to_owned()),
        note: Some(shortened(&event.note, MAX_NOTE_BYTES).to_owned()),
        regarding: Some(event.regarding.clone()),
        related: event.related.clone(),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(source.controller.to_owned()),
        reporting_instance: Some(source.instance.to_owned()),
        ..ApiEvent::default()
    }
}
