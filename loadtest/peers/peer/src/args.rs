//! The command line of every peer.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The arguments of a peer.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// The cluster to work on, unless only the queue is measured.
    #[arg(long, default_value = "kubeconfig")]
    pub kubeconfig: PathBuf,
    /// The home cluster of a peer that has one [default: the same cluster]
    #[arg(long)]
    pub home: Option<PathBuf>,
    /// What to do there.
    #[arg(long, value_enum)]
    pub mode: Mode,
    /// The namespace of everything that is watched.
    #[arg(long, default_value = "default")]
    pub namespace: String,
    /// How many objects there are to reconcile, named `bench-00000` and so on.
    #[arg(long, default_value_t = 0)]
    pub objects: usize,
    /// How many are reconciled at once.
    #[arg(long, default_value_t = 10)]
    pub workers: usize,
}

/// What a peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Reconciles every object when the ConfigMap changes, by one patch of its status.
    Patch,
    /// The same, but a reconcile only reads its object from the cache.
    Noop,
    /// A reconcile only reports when it began.
    Latency,
    /// A reconcile writes `spec.touched` to the status, if it is not there yet, by one patch.
    Rate,
    /// Watches and caches Pods.
    Pods,
    /// Watches and caches custom resources.
    Customs,
    /// Watches twenty kinds.
    Kinds,
    /// Sends the patches of `patch` on request, without watching anything.
    Bare,
    /// Measures how fast keys pass through the work queue, without a cluster.
    Queue,
}

impl Args {
    /// A client of the cluster.
    ///
    /// # Errors
    /// If the file cannot be read or used.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let options = KubeConfigOptions::default();
        Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?)
    }
}
