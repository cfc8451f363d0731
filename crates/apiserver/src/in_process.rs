//! The API without network: no listener, no certificates, no token, no stand-ins.
//!
//! It does nothing on its own, so a simulation that drives its requests drives all of it. A
//! [`crate::Server`] is one of these with a listener.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::faults::Hook;
use crate::history::Write;
use crate::http::ApiService;
use crate::program::Processes;

/// An API server that is called in process. Dropping it ends its watches.
#[derive(Debug)]
pub struct InProcess {
    api: Arc<Api>,
    shutdown: CancellationToken,
}

impl InProcess {
    pub(crate) fn new(api: Arc<Api>, shutdown: CancellationToken) -> Self {
        Self { api, shutdown }
    }

    /// A client that calls the API in process, without network, TLS or token.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// The API as a tower service.
    pub fn service(&self) -> ApiService {
        ApiService::new(Arc::clone(&self.api))
    }

    /// The accepted writes, oldest first; only the most recent ones, if there were very many.
    pub fn history(&self) -> Vec<Write> {
        self.api.history.writes()
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.api.store.revision()
    }

    /// Replaces the fault hook; `None` ends all faults.
    pub fn set_faults(&self, hook: Option<Hook>) {
        self.api.faults.set(hook);
    }

    /// Ends every present watch, as a restart of a real server does.
    pub fn close_watches(&self) {
        self.api.close_watches();
    }

    /// Forgets the past: older watches, pages and exact lists get a 410.
    pub fn compact(&self) {
        self.api.store.compact();
    }

    /// Cancelled when it must stop.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// What runs in Pods.
    pub(crate) fn processes(&self) -> Arc<Processes> {
        Arc::clone(&self.api.processes)
    }

    /// Waits until the connections to Pods have ended, which they do at shutdown.
    pub(crate) async fn forwards_ended(&self) {
        self.api.forwards.tasks.close();
        self.api.forwards.tasks.wait().await;
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
