//! What happens beside the load: the managers are checked, and the faults of the scenario are made.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::faults::{self, Deed, Fault, Step};
use crate::fleet::Fleet;
use crate::replicas::Replicas;

/// How often progress is redrawn and children are checked.
pub const LOOK: Duration = Duration::from_millis(250);

/// Who is overseen, and until when.
pub struct Overseer<'a, 'b> {
    /// The managers.
    pub replicas: &'a mut Replicas<'b>,
    /// Their clusters, if the load test runs them.
    pub fleet: Option<&'a Fleet>,
    /// The start of the run.
    pub started: Instant,
    /// Called at each look.
    pub progress: &'a dyn Fn(),
}

impl Overseer<'_, '_> {
    /// Makes the faults of a load that began then, and checks the managers until the load is done.
    /// Returns from when to when each fault was made.
    ///
    /// # Errors
    /// If a manager ends on its own, or a fault cannot be made.
    pub async fn oversee(
        &mut self,
        (faults, load): (&[Fault], Duration),
        began: Duration,
        mut done: watch::Receiver<bool>,
    ) -> anyhow::Result<Vec<Vec<Range<Duration>>>> {
        let mut spans: Vec<Vec<Range<Duration>>> = vec![Vec::new(); faults.len()];
        let mut killed: BTreeMap<usize, String> = BTreeMap::new();
        for step in faults::steps(faults, load) {
            self.look_until(began + step.at).await?;
            let from = self.started.elapsed();
            self.carry_out(step, &mut killed)
                .await
                .with_context(|| format!("fault `{}`", faults[step.fault].words()))?;
            let until = self.started.elapsed();
            match spans[step.fault].last_mut() {
                Some(span) if !step.deed.is_first() => span.end = until,
                _ => spans[step.fault].push(from..until),
            }
        }
        while !*done.borrow_and_update() {
            self.look()?;
            // The end of the load or the next look, whichever is first.
            let _ = tokio::time::timeout(LOOK, done.changed()).await;
        }
        Ok(spans)
    }

    fn look(&mut self) -> anyhow::Result<()> {
        (self.progress)();
        self.replicas.check()
    }

    async fn look_until(&mut self, at: Duration) -> anyhow::Result<()> {
        loop {
            self.look()?;
            let left = at.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    fn servers(&self) -> anyhow::Result<&Fleet> {
        self.fleet.context("its clusters are not the load test's own")
    }

    async fn carry_out(
        &mut self,
        Step { fault, deed, .. }: Step,
        killed: &mut BTreeMap<usize, String>,
    ) -> anyhow::Result<()> {
        match deed {
            Deed::Kill(place) => {
                killed.insert(fault, self.replicas.kill(place).await?);
            }
            Deed::Return => {
                let identity = killed.remove(&fault).context("nothing was killed")?;
                self.replicas.start(&identity)?;
            }
            Deed::Join => self.replicas.join()?,
            Deed::Replace => self.replicas.replace_all().await?,
            Deed::Cut(cluster) => self.servers()?.set_cut(cluster, true),
            Deed::Heal(cluster) => self.servers()?.set_cut(cluster, false),
            Deed::Remove(cluster) => self.servers()?.kubeconfigs.remove(cluster)?,
            Deed::Readd(cluster) => self.servers()?.kubeconfigs.add_renamed(cluster)?,
            Deed::Renew => self.servers()?.kubeconfigs.renew().await?,
        }
        Ok(())
    }
}
