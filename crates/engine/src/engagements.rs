//! The clusters that this process works in: a client, a gate and an account for each.
//!
//! # Invariants
//! - A cluster that exceeds its budget counts as not engaged until its quarantine is over. Then it is engaged
//!   anew: other informers, another gate, an empty account.
//! - Another budget of a cluster holds at once. A larger one ends its quarantine, the first few times in a row.
//! - Each engagement has a number of its own, so that nothing of an earlier one is shared with it but the cluster's
//!   part of large answers: writes outlast an engagement, and a cluster may be engaged anew again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use model::{Budget, Budgets, Clock, Cluster, ClusterName, ClusterSet, ClusterUid};
use upstream::{Gate, Upstream, UpstreamLimits};

use crate::large::{LargeAnswers, LargeParts};
use crate::request::ClusterClient;
use crate::status::Board;
use extent::Quarantines;
use extent::{Account, Ledger};
use metrics::Metrics;

/// The clusters that are engaged here.
pub(crate) struct Engagements {
    all: BTreeMap<ClusterName, Engaged>,
    /// The number of the last one.
    last: u64,
    parts: EngagementParts,
    ledger: Ledger,
    /// The turns of large answers, and the part of each cluster.
    large: LargeAnswers,
    large_parts: LargeParts,
}

/// What engagements are made of.
pub(crate) struct EngagementParts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) board: Arc<Board>,
    pub(crate) quarantines: Quarantines,
    pub(crate) upstream: UpstreamLimits,
    pub(crate) budgets: Budgets,
    pub(crate) rng: fastrand::Rng,
    /// Whether writes carry the epoch at which they are made.
    pub(crate) stamps: bool,
}

/// One cluster.
pub(crate) struct Engaged {
    incarnation: u64,
    destination: u64,
    pub(crate) number: u64,
    pub(crate) client: ClusterClient,
    budget: Budget,
    pub(crate) account: Arc<Account>,
    /// Which cluster it is, once its server has told.
    pub(crate) uid: Arc<OnceLock<ClusterUid>>,
}

impl Engagements {
    pub(crate) fn new(parts: EngagementParts) -> Self {
        let ledger = Ledger::new(parts.budgets.max_total_cache_bytes);
        let (all, large) = (BTreeMap::new(), LargeAnswers::default());
        Self { all, last: 0, parts, ledger, large, large_parts: LargeParts::default() }
    }

    /// The clusters that may be engaged, after those that exceed their budget are put under quarantine.
    pub(crate) fn usable<'c>(&self, clusters: &'c ClusterSet) -> Vec<&'c Cluster> {
        let EngagementParts { clock, quarantines, .. } = &self.parts;
        let now = clock.now();
        quarantines.forget(&clusters.destinations(), now);
        let budget_of = |cluster: &ClusterName| clusters.get(cluster).map(|c| self.budget_of(c));
        quarantines.release(budget_of, now);
        for (cluster, Engaged { destination, budget, account, .. }) in &self.all {
            let Some(overrun) = account.overrun() else { continue };
            let reason: Arc<str> = overrun.to_string().into();
            let because = (overrun.reason(), Arc::clone(&reason));
            let exceeded = (*destination, *budget);
            if let Some(pause) = quarantines.impose(cluster, exceeded, because, now) {
                let retry_seconds = pause.as_secs();
                tracing::warn!(%cluster, retry_seconds, "cluster left alone: {reason}");
            }
        }
        clusters.engaged().filter(|cluster| !quarantines.holds(&cluster.name, now)).collect()
    }

    /// Makes what newly usable clusters need, and drops what is left of the others.
    pub(crate) fn engage(&mut self, usable: &[&Cluster]) {
        self.all.retain(|name, engaged| {
            // They are in order of their names.
            let at = usable.binary_search_by(|cluster| cluster.name.cmp(name));
            at.is_ok_and(|at| usable[at].incarnation == engaged.incarnation)
        });
        for cluster in usable {
            let budget = self.budget_of(cluster);
            match self.all.get_mut(&cluster.name) {
                Some(engaged) if engaged.budget == budget => {}
                Some(engaged) => {
                    engaged.budget = budget;
                    engaged.account.allow(budget);
                }
                None => {
                    let engaged = self.make(cluster);
                    self.all.insert(cluster.name.clone(), engaged);
                }
            }
            // A server may tell late. It cannot become another within one incarnation.
            if let (Some(identity), Some(engaged)) =
                (&cluster.identity, self.all.get(&cluster.name))
            {
                engaged.uid.get_or_init(|| identity.uid.clone());
            }
        }
    }

    fn budget_of(&self, cluster: &Cluster) -> Budget {
        self.parts.budgets.of(&cluster.name, cluster.budget)
    }

    fn make(&mut self, cluster: &Cluster) -> Engaged {
        let budget = self.budget_of(cluster);
        let EngagementParts { clock, metrics, board, upstream, rng, stamps, .. } = &mut self.parts;
        let clock = || Arc::clone(clock);
        let gate =
            Gate::new(Upstream::Cluster(cluster.name.clone()), upstream, clock(), rng.fork());
        board.watch_gate(&cluster.name, &gate);
        let metrics = metrics.rest(&cluster.name);
        let large = self.large.of(&cluster.name, &mut self.large_parts);
        let client = ClusterClient::new(cluster, gate, metrics, clock(), *stamps, large);
        let account = self.ledger.open(&cluster.name, budget);
        self.last += 1;
        let Cluster { incarnation, destination, .. } = *cluster;
        Engaged {
            incarnation,
            destination,
            number: self.last,
            client,
            budget,
            account,
            uid: Arc::default(),
        }
    }

    /// Waits until a cluster exceeds its budget or a quarantine is over.
    pub(crate) async fn changed(&self) {
        let EngagementParts { clock, quarantines, .. } = &self.parts;
        let released = async {
            match quarantines.next_end(clock.now()) {
                Some(end) => clock.sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.ledger.overdrawn() => {}
            () = released => {}
        }
    }

    pub(crate) fn get(&self, cluster: &ClusterName) -> Option<&Engaged> {
        self.all.get(cluster)
    }

    /// The clients of all of them.
    pub(crate) fn clients(&self) -> impl Iterator<Item = (ClusterName, ClusterClient)> {
        self.all.iter().map(|(name, engaged)| (name.clone(), engaged.client.clone()))
    }
}
