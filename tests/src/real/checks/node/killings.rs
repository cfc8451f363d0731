//! Kills owners, and measures how long nobody served their shards.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::{Range, ShardId};
use serde_json::Value;

use super::{DEADLINE, GROUPS, Stage, container_id};
use crate::harness::home::{self, Owners};
use crate::harness::manager::is_incarnation;
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{kubectl, load};

/// How often an owner is killed: more often than there are Pods, because after its second death a container
/// waits before it starts again.
const KILLS: usize = 4;
/// How long a Lease lasts, by default.
const LEASE: Duration = Duration::from_secs(8);
/// How many of the kills may take as long as a Lease, on a busy machine.
const MOST_LATE: usize = 1;
/// The shards whose objects are looked at.
const WATCHED: &str = "remote/tdset/";

/// What became of one killing.
#[derive(Clone, Copy, Debug)]
struct Killing {
    /// From the kill until all shards of the dead had other owners.
    owned: Duration,
    /// From the kill until an object of a watched shard was reconciled again.
    served: Duration,
    /// Whether the kubelet let the container wait before it started it again.
    waited: bool,
}

impl Stage {
    /// Kills owners with SIGKILL, time after time. Others serve its shards long before its Lease has run out,
    /// whether its container starts again at once or its kubelet lets it wait.
    pub(super) async fn kill_pods(&self) -> Result<()> {
        let mut killings = Vec::new();
        for _ in 0..KILLS {
            killings.push(self.kill_owner().await?);
        }
        println!("{}", summary(&killings));
        let late = killings.iter().filter(|killing| killing.served >= LEASE).count();
        ensure!(
            late <= MOST_LATE,
            "{late} of {KILLS} times shards waited for the Lease of their dead owner"
        );
        for (what, waited) in [("starts again at once", false), ("waits", true)] {
            let covered = killings.iter().any(|killing| killing.waited == waited);
            ensure!(covered, "no container was killed that {what}");
        }
        Ok(())
    }

    /// Kills the process of the owner of the remote cluster's TDSets.
    async fn kill_owner(&self) -> Result<Killing> {
        // A replica that has come to reach the remote cluster may just take a shard of it over.
        let (owners, member) = wait::until(DEADLINE, "an owner of the remote TDSets", async || {
            let owners = Owners::read(&self.node.control.client).await?;
            let mut tdsets = owners.settled.iter().filter(|(shard, _)| shard.starts_with(WATCHED));
            let member = tdsets.next().map(|(_, member)| member.clone());
            Ok(member.map(|member| (owners, member)))
        })
        .await?;
        let ranges = ranges_of(&owners, &member)?;
        let mut pods = self.pods().await?.into_iter();
        let victim = pods.find(|(pod, _)| is_incarnation(pod, &member));
        let (victim, pod) = victim.with_context(|| format!("{member} is not in our Pods"))?;
        let container = container_id(&pod).with_context(|| format!("{victim} runs nothing"))?;
        let watch = Stopwatch::start();
        self.node.kill_container(container)?;
        let mut waited = false;
        let [owned, served] = self.taken_over(&member, &ranges, watch).await?;
        // Whether its container had to wait is seen at the latest when it runs again.
        let pods = wait::until(DEADLINE, "the killed container to run again", async || {
            let pods = self.pods().await?;
            let pod = pods.get(&victim).context("the Pod of the killed container is gone")?;
            waited |= is_backed_off(pod);
            let runs = container_id(pod).is_some_and(|id| id != container);
            Ok((runs && kubectl::holds(pod, "Ready")).then_some(pods))
        })
        .await?;
        let status = &pods[&victim]["status"];
        let restarts = status["containerStatuses"][0]["restartCount"].as_u64();
        ensure!(restarts > Some(0), "{victim} was not restarted: {status}");
        self.settled().await?;
        self.reached().await?;
        Ok(Killing { owned, served, waited })
    }

