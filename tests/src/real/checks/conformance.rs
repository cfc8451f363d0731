//! The embedded API server compared with a real one, request by request.

use std::fs;

use anyhow::{Result, ensure};
use futures::stream::{StreamExt, TryStreamExt};

use crate::harness::control_plane::ControlPlane;
use crate::harness::embedded::Embedded;
use crate::harness::{Scene, real_dir};
use crate::real::conformance::{self, Comparison};

/// How many sequences run at once.
const AT_ONCE: usize = 8;

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let folder = real_dir().join("conformance");
    let sequences = conformance::sequences(&folder.join("sequences"))?;
    let exceptions = conformance::exceptions(&folder.join("exceptions.yaml"))?;
    let (plane, embedded) = tokio::try_join!(
        ControlPlane::local(scene, "real"),
        Embedded::start(scene, "embedded", false),
    )?;
    let definitions = fs::read_to_string(folder.join("definitions.yaml"))?;
    let namespace = |index: usize| format!("sequence-{index}");
    let namespaces: String = (0..sequences.len())
        .map(|index| {
            let name = namespace(index);
            format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")
        })
        .collect();
    for kubectl in [&plane.kubectl, &embedded.kubectl] {
        kubectl.apply(&format!("{definitions}{namespaces}")).await?;
        kubectl.established().await?;
    }
    let (real, other) = (&plane.client, &embedded.client);
    let comparisons: Vec<Comparison> = futures::stream::iter(sequences.iter().enumerate())
        .map(async |(index, sequence)| {
            conformance::compare(sequence, &namespace(index), real, other).await
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;

    let requests: usize = comparisons.iter().map(|comparison| comparison.requests).sum();
    let differences = comparisons.into_iter().flat_map(|comparison| comparison.differences);
    let (agreed, found): (Vec<_>, Vec<_>) = differences
        .partition(|difference| exceptions.iter().any(|exception| exception.covers(difference)));
    found.iter().for_each(|difference| println!("  {difference}"));
    println!(
        "{} sequences, {requests} requests to each server: {} differences, and {} that are agreed",
        sequences.len(),
        found.len(),
        agreed.len()
    );
    for exception in &exceptions {
        let count = agreed.iter().filter(|difference| exception.covers(difference)).count();
        println!(
            "  agreed, {count} times: {} at {}: {}",
            exception.sequence, exception.at, exception.reason
        );
        // The list must not excuse what was fixed long ago.
        ensure!(count > 0, "that exception no longer occurs: remove it from exceptions.yaml");
    }
    ensure!(found.is_empty(), "{} differences from a real API server", found.len());
    Ok(())
}
