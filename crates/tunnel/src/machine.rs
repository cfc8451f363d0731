//! How a Tunnel's host is requested, told something else, and removed for another. Shell.

use kube::ResourceExt;
use sdk::{Action, Event, ExternalError, ReconcileError, spread};

use crate::account::{Blocked, ProviderClient, cluster_uid};
use crate::api::Placement;
use crate::exit::Exit;
use crate::names;
use crate::plan::{Outcome, POLL, RETRY};
use crate::provider::{Failure, Host, HostRequest, Kind};
use crate::reconcile::{SOON, TunnelRun};

impl TunnelRun<'_> {
    /// Requests a host. The mark of the request is written first. It uses the client of the look, which
    /// has been admitted already: another would queue behind all that look.
    pub(super) async fn create(
        mut self,
        provider: &ProviderClient,
        wanted: Placement,
        exit: Exit,
    ) -> Result<Action, ReconcileError> {
        let (uid, namespace, name) = (self.uid(), self.namespace(), self.tunnel.name_any());
        let mut tags = names::tags(&cluster_uid(self.ctx).await?, &uid, &namespace, &name);
        tags.push(names::exit_tag(exit.digest()));
        let request = HostRequest {
            name: names::host(&uid),
            tags,
            exit,
            placement: wanted.clone(),
            now: self.ctx.now(),
        };
        let Some(marked) = self.record(&Outcome::Creating(wanted.clone()), None).await? else {
            return Ok(Action::Done);
        };
        self.tunnel = marked;
        match provider.create(request).await {
            Ok(host) => {
                self.record(&Outcome::Provisioning { host, at: wanted }, None).await?;
                Ok(Action::RequeueAfter(POLL))
            }
            // The next look will find it.
            Err(error) if error.failure().is_some_and(|found| found.kind == Kind::Exists) => {
                Ok(Action::RequeueAfter(POLL))
            }
            Err(error) => self.not_created(error).await,
        }
    }

    async fn not_created(self, error: ExternalError<Failure>) -> Result<Action, ReconcileError> {
        let unsent = matches!(error, ExternalError::HeldBack { .. });
        if !unsent && !error.failure().is_some_and(Failure::changed_nothing) {
            // A host may exist: the mark stays, and the next looks show it.
            return Err(error.into());
        }
        let obstacle = error.failure().and_then(Blocked::by);
        let told = obstacle.clone().map(|Blocked { reason, message }| (reason, message));
        self.record(&Outcome::NotCreated { obstacle: told }, None).await?;
        let Some(Blocked { reason, message }) = obstacle else { return Err(error.into()) };
        self.ctx.publish(Event::warning(&self.tunnel, reason, "CreateHost", message)).await;
        Ok(Action::RequeueAfter(spread(RETRY, &self.tunnel)))
    }

    /// Reconfigures a host; where its provider cannot, removes it.
    pub(super) async fn outdated(
        self,
        provider: &ProviderClient,
        host: Host,
        exit: Exit,
    ) -> Result<Action, ReconcileError> {
        if let Some(told) = provider.reconfigure(&host.id, exit).await {
            told?;
            return Ok(Action::RequeueAfter(SOON));
        }
        provider.delete(&host.id).await?;
        if self.status().host_id.as_ref() != Some(&host.id) {
            return Ok(Action::RequeueAfter(POLL));
        }
        let message = format!(
            "host {} has other ports or keys and cannot be reconfigured: another is created, at \
             another address",
            host.id
        );
        self.gone("ExitChanged", message).await
    }

    /// Removes hosts.
    pub(super) async fn discard(
        self,
        provider: &ProviderClient,
        hosts: Vec<Host>,
        wanted: &Placement,
    ) -> Result<Action, ReconcileError> {
        for host in &hosts {
            provider.delete(&host.id).await?;
        }
        let status = self.status();
        let Some(id) = status.host_id.filter(|id| hosts.iter().any(|host| host.id == *id)) else {
            return Ok(Action::RequeueAfter(POLL));
        };
        if status.placement.as_ref().is_some_and(|at| at.is(wanted)) {
            let message = format!("host {id} stopped: another is created");
            return self.gone("HostStopped", message).await;
        }
        let message = format!("host {id} is not where the Tunnel asks for one: another is created");
        self.gone("Replacing", message).await
    }

    pub(super) async fn gone(
        self,
        reason: &'static str,
        message: String,
    ) -> Result<Action, ReconcileError> {
        self.record(&Outcome::Gone { reason, message: message.clone() }, None).await?;
        self.ctx.publish(Event::warning(&self.tunnel, reason, "Replace", message)).await;
        Ok(Action::RequeueAfter(SOON))
    }
}
