//! Why a store did not do what it should.

use std::io;

/// Why a store did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read or written.
    #[error("{operation} {object}")]
    File {
        /// What was done.
        operation: &'static str,
        /// The file.
        object: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no such object.
    #[error("{object} does not exist")]
    Missing {
        /// The object.
        object: String,
    },
    /// The service refuses, and will do so again.
    #[error("{operation} {object}: the service answers {answer}; {fix}")]
    Refused {
        /// What was done.
        operation: &'static str,
        /// The object.
        object: String,
        /// Its answer.
        answer: String,
        /// What to do.
        fix: &'static str,
    },
    /// The service did not answer, or asks to try again.
    #[error("{operation} {object}: {problem}")]
    Unanswered {
        /// What was done.
        operation: &'static str,
        /// The object.
        object: String,
        /// What happened.
        problem: String,
    },
    /// An object is not what its manifest says.
    #[error("{object} is damaged, {problem}: it cannot be restored; use another backup")]
    Damaged {
        /// The object.
        object: String,
        /// What differs.
        problem: String,
    },
    /// A backup of another owner has this name.
    #[error("{object} is the backup of another owner, {owner}: delete it, or use another name")]
    Taken {
        /// The object.
        object: String,
        /// The owner that its manifest names.
        owner: String,
    },
    /// A name, an address or a key cannot be used.
    #[error("{what} cannot be used, {problem}")]
    Invalid {
        /// What.
        what: String,
        /// What is wrong, and what to do.
        problem: &'static str,
    },
}

impl StoreError {
    /// Whether the same may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unanswered { .. } => true,
            // A volume that is full or read-only stays so; what is torn or slow may pass.
            Self::File { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::Interrupted
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::StaleNetworkFileHandle
            ),
            _ => false,
        }
    }

    /// One word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::File { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "DestinationFull",
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "DestinationRefused"
                }
                _ => "FileError",
            },
            Self::Missing { .. } => "Missing",
            Self::Refused { .. } => "DestinationRefused",
            Self::Unanswered { .. } => "DestinationUnreachable",
            Self::Damaged { .. } => "Damaged",
            Self::Taken { .. } => "NameTaken",
            Self::Invalid { .. } => "DestinationInvalid",
        }
    }

    pub(super) fn file(
        operation: &'static str,
        object: &dyn std::fmt::Display,
    ) -> impl Fn(io::Error) -> Self + use<> {
        let object = object.to_string();
        move |source| Self::File { operation, object: object.clone(), source }
    }
}
