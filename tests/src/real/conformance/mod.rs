//! Sends the same requests to a real API server and to the embedded one, and reports each
//! difference.
//!
//! ```text
//! sequences/*.yaml ─▶ sequence ─┬─▶ real server ─────▶ outcomes ─▶ normalise ─┐
//!                               └─▶ embedded server ─▶ outcomes ─▶ normalise ─┴─▶ difference
//! ```
//! No file says what the answers should be: the real server is right. Differences that we accept
//! are in `exceptions.yaml`, each with its reason. An exception that no longer occurs is an error
//! too, so that the list stays true.

mod difference;
mod normalise;
mod sequence;

use std::path::Path;

use anyhow::{Context, Result};
use kube::Client;
use serde::Deserialize;

pub use difference::Difference;
pub use sequence::Sequence;

/// A difference that we accept.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// The sequence it occurs in; `*` for every one.
    pub sequence: String,
    /// Where in the outcome, as in `body/metadata/uid`; a `*` at the end stands for anything.
    pub at: String,
    /// Why it is not fixed.
    pub reason: String,
}

/// The result of one sequence.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Requests sent to each server.
    pub requests: usize,
    /// Where the answers differ.
    pub differences: Vec<Difference>,
}

/// Sends `sequence` to both servers and compares the answers. `namespace` must exist in both,
/// empty.
pub async fn compare(
    sequence: &Sequence,
    namespace: &str,
    real: &Client,
    embedded: &Client,
) -> Result<Comparison> {
    let (expected, found) = tokio::try_join!(
        async { sequence.send(real, namespace).await.context("the real server") },
        async { sequence.send(embedded, namespace).await.context("the embedded server") },
    )?;
    let mut comparison = Comparison { requests: sequence.steps.len(), ..Comparison::default() };
    for (step, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let request = &sequence.steps[step].send;
        comparison
            .differences
            .extend(difference::between(sequence, step, request, expected, found));
    }
    Ok(comparison)
}

/// Reads every file of a folder of sequences.
///
/// # Errors
/// If one cannot be read or is malformed.
pub fn sequences(folder: &Path) -> Result<Vec<Sequence>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file.path())?;
        let sequences: Vec<Sequence> =
            serde_saphyr::from_str(&text).with_context(|| file.path().display().to_string())?;
        all.extend(sequences);
    }
    Ok(all)
}

/// Reads the accepted differences.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn exceptions(file: &Path) -> Result<Vec<Exception>> {
    let text = std::fs::read_to_string(file)?;
    serde_saphyr::from_str(&text).with_context(|| file.display().to_string())
}

impl Exception {
    /// Whether it covers `difference`.
    pub fn covers(&self, difference: &Difference) -> bool {
        let sequence = self.sequence == "*" || self.sequence == difference.sequence;
        sequence
            && match self.at.strip_suffix('*') {
                Some(prefix) => difference.at.starts_with(prefix),
                None => self.at == difference.at,
            }
    }
}
