//! The `leasehold` program: its command line and its subcommands, one file each.
//!
//! [`main`] reads the command line (`args`) and hands over. `run` is one replica; `status`, `drain`
//! and `simulate --from-live` look at a fleet through its home cluster (`home`), `explain` asks its replicas too; `policy` has the verbs by which
//! people say what they want of it; `clusters` adds
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
mod explain;
mod home;
mod output;
mod policy;
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
        Command::Explain(args) => explain::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Pause(args) => policy::run(policy::pause(&args)),
        Command::Resume(args) => policy::run(policy::resume(&args)),
        Command::Pin(args) => policy::run(policy::pin(&args)),
        Command::Avoid(args) => policy::run(policy::avoid(&args)),
        Command::Weigh(args) => policy::run(policy::weigh(&args)),
        Command::Limit(args) => policy::run(policy::limit(&args)),
        Command::Lift(args) => policy::run(policy::lift(&args)),
        Command::Policies(args) => policy::run(policy::policies(&args)),
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
