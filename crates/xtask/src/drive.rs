//! Starts the programs that do the work of most commands: the test harness, the simulation and the
//! model of the protocol. Each replaces this process, so that it receives signals itself.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The arguments of the program that is started, its `--help` too.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Forwarded {
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The bounds of the model.
#[derive(Debug, clap::Args)]
pub struct Model {
    /// How many disturbances: from a cold start, in a settled fleet, when one member holds everything, and when
    /// members speak different versions of the protocol. One more means tens of times as many states.
    #[arg(long, default_value = "2,2,2,2", value_name = "COLD,SHARED,ALONE,MIXED")]
    disturbances: String,
}

/// Starts the test harness with a command of ours.
///
/// Cargo builds it if cargo started us. Otherwise we start the one next to this program, because a
/// build now might use other flags than those that built both.
pub fn harness(command: &str, args: &Forwarded) -> Result<Infallible> {
    let mut start = if std::env::var_os("CARGO").is_some() {
        let mut cargo = xtask::cargo();
        cargo.args(["run", "--package", "tests", "--bin", "harness", "--"]);
        cargo
    } else {
        let program = std::env::current_exe()?.with_file_name("harness");
        ensure!(program.exists(), "{} is missing: build the package tests", program.display());
        Command::new(program)
    };
    replace(start.arg(command).args(&args.arguments))
}

/// Starts the simulation of whole fleets, built for speed.
pub fn soak(args: &Forwarded) -> Result<Infallible> {
    let mut cargo = xtask::cargo();
    cargo.args(["run", "--release", "--package", "tests", "--bin", "soak", "--"]);
    replace(cargo.args(&args.arguments))
}

/// Starts the test that explores the model, in release, within these bounds.
/// `crates/sharding/tests/model/main.rs` says what the model leaves out.
pub fn model(args: &Model) -> Result<Infallible> {
    let mut cargo = xtask::cargo();
    cargo.args(["test", "--release", "--package", "leasehold-sharding", "--test", "model", "--"]);
    cargo.args(["--nocapture", "every_rule_holds_in_every_state"]);
    replace(cargo.env("LEASEHOLD_MODEL", &args.disturbances))
}

fn replace(command: &mut Command) -> Result<Infallible> {
    let error = command.exec();
    Err(error).with_context(|| format!("start {}", command.get_program().display()))
}
