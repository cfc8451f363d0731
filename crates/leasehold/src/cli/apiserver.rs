//! `leasehold apiserver`: the embedded API server by itself, for kubectl and other tools.

use std::fs;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::args::ApiserverArgs;
use super::say::say;
use crate::kubeconfig_file::{check_place, write_kubeconfig};

/// Serves until a signal.
///
/// # Errors
/// When the port is taken, or the kubeconfig cannot be written to its place.
pub(super) fn run(args: &ApiserverArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &ApiserverArgs) -> anyhow::Result<ExitCode> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let path = &args.server.kubeconfig;
    check_place(path)?;
    let server = args.server.builder().start().await.map_err(|error| {
        anyhow::anyhow!("{}; give another --port, 0 takes a free one", model::error::chain(&error))
    })?;
    if args.crds {
        install::definitions(&server.client(), &crate::crds::crds()).await?;
    }
    write_kubeconfig(path, &server.kubeconfig())
        .with_context(|| format!("write {}", path.display()))?;
    say(&format!("API server {} at {}", server.name(), server.url()));
    say(&format!("kubectl --kubeconfig {} get namespaces", path.display()));
    say("Ctrl-C ends it, and everything in it is gone.");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    server.shutdown().await;
    // Its token and certificates are worth nothing any more.
    let _ = fs::remove_file(path);
    Ok(ExitCode::SUCCESS)
}
