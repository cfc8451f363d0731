//! Ten minutes of MySQL under transfers between accounts, while primaries are killed one after the other,
//! and now and then the replica of the manager that would mend it: how long nobody could write.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::mysql::{CONTAINER, NAME, bank, cluster, instance, path, primary, secret, settled};
use super::stage::{DEADLINE, Stage};
use crate::harness::Scene;
use crate::harness::faults::container_id;
use crate::harness::wait::Stopwatch;

const DURATION: Duration = Duration::from_secs(600);
/// So many commits are acknowledged between two faults.
const WRITES: u64 = 300;
/// Every so many faults the manager is killed too.
const MANAGER: usize = 4;
/// Half of the times without a writable primary are shorter, in milliseconds.
const MEDIAN_MS: u64 = 10_000;

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let mut stage = Stage::start(scene, "mysql", &[scene.tools().mysql_image()], 3).await?;
    stage.apply(&[secret("root"), cluster(3)]).await?;
    settled(&mut stage, NAME, 3).await?;
    let mut bank = bank(scene, &stage, NAME)?;
    bank.writes(WRITES, DEADLINE).await?;
    let watch = Stopwatch::start();
    let mut faults = 0;
    while watch.elapsed() < DURATION {
        let victim = primary(&stage).await?;
        faults += 1;
        if faults % 2 == 0 {
            let pod = instance(&stage, &victim).await?;
            stage.node.kill_container(&container_id(&pod, CONTAINER)?)?;
        } else {
            let arguments = ["delete", "pod", &victim, "--force", "--grace-period=0"];
            stage.node.control.kubectl.run(&arguments).await?;
        }
        println!("  {victim}, which was primary, was killed after {watch}");
        if faults % MANAGER == 0 {
            stage.kill_owner(&path(NAME)).await?;
        }
        bank.writes(WRITES, DEADLINE).await?;
        settled(&mut stage, NAME, 3).await?;
    }
    let report = bank.finish("sound").await?;
    let mut gaps = report.gaps_ms.unwrap_or_default();
    gaps.sort_unstable();
    let median = *gaps.get(gaps.len() / 2).context("no fault was noticed")?;
    println!(
        "{faults} primaries were killed: {} times without a writable primary, median {median} ms, \
         longest {} ms",
        gaps.len(),
        report.longest_gap_ms
    );
    ensure!(median < MEDIAN_MS, "half of them took longer than {MEDIAN_MS} ms");
    stage.leave().await
}
