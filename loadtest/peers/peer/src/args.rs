//! The command line of every peer.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// What a peer is told.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Where the cluster is.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Where the members of the fleet meet, for a peer that is of one; the same cluster unless told.
    #[arg(long)]
    pub home: Option<PathBuf>,
    /// What to do there.
    #[arg(long, value_enum)]
    pub mode: Mode,
    /// The namespace of everything that is watched.
    #[arg(long)]
    pub namespace: String,
    /// How many objects there are to reconcile, named `bench-00000` and on.
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
    /// Reconciles only say when they began.
    Latency,
    /// Watches and caches Pods.
    Pods,
    /// Watches and caches custom resources.
    Customs,
    /// Watches twenty kinds.
    Kinds,
    /// Sends the patches of `patch` when told to, without watching anything.
    Bare,
}

impl Args {
    /// A client as the kubeconfig says.
    ///
    /// # Errors
    /// If the file cannot be read or used.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let options = KubeConfigOptions::default();
        Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?)
    }
}
