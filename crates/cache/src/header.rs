//! The header of an object: what ranges, selectors and indexes need without unpacking it.
//!
//! It is kept small: uids and resourceVersions that have their usual form take 16 and 8 bytes and no
//! heap; labels are one text, shared by all objects with the same labels, and so are owners.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::weight::TooHeavy;
use model::error::reorders;
use model::uid_hash;
use uuid::Uuid;

/// The most bytes of a name, namespace, uid or version, as Kubernetes bounds names.
pub const MAX_NAME_BYTES: usize = 253;

/// The most labels of an object.
pub(super) const MAX_LABELS: usize = 4096;
/// The most bytes of an object's labels, as Kubernetes bounds annotations.
pub(super) const MAX_LABEL_BYTES: usize = 256 << 10;
/// The most owners of an object.
pub(super) const MAX_OWNERS: usize = 1024;

/// Whether a text can be the name of an object: one part of a path, as Kubernetes has it, that also needs no escapes
/// there and shows in a log as what it is.
pub fn is_name(text: &str) -> bool {
    let is_bad = |c: char| is_hidden(c) || c.is_whitespace() || "/%?#".contains(c);
    !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && !matches!(text, "." | "..")
        && !text.contains(is_bad)
}

/// Whether a character does not show as what it is: with one, two names may look alike.
pub(super) fn is_hidden(c: char) -> bool {
    c.is_control() || reorders(c)
}

/// Names an object of one kind in one cluster. Ordered by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalKey {
    /// Its namespace; `None` for kinds that are not namespaced.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Box<str>,
}

impl LocalKey {
    /// Compares with a key given by its parts.
    pub(super) fn order(&self, namespace: Option<&str>, name: &str) -> Ordering {
        self.namespace.as_deref().cmp(&namespace).then_with(|| (*self.name).cmp(name))
    }
}

impl fmt::Display for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// `metadata.uid`. The usual form, a UUID in lower case, takes no heap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uid {
    /// A UUID.
    Uuid(Uuid),
    /// Anything else, as written.
    Text(Box<str>),
}

impl Uid {
    /// Reads a uid. Every text is one, and [`fmt::Display`] gives the same text back.
    pub fn new(text: &str) -> Self {
        let same = |uuid: &Uuid| uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text;
        let uuid = Uuid::try_parse(text).ok().filter(same);
        uuid.map_or_else(|| Self::Text(text.into()), Self::Uuid)
    }

    /// The hash that says which range the uid falls into.
    pub fn hash(&self) -> u64 {
        match self {
            Self::Text(text) => uid_hash(text),
            Self::Uuid(uuid) => {
                uid_hash(uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Uuid(_) => 0,
            Self::Text(text) => text.len(),
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Uuid(uuid) => uuid.hyphenated().fmt(f),
        }
    }
}

/// `metadata.resourceVersion`: opaque, to be compared for equality only. The usual form, a decimal
/// number, takes no heap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResourceVersion {
    /// A number without leading zeros.
    Number(u64),
    /// Anything else, as written.
    Text(Box<str>),
}

impl ResourceVersion {
    /// Reads a version. Every text is one, and [`fmt::Display`] gives the same text back.
    pub fn new(text: &str) -> Self {
        let canonical = text == "0" || !text.starts_with(['0', '+']);
        match text.parse() {
            Ok(number) if canonical => Self::Number(number),
            _ => Self::Text(text.into()),
        }
    }

    /// Whether it is a number, as Kubernetes' are, so that later ones are larger.
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    /// Whether it is known to be `other` or later: true only of numbers.
    pub fn is_at_least(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Number(this), Self::Number(other)) if this >= other)
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Text(text) => text.len(),
        }
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// The reference to the owner that controls an object. Shared by all objects it controls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The owner's `apiVersion`, as written.
    pub api_version: Arc<str>,
    /// The owner's kind.
    pub kind: Arc<str>,
    /// The owner's name, in the same namespace or in none.
    pub name: Box<str>,
    /// The owner's uid.
    pub uid: Uid,
}

/// The labels of an object, as one shared text: key, NUL, value, NUL, and so on, ordered by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(pub(super) Option<Arc<str>>);

impl Labels {
    /// All labels, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.0.as_deref().unwrap_or_default().split_terminator('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// The value of one label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|(found, value)| (found == key).then_some(value))
    }

    /// Where their text is in memory: of equal labels too there may be two texts.
    pub(super) fn address(&self) -> Option<usize> {
        self.0.as_deref().map(|text| text.as_ptr().addr())
    }
}

/// A value of an object in one of its store's indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Indexed {
    /// The position of the index in the options.
    pub(super) index: u16,
    pub(super) value: Arc<str>,
}

