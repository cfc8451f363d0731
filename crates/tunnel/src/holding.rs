//! Holds the Secret with a provider's token, if it is of the Tunnel's namespace, by a finalizer until the Tunnel has
//! nothing there any more: else the deletion of a namespace takes the Secret first, and the host can never be removed.
//! Shell.
//!
//! ```text
//!   status: name ▶ finalizer on the Secret ▶ host … nothing left ▶ status: no placement ▶ finalizer off ▶ Tunnel gone
//! ```
//! A crash between any two of these leaves no finalizer behind: the Secret's name is recorded first, and forgotten with
//! the finalizer or the Tunnel. And none is in want of the Secret: without a placement there is nothing to remove.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::Api;
use sdk::refusal::refused;
use sdk::{Event, Lifecycle, ReconcileError};

use crate::account::Blocked;
use crate::names::holder;
use crate::plan::Mark;
use crate::reconcile::TunnelRun;

impl TunnelRun<'_> {
    /// Holds the Secret whose token is in use, and lets go of the one before.
    ///
    /// # Errors
    /// [`Blocked`] if no host may be made with it.
    pub(super) async fn hold(&mut self) -> Result<(), ReconcileError> {
        let namespace = self.namespace();
        let own = self.secrets.token.take();
        let own = own.filter(|found| found.metadata.namespace.as_ref() == Some(&namespace));
        let name = own.as_ref().map(ResourceExt::name_any);
        if self.status().token_secret != name {
            // It stays on record: only one can be, and nobody else would take its finalizer off.
            if self.let_go().await?.is_some() {
                return Ok(());
            }
            if name.is_some() {
                self.mark(&Mark::Holding(name.clone())).await?;
            }
        }
        // What is not on record would be held for ever: the Tunnel may be gone, or its CRD that of an earlier version.
        let recorded = self.status().token_secret;
        let Some(secret) = own.filter(|_| recorded == name) else { return Ok(()) };
        let name = secret.name_any();
        let error = match self.ctx.finalizer(&secret, &holder(&self.uid())).await {
            Ok(Lifecycle::Over) if !self.status().has_host() => {
                let message = format!(
                    "Secret {namespace}/{name} is being deleted: make it anew with the provider's token when it is gone"
                );
                return Err(Blocked { reason: "TokenMissing", message }.into());
            }
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let why = refused(error)?;
        let note = format!(
            "Secret {name} is not held while it is in use: {why}; let the manager patch it"
        );
        self.ctx.publish(Event::warning(&self.tunnel, "SecretNotHeld", "Hold", note)).await;
        Ok(())
    }

    /// Lets go of the Secret that the Tunnel holds, if it holds one. Returns why we may not, and an Event says so too.
    pub(super) async fn let_go(&mut self) -> Result<Option<Blocked>, ReconcileError> {
        let Some(name) = self.status().token_secret else { return Ok(None) };
        let holder = holder(&self.uid());
        let secrets = Api::<Secret>::namespaced(self.ctx.client(), &self.namespace());
        let gone = match secrets.get_opt(&name).await.map_err(ReconcileError::from) {
            Ok(Some(secret)) => self.ctx.remove_finalizer(&secret, &holder).await,
            found => found.map(drop),
        };
        let Err(error) = gone else {
            self.mark(&Mark::Holding(None)).await?;
            return Ok(None);
        };
        let why = refused(error)?;
        let message = format!(
            "Secret {name} keeps the finalizer {holder}, by which it is never deleted: {why}; let the manager get and \
             patch the Secret, or take the finalizer off"
        );
        let reason = "SecretNotReleased";
        self.ctx.publish(Event::warning(&self.tunnel, reason, "Release", message.clone())).await;
        Ok(Some(Blocked { reason, message }))
    }
}
