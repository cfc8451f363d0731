//! What a list has mentioned so far: how many objects, and each only once. Pure.

use std::collections::HashSet;

/// Bytes of the hash of a uid and its place in the table. The table has room for up to twice as many.
const BYTES_EACH: usize = 10;

/// The objects of a list under way.
#[derive(Debug, Default)]
pub struct Census {
    under_way: bool,
    mentioned: usize,
    /// The hashes of the uids of a list in pages. In a stream, an object comes again when it changes.
    uids: Option<HashSet<u64>>,
}

/// An object that a list mentions twice.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's list has an object twice, with uid {0:?}")]
pub struct Twice(String);

impl Census {
    /// A list begins: in pages, or as a stream.
    pub fn begin(&mut self, paged: bool) {
        *self = Self { under_way: true, mentioned: 0, uids: paged.then(HashSet::new) };
    }

    /// The list is complete.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// The list mentions an object.
    ///
    /// # Errors
    /// If a list in pages mentioned it before.
    pub fn mention(&mut self, hash: u64, uid: impl FnOnce() -> String) -> Result<(), Twice> {
        if self.under_way {
            self.mentioned += 1;
        }
        let is_new = self.uids.as_mut().is_none_or(|uids| uids.insert(hash));
        if is_new { Ok(()) } else { Err(Twice(uid())) }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.uids.as_ref().map_or(0, HashSet::capacity) * BYTES_EACH
    }

    /// How many objects the list has mentioned, each as often as it came.
    pub fn mentioned(&self) -> usize {
        self.mentioned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_comes_once_in_pages_and_as_often_as_it_changes_in_a_stream() {
        let mut census = Census::default();
        let mention = |census: &mut Census, hash| census.mention(hash, || "u".to_owned());
        census.begin(true);
        assert_eq!(mention(&mut census, 1), Ok(()));
        assert_eq!(mention(&mut census, 2), Ok(()));
        assert_eq!(mention(&mut census, 1), Err(Twice("u".to_owned())));
        census.begin(true);
        assert_eq!(mention(&mut census, 1), Ok(()), "another list");
        census.begin(false);
        assert_eq!([mention(&mut census, 1), mention(&mut census, 1)], [Ok(()), Ok(())]);
        assert_eq!(census.mentioned(), 2);
        census.end();
        assert_eq!(mention(&mut census, 1), Ok(()));
        assert_eq!(census.mentioned(), 0, "changes are not counted");
    }
}
