//! What a ConfigMap or Secret asks for, and what is recorded about it: two annotations. Pure.
//!
//! The record is the controller's memory, as a ConfigMonitor's status is: `hash` is the content for
//! which the Pods were last restarted, `pending` a restart that is decided and perhaps not finished.
//! It is not part of the content. Without it the content is seen for the first time.

use kube::core::ObjectMeta;
use sdk::{Selector, SelectorError};
use serde::{Deserialize, Serialize};

use crate::restarts::Record;
use crate::restarts::discovery::{RESTART_IGNORE, RESTART_MATCH, unknown};

/// Names the Pods to restart when the content changes, as a label selector.
pub const RESTART_PODS: &str = "leasehold.dev/restart-pods";
/// Holds the record.
pub const RECORD: &str = "leasehold.dev/restart-pods-record";

/// What the controller last found, decided and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Noted {
    /// What is recorded of the content and of restarts.
    #[serde(flatten)]
    pub record: Record,
    /// Why nothing can be restarted at present, or what keeps a restart from its end.
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

/// The Pods to restart, as a selector and as it was written; `None` for an object that asks for nothing.
///
/// # Errors
/// [`InvalidRequest`] for an annotation that cannot be acted on.
pub(crate) fn request(metadata: &ObjectMeta) -> Option<Result<(Selector, &str), InvalidRequest>> {
    let words = metadata.annotations.as_ref()?.get(RESTART_PODS)?.trim();
    if words.is_empty() {
        return Some(Err(InvalidRequest::Everything));
    }
    Some(words.parse().map(|selector| (selector, words)).map_err(InvalidRequest::NoSelector))
}

/// What to say of an annotation that is none of a ConfigMap's or Secret's, though it begins as ours do.
pub(crate) fn misplaced(metadata: &ObjectMeta) -> Option<String> {
    let known = [RESTART_PODS, RESTART_MATCH, RESTART_IGNORE, RECORD];
    let keys = metadata.annotations.iter().flat_map(|annotations| annotations.keys());
    unknown(keys, &known, "ConfigMaps and Secrets")
}

/// The record. One that cannot be read counts as absent.
pub fn record(metadata: &ObjectMeta) -> Noted {
    let text = metadata.annotations.as_ref().and_then(|annotations| annotations.get(RECORD));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(key: &str, value: &str) -> ObjectMeta {
        let annotations = Some([(key.to_owned(), value.to_owned())].into());
        ObjectMeta { annotations, ..ObjectMeta::default() }
    }

    fn asking(words: Option<&str>) -> ObjectMeta {
        words.map_or_else(ObjectMeta::default, |words| with(RESTART_PODS, words))
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
    fn what_is_no_annotation_of_an_object_is_told() {
        for (key, expect) in [
            (RESTART_PODS, false),
            (RESTART_MATCH, false),
            (RESTART_IGNORE, false),
            (RECORD, false),
            ("other.example/restart", false),
            ("leasehold.dev/other", false),
            ("leasehold.dev/restart", true),
            ("leasehold.dev/restart-pod", true),
        ] {
            let told = misplaced(&with(key, "x"));
            assert_eq!(told.is_some(), expect, "{key}: {told:?}");
        }
        assert_eq!(misplaced(&ObjectMeta::default()), None);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let hash = Some("h".to_owned());
        let record = Record { hash, restarts: 1, ..Record::default() };
        for noted in [
            Noted { record, problem: None },
            Noted { problem: Some("no".to_owned()), ..Noted::default() },
        ] {
            let text = serde_json::to_string(&noted).unwrap();
            assert_eq!(super::record(&with(RECORD, &text)), noted);
        }
        assert_eq!(super::record(&with(RECORD, "{")), Noted::default());
    }
}
