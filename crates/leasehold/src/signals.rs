//! Signals of the process. Shell.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// Cancels `shutdown` on SIGTERM or SIGINT.
pub(crate) fn stop_on_signal(shutdown: CancellationToken) -> std::io::Result<()> {
    let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(follow(signals, shutdown));
    Ok(())
}

/// The first signal asks for an orderly exit, the second ends the process where it stands.
async fn follow((mut terminate, mut interrupt): (Signal, Signal), shutdown: CancellationToken) {
    let mut next = async || {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    let name = next().await;
    info!(signal = name, "told to stop; a second signal exits at once");
    shutdown.cancel();
    let name = next().await;
    warn!(signal = name, "told to stop again: exiting at once; the Lease expires by itself");
    std::process::exit(1);
}
