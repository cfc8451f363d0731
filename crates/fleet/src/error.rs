//! Why a home cluster could not be read, and what to do.

use std::time::Duration;

/// How long the home cluster may take to answer with a page of a list.
pub(crate) const PAGE_WITHIN: Duration = Duration::from_secs(10);

/// The home cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A list was refused or not answered.
    #[error("list {what} in namespace {namespace} of the home cluster")]
    List {
        /// The resource.
        what: &'static str,
        /// The namespace.
        namespace: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// A page of a list did not come in time.
    #[error("list {what} in namespace {namespace} of the home cluster: no answer within {}s", PAGE_WITHIN.as_secs())]
    Late {
        /// The resource.
        what: &'static str,
        /// The namespace.
        namespace: String,
    },
}

/// What to do about a cluster that does not serve our kinds. Installed in a wrong one, they would stay there.
pub const NO_HOME: &str = "is this the home cluster of a fleet? If not, name that with --context or --kubeconfig, or \
                           a manager's configuration file with --config; if it is to become one, install the \
                           definitions there: `leasehold crds --for home | kubectl apply -f -`";

impl ReadError {
    /// What the operator can do.
    pub fn fix(&self) -> &'static str {
        match self.code() {
            Some(403) => "let this user read the fleet: `leasehold rbac` prints the rights",
            Some(404) => NO_HOME,
            code => model::error::remedy(code),
        }
    }

    /// The code with which the API server refused, if it did.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::List { source, .. } => match &**source {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Late { .. } => None,
        }
    }
}
