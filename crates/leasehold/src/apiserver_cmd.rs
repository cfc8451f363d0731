//! `leasehold apiserver`: the embedded API server by itself, for kubectl and other tools.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ApiserverArgs;
use crate::install;

/// The first line of a kubeconfig of ours, which tells that it may be overwritten.
const MARK: &str = "# Written by `leasehold apiserver`; gone when it ends.\n";

/// Serves until a signal.
///
/// # Errors
/// When the port or the kubeconfig's place cannot be had.
pub fn run(args: &ApiserverArgs) -> anyhow::Result<ExitCode> {
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
        install::definitions(&server.client(), &crate::crds()).await?;
    }
    write_kubeconfig(path, &server.kubeconfig())
        .with_context(|| format!("write {}", path.display()))?;
    println!("API server {} at {}", server.name(), server.url());
    println!("kubectl --kubeconfig {} get namespaces", path.display());
    println!("Ctrl-C ends it, and everything in it is gone.");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    server.shutdown().await;
    // Its token and certificates are worth nothing any more.
    let _ = fs::remove_file(path);
    Ok(ExitCode::SUCCESS)
}

/// Refuses to overwrite what somebody else wrote.
pub(crate) fn check_place(path: &Path) -> anyhow::Result<()> {
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(_) => anyhow::bail!(
            "{} exists and is not a kubeconfig of this command; give another --kubeconfig",
            path.display()
        ),
        Err(error) => {
            Err(error).with_context(|| format!("{}: give another --kubeconfig", path.display()))
        }
    }
}

/// Readable by its owner alone: it holds a token.
pub(crate) fn write_kubeconfig(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    write!(file, "{MARK}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_of_somebody_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/kubeconfig");
        assert!(check_place(&path).is_ok());
        write_kubeconfig(&path, "a: b\n").unwrap();
        assert!(check_place(&path).is_ok());
        fs::write(&path, "clusters: []\n").unwrap();
        let error = check_place(&path).unwrap_err().to_string();
        assert!(error.contains("exists and is not a kubeconfig of this command"), "{error}");
    }
}
