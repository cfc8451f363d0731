//! The way to a server in a Pod of the key's cluster.

use engine::{PodPort, PodStream, ReconcileError};

use crate::Context;

/// A Pod of the cluster that a [`Context`] works in.
#[derive(Debug)]
pub struct PodAddress<'a> {
    ctx: &'a Context,
    namespace: &'a str,
    name: &'a str,
}

impl Context {
    /// A Pod whose servers this reconcile wants to talk to.
    ///
    /// The manager may run far from the Pod's network. What it dials goes through the API server and the
    /// kubelet, as `kubectl port-forward` does, and arrives on `localhost` in the Pod. The controller needs
    /// the rights of [`crate::rbac::port_forward`].
    ///
    /// ```no_run
    /// # use leasehold_sdk::{Context, ReconcileError};
    /// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// # async fn reconcile(ctx: &Context) -> Result<(), ReconcileError> {
    /// let mut stream = ctx.pod("default", "cache-0").dial(11211).await?;
    /// stream.write_all(b"version\r\n").await.map_err(ReconcileError::transient)?;
    /// stream.flush().await.map_err(ReconcileError::transient)?;
    /// let mut answer = [0; 128];
    /// let length = stream.read(&mut answer).await.map_err(ReconcileError::transient)?;
    /// # Ok(()) }
    /// ```
    pub fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> PodAddress<'a> {
        PodAddress { ctx: self, namespace, name }
    }
}

impl PodAddress<'_> {
    /// Opens a TCP connection to a port of the Pod.
    ///
    /// It is fenced like a write, and stays so: each time bytes are to pass, the fence is asked again, and
    /// with the end of the reconcile the stream is cut, even if it was given to somebody else. A replica has
    /// at most [`engine::MAX_STREAMS`] open streams in a cluster; others wait, up to
    /// [`engine::DIAL_TIMEOUT`]. The stream does not say who answers: a Pod of this name may be another one
    /// than the cache shows, so let the server prove itself, by TLS or a password.
    ///
    /// # Errors
    /// Terminal: the namespace or name cannot be one. Transient: the Pod is not there or does not run, the right is missing, the shard is not ours any
    /// more, or the cluster does not answer. If nothing listens on the port, the first read says so.
    pub async fn dial(&self, port: u16) -> Result<PodStream, ReconcileError> {
        let (namespace, pod) = (self.namespace.to_owned(), self.name.to_owned());
        Ok(self.ctx.fenced().dial(PodPort { namespace, pod, port }).await?)
    }
}
