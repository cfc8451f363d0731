//! What a list has mentioned so far: how many objects, and each only once. Pure.

use std::collections::HashMap;

/// Bytes of the hashes of a uid and a name, and their place in the table. The table has room for up to twice as many.
const BYTES_EACH: usize = 18;

/// The objects of a list under way.
#[derive(Debug, Default)]
pub struct Census {
    under_way: bool,
    mentioned: usize,
    /// In pages an object comes once; in a stream, again when it changes.
    paged: bool,
    /// The hashes of the uids, and of the names that have them.
    uids: HashMap<u64, u64>,
}

/// An object that a list mentions twice.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's list has an object twice, with uid {0:?}")]
pub struct Twice(String);

impl Census {
    /// A list begins: in pages, or as a stream.
    pub fn begin(&mut self, paged: bool) {
        *self = Self { under_way: true, mentioned: 0, paged, uids: HashMap::new() };
    }

    /// The list is complete.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// The list mentions an object, by the hashes of its uid and its name.
    ///
    /// # Errors
    /// If it mentioned that uid before: in pages, or of another name.
    pub fn mention(
        &mut self,
        (uid, name): (u64, u64),
        shown: impl FnOnce() -> String,
    ) -> Result<(), Twice> {
        if !self.under_way {
            return Ok(());
        }
        self.mentioned += 1;
        match self.uids.insert(uid, name) {
            Some(before) if self.paged || before != name => Err(Twice(shown())),
            _ => Ok(()),
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.uids.capacity() * BYTES_EACH
    }

    /// How many objects the list has brought, each once.
    pub fn objects(&self) -> usize {
        self.uids.len()
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
        let mention = |census: &mut Census, uid| census.mention((uid, 7), || "u".to_owned());
        census.begin(true);
        assert_eq!(mention(&mut census, 1), Ok(()));
        assert_eq!(mention(&mut census, 2), Ok(()));
        assert_eq!(mention(&mut census, 1), Err(Twice("u".to_owned())));
        census.begin(true);
        assert_eq!(mention(&mut census, 1), Ok(()), "another list");
        census.begin(false);
        assert_eq!([mention(&mut census, 1), mention(&mut census, 1)], [Ok(()), Ok(())]);
        assert_eq!((census.objects(), census.mentioned()), (1, 2));
        assert_eq!(census.mention((1, 8), || "u".to_owned()), Err(Twice("u".to_owned())));
        census.end();
        assert_eq!([mention(&mut census, 1), mention(&mut census, 1)], [Ok(()), Ok(())]);
        let counted = (census.objects(), census.mentioned());
        assert_eq!(counted, (0, 0), "changes are not counted");
    }
}