/// What is kept of an object beside its bytes.
#[derive(Clone, Debug)]
pub struct Header {
    /// Namespace and name.
    pub key: LocalKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `metadata.generation`, zero where the kind has none.
    pub generation: i64,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The owner with `controller: true`, if there is one.
    pub owner: Option<Arc<Owner>>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// Its values in the store's indexes, ordered; absent if there are none.
    #[expect(clippy::box_collection, reason = "one word here instead of three: most have none")]
    pub(super) indexed: Option<Box<Vec<Indexed>>>,
}

impl Header {
    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// The hash that says which range the object falls into: its own uid's.
    pub fn hash(&self) -> u64 {
        self.uid.hash()
    }

    pub(super) fn indexed(&self) -> &[Indexed] {
        self.indexed.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Bytes this header takes on the heap, shared parts left out.
    pub(super) fn heap_bytes(&self) -> usize {
        let indexed = self.indexed.as_deref();
        self.key.name.len()
            + self.uid.heap_bytes()
            + self.resource_version.heap_bytes()
            + indexed
                .map_or(0, |all| size_of::<Vec<Indexed>>() + all.capacity() * size_of::<Indexed>())
    }
}

/// Bytes that are not an object.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// A field of the metadata has another type than Kubernetes gives it.
    #[error("read metadata.{field} of an object")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The text is not JSON, or not an object.
    #[error("read an object: expected {expected} at byte {at}")]
    Syntax {
        /// What should stand there.
        expected: &'static str,
        /// Where, in bytes from the beginning of the object.
        at: usize,
    },
    /// A field is longer than any API server lets it be.
    #[error("an object came with a metadata.{0} of more than {MAX_NAME_BYTES} bytes")]
    TooLong(&'static str),
    /// A field that every stored object has is absent or empty.
    #[error("an object came without metadata.{0}")]
    Missing(&'static str),
    /// There are two `metadata`: readers differ in which one counts.
    #[error("an object has metadata twice")]
    TwoMetadata,
    /// A field that decides what the object is comes twice: readers differ in which one counts.
    #[error("an object has metadata.{0} twice")]
    Twice(&'static str),
    /// A label holds the character that Kubernetes allows in none.
    #[error("a label of an object holds the character U+0000")]
    Label,
    /// A name or namespace that no API server lets an object have: it could not be part of a path.
    #[error(
        "an object came with metadata.{field} {value:?}: a name has no spaces, no control or invisible characters, none of /%?#, and is not . or .."
    )]
    Name {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// A uid or version with characters that do not show.
    #[error("an object came with a metadata.{0} that has control or invisible characters")]
    Control(&'static str),
    /// It has too many labels.
    #[error("an object came with more than {MAX_LABELS} labels or {MAX_LABEL_BYTES} bytes of them")]
    TooManyLabels,
    /// It has too many owners.
    #[error("an object came with more than {MAX_OWNERS} ownerReferences")]
    TooManyOwners,
    /// Decoded, it would take far more than its text.
    #[error(transparent)]
    TooHeavy(#[from] TooHeavy),
    /// The JSON text of the object is longer than 4 MiB.
    #[error("an object of {0} bytes is too large to cache")]
    TooLarge(usize),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_uids_and_versions_take_no_heap() {
        let text = "3f317cc0-a1f4-4af6-a1d2-5e52acbbc64c";
        let uid = Uid::new(text);
        assert!(matches!(uid, Uid::Uuid(_)));
        assert_eq!((uid.to_string().as_str(), uid.hash()), (text, uid_hash(text)));
        assert_eq!(ResourceVersion::new("31595425"), ResourceVersion::Number(31_595_425));
        assert_eq!(size_of::<ResourceVersion>(), 16);
        assert!(size_of::<Header>() <= 120, "{}", size_of::<Header>());
    }

    #[test]
    fn other_forms_are_kept_as_written() {
        for odd in [
            "",
            "u1",
            "3F317CC0-a1f4-4af6-a1d2-5e52acbbc64c",
            "3f317cc0a1f4-4af6-a1d2-5e52acbbc64c-",
            "{f317cc0-a1f4-4af6-a1d2-5e52acbbc64c",
            "007",
            "+7",
            "-1",
            "18446744073709551616",
            "1.0",
            "٣",
        ] {
            assert_eq!(Uid::new(odd).to_string(), odd);
            assert_eq!(Uid::new(odd).hash(), uid_hash(odd));
            assert_eq!(ResourceVersion::new(odd).to_string(), odd);
        }
    }

    proptest! {
        #[test]
        fn texts_come_back_as_they_were(text in "[0-9a-f-]{0,40}|[0-9]{0,22}|\\PC*", bytes in any::<[u8; 16]>()) {
            prop_assert_eq!(Uid::new(&text).to_string(), text.as_str());
            prop_assert_eq!(ResourceVersion::new(&text).to_string(), text.as_str());
            let uid = Uid::Uuid(Uuid::from_bytes(bytes));
            prop_assert_eq!(Uid::new(&uid.to_string()), uid);
        }
    }
}
