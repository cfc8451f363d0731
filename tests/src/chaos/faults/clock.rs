//! Faults of wall clocks, by Debian's libfaketime.
//!
//! A process loads libfaketime in front of the C library, which a static binary cannot. So the
//! replica whose clock steps is a dynamic debug build. Its monotonic clocks stay right, as they do
//! when a real wall clock steps.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::chaos::fleet::Fleet;
use crate::harness::tools;

/// Where the Debian package `faketime` installs it, below a folder of the architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// How long the clock shows each time: longer than a Lease.
const STEP_FOR: Duration = Duration::from_secs(10);

/// Why this cannot be run here.
pub fn obstacle() -> Option<String> {
    let missing = "there is no libfaketime; install the Debian package faketime";
    library().is_none().then(|| missing.to_owned())
}

/// A replica's clock steps an hour forward, two hours back, and is right again. It must stay the
/// same member.
pub async fn step(fleet: &mut Fleet<'_>) -> Result<()> {
    let library = library().context("there is no libfaketime")?;
    let offset = fleet.next_dir().with_extension("faketime");
    fs::write(&offset, "+0")?;
    let mut command = Command::new(tools::build_debug()?);
    command.arg("run").env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &offset);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    fleet.start_as(command).await?;
    fleet.settle().await?;
    let before = fleet.members().await;
    for time in ["+1h", "-1h", "+0"] {
        fs::write(&offset, time)?;
        tokio::time::sleep(STEP_FOR).await;
        ensure!(fleet.members().await == before, "a clock at {time} cost a member its Lease");
    }
    Ok(())
}

fn library() -> Option<PathBuf> {
    let architectures = fs::read_dir(LIBRARIES).ok()?.flatten();
    architectures.map(|folder| folder.path().join(LIBRARY)).find(|library| library.exists())
}
