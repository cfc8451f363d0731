//! What happens to wall clocks, by Debian's libfaketime.
//!
//! It has to be loaded into the process in front of the C library, which a static binary has not.
//! So the replica whose clock steps is a dynamic debug build. The monotonic clocks stay as they are,
//! as in life.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::chaos::field::Field;

/// Where Debian's package `faketime` puts it.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// How long each time lasts: longer than a Lease.
const STEP_FOR: Duration = Duration::from_secs(10);

/// Why this cannot be done here.
pub fn obstacle() -> Option<String> {
    library()
        .is_none()
        .then(|| "there is no libfaketime; install Debian's package faketime".to_owned())
}

/// A replica's clock goes an hour forth, two hours back, and is right again. It keeps what it has.
pub async fn step(field: &mut Field<'_>) -> Result<()> {
    let library = library().context("there is no libfaketime")?;
    let offset = field.next_dir().with_extension("faketime");
    fs::write(&offset, "+0")?;
    let mut command = Command::new(dynamic_build()?);
    command.arg("run").env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &offset);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    field.start_as(command).await?;
    field.settle().await?;
    let before = field.entries().await?;
    for time in ["+1h", "-1h", "+0"] {
        fs::write(&offset, time)?;
        tokio::time::sleep(STEP_FOR).await;
        ensure!(field.entries().await? == before, "shards moved because of a clock at {time}");
    }
    Ok(())
}

fn library() -> Option<PathBuf> {
    let architectures = fs::read_dir(LIBRARIES).ok()?.flatten();
    architectures.map(|folder| folder.path().join(LIBRARY)).find(|library| library.exists())
}

/// The debug build, which is dynamic unless the environment asks for another.
fn dynamic_build() -> Result<PathBuf> {
    let mut command = xtask::cargo();
    command.args(["build", "--package", "leasehold"]).env_remove("RUSTFLAGS");
    ensure!(
        command.env_remove("CARGO_BUILD_TARGET").status()?.success(),
        "cargo could not build leasehold"
    );
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let binary = xtask::root().join(target).join("debug/leasehold");
    if !Path::exists(&binary) {
        bail!("{} was not built", binary.display());
    }
    Ok(binary)
}
