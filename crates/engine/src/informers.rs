//! Shares informers: one per target, for as long as somebody holds it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use listwatch::{Form, Intake};
use model::Clock;

use crate::request::ClusterClient;
use crate::status::Board;
use cache::{DecodedCache, OptionsByKind, StoreWriter};
use extent::Account;
use informer::{Informer, Target};
use metrics::Metrics;

/// The running informers. Holds none of them alive.
#[derive(Debug)]
pub(crate) struct Informers {
    running: BTreeMap<Target, Weak<Informer>>,
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
        let (running, intake) = (BTreeMap::new(), Intake::default());
        Self { running, clock, metrics, board, rng, options, decoded, intake }
    }

    /// The informer of a target: one that runs, or a new one. It stops when the last handle goes.
    pub(crate) fn acquire(
        &mut self,
        target: Target,
        client: &ClusterClient,
        account: &Arc<Account>,
    ) -> Arc<Informer> {
        if let Some(informer) = self.running.get(&target).and_then(Weak::upgrade) {
            return informer;
        }
        let options = self.options.get(&target.form).map(|options| options.of(&target.kind));
        let options = match target.form {
            Form::Whole => options.unwrap_or_default(),
            // A server that cannot send the metadata alone sends whole objects.
            Form::Metadata => options.unwrap_or_default().metadata_only(),
        };
        let informer = Informer::start(
            target.clone(),
            client.wire(),
            self.intake_for(&target),
            Arc::clone(&self.clock),
            self.metrics.informer(&target.cluster),
            self.rng.fork(),
            (StoreWriter::new(options, Arc::clone(&self.decoded)), account),
        );
        self.running.retain(|_, informer| informer.strong_count() > 0);
        self.running.insert(target, Arc::downgrade(&informer));
        self.board.watch_informer(&informer);
        informer
    }

    /// The part of the intake that all informers of a cluster share.
    fn intake_for(&self, target: &Target) -> Intake {
        // In the order of targets they are neighbours.
        let is_near = |(other, _): &(&Target, &Weak<Informer>)| other.cluster == target.cluster;
        let before = self.running.range(..target).rev().take_while(is_near);
        let mut near = before.chain(self.running.range(target..).take_while(is_near));
        let informer = near.find_map(|(_, informer)| informer.upgrade());
        informer.map_or_else(|| self.intake.of_another_cluster(), |one| one.state().intake.clone())
    }
}
