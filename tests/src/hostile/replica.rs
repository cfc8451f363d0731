//! The replica beside hostile clusters: a process of its own, so that what it takes of memory and processor is only its
//! own.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use leasehold::config::{ClusterSources, Config, DirectorySource, Home, KubeconfigSource, Risk};
use leasehold::{Departure, Manager};
use loadtest::usage;
use model::{Budget, Budgets};
use sdk::Controller;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::copy::Copy;
use crate::harness::process::ChildProcess;

/// How long it may take to hand over and to end.
const LEAVING: Duration = Duration::from_secs(90);
/// So much of what was freed the allocator may keep. More than that is taken for memory of whatever comes next, which
/// would hide behind it otherwise.
const MAX_KEPT_BYTES: u64 = 16 << 20;

/// Runs a replica with one small controller until SIGTERM. `hostile` starts it.
#[derive(Debug, Parser)]
pub struct ReplicaArgs {
    /// The kubeconfig of its home.
    #[arg(long)]
    pub(super) home: PathBuf,
    /// A folder of kubeconfigs that come and go.
    #[arg(long)]
    pub(super) folder: PathBuf,
    /// Where its admin server listens.
    #[arg(long)]
    pub(super) admin: SocketAddr,
    /// What its caches may keep of each cluster, in bytes.
    #[arg(long)]
    pub(super) max_cache_bytes: usize,
    /// Kubeconfigs of workload clusters.
    pub(super) clusters: Vec<PathBuf>,
}

/// A replica as a process of this machine.
pub(super) struct Replica {
    process: ChildProcess,
    /// The least that was resident when it began to count.
    least_resident: u64,
    /// What was resident when it began to count last, or less.
    resident_before: u64,
}

/// Runs a replica until SIGTERM.
///
/// # Errors
/// If it cannot be started, or leaves without handing over.
pub fn run_replica(args: ReplicaArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let config = args.config();
        let _telemetry = telemetry::init(&config.log, config.otlp.as_ref())?;
        let copy = Controller::for_kind::<ConfigMap>("copy").reconciler(Copy::default());
        let replica = Manager::new(config).controller(copy).run(stop.clone());
        let asked = async {
            terminate.recv().await;
            stop.cancel();
            std::future::pending().await
        };
        let departure = tokio::select! {
            departure = replica => departure?,
            never = asked => never,
        };
        ensure!(departure == Departure::HandedOver, "the replica left without handing over");
        Ok(())
    })
}

impl ReplicaArgs {
    fn config(self) -> Config {
        let allow = [Risk::Loopback].into();
        let home = Home::Kubeconfig { path: self.home, context: None, allow };
        let kubeconfigs = self.clusters.into_iter().map(|path| {
            let allow = [Risk::Loopback, Risk::PlainHttp].into();
            KubeconfigSource { path, allow, ..KubeconfigSource::default() }
        });
        let allow = [Risk::Loopback].into();
        let sources = ClusterSources {
            kubeconfigs: kubeconfigs.collect(),
            directories: vec![DirectorySource { allow, ..DirectorySource::new(self.folder) }],
            ..ClusterSources::default()
        };
        let mut config = Config::new(home, "replica", sources);
        let each = Budget { max_cache_bytes: self.max_cache_bytes, ..Budget::default() };
        config.budgets = Budgets { each, ..Budgets::default() };
        config.admin = Some(self.admin.into());
        config
    }
}

impl Replica {
    /// Starts one.
    ///
    /// # Errors
    /// If `harness`, the program of this module, cannot be started.
    pub(super) fn start(harness: &Path, args: &ReplicaArgs, logs: &Path) -> Result<Self> {
        let mut command = Command::new(harness);
        command.arg("hostile-replica").arg("--home").arg(&args.home);
        command.arg("--folder").arg(&args.folder).arg("--admin").arg(args.admin.to_string());
        command.arg("--max-cache-bytes").arg(args.max_cache_bytes.to_string());
        command.args(&args.clusters);
        let process = ChildProcess::spawn("replica", &command, logs)?;
        Ok(Self { process, least_resident: u64::MAX, resident_before: 0 })
    }

    /// From now on, [`Self::growth`] counts.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub(super) fn count_from_now(&mut self) -> Result<()> {
        // Since Linux 4.0, 5 sets the most resident memory back to what there is now.
        let path = format!("/proc/{}/clear_refs", self.process.id());
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"5"))
            .with_context(|| format!("write 5 to {path}"))?;
        let resident = usage::of(self.process.id())?.resident_bytes;
        self.least_resident = self.least_resident.min(resident);
        self.resident_before = counted_from(self.least_resident, resident);
        Ok(())
    }

    /// How much more memory was resident at most than when it began to count, in bytes.
    ///
    /// # Errors
    /// If it has ended; the error quotes the end of its log.
    pub(super) fn growth(&mut self) -> Result<u64> {
        self.process.check_alive()?;
        let usage = usage::of(self.process.id())?;
        Ok(usage.peak_resident_bytes.saturating_sub(self.resident_before))
    }

    /// Asks it to leave, and waits until it has handed over.
    ///
    /// # Errors
    /// If it does not.
    pub(super) async fn leave(mut self) -> Result<()> {
        let status = self.process.terminate(LEAVING).await?;
        ensure!(status.success(), "the replica left with {status}: {}", self.process.output());
        Ok(())
    }
}

/// From where growth counts, by the least that was ever resident before and what is.
fn counted_from(least: u64, resident: u64) -> u64 {
    resident.min(least + MAX_KEPT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_left_hides_little() {
        const MIB: u64 = 1 << 20;
        for (least, resident, expect) in [(50, 50, 50), (50, 60, 60), (50, 120, 66)] {
            assert_eq!(counted_from(least * MIB, resident * MIB), expect * MIB);
        }
    }
}
