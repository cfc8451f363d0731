//! Why shards come to where they are, for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ShardId;

use super::{Draft, View};
use crate::api::{MoveCause, Moved, ShardPath};
use crate::handover::Entry;
use crate::node::HandoverCause;

/// Why the plan moves shards.
pub(in super::super) type Causes = BTreeMap<ShardId, MoveCause>;

impl Draft<'_> {
    /// Says for each shard that changes hands or phase why it does.
    pub(in super::super) fn explain(&mut self, causes: &Causes, view: &View<'_>) {
        if self.is_untouched() {
            return;
        }
        let desired = &*self.desired;
        let before = self.base.map();
        let old = |path: &ShardPath| before.and_then(|map| map.entries.get(path));
        let changed = desired.entries.iter().filter(|(path, entry)| {
            let is_same = |old: &Entry| {
                (old.owner(), old.target()) == (entry.owner(), entry.target())
                    && old.is_draining() == entry.is_draining()
            };
            !old(path).is_some_and(is_same)
        });
        let causes: Vec<(ShardPath, MoveCause)> = changed
            .map(|(path, entry)| (path.clone(), self.cause(path, old(path), entry, causes, view)))
            .collect();
        let gone = desired.moves.0.keys().any(|path| !desired.entries.contains_key(path));
        if causes.is_empty() && !gone {
            return;
        }
        let desired = self.desired.to_mut();
        let moves = Arc::make_mut(&mut desired.moves.0);
        moves.extend(causes.into_iter().map(|(path, why)| (path, Moved { why, at: None })));
        moves.retain(|path, _| desired.entries.contains_key(path));
    }

    fn cause(
        &self,
        path: &ShardPath,
        old: Option<&Entry>,
        new: &Entry,
        causes: &Causes,
        view: &View<'_>,
    ) -> MoveCause {
        let lost = old.and_then(Entry::owner).filter(|owner| new.owner() != Some(owner));
        match lost.map(|owner| HandoverCause::of(owner, view.world)) {
            Some(HandoverCause::Crash) => return MoveCause::OwnerDied,
            Some(HandoverCause::Leave) => return MoveCause::OwnerLeft,
            Some(HandoverCause::Live | HandoverCause::Split) | None => {}
        }
        if let Some(ended) = self.ended(path, old, new, view) {
            return ended;
        }
        if let Some(cause) = causes.get(&path.in_cluster(&self.desired.cluster)) {
            return *cause;
        }
        match old {
            // It drains for nobody, and the plan did not want that.
            Some(Entry::Owned { .. }) if !self.is_kept() => MoveCause::Removed,
            Some(Entry::Owned { .. }) if self.paused.contains(path) => MoveCause::Paused,
            Some(Entry::Owned { .. }) => MoveCause::Removed,
            // What began for a reason goes on for it.
            Some(_) => self.desired.moves.why(path).unwrap_or(MoveCause::Created),
            None => self.made(path),
        }
    }

    /// That what had kept a shard from all members has ended, if somebody gets it now.
    fn ended(
        &self,
        path: &ShardPath,
        old: Option<&Entry>,
        new: &Entry,
        view: &View<'_>,
    ) -> Option<MoveCause> {
        let is_owned = |entry: &Entry| matches!(entry, Entry::Owned { .. });
        let was_for_nobody = old.is_some_and(|old| !is_owned(old) && old.target().is_none());
        let is_given = is_owned(new) || new.target().is_some();
        let shard = || path.in_cluster(&self.desired.cluster);
        match self.desired.moves.why(path).filter(|_| was_for_nobody && is_given)? {
            MoveCause::Paused => Some(MoveCause::Resumed),
            MoveCause::Policy if !view.policies.place(&shard()) => Some(MoveCause::Lifted),
            _ => None,
        }
    }

    /// Why there is a shard that was not in the map.
    fn made(&self, path: &ShardPath) -> MoveCause {
        let before = self.base.map().into_iter().flat_map(|map| map.entries.keys());
        let mut origins =
            before.filter(|old| old.group == path.group && old.range.overlaps(path.range));
        match origins.next() {
            Some(origin) if origin.range.covers(path.range) => MoveCause::Split,
            Some(_) => MoveCause::Merged,
            None => self.desired.moves.why(path).unwrap_or(MoveCause::Created),
        }
    }
}
