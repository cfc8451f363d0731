//! Publishing `events.k8s.io/v1` Events about objects, through the fenced client.
//!
//! Best effort: an Event that cannot be written is logged and forgotten. Repeats of the same Event
//! become a series on the first one instead of new objects, and a busy series is written at most
//! once per [`SERIES_INTERVAL`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as ApiEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use engine::Dispatch;
use model::{AnyObject, Kind};

/// A repeat within this long extends the series; later, a new Event begins.
pub const SERIES_WINDOW: Duration = Duration::from_secs(6 * 60);
/// A series is written at most this often.
pub const SERIES_INTERVAL: Duration = Duration::from_secs(10);
/// Series remembered at once; past it the longest silent is forgotten.
pub const MAX_SERIES: usize = 4096;
/// How long writing one Event may hold up its reconcile.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);
/// The API server's limit on notes, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// What is kept of the object's name in the Event's, so that a suffix fits into 253.
const MAX_NAME_BYTES: usize = 230;

/// Something worth telling a person about an object.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    warning: bool,
    regarding: ObjectReference,
    reason: &'a str,
    action: &'a str,
    note: Cow<'a, str>,
}

impl<'a> Event<'a> {
    /// Something that went as it should. `reason` and `action` are words in CamelCase, `note` is a
    /// sentence.
    pub fn normal<K: AnyObject>(
        regarding: &K,
        reason: &'a str,
        action: &'a str,
        note: impl Into<Cow<'a, str>>,
    ) -> Self {
        let regarding = reference(regarding);
        Self { warning: false, regarding, reason, action, note: note.into() }
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
}

/// Remembers recent Events, to write repeats as series.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Series>);

/// The pure part: which Events are repeats of which.
#[derive(Debug, Default)]
struct Series(HashMap<u64, Seen>);

#[derive(Debug)]
struct Seen {
    name: String,
    count: i32,
    last: Timestamp,
    written: Timestamp,
}

/// What to write for an Event.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Create { name: String },
    Extend { name: String, count: i32 },
    Nothing,
}

impl Recorder {
    /// Writes an Event or extends its series.
    pub(crate) async fn publish(
        &self,
        client: &kube::Client,
        dispatch: &Dispatch,
        event: Event<'_>,
        now: Timestamp,
    ) {
        let identity = identity(dispatch, &event);
        let plan = self.series(|series| series.observe(identity, &event, now));
        let namespace = event.regarding.namespace.as_deref().unwrap_or("default");
        let api: Api<ApiEvent> = Api::namespaced(client.clone(), namespace);
        let write = async {
            match &plan {
                Plan::Nothing => Ok(()),
                Plan::Create { name } => {
                    let body = api_event(name, namespace, dispatch, &event, now);
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
        // The next occurrence begins anew: the Event may have expired on the server.
        self.series(|series| series.0.remove(&identity));
        tracing::debug!(reason = event.reason, error, "an event was not published");
    }

    fn series<T>(&self, act: impl FnOnce(&mut Series) -> T) -> T {
        act(&mut self.0.lock().expect("no holder of this lock panics"))
    }
}

impl Series {
    fn observe(&mut self, identity: u64, event: &Event<'_>, now: Timestamp) -> Plan {
        let age = |since: Timestamp| now.duration_since(since).unsigned_abs();
        if let Some(seen) = self.0.get_mut(&identity)
            && age(seen.last) < SERIES_WINDOW
        {
            seen.count += 1;
            seen.last = now;
            if age(seen.written) < SERIES_INTERVAL && seen.count > 2 {
                return Plan::Nothing;
            }
            seen.written = now;
            return Plan::Extend { name: seen.name.clone(), count: seen.count };
        }
        self.make_room(now);
        let object = event.regarding.name.as_deref().unwrap_or("object");
        let unique = identity ^ now.as_microsecond().cast_unsigned();
        let name = format!("{}.{unique:016x}", shortened(object, MAX_NAME_BYTES));
        let seen = Seen { name: name.clone(), count: 1, last: now, written: now };
        self.0.insert(identity, seen);
        Plan::Create { name }
    }

    fn make_room(&mut self, now: Timestamp) {
        if self.0.len() < MAX_SERIES {
            return;
        }
        self.0.retain(|_, seen| now.duration_since(seen.last).unsigned_abs() < SERIES_WINDOW);
        if self.0.len() >= MAX_SERIES
            && let Some(oldest) = self.0.iter().min_by_key(|(_, seen)| seen.last).map(|(id, _)| *id)
        {
            self.0.remove(&oldest);
        }
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

fn identity(dispatch: &Dispatch, event: &Event<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&dispatch.key.cluster, &dispatch.controller, event.warning).hash(&mut hasher);
    (event.reason, event.action, &event.note).hash(&mut hasher);
    (&event.regarding.uid, &event.regarding.namespace, &event.regarding.name).hash(&mut hasher);
    hasher.finish()
}

fn api_event(
    name: &str,
    namespace: &str,
    dispatch: &Dispatch,
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
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(format!("leasehold.dev/{}", dispatch.controller)),
        reporting_instance: Some(dispatch.member.to_string()),
        ..ApiEvent::default()
    }
}

/// The beginning of a text, at most this many bytes of it and whole characters.
fn shortened(text: &str, max_bytes: usize) -> &str {
    let ends = (0..=max_bytes.min(text.len())).rev();
    let end = ends.into_iter().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn event() -> Event<'static> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".into());
        Event::normal(&object, "Scaled", "Scale", "from 1 to 2")
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn repeats_become_a_series_written_now_and_then() {
        let mut series = Series::default();
        let Plan::Create { name } = series.observe(7, &event(), at(0)) else { panic!() };
        assert!(name.starts_with("a."), "{name}");
        let extend = |count| Plan::Extend { name: name.clone(), count };
        assert_eq!(series.observe(7, &event(), at(1)), extend(2));
        assert_eq!(series.observe(7, &event(), at(2)), Plan::Nothing);
        assert_eq!(series.observe(7, &event(), at(12)), extend(4));
        let Plan::Create { name: later } = series.observe(7, &event(), at(12 + 400)) else {
            panic!("a repeat after the window begins anew")
        };
        assert_ne!(name, later);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, max, expect) in
            [("abc", 9, "abc"), ("abc", 2, "ab"), ("aäb", 2, "a"), ("", 0, "")]
        {
            assert_eq!(shortened(text, max), expect, "{text} {max}");
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut series = Series::default();
        for id in 0..MAX_SERIES + 10 {
            let now = Timestamp::from_millisecond(id.try_into().unwrap()).unwrap();
            series.observe(id as u64, &event(), now);
        }
        assert_eq!(series.0.len(), MAX_SERIES);
        assert!(!series.0.contains_key(&0), "the longest silent went first");
    }
}
