//! Parses the server's answers: watch lines and list pages, with the objects left as text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use model::error::foreign;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::machine::End;

/// The most bytes of a bookmark's or an error's object. Neither says much.
const MAX_SIGNAL_BYTES: usize = 64 << 10;
/// The most objects of a page. The shortest object of which anything can be kept has name, uid and version
/// and takes 60 bytes, so that a page of real ones is too long first.
const MAX_PAGE_OBJECTS: usize = 150_000;

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
    Error(Refusal),
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
pub struct Refusal {
    /// The status.
    pub code: u16,
    /// The reason, a word for programs.
    pub reason: String,
    /// The message, for people.
    pub message: String,
    #[serde(deserialize_with = "nullable")]
    details: Details,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(rename = "causes")]
    too_new: TooNew,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause<'a> {
    #[serde(borrow)]
    reason: Cow<'a, str>,
}

/// Whether [`TOO_NEW`] is among the causes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TooNew(bool);

impl<'de> Deserialize<'de> for TooNew {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut found = false;
        each(from, "a list of causes, or null", |cause: Cause<'de>| {
            found |= cause.reason == TOO_NEW;
            Ok(())
        })?;
        Ok(Self(found))
    }
}

/// Of a 504, that the server does not have the version yet, as after a restore; other 504s come from a server
/// or proxy that is too slow.
const TOO_NEW: &str = "ResourceVersionTooLarge";
/// The annotation of the bookmark that ends the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

impl Refusal {
    /// How it ends a request.
    pub fn end(&self) -> End {
        match self.code {
            410 => End::Expired,
            504 if self.details.too_new.0 => End::Expired,
            code => End::Refused(code),
        }
    }

    /// With texts that can be shown.
    fn shortened(self) -> Self {
        let (reason, message) = (foreign(&self.reason), foreign(&self.message));
        Self { reason, message, ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

/// Go writes `null` for what is empty.
fn nullable<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
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
    #[serde(default)]
    annotations: InitialEnd,
}

/// Whether the annotations say that the initial events of a streaming list end here. The others are not kept.
#[derive(Default)]
struct InitialEnd(bool);

impl<'de> Deserialize<'de> for InitialEnd {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = InitialEnd;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations, or null")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(InitialEnd::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = InitialEnd::default();
                while let Some((key, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
                    if key.0 == INITIAL_END {
                        found.0 = value.0 == "true";
                    }
                }
                Ok(found)
            }
        }

        from.deserialize_any(Reader)
    }
}

/// A text, borrowed where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct RawPage<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Items<'a>,
}

/// The objects of a page, at most [`MAX_PAGE_OBJECTS`].
#[derive(Default)]
struct Items<'a>(Vec<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut found = Vec::new();
        each(from, "a list of objects, or null", |item: &'de RawValue| {
            if found.len() == MAX_PAGE_OBJECTS {
                return Err(format!("a page of more than {MAX_PAGE_OBJECTS} objects"));
            }
            found.push(item.get());
            Ok(())
        })?;
        Ok(Self(found))
    }
}

/// Takes in the elements of a list one by one, until one is refused. Go writes `null` for an empty list.
fn each<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    expected: &'static str,
    take: impl FnMut(T) -> Result<(), String>,
) -> Result<(), D::Error> {
    struct Reader<F, T>(F, &'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Reader<F, T> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.1)
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
            while let Some(element) = elements.next_element()? {
                (self.0)(element).map_err(de::Error::custom)?;
            }
            Ok(())
        }
    }

    from.deserialize_any(Reader(take, expected, PhantomData))
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
            let bytes = signal(bytes)?;
            let refusal: Refusal = serde_json::from_slice(bytes)?;
            return match refusal.code {
                0 => Err(error),
                _ => Ok(Line::Error(refusal.shortened())),
            };
        }
    };
    match &*raw.kind {
        "ADDED" | "MODIFIED" => Ok(Line::Upsert(raw.object.get())),
        "DELETED" => Ok(Line::Delete(raw.object.get())),
        "BOOKMARK" => {
            let object = signal(raw.object.get().as_bytes())?;
            let RawBookmark { metadata } = serde_json::from_slice(object)?;
            Ok(Line::Bookmark {
                resource_version: metadata.resource_version.into_owned(),
                initial_end: metadata.annotations.0,
            })
        }
        "ERROR" => {
            let object = signal(raw.object.get().as_bytes())?;
            let refusal: Refusal = serde_json::from_slice(object)?;
            Ok(Line::Error(refusal.shortened()))
        }
        other => {
            Err(serde::de::Error::custom(format!("an event of unknown type {:?}", foreign(other))))
        }
    }
}

