//! Signals end what runs, so that what it started ends with it.

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Does this, unless SIGINT or SIGTERM comes, or SIGHUP, as when a terminal closes. `nohup` has that ignored, and it
/// stays so.
///
/// # Errors
/// If it fails, or a signal has ended it.
pub async fn unless_ended<T>(act: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    unless_signalled(act, !ignores_hangup(&status)).await
}

async fn unless_signalled<T>(
    act: impl Future<Output = anyhow::Result<T>>,
    heeds_hangup: bool,
) -> anyhow::Result<T> {
    let listen = |kind| signal(kind).context("listen to signals");
    let (mut int, mut term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut hangup = heeds_hangup.then(|| listen(SignalKind::hangup())).transpose()?;
    let hung_up = async {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = act => done,
        _ = int.recv() => bail!("ended by SIGINT"),
        _ = term.recv() => bail!("ended by SIGTERM"),
        _ = hung_up => bail!("ended by SIGHUP"),
    }
}

/// Whether a process with this status was started so that it ignores SIGHUP, the first signal.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn what_it_started_ends_with_its_terminal() {
        let act = async {
            kill_process(getpid(), Signal::HUP).context("send SIGHUP")?;
            std::future::pending::<anyhow::Result<()>>().await
        };
        let error = unless_signalled(act, true).await.unwrap_err();
        assert_eq!(error.to_string(), "ended by SIGHUP");
    }

    #[test]
    fn nohup_is_heeded() {
        let status =
            |mask: &str| format!("Name:\tloadtest\nSigBlk:\t1\nSigIgn:\t{mask}\nSigCgt:\t1\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")) && !ignores_hangup(""));
    }
}
