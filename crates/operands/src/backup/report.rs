//! What a Job with `leasehold backup` says when it ends: its exit code, and JSON as the message of its
//! container's termination.

use serde::{Deserialize, Serialize};

use super::{Manifest, StoreError};

/// Kubernetes keeps so much of a termination message, in bytes.
const MAX_BYTES: usize = 4096;
/// The longest message in a report, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The most backups in a report.
const MAX_BACKUPS: usize = 8;

/// Everything was done.
const DONE: u8 = 0;
/// It failed, and may succeed if it is tried again.
const TRY_AGAIN: u8 = 1;
/// It failed, and does so until a person changes something.
pub(crate) const GIVEN_UP: u8 = 3;

/// What a Job says when it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Why it failed: one word, and nothing if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it failed, as a sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether it may succeed if it is tried again.
    #[serde(default)]
    pub transient: bool,
    /// The backups that were stored, fetched or listed: the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backups: Vec<Manifest>,
    /// How many backups that is about.
    #[serde(default)]
    pub count: usize,
}

impl Report {
    /// Of success with these backups.
    pub fn done(mut backups: Vec<Manifest>) -> Self {
        let count = backups.len();
        backups.truncate(MAX_BACKUPS);
        Self { backups, count, ..Self::default() }
    }

    /// Of a failure.
    pub fn failed(error: &StoreError) -> Self {
        let mut message = sdk::error::chain(error);
        let mut end = message.len().min(MAX_MESSAGE);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        Self {
            reason: Some(error.reason().to_owned()),
            message: Some(message),
            transient: error.is_transient(),
            ..Self::default()
        }
    }

    /// The exit code that goes with it.
    pub fn exit_code(&self) -> u8 {
        match (&self.reason, self.transient) {
            (None, _) => DONE,
            (Some(_), true) => TRY_AGAIN,
            (Some(_), false) => GIVEN_UP,
        }
    }

    /// As the message of a container's termination.
    pub fn text(mut self) -> String {
        loop {
            let text = serde_json::to_string(&self).unwrap_or_default();
            if text.len() <= MAX_BYTES || self.backups.pop().is_none() {
                return text;
            }
        }
    }

    /// Reads the message of a container's termination; `None` if it is no report.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
