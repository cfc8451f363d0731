//! Marks of fleets in the clusters: looked at before a cluster is engaged, then with every third probe. A
//! cluster with another fleet in it is down, and looked at until that fleet has gone.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use ::marks::{Looked, Marker, Own, Refusal, Standing, look};
use model::{Cluster, ClusterName, Wire};
use tracing::{info, warn};

use super::{Provided, Report, Step, Task};
use crate::entry::{Entry, Serving};
use crate::identity::ask_after;
use crate::turns::Lane;

/// Waits until home says that this is another fleet than before.
pub(super) async fn renamed(marker: &mut Option<Marker>) {
    let Some(marker) = marker else { return pending().await };
    if marker.fleet.changed().await.is_err() {
        pending().await
    }
}

impl Task {
    /// Takes in which fleet this is. If it is news, every engaged cluster is looked at now.
    pub(super) fn take_fleet(&mut self) {
        let Some(marker) = &mut self.marker else { return };
        let Some(own) = Own::of(marker, self.own.as_deref()) else { return };
        if self.own.as_ref().is_some_and(|before| !own.is_another(before)) {
            return;
        }
        self.own = Some(Arc::new(own));
        let mut engaged = Vec::new();
        for entry in self.entries.values_mut() {
            let Serving::Engaged(cluster) = &entry.serving else { continue };
            engaged.push(cluster.clone());
            entry.standing = Standing::Unknown;
            if let Some(probing) = entry.probing.take() {
                probing.abort();
            }
        }
        for cluster in engaged {
            self.probe(cluster, Duration::ZERO);
        }
    }

    /// Engages a cluster in which no other fleet does the same, after `delay`. The look is a task of its own:
    /// at most one for each cluster.
    pub(super) fn mark(&mut self, name: ClusterName, wire: Wire, delay: Duration) {
        let Some(entry) = self.entries.get_mut(&name) else { return };
        let Some(own) = self.own.clone() else { return self.engage(&name, wire) };
        let of = entry.source.fingerprint;
        let (sightings, clock) = (entry.sightings.clone(), Arc::clone(&self.clock));
        let Provided { looks, probes, .. } = &self.providers[entry.place];
        let (looks, probes) = (Arc::clone(looks), probes.clone());
        entry.making = Some(self.work.spawn(async move {
            let _turn = if delay.is_zero() {
                looks.acquire_owned().await.expect("nobody closes it")
            } else {
                tokio::time::sleep(delay).await;
                probes.turn(Lane::Late).await
            };
            let looked = look(&wire.client(), &own, sightings, &*clock).await;
            Report::Step { name, of, step: Step::Looked { wire, looked } }
        }));
    }

    /// A look before the cluster is engaged has ended.
    pub(super) fn looked(&mut self, name: &ClusterName, wire: Wire, looked: Looked) {
        match self.stand(name, looked) {
            Some(refusal) => self.refuse(name, wire, &refusal),
            None => match self.entries.get(name).and_then(Entry::may_be_marked) {
                Some(times) => self.mark(name.clone(), wire, ask_after(times)),
                None => self.engage(name, wire),
            },
        }
    }

    /// A look at an engaged cluster has ended. Returns whether it is refused, and so down.
    pub(super) fn looked_again(
        &mut self,
        name: &ClusterName,
        cluster: &Cluster,
        looked: Looked,
    ) -> bool {
        // While a client is made from a new kubeconfig, that one looks.
        if self.entries.get(name).is_none_or(|entry| entry.making.is_some()) {
            return false;
        }
        let Some(refusal) = self.stand(name, looked) else { return false };
        self.refuse(name, cluster.wire.clone(), &refusal);
        true
    }

    /// Takes in what a look found. Returns why the cluster is refused, if it is.
    fn stand(&mut self, name: &ClusterName, looked: Looked) -> Option<Refusal> {
        let entry = self.entries.get_mut(name)?;
        let Looked { standing, sightings } = looked;
        entry.sightings = sightings;
        entry.looked(&standing);
        let before = entry.standing.clone();
        entry.standing.turn(standing);
        match (&before, &entry.standing.clone()) {
            (Standing::Unmarked(_), Standing::Unmarked(_)) => None,
            (_, Standing::Unmarked(reason)) if entry.is_news(self.clock.now()) => {
                warn!(cluster = %name, origin = %entry.source.origin, "cluster without this fleet's mark: {reason}");
                None
            }
            (Standing::Refused(_), Standing::Marked) => {
                info!(cluster = %name, "no other fleet works there any more");
                None
            }
            (_, Standing::Refused(refusal)) => Some(refusal.clone()),
            _ => None,
        }
    }

    fn refuse(&mut self, name: &ClusterName, wire: Wire, refusal: &Refusal) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let wait = entry.refused(self.clock.now());
        self.down(name, Arc::clone(&refusal.reason));
        self.mark(name.clone(), wire, wait);
    }
}
