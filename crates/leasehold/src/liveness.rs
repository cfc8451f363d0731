//! A separate runtime for what keeps this member alive: the home cluster's client and sharding.
//!
//! Renewals share no thread with reconciles, informers and their decoding, so that a replica under
//! load, or a credential plugin that blocks a worker, does not lose its Lease.

use std::io;

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

/// The runtime. It ends in the background when dropped and, unlike a bare [`Runtime`], may be dropped
/// within another one.
#[derive(Debug)]
pub(crate) struct Liveness {
    // Taken by `drop`.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl Liveness {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("liveness")
            .enable_all()
            .build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Tasks that are spawned while the guard lives run here.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
