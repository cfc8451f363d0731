//! The `leasehold` program: its command line and its subcommands, one file each.
//!
//! [`main`] reads the command line (`args`) and hands over. `run` is one replica; `status`, `drain`
//! and `simulate --from-live` look at a fleet through its home cluster (`home`); `explain`, `top`, `doctor` and
//! `bundle` ask its replicas too (`replicas`). `policy` has the verbs by which people say what they want of it;
//! `clusters` adds clusters to it and removes them; `backup` stores and fetches backups of databases; `crds` and
//! `rbac` print manifests; `apiserver` serves an embedded API server by itself.

#[cfg(feature = "embedded")]
mod apiserver;
mod args;
mod backup;
mod bundle;
mod clusters;
mod columns;
mod crds;
mod doctor;
mod drain;
mod events;
mod explain;
mod home;
mod output;
mod policy;
mod rbac;
mod redact;
mod replicas;
mod run;
mod simulate;
mod status;
mod top;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

use self::args::{Args, Command};

/// The name by which `kubectl` finds this program as a plugin.
const PLUGIN: &str = "kubectl-leasehold";

/// Reads the command line of this process, does what it says, and gives the exit code.
pub fn main() -> ExitCode {
    match dispatch(parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("leasehold: {error:#}");
            ExitCode::FAILURE
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
        Command::Status(args) => status::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Events(args) => events::run(&args),
        Command::SupportBundle(args) => bundle::run(&args),
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
        Command::Rbac(args) => {
            output::print(&rbac::yaml(&args)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completion(args) => {
            let mut script = Vec::new();
            let (mut command, name) = (Args::command(), env!("CARGO_PKG_NAME"));
            clap_complete::generate(args.shell, &mut command, name, &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Version(args) => {
            let version = version::Version::of_this_build();
            args.output.print(&version, || version.text())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