/// The text of a bookmark or an error, unless it is longer than any is.
fn signal(text: &[u8]) -> Result<&[u8], serde_json::Error> {
    if text.len() > MAX_SIGNAL_BYTES {
        let why =
            format!("a bookmark, error or unknown line of more than {MAX_SIGNAL_BYTES} bytes");
        return Err(de::Error::custom(why));
    }
    Ok(text)
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
        items: raw.items.0,
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
    Refusal { code, message, ..parsed }.shortened()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, reason: &str, message: &str) -> Line<'static> {
        let (reason, message) = (reason.into(), message.into());
        Line::Error(Refusal { code, reason, message, ..Refusal::default() })
    }

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
                refused(410, "Expired", "too old"),
            ),
            (
                r#"{"kind":"Status","code":500,"message":"etcd"}"#.into(),
                refused(500, "", "etcd"),
            ),
        ] {
            assert_eq!(line(text.as_bytes()).unwrap(), expect, "{text}");
        }
        let bookmark = |annotations: &str| {
            format!(
                r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"7","annotations":{annotations}}}}}}}"#
            )
        };
        for (annotations, initial_end) in [
            ("null", false),
            (r#"{"a":"true","k8s.io\/initial-events-end":"true","b":"\n"}"#, true),
            (r#"{"k8s.io/initial-events-end":"false"}"#, false),
        ] {
            let expect = Line::Bookmark { resource_version: "7".into(), initial_end };
            assert_eq!(line(bookmark(annotations).as_bytes()).unwrap(), expect, "{annotations}");
        }
        for garbage in [
            "",
            "{",
            r#"{"type":"NEW","object":{}}"#,
            "{}",
            r#"{"type":"BOOKMARK","object":{}}"#,
            &bookmark(r#"{"a":7}"#),
        ] {
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
    fn a_page_has_a_bounded_number_of_objects() {
        let of = |objects: usize| {
            let items = vec!["{}"; objects].join(",");
            format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{items}]}}"#)
        };
        let most = of(MAX_PAGE_OBJECTS);
        assert_eq!(page(most.as_bytes()).unwrap().items.len(), MAX_PAGE_OBJECTS);
        let error = page(of(MAX_PAGE_OBJECTS + 1).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("more than 150000 objects"), "{error}");
    }

    #[test]
    fn an_end_is_judged_by_its_cause() {
        let too_new = r#"{"code":504,"reason":"Timeout","message":"Too large resource version",
            "details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"x"}]}}"#;
        for (code, body, expect) in [
            (410, "", End::Expired),
            (504, too_new, End::Expired),
            (504, r#"{"code":504,"reason":"Timeout","details":null}"#, End::Refused(504)),
            (504, r#"{"code":504,"details":{"causes":null}}"#, End::Refused(504)),
            (504, "<html>gateway timeout</html>", End::Refused(504)),
            (422, "", End::Refused(422)),
        ] {
            assert_eq!(refusal(code, body.as_bytes()).end(), expect, "{code} {body}");
        }
    }

    #[test]
    fn refusals_keep_what_they_say() {
        let status = refusal(403, br#"{"kind":"Status","message":"no","reason":"Forbidden"}"#);
        assert_eq!((status.reason.as_str(), status.message.as_str()), ("Forbidden", "no"));
        assert_eq!(refusal(502, b"bad gateway\n").message, "bad gateway");
    }
}
