//! Who needs what of an informer: claims, numbered as they come, each held until it is dropped.
//!
//! # Invariants
//! - What a claim covers is cached until it is dropped. A tenure holds the claims of its shard, and
//!   whatever runs under it holds the tenure: so no reconcile of a draining shard sees an object
//!   vanish because the shard is on its way out (S2).
//! - Numbers rise. So one number tells which claims are met, whatever was dropped meanwhile.

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::coverage::{Claim, Coverage};

/// The claims on one informer. Its task follows them.
#[derive(Debug, Default)]
pub(super) struct Claims(watch::Sender<Table>);

#[derive(Debug, Default)]
struct Table {
    claims: BTreeMap<u64, Claim>,
    /// The number of the last claim made.
    latest: u64,
}

/// The task's end.
#[derive(Debug)]
pub(super) struct Claimants(watch::Receiver<Table>);

/// A claim on an informer. What it covers stays cached as long as it is held.
#[derive(Debug)]
pub(crate) struct Claimed {
    number: u64,
    table: watch::Sender<Table>,
}

impl Claims {
    pub(super) fn claim(&self, claim: Claim) -> Claimed {
        let mut number = 0;
        self.0.send_modify(|table| {
            table.latest += 1;
            number = table.latest;
            table.claims.insert(number, claim);
        });
        Claimed { number, table: self.0.clone() }
    }

    pub(super) fn follow(&self) -> Claimants {
        Claimants(self.0.subscribe())
    }
}

impl Claimants {
    /// Waits until claims were made or dropped.
    pub(super) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody can claim any more; the informer is about to be stopped.
            std::future::pending().await
        }
    }

    /// What all claims together need, and the number of the last one.
    pub(super) fn wanted(&mut self) -> (Coverage, u64) {
        let table = self.0.borrow_and_update();
        let mut coverage = Coverage::default();
        table.claims.values().for_each(|claim| coverage.insert(*claim));
        (coverage, table.latest)
    }
}

impl Claimed {
    /// Its number: it is met once [`super::Change::Synced`] has told of this one or a later one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.table.send_modify(|table| {
            table.claims.remove(&self.number);
        });
    }
}
