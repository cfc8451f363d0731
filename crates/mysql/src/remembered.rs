//! What a manager remembers of each cluster between reconciles. Nothing is wrong without it, so it is
//! bounded, and gone with the process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use kube::ResourceExt;
use operands::spec::Invalid;
use sdk::Context;

use crate::accounts::Passwords;
use crate::api::MySQLCluster;
use crate::calls::Password;
use crate::kept::Kept;

/// The most clusters of which something is remembered.
const MAX_REMEMBERED: usize = 16_384;

/// What is remembered of every cluster.
#[derive(Debug, Default)]
pub(crate) struct Remembered(Mutex<HashMap<String, Past>>);

/// What is remembered of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) kept: Kept,
    pub(crate) passwords: Option<Passwords>,
    /// Of which generation the server refused a part, when, and what it said.
    pub(crate) refused: Option<(Option<i64>, Timestamp, Invalid)>,
    /// What root proved itself with.
    pub(crate) root: Option<Password>,
    /// When its instances read their certificates last.
    pub(crate) reloaded: Option<Timestamp>,
    /// In how many rounds nobody was let in anywhere, one after the other.
    pub(crate) shut_out: u32,
}

impl Remembered {
    /// Takes what is remembered of a cluster; it is given back with [`Self::put`].
    pub(crate) fn take(&self, ctx: &Context, cluster: &MySQLCluster) -> Past {
        self.lock().remove(&key(ctx, cluster)).unwrap_or_default()
    }

    /// Remembers a cluster.
    pub(crate) fn put(&self, ctx: &Context, cluster: &MySQLCluster, past: Past) {
        let mut all = self.lock();
        if all.len() >= MAX_REMEMBERED {
            all.clear();
        }
        all.insert(key(ctx, cluster), past);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Past>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(ctx: &Context, cluster: &MySQLCluster) -> String {
    format!("{}/{}", ctx.cluster(), cluster.uid().unwrap_or_default())
}
