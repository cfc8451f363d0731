//! What keeps a Memcached from being carried out, in words.

use kube::ResourceExt;

use super::api::Memcached;
use super::invalid::Invalid;

/// What blocks a Memcached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Its spec cannot be carried out.
    Invalid(Invalid),
    /// A child's name is taken by an object that it does not control.
    Conflict { kind: &'static str },
    /// A child is being deleted and must be gone first.
    Terminating { kind: &'static str },
    /// The API server refuses a child as the spec asks for it.
    Rejected { kind: &'static str, message: String },
}

/// The words of an obstacle: a reason and a sentence.
pub(super) fn explained(obstacle: &Obstacle, memcached: &Memcached) -> (&'static str, String) {
    let name = memcached.name_any();
    match obstacle {
        Obstacle::Invalid(invalid) => {
            ("InvalidSpec", format!("{invalid}. Nothing is changed until then"))
        }
        Obstacle::Conflict { kind } => (
            "Conflict",
            format!(
                "{kind} {name} exists and is not controlled by this Memcached: delete the {kind}, or \
                 create the Memcached under another name. Nothing is changed until then"
            ),
        ),
        Obstacle::Terminating { kind } => {
            ("Terminating", format!("waiting until {kind} {name} is deleted"))
        }
        Obstacle::Rejected { kind, message } => {
            ("Rejected", format!("the server refused {kind} {name}: {message}"))
        }
    }
}
