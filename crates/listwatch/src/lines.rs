//! Lines out of a chunked body. A line that lies within one chunk is a slice of it, not a copy.

use bytes::{Bytes, BytesMut};

/// The longest line accepted: an object of 4 MiB, the largest that is cached, and what stands around it. API
/// servers take requests of at most 3 MiB, and etcd stores at most 1.5 MiB an object by default.
pub const MAX_LINE_BYTES: usize = (4 << 20) + (64 << 10);

/// A line longer than this is read only while few others are.
pub(crate) const LARGE_LINE_BYTES: usize = 256 << 10;

/// The most bytes of blank lines in a row. API servers send none.
const MAX_BLANK_BYTES: usize = 64 << 10;

/// Bytes that are no lines of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A line longer than [`MAX_LINE_BYTES`].
    #[error("the server sent a line longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// Blank lines longer than [`MAX_BLANK_BYTES`].
    #[error("the server sent more than {MAX_BLANK_BYTES} bytes of blank lines")]
    Blank,
}

/// Cuts chunks into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a line whose end has not come.
    partial: BytesMut,
    chunk: Bytes,
    /// Bytes of blank lines since the last that was not.
    blank: usize,
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
    pub(crate) fn next_line(&mut self) -> Result<Option<Bytes>, LineError> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.chunk) else {
                self.partial.extend_from_slice(&std::mem::take(&mut self.chunk));
                return if self.partial.len() > MAX_LINE_BYTES {
                    Err(LineError::TooLong)
                } else {
                    Ok(None)
                };
            };
            let rest = self.chunk.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.chunk, rest);
            line.truncate(end);
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(&line);
                // The room that it had goes with it: nobody counts it.
                line = std::mem::take(&mut self.partial).freeze();
            }
            if line.len() > MAX_LINE_BYTES {
                return Err(LineError::TooLong);
            }
            if !line.trim_ascii().is_empty() {
                self.blank = 0;
                return Ok(Some(line));
            }
            self.blank += line.len() + 1;
            if self.blank > MAX_BLANK_BYTES {
                return Err(LineError::Blank);
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
        for expect in [Ok(None), Ok(None), Err(LineError::TooLong)] {
            lines.push(chunk.clone());
            assert_eq!(lines.next_line(), expect);
        }
    }

    #[test]
    fn nothing_is_kept_of_a_long_line_but_the_line() {
        let (mut lines, chunk) = (Lines::default(), Bytes::from(vec![b'x'; 1 << 20]));
        for _ in 0..3 {
            lines.push(chunk.clone());
            assert_eq!(lines.next_line(), Ok(None));
        }
        assert!(chunk.is_unique(), "no chunk is kept");
        lines.push(Bytes::from_static(b"\n"));
        let line = lines.next_line().unwrap().unwrap();
        assert_eq!((line.len(), lines.partial.capacity()), (3 << 20, 0));
    }

    #[test]
    fn blank_lines_are_refused_if_nothing_else_comes() {
        let mut lines = Lines::default();
        for blank in ["\n".repeat(MAX_BLANK_BYTES), " ".repeat(MAX_BLANK_BYTES - 1) + "\n"] {
            lines.push(Bytes::from(blank + "line\n\n"));
            assert_eq!(lines.next_line(), Ok(Some(Bytes::from("line"))));
            assert_eq!(lines.next_line(), Ok(None));
            lines.push(Bytes::from("line\n"));
            assert_eq!(lines.next_line(), Ok(Some(Bytes::from("line"))));
        }
        lines.push(Bytes::from("\n".repeat(MAX_BLANK_BYTES)));
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(Bytes::from(" \n"));
        assert_eq!(lines.next_line(), Err(LineError::Blank));
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
