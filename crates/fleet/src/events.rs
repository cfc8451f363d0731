//! The Events of a fleet in its home cluster.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use serde::Serialize;

use crate::ReadError;
use crate::listing::{PAGE, pages};

/// The most pages that are read: twenty members may tell as much in an hour, for which Events are kept.
const MAX_PAGES: usize = 200;
/// Who reports for Leasehold. A list comes by name, so Events of others would take the place of ours.
const OURS: &str = "leasehold.dev/sharding";

/// The Events of a fleet.
#[derive(Clone, Debug, Default)]
pub struct FleetEvents {
    /// The oldest first.
    pub all: Vec<FleetEvent>,
    /// Whether there are more than are read, which may be newer.
    pub is_cut: bool,
}

/// What to say of Events that are cut.
pub const CUT: &str = "there are more Events than are read, and newer ones may be among them: see `kubectl get \
                       events.events.k8s.io --field-selector reportingController=leasehold.dev/sharding`";

/// One thing that a member told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetEvent {
    /// When it last did.
    pub at: Timestamp,
    /// Whether something is wrong.
    pub warning: bool,
    /// What happened, in one word.
    pub reason: String,
    /// The object it is about: `ShardMap/east`.
    pub about: String,
    /// What else it is about: of a cluster that a member cannot use, the ShardMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub related: Option<String>,
    /// What happened, in a sentence.
    pub note: String,
    /// The replica that tells it.
    pub by: String,
}

/// Reads the Events of a fleet.
///
/// # Errors
/// A list that the home cluster refused or did not answer.
pub async fn events(client: Client, namespace: &str) -> Result<FleetEvents, ReadError> {
    let api: Api<Event> = Api::namespaced(client, namespace);
    let mut all = Vec::new();
    let what = ("events.events.k8s.io", namespace);
    let keep = |event| all.extend(told(event));
    let ours = ListParams::default().fields(&format!("reportingController={OURS}")).limit(PAGE);
    let is_cut = !pages(&api, ours, what, MAX_PAGES, keep).await?;
    all.sort_by(|a, b| (a.at, &a.about).cmp(&(b.at, &b.about)));
    Ok(FleetEvents { all, is_cut })
}

/// An Event of ours.
fn told(event: Event) -> Option<FleetEvent> {
    event.reporting_controller.as_deref().filter(|name| *name == OURS)?;
    let name = |part: Option<String>| model::error::foreign(&part.unwrap_or_default());
    let object = |of: ObjectReference| format!("{}/{}", name(of.kind), name(of.name));
    let seen = event.series.map(|series| series.last_observed_time.0);
    let at = seen.or(event.event_time.map(|time| time.0));
    let at = at.or(event.metadata.creation_timestamp.map(|time| time.0))?;
    Some(FleetEvent {
        at,
        warning: event.type_.as_deref() == Some("Warning"),
        reason: name(event.reason),
        about: object(event.regarding.unwrap_or_default()),
        related: event.related.map(object),
        note: name(event.note),
        by: name(event.reporting_instance),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(event: Value) -> Option<FleetEvent> {
        told(serde_json::from_value(event).unwrap())
    }

    #[test]
    fn events_of_ours_are_read_with_their_last_time() {
        let event = |controller: &str, extra: Value| {
            let mut event = json!({
                "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "eventTime": "2026-01-01T00:00:01Z", "type": "Warning", "reason": "Fenced",
                "note": "m-0 fenced\nitself", "reportingController": controller,
                "reportingInstance": "m-0", "regarding": {"kind": "Member", "name": "m-0"},
            });
            event.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            event
        };
        assert_eq!(read(event("kubelet", json!({}))), None);
        let told = read(event("leasehold.dev/sharding", json!({}))).unwrap();
        assert_eq!((told.about.as_str(), told.note.as_str()), ("Member/m-0", "m-0 fenced itself"));
        assert!(told.warning);
        assert_eq!(told.at.to_string(), "2026-01-01T00:00:01Z");
        assert_eq!(told.related, None);
        let related = json!({"related": {"kind": "ShardMap", "name": "east"}});
        let told = read(event("leasehold.dev/sharding", related)).unwrap();
        assert_eq!(told.related.as_deref(), Some("ShardMap/east"));
        let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:05:00Z"}});
        let told = read(event("leasehold.dev/sharding", series)).unwrap();
        assert_eq!(told.at.to_string(), "2026-01-01T00:05:00Z");
    }
}
