//! The forms of answers.

use clap::ValueEnum;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}
