//! Holds the Secret with a provider's token, if it is of the Tunnel's namespace, by a finalizer until the Tunnel has
//! nothing there any more: else the deletion of a namespace takes the Secret first, and the host can never be removed.
//! Shell.
//!
//! ```text
//!   status: name ▶ finalizer on the Secret ▶ host … nothing left ▶ status: no placement ▶ finalizer off ▶ Tunnel gone
//! ```
//! A crash between any two of these leaves no finalizer behind: the Secret's name is recorded first, and forgotten with
//! the finalizer or the Tunnel. And none is in want of the Secret: without a placement there is nothing to remove.

use std::error::Error;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::Api;
use sdk::refusal::refusal;
use sdk::{Event, Lifecycle, ReconcileError};

use crate::account::Blocked;
use crate::names::holder;
use crate::plan::Mark;
use crate::reconcile::TunnelRun;

impl TunnelRun<'_> {
    /// Holds the Secret whose token is in use, and lets go of the one before. Returns why no host may be made with it,
    /// if so.
    pub(super) async fn hold(&mut self) -> Result<Option<Blocked>, ReconcileError> {
        let namespace = self.namespace();
        let own = self.secrets.token.take();
        let own = own.filter(|found| found.metadata.namespace.as_ref() == Some(&namespace));
        let name = own.as_ref().map(ResourceExt::name_any);
        if self.status().token_secret != name {
            self.let_go().await?;
            if name.is_some() {
                self.mark(&Mark::Holding(name.clone())).await?;
            }
        }
        // What is not on record would be held for ever: the Tunnel may be gone, or its CRD that of an earlier version.
        let recorded = self.status().token_secret;
        let Some(secret) = own.filter(|_| recorded == name) else { return Ok(None) };
        let name = secret.name_any();
        let error = match self.ctx.finalizer(&secret, &holder(&self.uid())).await {
            Ok(Lifecycle::Over) if !self.status().has_host() => {
                let message = format!(
                    "Secret {namespace}/{name} is being deleted: make it anew with the provider's token when it is gone"
                );
                return Ok(Some(Blocked { reason: "TokenMissing", message }));
            }
            Ok(_) => return Ok(None),
            Err(error) => error,
        };
        let said = error.source().and_then(|source| source.downcast_ref()).and_then(refusal);
        let Some(why) = said else { return Err(error) };
        let note = format!(
            "Secret {name} is not held while it is in use: {why}; let the manager patch it"
        );
        self.ctx.publish(Event::warning(&self.tunnel, "SecretNotHeld", "Hold", note)).await;
        Ok(None)
    }

    /// Lets go of the Secret that the Tunnel holds, if it holds one.
    pub(super) async fn let_go(&mut self) -> Result<(), ReconcileError> {
        let Some(name) = self.status().token_secret else { return Ok(()) };
        let secrets = Api::<Secret>::namespaced(self.ctx.client(), &self.namespace());
        match secrets.get_opt(&name).await {
            Err(error) if refusal(&error).is_some() => {}
            found => {
                if let Some(secret) = found? {
                    self.ctx.remove_finalizer(&secret, &holder(&self.uid())).await?;
                }
            }
        }
        self.mark(&Mark::Holding(None)).await.map(drop)
    }
}
