//! Faults on demand: a hook is asked about each request and may delay it, refuse it, drop it or
//! lose its answer.
//!
//! The hook decides, and the `http` module carries it out. Hooks must not block.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::status::ApiError;

/// What a hook sees of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or the
    /// lower-case HTTP method for paths that are not a resource.
    pub verb: &'static str,
    /// The path, without the query.
    pub path: String,
    /// API group; empty for the core group and for paths that are not a resource.
    pub group: String,
    /// Plural resource, or empty.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Object name, or empty.
    pub name: String,
    /// The client's `User-Agent`.
    pub user_agent: String,
}

/// What happens to a request.
#[derive(Debug, Clone, Default)]
pub enum Fault {
    /// Nothing special.
    #[default]
    None,
    /// It is delayed.
    Delay(Duration),
    /// It is answered with this error and has no effect.
    Error(ApiError),
    /// The connection breaks before it has any effect.
    Drop,
    /// It takes effect and the connection breaks before the answer.
    DropAnswer,
    /// A list or watch is refused because its resourceVersion is too old.
    Expire,
}

/// Decides about each request.
pub type Hook = Arc<dyn Fn(&Request) -> Fault + Send + Sync>;

/// The current hook; replaceable while the server runs.
#[derive(Default)]
pub(crate) struct Faults {
    hook: RwLock<Option<Hook>>,
}

impl Faults {
    /// Starts with a hook, or with none.
    pub fn new(hook: Option<Hook>) -> Self {
        Self { hook: RwLock::new(hook) }
    }

    /// Replaces the hook; `None` ends all faults.
    pub fn set(&self, hook: Option<Hook>) {
        *self.hook.write().unwrap_or_else(PoisonError::into_inner) = hook;
    }

    /// What happens to a request, which is described only if there is a hook.
    pub fn decide(&self, request: impl FnOnce() -> Request) -> Fault {
        let hook = self.hook.read().unwrap_or_else(PoisonError::into_inner).clone();
        hook.map_or(Fault::None, |hook| hook(&request()))
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}
