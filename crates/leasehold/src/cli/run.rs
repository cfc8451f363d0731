//! `leasehold run`: one replica as a process. Shell: signals and exit codes.
//!
//! | exit code | means |
//! |---|---|
//! | 0 | told to stop, drained, handed over |
//! | 1 | could not start, failed, or could not hand over within the grace period |
//! | 2 | the configuration file is wrong |

use std::process::ExitCode;
use std::time::Duration;

use sharding::Departure;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::args::RunArgs;
use crate::builtin;
use crate::config::Config;
use crate::manager::Manager;
use crate::signals::stop_on_signal;

/// How long to wait for tasks that ignore the end of the runtime.
const RUNTIME_LINGER: Duration = Duration::from_millis(500);

/// Runs one replica until a signal.
///
/// # Errors
/// When the process cannot begin: a wrong configuration file, no runtime, no signal handlers, no telemetry.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config, &builtin::names())?;
    if args.check {
        ops::print(&format!("{} is right\n", args.config.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.exit_with_stdin {
        exit_with_stdin()?;
    }
    let guard = telemetry::init(&config.log, config.otlp.as_ref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(serve(args, config));
    // A credential plugin that hangs holds a thread for good.
    runtime.shutdown_timeout(RUNTIME_LINGER);
    drop(guard);
    code
}

async fn serve(args: &RunArgs, mut config: Config) -> anyhow::Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    let file = args.config.display();
    info!(version, identity = config.identity, namespace = config.namespace, config = %file, "leasehold starts");
    if config.controllers.get_or_insert_default().is_empty() {
        warn!(
            "no controller runs: name those that should under `controllers` in the configuration"
        );
    }
    let shutdown = CancellationToken::new();
    stop_on_signal(shutdown.clone())?;
    Ok(match Manager::new(config).builtin_controllers().run(shutdown).await {
        Ok(Departure::HandedOver) => ExitCode::SUCCESS,
        Ok(Departure::Abandoned) => ExitCode::FAILURE,
        Err(failed) => {
            error!("{}", model::error::chain(&failed));
            ExitCode::FAILURE
        }
    })
}

/// Ends the process when its standard input closes: the parent at the other end of the pipe is gone.
/// Nothing is handed over; the Lease expires by itself.
fn exit_with_stdin() -> std::io::Result<()> {
    let wait = || {
        // Only the end matters, not what is read.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(1);
    };
    std::thread::Builder::new().name("parent".to_owned()).spawn(wait).map(|_| ())
}
