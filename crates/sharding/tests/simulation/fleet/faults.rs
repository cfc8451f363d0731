//! What happens to replicas.

use leasehold_sharding::node::Input;

use super::{Fleet, Happening, MS};

/// A fault of a replica.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// It stops at once and for good, and nobody says so.
    Crash(usize),
    /// Its container ends at once, and its kubelet says so.
    Kill(usize),
    /// The same, and another replica starts in its container. Perhaps no kubelet says so.
    Restart(usize),
    /// It pauses for that many milliseconds.
    Pause(usize, u64),
    /// It cannot reach the store for that many milliseconds. What it sent before may still arrive.
    Partition(usize, u64),
    /// Its watches are silent for that many milliseconds, while its writes succeed.
    Freeze(usize, u64),
    /// It leaves.
    Leave(usize),
}

impl Fleet {
    /// Causes a fault.
    pub fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Crash(replica) => self.stop(replica),
            Fault::Kill(replica) => self.kill(replica),
            Fault::Restart(replica) => self.restart(replica),
            Fault::Pause(replica, ms) => {
                self.replicas[replica].paused_until = self.now_us + ms * MS;
            }
            Fault::Partition(replica, ms) => {
                self.replicas[replica].cut_off_until = self.now_us + ms * MS;
                // The watch is opened again after the partition.
                self.schedule(ms * MS + 1, replica, Happening::Watch { upto: usize::MAX });
            }
            Fault::Freeze(replica, ms) => {
                self.replicas[replica].frozen_until = self.now_us + ms * MS;
                self.schedule(ms * MS + 1, replica, Happening::Watch { upto: usize::MAX });
            }
            Fault::Leave(replica) => {
                let now = self.replicas[replica].clock.read(self.now_us);
                self.replicas[replica].node.handle(Input::Leave, now);
                self.schedule(0, replica, Happening::Step);
            }
        }
    }

    /// Causes a random fault, but keeps at least two replicas that stay.
    pub fn inject_any(&mut self) {
        let replica = self.draw(0..self.replicas.len() as u64) as usize;
        let ms = self.draw(0..20_000);
        match self.draw(0..9) {
            0 if self.alive() > 2 => self.inject(Fault::Crash(replica)),
            1 if self.alive() > 2 => self.inject(Fault::Leave(replica)),
            2 => self.inject(Fault::Partition(replica, ms)),
            3 => self.inject(Fault::Freeze(replica, ms)),
            4 if self.replicas.len() < 8 => self.start(),
            5 if self.alive() > 2 => self.inject(Fault::Kill(replica)),
            6 if !self.replicas[replica].gone => self.inject(Fault::Restart(replica)),
            7 => self.delete_map(&format!("c{}", ms as usize % self.clusters.len().max(1))),
            _ => self.inject(Fault::Pause(replica, ms)),
        }
    }

    /// That many random faults, each with a pause of less than `pause_ms` after it.
    pub fn suffer(&mut self, faults: usize, pause_ms: u64) {
        for _ in 0..faults {
            self.inject_any();
            let pause = self.draw(0..pause_ms);
            self.run_for(pause);
        }
    }

    /// Ends all pauses and partitions.
    pub fn heal(&mut self) {
        for replica in 0..self.replicas.len() {
            self.replicas[replica].paused_until = 0;
            self.replicas[replica].cut_off_until = 0;
            self.replicas[replica].frozen_until = 0;
            self.schedule(1, replica, Happening::Watch { upto: usize::MAX });
        }
    }
}
