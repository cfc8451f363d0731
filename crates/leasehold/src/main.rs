//! The `leasehold` binary: reads the command line and hands over to the library.

use std::process::ExitCode;

use clap::Parser;
use leasehold::args::{Args, Command};

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("leasehold: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        #[cfg(feature = "embedded")]
        Command::Demo(args) => leasehold::demo::run(args),
        Command::Run(args) => leasehold::run::run(&args),
        Command::Status(args) => leasehold::status::run(&args),
        Command::Simulate(args) => leasehold::simulate::run(&args),
        Command::Drain(args) => leasehold::drain::run(&args),
        #[cfg(feature = "embedded")]
        Command::Apiserver(args) => leasehold::apiserver_cmd::run(&args),
        Command::Crds(args) => {
            print!("{}", leasehold::crds::yaml(args.set)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Version => {
            println!("leasehold {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
    }
}
