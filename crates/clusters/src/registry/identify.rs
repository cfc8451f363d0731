//! Which cluster each name is: asked before its marks are looked at, and again with each probe.

use std::sync::Arc;
use std::time::Duration;

use model::{Cluster, ClusterName};
use tracing::warn;

use super::{Probing, Report, Task};
use crate::connect::Link;
use crate::entry::Serving;
use crate::identity::{Told, ask, ask_after};
use crate::provider::Fingerprint;

impl Task {
    /// Goes on with a cluster whose server is known. Any other is asked in a task of its own: at most one for
    /// each cluster, over the connection that its informers will use.
    pub(super) fn identify(&mut self, name: ClusterName, link: Link, attempt: u32) {
        let Some(entry) = self.entries.get(&name) else { return };
        if self.probing == Probing::Off || entry.identity().is_some() {
            return self.mark(name, link, Duration::ZERO);
        }
        let (of, for_task) = (entry.source.fingerprint, name.clone());
        let handle = self.work.spawn(async move {
            if attempt > 0 {
                tokio::time::sleep(ask_after(attempt)).await;
            }
            let answer = ask(&link.client).await;
            Report::Asked { name: for_task, of, link, attempt, answer }
        });
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.making = Some(handle);
        }
    }

    pub(super) fn asked(
        &mut self,
        name: ClusterName,
        of: Fingerprint,
        link: Link,
        attempt: u32,
        answer: Told,
    ) {
        let current = self.entries.get(&name).map(|entry| entry.source.fingerprint);
        if current != Some(of) {
            return;
        }
        if let Told::Silent(reason) = answer {
            self.down(&name, reason);
            return self.identify(name, link, attempt.saturating_add(1));
        }
        self.learn(&name, answer);
        self.mark(name, link, Duration::ZERO);
    }

    /// Takes in what a server says about its identity. Returns whether it is another cluster than before.
    fn learn(&mut self, name: &ClusterName, answer: Told) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        match answer {
            Told::Known(uid) => {
                let before = entry.identified(uid.clone());
                if let Some(before) = &before {
                    warn!(cluster = %name, origin = %entry.source.origin, %before, now = %uid, "another cluster appeared under this name: everything known of the one before is forgotten");
                }
                before.is_some()
            }
            Told::Untold(reason) => {
                if entry.not_told(Arc::clone(&reason)) {
                    warn!(cluster = %name, origin = %entry.source.origin, "cluster of unknown identity: {reason}");
                }
                false
            }
            Told::Silent(_) => false,
        }
    }

    /// Takes in what the server of an engaged cluster says. Returns whether it is another cluster than
    /// before, which must be engaged anew.
    pub(super) fn learn_again(
        &mut self,
        name: &ClusterName,
        cluster: &mut Cluster,
        answer: Told,
    ) -> bool {
        // While a client is made from a new kubeconfig, this is still the server of the old one.
        if self.entries.get(name).is_none_or(|entry| entry.making.is_some()) {
            return false;
        }
        let is_another = self.learn(name, answer);
        if let Some(entry) = self.entries.get_mut(name)
            && !is_another
        {
            cluster.identity = entry.identity();
            entry.serving = Serving::Engaged(cluster.clone());
        }
        is_another
    }
}
