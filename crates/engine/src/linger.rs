//! What was cached for shards that a member lost with its Lease: kept for a while, because its process joins
//! again at once and mostly gets them back. Without this, an outage of home would have every cache of the fleet
//! listed anew.
//!
//! For a bounded time it costs the memory that the process had before. Nothing runs on it: what is kept are
//! informers and the scopes that they hold, and no assignment. Of each shard they are kept once, however often the
//! Lease is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::{Clock, MemberId, Moment, ShardId};

use crate::assignment::Assignment;
use informer::{Informer, ScopeGuard, Target};

/// How long caches are kept while the member gets no shards.
const OUTAGE: Duration = Duration::from_secs(600);
/// How long they are kept once it has shards again: those that come back come together.
const BACK: Duration = Duration::from_secs(30);

/// The caches of lost shards.
#[derive(Debug, Default)]
pub(crate) struct Lingering {
    /// As the controllers had them, shard by shard.
    kept: Vec<Kept>,
    /// Until when they are kept, and whether the member has shards again.
    until: Option<(Moment, bool)>,
}

/// What a controller had cached for a shard.
#[derive(Debug)]
struct Kept {
    shard: ShardId,
    _scopes: Arc<[ScopeGuard]>,
    informers: Vec<Arc<Informer>>,
}

impl Lingering {
    /// Keeps the caches of those assignments that ended because the process is another member now.
    pub(crate) fn keep(&mut self, ended: Vec<Arc<Assignment>>, member: &MemberId, now: Moment) {
        let lost = ended.iter().filter(|ended| ended.member != *member);
        let kept = lost.map(|lost| Kept {
            shard: lost.shard.clone(),
            _scopes: Arc::clone(&lost.scopes),
            informers: lost.context.informers.clone(),
        });
        self.add(kept.collect(), now);
    }

    /// Keeps these, in place of what is kept of the same shards since an earlier loss.
    fn add(&mut self, lost: Vec<Kept>, now: Moment) {
        if lost.is_empty() {
            return;
        }
        let again: BTreeSet<_> = lost.iter().map(|lost| &lost.shard).collect();
        self.kept.retain(|kept| !again.contains(&kept.shard));
        self.kept.extend(lost);
        self.until = Some((now + OUTAGE, false));
    }

    /// Drops what need not be kept: all of it when its time is over, and what is left of clusters that are
    /// engaged no more.
    pub(crate) fn follow(
        &mut self,
        has_shards: bool,
        is_engaged: impl Fn(&Target) -> bool,
        now: Moment,
    ) {
        if let Some((until, false)) = self.until
            && has_shards
        {
            self.until = Some((until.min(now + BACK), true));
        }
        if self.until.is_some_and(|(until, _)| until <= now) {
            *self = Self::default();
        }
        let is_here = |informer: &Arc<Informer>| is_engaged(&informer.state().target);
        self.kept.retain(|kept| kept.informers.iter().all(is_here));
    }

    /// Waits until its time is over.
    pub(crate) async fn over(&self, clock: &dyn Clock) {
        match self.until {
            Some((until, _)) => clock.sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Range;

    use super::*;

    #[test]
    fn the_caches_of_a_shard_are_kept_once_however_often_the_lease_is_lost() {
        let lost = |cluster: &str| {
            let (cluster, group) = (cluster.parse().unwrap(), "g".parse().unwrap());
            let shard = ShardId { cluster, group, range: Range::WHOLE };
            Kept { shard, _scopes: Arc::new([]), informers: Vec::new() }
        };
        let mut lingering = Lingering::default();
        for second in (0..1000).step_by(20) {
            let at = |second| Moment::from_origin(Duration::from_secs(second));
            // Two controllers work on the shard of the east.
            lingering.add(["east", "east", "west"].map(lost).into(), at(second));
            lingering.follow(true, |_| true, at(second + 1));
            assert_eq!(lingering.kept.len(), 3);
        }
        lingering.follow(true, |_| true, Moment::from_origin(Duration::from_secs(1100)));
        assert!(lingering.kept.is_empty());
    }
}
