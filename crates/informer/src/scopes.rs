//! The range scopes that an informer must hold, numbered in the order in which they were required. Each
//! is needed until its guard is dropped.
//!
//! # Invariants
//! - What a scope includes is cached until its guard is dropped. An assignment holds the guards of its
//!   shard, and whatever runs under it holds the assignment: no reconcile of a draining shard sees
//!   an object vanish because the shard is on its way out (S2).
//! - Numbers rise. So one number says which scopes are met, whatever was dropped meanwhile.

use std::collections::BTreeMap;

use tokio::sync::watch;

use extent::{RangeFilter, RangeScope};

/// The scopes on one informer. Its task follows them.
#[derive(Debug, Default)]
pub(crate) struct Scopes(watch::Sender<Table>);

#[derive(Debug, Default)]
struct Table {
    scopes: BTreeMap<u64, RangeScope>,
    /// The number of the last scope made.
    latest: u64,
}

/// The scopes as the informer's task sees them.
#[derive(Debug)]
pub(crate) struct ScopeWatch(watch::Receiver<Table>);

/// Keeps a scope. What it includes stays cached as long as this is held.
#[derive(Debug)]
pub struct ScopeGuard {
    number: u64,
    table: watch::Sender<Table>,
}

impl Scopes {
    pub(crate) fn require(&self, scope: RangeScope) -> ScopeGuard {
        let mut number = 0;
        self.0.send_modify(|table| {
            table.latest += 1;
            number = table.latest;
            table.scopes.insert(number, scope);
        });
        ScopeGuard { number, table: self.0.clone() }
    }

    pub(crate) fn follow(&self) -> ScopeWatch {
        ScopeWatch(self.0.subscribe())
    }
}

impl ScopeWatch {
    /// Waits until scopes were made or dropped.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody can require a scope any more; the informer is about to be stopped.
            std::future::pending().await
        }
    }

    /// What all scopes together need, and the number of the last one.
    pub(crate) fn wanted(&mut self) -> (RangeFilter, u64) {
        let table = self.0.borrow_and_update();
        let mut filter = RangeFilter::default();
        table.scopes.values().for_each(|scope| filter.insert(*scope));
        (filter, table.latest)
    }
}

impl ScopeGuard {
    /// Its number: the scope is met once [`super::Change::Synced`] carries this number or a later one.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        self.table.send_modify(|table| {
            table.scopes.remove(&self.number);
        });
    }
}
