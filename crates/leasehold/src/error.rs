//! Why a manager cannot start, or cannot go on.

use std::sync::Arc;

use clusters::Unusable;
use model::TaskEnd;

/// A manager that cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No client for the home cluster can be created.
    #[error("reach the home cluster: {}", source.fix())]
    Home {
        /// Why not.
        #[source]
        source: Arc<Unusable>,
    },
    /// No client for the cluster that reviews tokens for the admin server can be created.
    #[error(
        "reach the cluster that says who may read metrics (admin.authorization): {}",
        source.fix()
    )]
    Reviewer {
        /// Why not.
        #[source]
        source: Arc<Unusable>,
    },
    /// The configured owner of our objects in the home cluster cannot be read.
    #[error(
        "find the owner {kind} {name} in namespace {namespace} of the home cluster: correct owner in the configuration, or create it"
    )]
    Owner {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Where it should be.
        namespace: String,
        /// What the home cluster said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The configuration names a controller that this manager was not given.
    #[error("controller {0} is configured, but this manager does not have it")]
    UnknownController(model::ControllerName),
    /// Nothing to run.
    #[error(
        "no controller to run: name one under controllers, or leave that section out to run all"
    )]
    NoControllers,
    /// Two controllers under one name.
    #[error("two controllers are called {0}: give one of them another name")]
    DuplicateController(model::ControllerName),
    /// Two runnables under one name.
    #[error("two runnables are called {0}: give one of them another name")]
    DuplicateRunnable(String),
    /// A controller's group has a name that is reserved for single runnables.
    #[error(
        "controller {controller} is in group {group}: names that begin with single. are those of \
         runnables, give it another group"
    )]
    ReservedGroup {
        /// The controller.
        controller: model::ControllerName,
        /// Its group.
        group: model::GroupName,
    },
    /// Probes and metrics cannot be served.
    #[error(transparent)]
    Admin(#[from] admin::Error),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] crate::journal::JournalError),
    /// The threads that renew the member's Lease cannot be started.
    #[error("start the runtime of liveness")]
    Runtime(#[source] std::io::Error),
    /// A series is registered twice.
    #[error("register the metrics of {0}")]
    Metrics(&'static str, #[source] prometheus::Error),
    /// Sharding refuses to start.
    #[error("start sharding")]
    Sharding(#[source] sharding::Error),
    /// The engine refuses to start.
    #[error("start the engine")]
    Engine(#[source] engine::EngineError),
    /// A part of the manager ended without being told to.
    #[error("{0} ended by itself; this is a defect of the manager")]
    Ended(&'static str),
    /// A part of the manager panicked, so the rest stopped too.
    #[error("{part} panicked: {message}; this is a defect of the manager")]
    Panicked {
        /// The part.
        part: &'static str,
        /// What it said.
        message: String,
    },
}

impl Error {
    /// A part of the manager has ended, although nobody told it to.
    pub(crate) fn ended(part: &'static str, end: TaskEnd) -> Self {
        match end {
            TaskEnd::Panicked(message) => Self::Panicked { part, message },
            TaskEnd::Returned | TaskEnd::Dropped => Self::Ended(part),
        }
    }
}
