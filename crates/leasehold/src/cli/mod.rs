//! The `leasehold` program: its command line and its subcommands, one file each.
//!
//! [`main`] reads the command line (`args`) and hands over. `run` is one replica; `status`, `drain`
//! and `simulate --from-live` look at a fleet through its home cluster (`home`); `clusters` adds
//! clusters to it and removes them; `backup` stores and fetches backups of databases; `crds` prints definitions; `apiserver` serves an embedded API server
//! by itself.

#[cfg(feature = "embedded")]
mod apiserver;
mod args;
mod backup;
mod clusters;
mod columns;
mod crds;
mod drain;
mod home;
mod run;
mod simulate;
mod status;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command};

/// Reads the command line of this process, does what it says, and gives the exit code.
pub fn main() -> ExitCode {
    match dispatch(Args::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("leasehold: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(args, std::sync::Arc::new(crate::clock::SystemClock)),
        Command::Run(args) => run::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Backup(command) => backup::run(&command),
        Command::Clusters(command) => clusters::run(&command),
        #[cfg(feature = "embedded")]
        Command::Apiserver(args) => apiserver::run(&args),
        Command::Crds(args) => {
            print!("{}", crds::yaml(args.set)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Version => {
            println!("leasehold {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
    }
}
