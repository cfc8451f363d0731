//! Parses the server's answers: watch lines and list pages, with the objects left as text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::error::foreign;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// An object appeared or changed.
    Upsert(&'a str),
    /// An object is gone; as it was last.
    Delete(&'a str),
    /// Everything up to here has been sent.
    Bookmark {
        /// The version.
        resource_version: String,
        /// Whether the initial events of a streaming list end here.
        initial_end: bool,
    },
    /// The server ends the watch for a reason.
    Error {
        /// The status.
        code: u16,
        /// The reason, a word for programs.
        reason: String,
        /// The message, for people.
        message: String,
    },
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<'a> {
    /// The version of the list.
    pub resource_version: String,
    /// Where the next page begins; none for the last.
    pub continue_token: Option<String>,
    /// The `shardSelector` that the server has applied; absent if it sends everything.
    pub shard_info: Option<String>,
    /// The objects.
    pub items: Vec<&'a str>,
}

/// A server's answer that is no object: why it refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Refusal {
    /// With texts that can be shown.
    fn shortened(self) -> Self {
        let Self { code, reason, message } = self;
        Self { code, reason: foreign(&reason), message: foreign(&message) }
    }
}

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct RawBookmark<'a> {
    #[serde(borrow)]
    metadata: BookmarkMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta<'a> {
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Deserialize)]
struct RawPage<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: String,
    #[serde(default)]
    shard_info: Option<ShardInfo>,
}

#[derive(Deserialize)]
struct ShardInfo {
    #[serde(default)]
    selector: String,
}

/// Reads one line of a watch. What stands around an object is taken off the way API servers write
/// it, and the object is not looked at; where that cannot be, this is [`strict_line`].
///
/// A caller that cannot read the object asks [`strict_line`] before it gives up: a server
/// may add members to the line that nobody knows yet.
///
/// # Errors
/// If it is no line of a watch.
pub fn line(bytes: &[u8]) -> Result<Line<'_>, serde_json::Error> {
    as_usual(bytes).map_or_else(|| strict_line(bytes), Ok)
}

/// A line that begins and ends as those with objects usually do.
fn as_usual(bytes: &[u8]) -> Option<Line<'_>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (kind, rest) = text.strip_prefix(r#"{"type":""#)?.split_once('"')?;
    let object = rest.strip_prefix(r#","object":"#)?.strip_suffix('}')?;
    match kind {
        "ADDED" | "MODIFIED" => Some(Line::Upsert(object)),
        "DELETED" => Some(Line::Delete(object)),
        _ => None,
    }
}

/// Reads one line of a watch as JSON, whatever it looks like.
///
/// # Errors
/// If it is no line of a watch.
pub fn strict_line(bytes: &[u8]) -> Result<Line<'_>, serde_json::Error> {
    let raw: RawLine<'_> = match serde_json::from_slice(bytes) {
        Ok(raw) => raw,
        // Some proxies put a bare Status into the stream.
        Err(error) => {
            let refusal: Refusal = serde_json::from_slice(bytes)?;
            let Refusal { code, reason, message } = refusal.shortened();
            return if code == 0 { Err(error) } else { Ok(Line::Error { code, reason, message }) };
        }
    };
    match &*raw.kind {
        "ADDED" | "MODIFIED" => Ok(Line::Upsert(raw.object.get())),
        "DELETED" => Ok(Line::Delete(raw.object.get())),
        "BOOKMARK" => {
            let RawBookmark { metadata } = serde_json::from_str(raw.object.get())?;
            let annotations = metadata.annotations.unwrap_or_default();
            Ok(Line::Bookmark {
                resource_version: metadata.resource_version.into_owned(),
                initial_end: annotations
                    .get("k8s.io/initial-events-end")
                    .is_some_and(|v| v == "true"),
            })
        }
        "ERROR" => {
            let refusal: Refusal = serde_json::from_str(raw.object.get())?;
            let Refusal { code, reason, message } = refusal.shortened();
            Ok(Line::Error { code, reason, message })
        }
        other => {
            Err(serde::de::Error::custom(format!("an event of unknown type {:?}", foreign(other))))
        }
    }
}

