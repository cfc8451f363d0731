//! A real browser without a window: Chromium, one process for each look at a page.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use super::packages::{self, Package};

/// The Debian package of the browser, and one of fonts.
const PACKAGES: &[Package] = &[
    ("chromium", "/usr/bin/chromium"),
    ("fonts-dejavu-core", "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"),
];

/// Five seconds of the page's own time, which passes faster while the page waits for nothing.
pub const LOOK: &str = "--virtual-time-budget=5000";
const DEADLINE: Duration = Duration::from_secs(120);

/// Installs it if it is missing.
pub fn install() -> Result<()> {
    packages::install("a browser", PACKAGES)
}

/// Runs it with these arguments, and gives what it shows and what it says. Its profile is below `dir` meanwhile.
pub async fn browse(dir: &Path, args: &[&str]) -> Result<(String, String)> {
    let profile = tempfile::tempdir_in(dir)?;
    let mut command = Command::new("chromium");
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.args(["--disable-dev-shm-usage", "--enable-logging=stderr", "--log-level=0"]);
    command.arg(format!("--user-data-dir={}", profile.path().display())).args(args);
    let output = timeout(DEADLINE, command.kill_on_drop(true).output());
    let output = output.await.context("chromium takes too long")?.context("run chromium")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let log = text(&output.stderr);
    ensure!(output.status.success(), "chromium ends with {}:\n{log}", output.status);
    Ok((text(&output.stdout), log))
}

/// Makes a picture of a page as it is after [`LOOK`]; `more` are further arguments.
pub async fn picture(
    dir: &Path,
    url: &str,
    (width, height): (u64, u64),
    file: &Path,
    more: &[&str],
) -> Result<()> {
    let _ = std::fs::remove_file(file);
    let to = format!("--screenshot={}", file.display());
    let size = format!("--window-size={width},{height}");
    let args = [&[to.as_str(), size.as_str(), LOOK][..], more, &[url]].concat();
    browse(dir, &args).await?;
    ensure!(file.exists(), "chromium made no {}", file.display());
    Ok(())
}
