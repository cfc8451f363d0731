//! Reads the metrics of every replica again and again, whatever else happens.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::figures::{self, Sample};
use super::replica;
use crate::harness::wait;

const INTERVAL: Duration = Duration::from_millis(500);

/// A replica's identity and a client of its admin server.
pub type Source = (String, Client);

/// Samples until dropped.
pub struct Sampler {
    sources: watch::Sender<Vec<Source>>,
    samples: Arc<Mutex<Vec<Sample>>>,
    _task: AbortOnDropHandle<()>,
}

impl Sampler {
    /// A sampler that has no sources yet.
    pub fn start() -> Self {
        let (sources, followed) = watch::channel(Vec::new());
        let samples = Arc::default();
        let task = tokio::spawn(run(followed, Arc::clone(&samples)));
        Self { sources, samples, _task: AbortOnDropHandle::new(task) }
    }

    /// Samples these sources from now on.
    pub fn follow(&self, sources: Vec<Source>) {
        self.sources.send_replace(sources);
    }

    /// Samples every source now.
    pub async fn sample(&self) {
        let sources = self.sources.borrow().clone();
        sample(&sources, &self.samples).await;
    }

    /// Every sample so far, in order.
    pub fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn run(sources: watch::Receiver<Vec<Source>>, samples: Arc<Mutex<Vec<Sample>>>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sources = sources.borrow().clone();
        sample(&sources, &samples).await;
    }
}

async fn sample(sources: &[Source], samples: &Mutex<Vec<Sample>>) {
    let read = sources.iter().map(async |(identity, admin)| {
        let figures = figures::parse(&replica::metrics(admin).await?);
        Some(Sample { at: wait::now(), identity: identity.clone(), figures })
    });
    let read = join_all(read).await;
    samples.lock().unwrap_or_else(PoisonError::into_inner).extend(read.into_iter().flatten());
}