    /// Waits until every replica reaches the remote cluster, whose shards it may get with the next kill. One that has
    /// just started takes a while, because this fleet may neither identify nor mark that cluster.
    async fn reached(&self) -> Result<()> {
        let client = &self.node.control.client;
        wait::until(DEADLINE, "every replica to reach the remote cluster", async || {
            let members = kubectl::list(client, &home::path("members")).await?;
            let created = |member: &Value| member["metadata"]["creationTimestamp"].to_string();
            let fails = |pod: &String| {
                let its = members.iter().filter(|member| member["spec"]["identity"] == **pod);
                let last = its.max_by_key(|member| created(member));
                let named = last.and_then(|member| member["spec"]["clusters"]["fails"].as_array());
                named.is_some_and(|named| named.iter().any(|name| name == "remote"))
            };
            Ok((!self.pods().await?.keys().any(fails)).then_some(()))
        })
        .await
    }

    /// How long after the kill others own the shards of the dead, and serve the watched ones.
    async fn taken_over(
        &self,
        dead: &str,
        ranges: &[Range],
        watch: Stopwatch,
    ) -> Result<[Duration; 2]> {
        let last = load::observed(&self.remote.client, ranges).await?;
        let (mut owned, mut served) = (None, None);
        let what = format!("the shards of {dead} to be owned and served by others");
        wait::until(DEADLINE, &what, async || {
            let owners = Owners::read(&self.node.control.client).await?;
            if owners.settled.iter().any(|(_, owner)| owner == dead) {
                return Ok(None);
            }
            if owned.is_none() && owners.whole_groups()? == GROUPS {
                owned = Some(watch.elapsed());
            }
            if served.is_none() && load::observed(&self.remote.client, ranges).await? > last {
                served = Some(watch.elapsed());
            }
            Ok(owned.zip(served).map(|(owned, served)| [owned, served]))
        })
        .await
    }
}

/// What a member owns of the watched shards: a busy machine may have split them.
fn ranges_of(owners: &Owners, member: &str) -> Result<Vec<Range>> {
    let own = owners.settled.iter().filter(|(_, owner)| owner == member);
    let watched = own.filter(|(shard, _)| shard.starts_with(WATCHED));
    watched.map(|(shard, _)| Ok(shard.parse::<ShardId>()?.range)).collect()
}

/// Whether a Pod's only container waits before it starts again.
fn is_backed_off(pod: &Value) -> bool {
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    waiting["reason"] == "CrashLoopBackOff"
}

/// A few lines for people.
fn summary(killings: &[Killing]) -> String {
    let mut lines = Vec::new();
    for (what, waited) in [("started again at once", false), ("waited in CrashLoopBackOff", true)] {
        let some: Vec<_> = killings.iter().filter(|killing| killing.waited == waited).collect();
        let of = |time: fn(&Killing) -> Duration| spread(some.iter().map(|k| time(k)).collect());
        lines.push(format!(
            "{} Pods were killed whose container {what}: shards owned again {}, served again {}",
            some.len(),
            of(|killing| killing.owned),
            of(|killing| killing.served),
        ));
    }
    let served = spread(killings.iter().map(|killing| killing.served).collect());
    lines.push(format!("from the kill to served, over all: {served}"));
    lines.join("\n")
}

/// The middle one and the longest.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let (Some(middle), Some(longest)) = (times.get(times.len() / 2), times.last()) else {
        return "never".to_owned();
    };
    format!("p50 {:.1} s, max {:.1} s", middle.as_secs_f64(), longest.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_tells_both_kinds_apart() {
        let killing = |ms, waited| {
            let time = Duration::from_millis(ms);
            Killing { owned: time / 2, served: time, waited }
        };
        let text = summary(&[killing(1000, false), killing(3000, true), killing(2000, true)]);
        assert_eq!(
            text,
            "1 Pods were killed whose container started again at once: shards owned again p50 0.5 s, \
             max 0.5 s, served again p50 1.0 s, max 1.0 s\n\
             2 Pods were killed whose container waited in CrashLoopBackOff: shards owned again p50 1.5 s, \
             max 1.5 s, served again p50 3.0 s, max 3.0 s\n\
             from the kill to served, over all: p50 2.0 s, max 3.0 s"
        );
    }
}
