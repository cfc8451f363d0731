//! What an object may take once it is decoded, by what its text is made of: `{}` is a text of two bytes and a container
//! of two kilobytes.

use super::brackets::{self, Counter, Parts};

/// The most values of an object: each takes [`VALUE_BYTES`] and more when it is decoded. An object of 1.5 MiB has so
/// many if they take six bytes each.
pub(super) const MAX_VALUES: usize = 256 << 10;
/// The most objects within one: each takes up to [`OBJECT_BYTES`] when it is decoded, 40 MB in all.
pub(super) const MAX_OBJECTS: usize = 16 << 10;
/// The most bytes of an object within another, decoded, without what it holds: those of `k8s-openapi`'s Container are
/// 2,336, and few types have more.
const OBJECT_BYTES: usize = 2400;
/// The bytes of an object that is decoded as a map of `serde_json`, for up to eleven members.
const MAP_BYTES: usize = 640;
/// The bytes of a value within an object, decoded, however short its text.
const VALUE_BYTES: usize = 64;
/// The most bytes that an object may take for each byte of its JSON, once it is decoded: those of `{},`.
pub const MOST_FOR_EACH_BYTE: usize = OBJECT_BYTES / 3;
/// The most values of a list: 128 MiB decoded, as those of an object.
const MAX_LIST_VALUES: usize = 8 * MAX_VALUES;
/// The most objects of a list: 150 MiB decoded.
const MAX_LIST_OBJECTS: usize = 64 << 10;
/// How many objects of a list count as one if they are members of others. Those of a type lie within the object that
/// has them, and a map, as `managedFields` are, has small ones.
const MEMBERS_AS_ONE: usize = 8;
/// Bytes a decoded value is taken to have for each byte of JSON.
const TEXT_BYTES: usize = 4;
/// What texts up to this length, in bytes, are made of is not counted: it is little enough.
const LITTLE_BYTES: usize = 2 * MAX_OBJECTS;

/// An object that would take far more than its text, once it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooHeavy {
    /// It has too many values.
    #[error("an object of more than {MAX_VALUES} values is too large to decode")]
    Values,
    /// It has too many objects in it.
    #[error("an object with more than {MAX_OBJECTS} objects in it is too large to decode")]
    Objects,
    /// It is a list of too much.
    #[error(
        "a list of more than {MAX_LIST_VALUES} values or {MAX_LIST_OBJECTS} objects is too large to decode; \
         fix: ask for it in pages, with a limit, or for its metadata"
    )]
    List,
}

/// Weighs an answer while it comes, before anybody decodes it.
#[derive(Debug)]
pub struct Weigher {
    counter: Counter,
    is_list: bool,
}

impl Weigher {
    /// Of an object, or of a list of objects.
    pub fn new(is_list: bool) -> Self {
        Self { counter: Counter::default(), is_list }
    }

    /// Takes in what comes next.
    ///
    /// # Errors
    /// If what has come would take far more than its text, once it is decoded.
    pub fn add(&mut self, text: &[u8]) -> Result<(), TooHeavy> {
        self.counter.add(text);
        let parts = self.counter.parts;
        if !self.is_list {
            return parts.check();
        }
        match parts.commas >= MAX_LIST_VALUES || parts.apart() > MAX_LIST_OBJECTS {
            true => Err(TooHeavy::List),
            false => Ok(()),
        }
    }
}

impl Parts {
    /// The objects that have memory of their own, as those in arrays have.
    fn apart(self) -> usize {
        self.objects - self.members + self.members / MEMBERS_AS_ONE
    }

    /// Whether an object of these may be decoded.
    fn check(self) -> Result<(), TooHeavy> {
        if self.commas >= MAX_VALUES {
            Err(TooHeavy::Values)
        } else if self.objects > MAX_OBJECTS {
            Err(TooHeavy::Objects)
        } else {
            Ok(())
        }
    }
}

/// Whether the text of an object may be decoded out of which these parts are cut.
pub(super) fn check(text: &str, cuts: &[(usize, usize)]) -> Result<(), TooHeavy> {
    let kept = text.len() - cuts.iter().map(|(from, to)| to - from).sum::<usize>();
    if kept <= LITTLE_BYTES {
        return Ok(());
    }
    let starts = std::iter::once(0).chain(cuts.iter().map(|(_, to)| *to));
    let ends = cuts.iter().map(|(from, _)| *from).chain([text.len()]);
    let mut counter = Counter::default();
    // No cut lies within a string.
    starts.zip(ends).for_each(|(from, to)| counter.add(&text.as_bytes()[from..to]));
    counter.parts.check()
}

/// The bytes that an object may take once it is decoded as a type of its kind. An estimate, and rather too high.
pub(super) fn typed(text: &[u8]) -> usize {
    let parts = brackets::parts(text);
    most(text, parts, OBJECT_BYTES * parts.apart())
}

/// The bytes that an object may take once it is decoded as maps of `serde_json`, or as its metadata alone.
pub(super) fn untyped(text: &[u8]) -> usize {
    let parts = brackets::parts(text);
    most(text, parts, MAP_BYTES * parts.objects)
}

fn most(text: &[u8], parts: Parts, objects: usize) -> usize {
    objects.max(TEXT_BYTES * text.len()).max(VALUE_BYTES * parts.commas)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, Pod};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn small_texts_of_large_values_weigh_what_they_take() {
        assert!(size_of::<Container>() <= OBJECT_BYTES);
        let containers = vec![json!({}); 1000];
        let text = json!({"spec": {"containers": containers}}).to_string();
        assert!(typed(text.as_bytes()) >= 1000 * size_of::<Container>(), "{text}");
        assert!(untyped(text.as_bytes()) >= 1000 * size_of::<Value>(), "{text}");
        serde_json::from_str::<Pod>(&text).expect("it is a Pod all the same");
        let text = json!({"data": {"key": "{},".repeat(1000)}}).to_string();
        assert_eq!(typed(text.as_bytes()), 4 * text.len());
        let text = format!(r#"{{"spec":[{}0]}}"#, "0,".repeat(1000));
        assert_eq!((typed(text.as_bytes()), untyped(text.as_bytes())), (64_000, 64_000));
    }

    #[test]
    fn a_list_may_have_many_honest_objects_and_few_empty_ones() {
        let weigh = |text: &str| {
            let mut weigher = Weigher::new(true);
            text.as_bytes().chunks(1000).try_for_each(|piece| weigher.add(piece))
        };
        let list = |item: &str, number: usize| {
            format!(r#"{{"items":[{}]}}"#, vec![item; number].join(","))
        };
        let containers = json!([{"name": "a", "env": vec![json!({"name": "a"}); 20]}]);
        let managed = format!("{{{}}}", vec![r#""f:x":{}"#; 200].join(","));
        let pod = format!(r#"{{"spec":{{"containers":{containers}}},"managed":{managed}}}"#);
        assert_eq!(weigh(&list(&pod, 1000)), Ok(()));
        assert_eq!(weigh(&list("{}", MAX_LIST_OBJECTS)), Err(TooHeavy::List));
        assert_eq!(weigh(&list(&managed, 3000)), Err(TooHeavy::List));
        assert_eq!(weigh(&list(r#""""#, MAX_LIST_VALUES - 1)), Ok(()));
        assert_eq!(weigh(&list(r#""""#, MAX_LIST_VALUES + 1)), Err(TooHeavy::List));
    }
}
