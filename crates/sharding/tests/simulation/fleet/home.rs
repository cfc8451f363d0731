//! What happens to home as a whole: it is restored, emptied or replaced. And the bugs of members that go
//! on as if nothing had happened.

use leasehold_sharding::handover::Entry;
use leasehold_sharding::lease;
use leasehold_sharding::record::{Kind, Object, Write, WriteOutcome};

use super::{Bug, Fleet, Happening, MS};
use crate::server::Commit;

/// How far a leap goes, at least.
const LEAP: u64 = 1 << 20;

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
        }
    }

    /// The watches of a replica start anew, with lists.
    pub(super) fn reread(&mut self, replica: usize) {
        self.replicas[replica].watched = usize::MAX;
        let delay = self.delay();
        self.schedule(delay, replica, Happening::Watch { upto: usize::MAX });
    }

    /// What the store makes of a write, and what the member learns of that.
    pub(super) fn commit(
        &mut self,
        replica: usize,
        mut write: Write,
    ) -> (WriteOutcome, Option<Commit>) {
        match self.bug {
            Bug::HoldOn => self.hold_on(replica, write),
            Bug::ForgetEpochs => {
                self.forget_epochs(&mut write);
                self.server.write(write)
            }
            _ => self.server.write(write),
        }
    }

    fn hold_on(&mut self, replica: usize, write: Write) -> (WriteOutcome, Option<Commit>) {
        let own = lease::member_lease_name(self.replicas[replica].node.id());
        let (outcome, commit) = match write {
            Write::Replace(Object::Lease(mut lease)) if lease.name == own => {
                let target = Object::Lease(lease.clone()).target();
                match self.server.get(target.kind, &target.name) {
                    Some(found) => {
                        lease.version = found.version().clone();
                        self.server.write(Write::Replace(Object::Lease(lease)))
                    }
                    None => self.server.write(Write::Create(Object::Lease(lease))),
                }
            }
            write => self.server.write(write),
        };
        // It takes no answer for a proof.
        match outcome {
            WriteOutcome::Conflict(Some(_)) => (WriteOutcome::Failed, commit),
            outcome => (outcome, commit),
        }
    }

    /// Brings the epochs of a map back from above a leap.
    fn forget_epochs(&self, write: &mut Write) {
        let (Write::Create(Object::Map(map)) | Write::Replace(Object::Map(map))) = write else {
            return;
        };
        let before = match self.server.get(Kind::Map, map.cluster.as_str()) {
            Some(Object::Map(before)) => Some(before),
            _ => None,
        };
        for (path, entry) in &mut map.entries {
            let last = before.and_then(|map| map.entries.get(path)).map(Entry::epoch);
            if let Entry::Owned { epoch, .. } = entry
                && epoch.0 > LEAP
                && last.is_none_or(|last| last.0 <= LEAP)
            {
                *epoch = last.unwrap_or_default().next();
            }
        }
    }
}
