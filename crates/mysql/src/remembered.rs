//! What a manager remembers of each cluster between reconciles. Nothing is wrong without it, so it is
//! bounded, and gone with the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use operands::spec::Invalid;
use sdk::Context;
use sdk::condition::rest;

use crate::accounts::Passwords;
use crate::api::MySQLCluster;
use crate::calls::Password;
use crate::kept::Kept;
use crate::step::RETRY;

/// How long the server is not asked again for what it refused: an admission policy, a quota or a StorageClass
/// may change without a word.
const ASK_AGAIN: Duration = Duration::from_secs(30);
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
    /// What root proved itself with.
    pub(crate) root: Option<Password>,
    /// When its instances read their certificates last.
    pub(crate) reloaded: Option<Timestamp>,
    /// Whether the passwords of our accounts do not expire.
    pub(crate) passwords_kept: bool,
    /// What the server refused last.
    pub(crate) refused: Option<Refused>,
    /// The Pods whose role label the server did not let be changed, by uid.
    pub(crate) unlabelled: BTreeMap<String, Refused>,
    /// Whether nothing is left of what brought a backup onto the first volume.
    pub(crate) restore_ended: bool,
    /// In how many rounds nobody was let in anywhere, one after the other.
    pub(crate) shut_out: u32,
}

/// What the server refused, which it is not asked for again at once: a takeover is many rounds.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) invalid: Invalid,
    /// That of the object which asked for it.
    generation: Option<i64>,
    at: Timestamp,
    /// How long it is believed.
    lasts: Duration,
}

impl Refused {
    pub(crate) fn new(cluster: &MySQLCluster, invalid: Invalid, at: Timestamp) -> Self {
        Self { invalid, generation: cluster.metadata.generation, at, lasts: ASK_AGAIN }
    }

    /// What failed without a refusal, as while an API server starts: it is believed for a moment.
    pub(crate) fn failed(cluster: &MySQLCluster, invalid: Invalid, at: Timestamp) -> Self {
        Self { lasts: RETRY, ..Self::new(cluster, invalid, at) }
    }

    /// Whether the server would say the same.
    fn holds(&self, cluster: &MySQLCluster, now: Timestamp) -> bool {
        self.generation == cluster.metadata.generation && rest(self.at, self.lasts, now).is_some()
    }
}

impl Past {
    /// Forgets what was refused, if the server should be asked again.
    pub(crate) fn forgive(&mut self, cluster: &MySQLCluster, now: Timestamp) {
        self.refused.take_if(|refused| !refused.holds(cluster, now));
        self.unlabelled.retain(|_, refused| refused.holds(cluster, now));
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_is_forgotten_after_a_while_and_when_a_clock_was_wrong() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut cluster = crate::testkit::cluster(json!({}));
        let invalid = Invalid { reason: "Rejected", message: "no".to_owned() };
        let refused = Refused::new(&cluster, invalid, at(3_600));
        for (now, expect) in [(3_601, true), (3_629, true), (3_630, false), (0, false)] {
            assert_eq!(refused.holds(&cluster, at(now)), expect, "{now}");
        }
        cluster.metadata.generation = Some(7);
        assert!(!refused.holds(&cluster, at(3_601)), "another spec may be taken");
    }
}
