//! A line of a watch: `{"type":…,"object":…}`.

use bytes::Bytes;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Added,
    /// It changed.
    Modified,
    /// It was removed.
    Deleted,
}

impl EventKind {
    /// Its word in the watch protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One line of a watch.
pub fn watch_line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 32);
    append_watch_line(&mut out, kind, object);
    Bytes::from(out)
}

/// Appends one line of a watch.
pub fn append_watch_line(out: &mut Vec<u8>, kind: &str, object: &[u8]) {
    line_start(out, kind);
    out.extend_from_slice(object);
    out.extend_from_slice(LINE_END);
}

/// The text before the object in a line of a watch.
pub(super) fn line_start(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

/// The text after the object.
pub(super) const LINE_END: &[u8] = b"}\n";
