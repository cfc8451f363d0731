//! What a ConfigMap asks for, and what is recorded about it: two annotations. Pure.
//!
//! The record is the controller's memory, as a ConfigMonitor's status is: `hash` is the content for
//! which the Pods were last restarted, `pending` a restart that is decided and perhaps not finished.
//! It is not part of the content. Without it the content is seen for the first time.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use sdk::condition::whole_seconds;
use sdk::{Selector, SelectorError};
use serde::{Deserialize, Serialize};

use crate::restarts::Pending;

/// Names the Pods to restart when the content changes, as a label selector.
pub const RESTART_PODS: &str = "leasehold.dev/restart-pods";
/// Holds the record.
pub const RECORD: &str = "leasehold.dev/restart-pods-record";

/// What the controller last found, decided and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// SHA-256, in hexadecimal, of the content that the Pods were last restarted for, or that was
    /// seen first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// A restart that is decided: exactly these are restarted, however often it is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// Changes for which something was restarted.
    #[serde(default)]
    pub restarts: i64,
    /// When that was last finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_restart: Option<Time>,
    /// Why nothing can be restarted at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An annotation that cannot be acted on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidRequest {
    /// It is not a selector.
    #[error("annotation {RESTART_PODS} is not a label selector: {0}")]
    NoSelector(SelectorError),
    /// It would select every Pod of the namespace.
    #[error("annotation {RESTART_PODS} names no label: name one, such as app=frontend")]
    Everything,
}

/// The Pods to restart, as a selector and as it was written; `None` for a ConfigMap that asks for
/// nothing.
///
/// # Errors
/// [`InvalidRequest`] for an annotation that cannot be acted on.
pub(crate) fn request(config_map: &ConfigMap) -> Option<Result<(Selector, &str), InvalidRequest>> {
    let words = config_map.annotations().get(RESTART_PODS)?.trim();
    if words.is_empty() {
        return Some(Err(InvalidRequest::Everything));
    }
    Some(words.parse().map(|selector| (selector, words)).map_err(InvalidRequest::NoSelector))
}

/// The record. One that cannot be read counts as absent.
pub fn record(config_map: &ConfigMap) -> Record {
    let text = config_map.annotations().get(RECORD);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

impl Record {
    /// The content is the one of the last restart, or is seen for the first time.
    #[must_use]
    pub fn seen(self, hash: String) -> Self {
        Self { hash: Some(hash), pending: None, problem: None, ..self }
    }

    /// A restart is decided.
    #[must_use]
    pub fn decided(self, pending: Pending) -> Self {
        Self { pending: Some(pending), problem: None, ..self }
    }

    /// The recorded restart is finished.
    #[must_use]
    pub fn restarted(self, now: Timestamp) -> Self {
        let Some(pending) = &self.pending else { return self };
        let (hash, any) = (pending.hash.clone(), pending.targets() > 0);
        let restarts = self.restarts + i64::from(any);
        let last_restart = if any { Some(whole_seconds(now)) } else { self.last_restart.clone() };
        Self { restarts, last_restart, ..self }.seen(hash)
    }

    /// Nothing can be restarted, for this reason.
    #[must_use]
    pub fn hindered(self, problem: String) -> Self {
        Self { problem: Some(problem), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(words: Option<&str>) -> ConfigMap {
        let mut map = ConfigMap::default();
        let annotation = words.map(|words| (RESTART_PODS.to_owned(), words.to_owned()));
        map.metadata.annotations = Some(annotation.into_iter().collect());
        map
    }

    #[test]
    fn the_annotation_is_a_label_selector() {
        for (words, expect) in [
            (None, "nothing"),
            (Some("app=frontend"), "app=frontend"),
            (Some(" app in (a, b), tier!=db "), "app in (a, b), tier!=db"),
            (
                Some("  "),
                "annotation leasehold.dev/restart-pods names no label: name one, such as app=frontend",
            ),
        ] {
            let found = match request(&asking(words)) {
                None => "nothing".to_owned(),
                Some(Ok((_, words))) => words.to_owned(),
                Some(Err(error)) => error.to_string(),
            };
            assert_eq!(found, expect);
        }
        let error = request(&asking(Some("app in frontend"))).unwrap().unwrap_err().to_string();
        assert!(
            error.starts_with("annotation leasehold.dev/restart-pods is not a label selector: ")
        );
    }

    #[test]
    fn a_record_goes_through_a_change_and_is_read_as_it_was_written() {
        let now = Timestamp::from_second(100).unwrap();
        let pending = |pods| Pending { hash: "h1".to_owned(), pods, workloads: Vec::new() };
        let pod = crate::restarts::PodRef { name: "a".into(), uid: "u".into() };
        let first = Record::default().seen("h0".to_owned());
        let decided = first.clone().decided(pending(vec![pod]));
        let restarted = decided.clone().hindered("forbidden".to_owned()).restarted(now);
        assert_eq!((restarted.hash.as_deref(), restarted.restarts), (Some("h1"), 1));
        assert_eq!((&restarted.pending, &restarted.problem), (&None, &None));
        let nobody = first.clone().decided(pending(Vec::new())).restarted(now);
        assert_eq!((nobody.hash.as_deref(), nobody.restarts), (Some("h1"), 0));
        for one in [first, decided, restarted, Record::default().hindered("no".to_owned())] {
            let mut map = ConfigMap::default();
            let text = serde_json::to_string(&one).unwrap();
            map.metadata.annotations = Some([(RECORD.to_owned(), text)].into());
            assert_eq!(record(&map), one);
        }
        let mut broken = asking(None);
        broken.annotations_mut().insert(RECORD.to_owned(), "{".to_owned());
        assert_eq!(record(&broken), Record::default());
    }
}