/// Reads one page of a list.
///
/// # Errors
/// If it is no page of a list.
pub fn page(bytes: &[u8]) -> Result<Page<'_>, serde_json::Error> {
    let raw: RawPage<'_> = serde_json::from_slice(bytes)?;
    Ok(Page {
        resource_version: raw.metadata.resource_version,
        continue_token: Some(raw.metadata.continue_token).filter(|token| !token.is_empty()),
        shard_info: raw.metadata.shard_info.map(|info| info.selector),
        items: raw.items.unwrap_or_default().into_iter().map(RawValue::get).collect(),
    })
}

/// Reads why a server refused; what is no Status becomes the beginning of its text.
pub(crate) fn refusal(code: u16, body: &[u8]) -> Refusal {
    const SHOWN: usize = 200;
    let parsed: Refusal = serde_json::from_slice(body).unwrap_or_default();
    let message = if parsed.message.is_empty() {
        String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).into_owned()
    } else {
        parsed.message
    };
    Refusal { code, reason: parsed.reason, message }.shortened()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_watch() {
        let object = r#"{"metadata":{"name":"a"}}"#;
        for (text, expect) in [
            (format!(r#"{{"type":"ADDED","object":{object}}}"#), Line::Upsert(object)),
            (format!(r#"{{"object": {object}, "type": "MODIFIED"}}"#), Line::Upsert(object)),
            (format!(r#"{{"type":"DELETED","object":{object}}}"#), Line::Delete(object)),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#.into(),
                Line::Bookmark { resource_version: "7".into(), initial_end: false },
            ),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#.into(),
                Line::Bookmark { resource_version: "7".into(), initial_end: true },
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#.into(),
                Line::Error { code: 410, reason: "Expired".into(), message: "too old".into() },
            ),
            (
                r#"{"kind":"Status","code":500,"message":"etcd"}"#.into(),
                Line::Error { code: 500, reason: String::new(), message: "etcd".into() },
            ),
        ] {
            assert_eq!(line(text.as_bytes()).unwrap(), expect, "{text}");
        }
        for garbage in
            ["", "{", r#"{"type":"NEW","object":{}}"#, "{}", r#"{"type":"BOOKMARK","object":{}}"#]
        {
            assert!(line(garbage.as_bytes()).is_err(), "{garbage}");
        }
    }

    #[test]
    fn what_stands_around_an_object_may_be_more_than_usual() {
        let more = br#"{"type":"ADDED","object":{"a":{}},"new":{}}"#;
        assert_eq!(line(more).unwrap(), Line::Upsert(r#"{"a":{}},"new":{}"#), "taken off at sight");
        assert_eq!(strict_line(more).unwrap(), Line::Upsert(r#"{"a":{}}"#));
        let cut_off = br#"{"type":"ADDED","object":{"a":{}}"#;
        assert_eq!(line(cut_off).unwrap(), Line::Upsert(r#"{"a":{}"#));
        assert!(strict_line(cut_off).is_err());
    }

    #[test]
    fn pages_of_a_list() {
        let text = br#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"tok"},"items":[{"a":1},{"b":2}]}"#;
        let found = page(text).unwrap();
        assert_eq!(found.items, [r#"{"a":1}"#, r#"{"b":2}"#]);
        assert_eq!(found.continue_token.as_deref(), Some("tok"));
        let last =
            page(br#"{"metadata":{"resourceVersion":"9","continue":""},"items":null}"#).unwrap();
        assert_eq!((last.items.len(), last.continue_token, last.shard_info), (0, None, None));
        let part = br#"{"metadata":{"resourceVersion":"9","shardInfo":{"selector":"shardRange(x)"}},"items":[]}"#;
        assert_eq!(page(part).unwrap().shard_info.as_deref(), Some("shardRange(x)"));
    }

    #[test]
    fn refusals_keep_what_they_say() {
        let status = refusal(403, br#"{"kind":"Status","message":"no","reason":"Forbidden"}"#);
        assert_eq!((status.reason.as_str(), status.message.as_str()), ("Forbidden", "no"));
        assert_eq!(refusal(502, b"bad gateway\n").message, "bad gateway");
    }
}
