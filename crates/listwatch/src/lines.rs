//! Lines out of a chunked body. A line that lies within one chunk is a slice of it, not a copy.

use bytes::{Bytes, BytesMut};

/// The longest line accepted. etcd stores at most 1.5 MiB an object by default; escaping and
/// `managedFields` stay well below ten times that.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// A line longer than this is read only while few others are.
pub(crate) const LARGE_LINE_BYTES: usize = 1 << 20;

/// A line longer than [`MAX_LINE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent a line longer than {MAX_LINE_BYTES} bytes")]
pub struct LineTooLong;

/// Cuts chunks into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a line whose end has not come.
    partial: BytesMut,
    chunk: Bytes,
}

impl Lines {
    /// Adds a chunk. Take all lines out before the next.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "lines are taken out before the next chunk");
        self.chunk = chunk;
    }

    /// Whether all lines have been taken out.
    pub(crate) fn are_taken(&self) -> bool {
        self.chunk.is_empty()
    }

    /// Bytes of a line whose end has not come.
    pub(crate) fn partial_len(&self) -> usize {
        self.partial.len()
    }

    /// The next whole line, without its end.
    pub(crate) fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.chunk) else {
                self.partial.extend_from_slice(&self.chunk);
                self.chunk.clear();
                return if self.partial.len() > MAX_LINE_BYTES {
                    Err(LineTooLong)
                } else {
                    Ok(None)
                };
            };
            let rest = self.chunk.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.chunk, rest);
            line.truncate(end);
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(&line);
                line = self.partial.split().freeze();
            }
            if line.len() > MAX_LINE_BYTES {
                return Err(LineTooLong);
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(chunks: &[&[u8]]) -> Vec<Bytes> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for chunk in chunks {
            lines.push(Bytes::copy_from_slice(chunk));
            while let Some(line) = lines.next_line().unwrap() {
                found.push(line);
            }
        }
        found
    }

    #[test]
    fn lines_come_whole_and_empty_ones_not_at_all() {
        assert_eq!(cut(&[b"a\nb", b"c", b"\n\n \nd\n", b"tail"]), ["a", "bc", "d"]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut lines = Lines::default();
        let chunk = Bytes::from(vec![b'x'; MAX_LINE_BYTES / 2]);
        for expect in [Ok(None), Ok(None), Err(LineTooLong)] {
            lines.push(chunk.clone());
            assert_eq!(lines.next_line(), expect);
        }
    }

    proptest! {
        #[test]
        fn chunk_borders_do_not_matter(text in "[ab\n]{0,60}", cuts in prop::collection::vec(0..60_usize, 0..6)) {
            let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut <= text.len()).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for to in cuts.into_iter().chain([text.len()]) {
                chunks.push(&text.as_bytes()[from..to]);
                from = to;
            }
            prop_assert_eq!(cut(&chunks), cut(&[text.as_bytes()]));
        }
    }
}
