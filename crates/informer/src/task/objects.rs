//! The objects that a server sends: which of them are read, and what they count against.

use std::sync::Arc;

use cache::{Entry, HeaderError, PartialFields, PartialMetadata, Unindexed, partial_metadata};
use listwatch::End;
use listwatch::wire::{self, Line};
use model::uid_hash;

use super::{Ended, REPETITIVE, Task, garbage};
use crate::{LogLine, Target};

/// Bytes that an object may take in the queue of a controller: its key and its place. An estimate.
const QUEUED_BYTES: usize = 256;
/// Lines that a streaming list may have for each object, because objects change while it comes,
const LINES_FOR_EACH: usize = 16;
/// and so many more, of few objects that change often.
const LINES_BESIDE: usize = 10_000;

impl Task {
    /// Reads the object of a line.
    pub(super) fn object(&mut self, raw: &str, line: &[u8]) -> Result<Arc<Entry>, Ended> {
        self.parse(raw).or_else(|error| {
            // Whether it is the object at all was not looked at.
            match wire::strict_line(line).map_err(|error| garbage(&error))? {
                Line::Upsert(object) | Line::Delete(object) if object != raw => {
                    self.parse(object).map_err(|error| garbage(&error))
                }
                _ => Err(garbage(&error)),
            }
        })
    }

    /// Reads an object, and says what indexes lack of it.
    pub(super) fn parse(&mut self, raw: &str) -> Result<Arc<Entry>, HeaderError> {
        let parsed = self.writer.parse(raw);
        for Unindexed { index, what, why } in self.writer.take_unindexed() {
            let Target { cluster, kind, .. } = &self.state.target;
            let error = why.as_deref();
            match self.log_lines.next(what, self.clock.now()) {
                Some(LogLine { more }) => {
                    tracing::warn!(%cluster, %kind, %index, error, more, "{what}");
                }
                None => tracing::debug!(%cluster, %kind, %index, error, "{what}"),
            }
        }
        parsed
    }

    /// The object, if it is not among those that are wanted. Only its partial metadata is read.
    pub(super) fn foreign<'r>(&self, raw: &'r str) -> Option<PartialMetadata<'r>> {
        let wanted = self.held.wanted();
        if wanted.is_whole() {
            return None;
        }
        let namespace = self.state.target.kind.namespaced;
        let fields = PartialFields { namespace, owner: wanted.looks_at_owners() };
        // Of one that has no partial_metadata, the whole scan says why.
        let found = partial_metadata(raw, fields).ok()?;
        let owner = || found.owner.as_deref().map(uid_hash);
        (!wanted.contains(|| uid_hash(&found.uid), owner)).then_some(found)
    }

    /// The object, if the store has none of its name: what is deleted that nobody knew. Nothing of it is kept,
    /// so only its partial metadata is read.
    pub(super) fn unheld<'r>(&self, raw: &'r str) -> Option<PartialMetadata<'r>> {
        let fields = PartialFields { namespace: true, owner: false };
        let found = partial_metadata(raw, fields).ok()?;
        let held = self.state.store.get(found.namespace.as_deref(), &found.name);
        held.is_none().then_some(found)
    }

    /// The server sends an object, as part of a list or as a change.
    pub(super) fn mention(
        &mut self,
        (namespace, name): (Option<&str>, &str),
        hash: u64,
        uid: impl FnOnce() -> String,
    ) -> Result<(), Ended> {
        if let Some(asked) = self.state.target.scope.namespace.as_deref()
            && namespace != Some(asked)
        {
            let (kind, found) = (&self.state.target.kind, namespace.unwrap_or_default());
            let why = format!(
                "the server was asked for {kind} in namespace {asked} and sends one in namespace {:?}",
                model::error::foreign(found)
            );
            return Err((End::Garbage, Some(why)));
        }
        let before = self.census.bytes();
        let named = uid_hash(name) ^ uid_hash(namespace.unwrap_or_default()).rotate_left(1);
        self.census.mention((hash, named), uid).map_err(|twice| garbage(&twice))?;
        if self.census.bytes() != before {
            self.count();
        }
        self.overrun = self.part.mentions(self.census.mentioned()).err();
        Ok(())
    }

    /// Counts a line of a streaming list. More lines than objects are changes, bookmarks or repetitions: they come no
    /// faster than the lines of a watch, and not for ever.
    pub(super) fn progresses(&mut self) -> Result<(), Ended> {
        if self.machine.position().is_some() {
            return Ok(());
        }
        self.lines += 1;
        let objects = self.census.objects();
        if self.lines > objects {
            self.connection.repeats();
        }
        if self.lines > LINES_BESIDE + LINES_FOR_EACH * objects {
            return Err((End::Endless, Some(REPETITIVE.to_owned())));
        }
        Ok(())
    }

    pub(super) fn mention_entry(&mut self, entry: &Entry) -> Result<(), Ended> {
        let header = &entry.header;
        let uid = || model::error::foreign(&header.uid.to_string());
        self.mention((header.key.namespace.as_deref(), &header.key.name), header.hash(), uid)
    }

    /// Counts what the store takes, and what has come of a line or page under way.
    pub(super) fn count(&mut self) {
        let mut size = self.state.store.size();
        self.counted = self.connection.held_bytes();
        size.cache_bytes += size.objects * QUEUED_BYTES + self.census.bytes() + self.counted;
        self.overrun = self.part.takes(size).err();
    }
}
