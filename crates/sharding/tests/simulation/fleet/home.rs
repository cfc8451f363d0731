//! What happens to home as a whole: it is restored, emptied or replaced. And the bugs of members that go
//! on as if nothing had happened.

use std::time::Duration;

use leasehold_sharding::handover::Entry;
use leasehold_sharding::node::Published;
use leasehold_sharding::record::{Kind, Object, Write, WriteOutcome};

use super::{Bug, Fleet, Happening, MS};
use crate::server::Commit;

impl Fleet {
    /// Home is away for that long and comes back without its last writes. All connections end.
    pub fn restore_home(&mut self, lost_writes: usize, away_ms: u64) {
        self.server.restore(lost_writes);
        self.return_home(away_ms);
    }

    /// Home is away for that long and comes back as another, empty store, which counts from `revision`.
    pub fn replace_home(&mut self, revision: u64, away_ms: u64) {
        self.server.replace(revision);
        self.return_home(away_ms);
    }

    fn return_home(&mut self, away_ms: u64) {
        self.oracle.history_changed(self.server.all_maps());
        self.home_away_until = self.now_us + away_ms * MS;
        self.arrivals.clear();
        for replica in 0..self.replicas.len() {
            self.replicas[replica].frozen_until = 0;
            self.replicas[replica].watched = usize::MAX;
            let delay = away_ms * MS + 1 + self.delay();
            self.schedule(delay, replica, Happening::Watch { upto: usize::MAX });
            // Their watch of policies may be the first to begin anew.
            let delay = away_ms * MS + 1 + self.delay();
            self.schedule(delay, replica, Happening::Policies);
        }
    }

    /// The watches of a replica start anew, with lists.
    pub fn reread(&mut self, replica: usize) {
        self.replicas[replica].watched = usize::MAX;
        let delay = self.delay();
        self.schedule(delay, replica, Happening::Watch { upto: usize::MAX });
        self.reread_policies(replica);
    }

    /// What the store makes of a write.
    pub(super) fn commit(&mut self, mut write: Write) -> (WriteOutcome, Option<Commit>) {
        match self.bug {
            Bug::ForgetEpochs => self.forget_epochs(&mut write),
            Bug::ForgetsOwners => self.forget_owners(&mut write),
            Bug::ForgetsFormerNames => self.forget_former_names(&mut write),
            _ => {}
        }
        self.server.write(write)
    }

    /// What the engine of a replica believes that it may do.
    pub(super) fn believed(&mut self, replica: usize) -> Published {
        let believing = &mut self.replicas[replica];
        let published = believing.node.published();
        let has_struck = self.home_away_until > 0;
        if self.bug != Bug::HoldOn || !has_struck || !published.owned.holdings.is_empty() {
            believing.held = Some(published.clone());
            return published;
        }
        let held = believing.held.clone().unwrap_or(published);
        let now = believing.clock.read(self.now_us);
        Published { valid_until: now + Duration::from_secs(10), ..held }
    }

    /// Gives the shards of a new map to others.
    fn forget_owners(&self, write: &mut Write) {
        let Write::Create(Object::Map(map)) = write else { return };
        let ids = self.ids();
        for entry in map.entries_mut().values_mut() {
            if let Entry::Owned { owner, epoch } = entry {
                owner.clone_from(ids.iter().find(|id| *id != owner).expect("there are others"));
                *epoch = epoch.next();
            }
        }
    }

    /// Takes out the former names that are no names any more.
    fn forget_former_names(&self, write: &mut Write) {
        if let Write::Create(Object::Map(map)) | Write::Replace(Object::Map(map)) = write {
            map.former.retain(|(_, name)| self.server.get(Kind::Map, name.as_str()).is_some());
        }
    }

    /// Names each owner at the epoch that follows the last one in home, whatever the floor.
    fn forget_epochs(&self, write: &mut Write) {
        let (Write::Create(Object::Map(map)) | Write::Replace(Object::Map(map))) = write else {
            return;
        };
        let before = match self.server.get(Kind::Map, map.cluster.as_str()) {
            Some(Object::Map(before)) => Some(before),
            _ => None,
        };
        for (path, entry) in map.entries_mut() {
            let last = before.and_then(|map| map.entries.get(path)).map(Entry::epoch);
            if let Entry::Owned { epoch, .. } = entry {
                *epoch = (*epoch).min(last.unwrap_or_default().next());
            }
        }
    }
}
