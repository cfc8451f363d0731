//! Which cluster each name is: asked before its marks are looked at, and again with each probe.

use std::sync::Arc;
use std::time::Duration;

use model::{Cluster, ClusterName, Wire};
use tracing::warn;

use super::{Probing, Report, Step, Task};
use crate::connect::Life;
use crate::entry::Serving;
use crate::identity::{FLIPPING, Told, ask, ask_after};
use crate::turns::{Lane, PROMPT};

impl Task {
    /// Goes on with a cluster whose server is known. Any other is asked in a task of its own: at most one for
    /// each cluster, over the connection that its informers will use.
    pub(super) fn identify(&mut self, name: ClusterName, wire: Wire, life: Life) {
        let Some(entry) = self.entries.get_mut(&name) else { return };
        entry.life = Some(life);
        if self.probing == Probing::Off || entry.identity().is_some() {
            // It was told earlier, perhaps long ago.
            entry.just_told = false;
            return self.mark(name, wire, Duration::ZERO);
        }
        self.ask(name, wire, 0);
    }

    pub(super) fn ask(&mut self, name: ClusterName, wire: Wire, attempt: u32) {
        let Some(entry) = self.entries.get_mut(&name) else { return };
        let of = entry.source.fingerprint;
        let probes = self.providers[entry.place].probes.clone();
        entry.making = Some(self.work.spawn(async move {
            if attempt > 0 {
                tokio::time::sleep(ask_after(attempt)).await;
            }
            let lane = if attempt == 0 { Lane::First } else { Lane::Late };
            let client = wire.client();
            let answer = probes.run(lane, PROMPT, || ask(&client)).await;
            Report::Step { name, of, step: Step::Asked { wire, attempt, answer } }
        }));
    }

    pub(super) fn asked(&mut self, name: ClusterName, wire: Wire, attempt: u32, answer: Told) {
        if let Told::Silent(reason) = answer {
            self.down(&name, reason);
            return self.ask(name, wire, attempt.saturating_add(1));
        }
        let is_told = matches!(answer, Told::Known(_));
        match self.learn(&name, answer) {
            Some(wait) => self.told(name, wire, wait),
            None => {
                let Some(entry) = self.entries.get_mut(&name) else { return };
                entry.just_told = is_told;
                match entry.may_tell() {
                    Some(times) => self.ask(name, wire, times),
                    None => self.mark(name, wire, Duration::ZERO),
                }
            }
        }
    }

    /// Goes on with a cluster whose server says that it is another than before: at once, or after it has been
    /// left alone and has said the same again.
    pub(super) fn told(&mut self, name: ClusterName, wire: Wire, wait: Duration) {
        if !wait.is_zero() {
            self.down(&name, FLIPPING.into());
        }
        let Some(entry) = self.entries.get_mut(&name) else { return };
        if wait.is_zero() {
            entry.just_told = true;
            return self.mark(name, wire, Duration::ZERO);
        }
        let of = entry.source.fingerprint;
        entry.making = Some(self.work.spawn(async move {
            tokio::time::sleep(wait).await;
            Report::Step { name, of, step: Step::LeftAlone { wire } }
        }));
    }

    /// Takes in what a server says about its identity. If it is another cluster than before, returns how long
    /// it is left alone.
    fn learn(&mut self, name: &ClusterName, answer: Told) -> Option<Duration> {
        let entry = self.entries.get_mut(name)?;
        match answer {
            Told::Known(uid) => {
                let before = entry.identified(uid.clone())?;
                let wait = entry.flips.flipped(self.clock.now());
                warn!(cluster = %name, origin = %entry.source.origin, %before, now = %uid, wait_ms = wait.as_millis(), "another cluster appeared under this name: everything known of the one before is forgotten");
                Some(wait)
            }
            Told::Untold(reason) => {
                if entry.not_told(Arc::clone(&reason)) && entry.is_news(self.clock.now()) {
                    warn!(cluster = %name, origin = %entry.source.origin, "cluster of unknown identity: {reason}");
                }
                None
            }
            Told::Silent(_) => None,
        }
    }

    /// Takes in what the server of an engaged cluster says. If it is another cluster than before,
    /// which must be engaged anew, returns how long it is left alone.
    pub(super) fn learn_again(
        &mut self,
        name: &ClusterName,
        cluster: &mut Cluster,
        answer: Told,
    ) -> Option<Duration> {
        // While a client is made from a new kubeconfig, this is still the server of the old one.
        if self.entries.get(name).is_none_or(|entry| entry.making.is_some()) {
            return None;
        }
        let another = self.learn(name, answer);
        if let Some(entry) = self.entries.get_mut(name)
            && another.is_none()
        {
            cluster.identity = entry.identity();
            entry.serving = Serving::Engaged(cluster.clone());
        }
        another
    }
}
