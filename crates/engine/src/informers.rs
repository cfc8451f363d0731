//! Shares informers: one per target, for as long as somebody holds it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use listwatch::{Form, Intake};
use model::{Clock, WeakMap};

use crate::request::ClusterClient;
use crate::status::Board;
use cache::{DecodedCache, DecodedPart, OptionsByKind, StoreWriter};
use extent::Account;
use informer::{Informer, Target};
use metrics::Metrics;

/// The running informers. Holds none of them alive.
#[derive(Debug)]
pub(crate) struct Informers {
    running: WeakMap<Target, Informer>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    board: Arc<Board>,
    rng: fastrand::Rng,
    /// What the caches of whole objects keep, and those of metadata.
    options: BTreeMap<Form, OptionsByKind>,
    decoded: Arc<DecodedCache>,
    intake: Intake,
}

impl Informers {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        board: Arc<Board>,
        rng: fastrand::Rng,
        options: BTreeMap<Form, OptionsByKind>,
        decoded: Arc<DecodedCache>,
    ) -> Self {
        let (running, intake) = (WeakMap::default(), Intake::default());
        Self { running, clock, metrics, board, rng, options, decoded, intake }
    }

    /// The informer of a target: one that runs, or a new one. It stops when the last handle goes.
    pub(crate) fn acquire(
        &mut self,
        target: Target,
        client: &ClusterClient,
        account: &Arc<Account>,
    ) -> Arc<Informer> {
        if let Some(informer) = self.running.get(&target) {
            return informer;
        }
        let options = self.options.get(&target.form).map(|options| options.of(&target.kind));
        let options = match target.form {
            Form::Whole => options.unwrap_or_default(),
            // A server that cannot send the metadata alone sends whole objects.
            Form::Metadata => options.unwrap_or_default().metadata_only(),
        };
        let (intake, decoded) = self.parts_for(&target);
        let informer = Informer::start(
            target.clone(),
            client.wire(),
            intake,
            Arc::clone(&self.clock),
            self.metrics.informer(&target.cluster),
            self.rng.fork(),
            (StoreWriter::new(options, decoded), account),
        );
        self.running.insert(target, &informer);
        self.board.watch_informer(&informer);
        informer
    }

    /// What all informers of a cluster share: its part of the intake, and of what is kept decoded.
    fn parts_for(&self, target: &Target) -> (Intake, DecodedPart) {
        // In the order of targets they are neighbours.
        let is_near = |(other, _): &(&Target, &Weak<Informer>)| other.cluster == target.cluster;
        let before = self.running.range(..target).rev().take_while(is_near);
        let mut near = before.chain(self.running.range(target..).take_while(is_near));
        match near.find_map(|(_, informer)| informer.upgrade()) {
            Some(one) => (one.state().intake.clone(), one.state().store.decoded().clone()),
            None => (self.intake.of_another_cluster(), Arc::clone(&self.decoded).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use extent::Ledger;
    use informer::testing::server;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use listwatch::Scope;
    use model::testing::PausedClock;
    use model::{Budget, Cluster, Kind};
    use upstream::{Gate, Upstream, UpstreamLimits};

    use super::*;
    use crate::idle::Idle;
    use crate::large::LargeAnswers;
    use crate::meter::Meter;

    #[tokio::test(start_paused = true)]
    async fn the_informers_of_a_cluster_share_its_part_of_what_is_decoded() {
        let clock: Arc<dyn Clock> = PausedClock::new();
        let metrics = Metrics::new(&prometheus::Registry::new(), Arc::default()).unwrap();
        let meter = Meter::new(Arc::clone(&clock));
        let board = Board::new(Arc::clone(&clock), Arc::new(Idle), std::iter::empty(), &meter);
        let mut informers = Informers::new(
            Arc::clone(&clock),
            metrics.clone(),
            Arc::new(board),
            fastrand::Rng::with_seed(1),
            BTreeMap::new(),
            Arc::new(DecodedCache::new(0)),
        );
        let mut acquire = |cluster: &str, kind: Kind| {
            let (client, _) = server();
            let cluster = Cluster::new(cluster.parse().unwrap(), client, 1);
            let name = cluster.name.clone();
            let (clock, rng) = (|| Arc::clone(&clock), fastrand::Rng::with_seed(1));
            let upstream = Upstream::Cluster(name.clone());
            let gate = Gate::new(upstream, &UpstreamLimits::default(), clock(), rng);
            let (metrics, large) = (metrics.rest(&name), LargeAnswers::default());
            let client = ClusterClient::new(&cluster, gate, metrics, clock(), false, large);
            let account = Ledger::new(usize::MAX).open(&name, Budget::default());
            let (scope, form) = (Scope::default(), Form::Whole);
            let target = Target { cluster: name, engagement: 1, kind, scope, form };
            informers.acquire(target, &client, &account)
        };
        let maps = acquire("east", Kind::of::<ConfigMap>());
        let others = acquire("west", Kind::of::<ConfigMap>());
        let secrets = acquire("east", Kind::of::<Secret>());
        let shares = |one: &Informer, other: &Informer| {
            one.state().store.decoded().is_shared_with(other.state().store.decoded())
        };
        assert!(shares(&maps, &secrets) && !shares(&maps, &others));
    }
}
