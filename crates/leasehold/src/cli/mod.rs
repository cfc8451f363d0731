//! The `leasehold` program: its command line and its subcommands, one file each.
//!
//! [`main`] reads the command line (`args`) and hands over. `run` is one replica. The commands that look at a fleet and
//! say what is wanted of it are the crate `ops`; `doctor` looks at its clusters too, and `simulate` says what would
//! move. `clusters` adds clusters to a fleet and removes them; `backup` stores and fetches backups of databases;
//! `crds` prints definitions; `apiserver` serves an embedded API server by itself.

#[cfg(feature = "embedded")]
mod apiserver;
mod args;
mod backup;
mod clusters;
mod crds;
mod doctor;
mod home;
mod run;
mod say;
mod simulate;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use self::args::{Args, Command};
use crate::config::Problems;

/// The exit code for a wrong configuration file.
const WRONG_CONFIG: u8 = 2;
/// The name by which `kubectl` finds this program as a plugin.
const PLUGIN: &str = "kubectl-leasehold";

/// Reads the command line of this process, does what it says, and gives the exit code.
pub fn main() -> ExitCode {
    // `doctor` and the demo talk to many clusters at once, as a manager does.
    telemetry::raise_open_files();
    match dispatch(parse().command) {
        Ok(code) => code,
        Err(error) => {
            let (text, code) = match error.downcast_ref::<Problems>() {
                // Each has a line of its own.
                Some(problems) => (problems.to_string(), ExitCode::from(WRONG_CONFIG)),
                None => (model::error::chain(&*error), ExitCode::FAILURE),
            };
            ops::warn(text);
            code
        }
    }
}

/// The command line. Called as `kubectl leasehold`, the program says so in its help.
fn parse() -> Args {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&program).file_stem().unwrap_or_default();
    if name != PLUGIN {
        return Args::parse();
    }
    let matches = Args::command().bin_name("kubectl leasehold").get_matches();
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(args, std::sync::Arc::new(crate::clock::SystemClock)),
        Command::Run(args) => run::run(&args),
        Command::Ops(command) => {
            let connect: ops::Connect = |args| Box::pin(home::connect(args));
            let version = serde_json::to_value(version::Version::of_this_build())?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(ops::run(&command, &ops::Program { connect, version }))
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Backup(command) => backup::run(&command),
        Command::Clusters(command) => clusters::run(&command),
        #[cfg(feature = "embedded")]
        Command::Apiserver(args) => apiserver::run(&args),
        Command::Crds(args) => {
            ops::print(&crds::yaml(args.set)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completion(args) => {
            let mut script = Vec::new();
            let (mut command, name) = (Args::command(), env!("CARGO_PKG_NAME"));
            clap_complete::generate(args.shell, &mut command, name, &mut script);
            ops::print(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Version(args) => {
            let version = version::Version::of_this_build();
            args.output.print(&version, || version.text())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
