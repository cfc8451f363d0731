//! Signals end what runs, so that what it started ends with it.

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Does this, unless SIGINT or SIGTERM comes.
///
/// # Errors
/// If it fails, or a signal has ended it.
pub async fn unless_ended<T>(act: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let listen = |kind| signal(kind).context("listen to signals");
    let (mut int, mut term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        done = act => done,
        _ = int.recv() => bail!("ended by SIGINT"),
        _ = term.recv() => bail!("ended by SIGTERM"),
    }
}
