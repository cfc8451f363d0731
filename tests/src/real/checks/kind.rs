//! As a user on kind.

use anyhow::Result;

use crate::harness::Scene;
use crate::harness::kind::Kind;
use crate::harness::wait::Stopwatch;

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let kind = Kind::start(scene, "home").await?;
    println!("{}", kind.shell("podman images; kind create cluster --name home --wait 2m 2>&1; kubectl get pods -A")?);
    println!("{watch}");
    Ok(())
}
