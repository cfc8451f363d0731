//! The `leasehold` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold::cli::main()
}
