//! How a Tunnel gives back what it has: when it is deleted, or when it may not use its account any more. Shell.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use sdk::{Action, Event, ReconcileError, controlled_by, spread};

use crate::account::{Blocked, ProviderClient};
use crate::api::{HostStatus, Placement, Tunnel};
use crate::plan::{Cleanup, Outcome, POLL, RECHECK, cleanup};
use crate::provider::Host;
use crate::reconcile::TunnelRun;
use crate::{exit, names};

impl TunnelRun<'_> {
    /// Takes back what the Tunnel may not have any more: its address first, then the client, then its hosts.
    pub(super) async fn withdraw(
        mut self,
        at: &Placement,
        blocked: Blocked,
    ) -> Result<Action, ReconcileError> {
        self.schedule.forget(&self.uid());
        let Some(told) = self.tell(blocked.clone()).await? else { return Ok(Action::Done) };
        self.tunnel = told;
        self.rest_client().await?;
        if self.held().is_none() {
            return Ok(Action::Done);
        }
        let Ok(provider) = self.provider(at).await? else { return Ok(self.recheck()) };
        let hosts = self.hosts(&provider).await?;
        if let Some(again) = self.clear(&provider, &hosts).await? {
            return Ok(again);
        }
        let Blocked { reason, message } = blocked;
        self.record(&Outcome::Withdrawn { reason, message }, None).await?;
        Ok(Action::Done)
    }

    /// Deletes the addresses and hosts that are left, and says when to look again; `None` when nothing is left.
    async fn clear(
        &self,
        provider: &ProviderClient,
        hosts: &[Host],
    ) -> Result<Option<Action>, ReconcileError> {
        // Before the hosts: an address without tags is known by its host.
        if self.may_have_address(false) {
            let all = match provider.addresses().await {
                Ok(all) => all,
                Err(error) => match error.failure().and_then(Blocked::by) {
                    Some(blocked) => {
                        self.tell(blocked).await?;
                        return Ok(Some(self.recheck()));
                    }
                    None => return Err(error.into()),
                },
            };
            let own = self.own_addresses(provider, &all);
            if !own.is_empty() {
                self.release_addresses(provider, &own).await?;
                return Ok(Some(Action::RequeueAfter(POLL)));
            }
        }
        match cleanup(&self.status(), hosts, self.ctx.now()) {
            Cleanup::Delete(hosts) => {
                for host in &hosts {
                    provider.delete(&host.id).await?;
                }
                Ok(Some(Action::RequeueAfter(POLL)))
            }
            Cleanup::Await(wait) => Ok(Some(Action::RequeueAfter(wait))),
            Cleanup::Release => Ok(None),
        }
    }

    /// Ends the Pods of the client, if there are any: another owner may get the host's address.
    async fn rest_client(&self) -> Result<(), ReconcileError> {
        let (namespace, name) = (self.namespace(), names::client(&self.tunnel.name_any()));
        let found = self.ctx.get::<Deployment>(Some(&namespace), &name)?;
        let runs = |found: &Deployment| {
            controlled_by(found, &self.tunnel) && found.spec.replicas != Some(0)
        };
        if found.is_some_and(|found| runs(&found)) {
            let mut resting = exit::client(&self.tunnel, "", "");
            resting.spec.replicas = Some(0);
            self.ctx.apply_child(&self.tunnel, resting).await?;
        }
        Ok(())
    }

    /// Removes the hosts of a Tunnel that is being deleted, then its finalizer.
    pub(super) async fn end(mut self) -> Result<Action, ReconcileError> {
        let status = self.status();
        if self.tunnel.annotations().get(names::ABANDON).is_some_and(|value| value == "true") {
            return self.abandon().await;
        }
        let Some(placement) = status.placement.clone() else { return self.release().await };
        let what = status.host_id.clone().unwrap_or_else(|| "any that was requested".to_owned());
        let waits = format!("host {what} is being removed at {}", placement.provider);
        let Some(marked) = self.deleting(&waits, None).await? else { return Ok(Action::Done) };
        self.tunnel = marked;
        let recheck = Action::RequeueAfter(spread(RECHECK, &self.tunnel));
        let provider = match self.provider(&placement).await? {
            Ok(provider) => provider,
            Err(blocked) => {
                self.deleting(&waits, Some(&blocked)).await?;
                return Ok(recheck);
            }
        };
        let hosts = match self.hosts(&provider).await {
            Ok(hosts) => hosts,
            Err(error) => match error.failure().and_then(Blocked::by) {
                Some(blocked) => {
                    self.deleting(&waits, Some(&blocked)).await?;
                    return Ok(recheck);
                }
                None => return Err(error.into()),
            },
        };
        match self.clear(&provider, &hosts).await? {
            Some(again) => Ok(again),
            None => self.release().await,
        }
    }

    /// Records that the Tunnel is being deleted, and what delays that. An earlier cause stays until it
    /// is known to be over.
    async fn deleting(
        &self,
        waits: &str,
        blocked: Option<&Blocked>,
    ) -> Result<Option<Tunnel>, ReconcileError> {
        let status = self.status();
        if blocked.is_none() && status.host_status == Some(HostStatus::Deleting) {
            return Ok(Some(self.tunnel.clone()));
        }
        let escape = format!("annotation {}=true deletes the Tunnel without it", names::ABANDON);
        let message = match blocked {
            Some(Blocked { message, .. }) => format!("{waits}: {message}; {escape}"),
            None => format!("{waits}; {escape}"),
        };
        self.record(&Outcome::Deleting { message }, None).await
    }

    async fn abandon(self) -> Result<Action, ReconcileError> {
        let status = self.status();
        let held = self.held().map(|placement| placement.provider);
        self.ctx.remove_finalizer(&self.tunnel, names::FINALIZER).await?;
        if let Some(provider) = held {
            let id = status.host_id.unwrap_or_else(|| names::host(&self.uid()));
            let address = status.address.map(|address| format!(" and address {}", address.ip));
            let address = address.unwrap_or_default();
            let note =
                format!("deleted as asked: host {id}{address} at {provider} may be left behind");
            self.ctx.publish(Event::warning(&self.tunnel, "Abandoned", "Delete", note)).await;
        }
        Ok(Action::Done)
    }

    async fn release(self) -> Result<Action, ReconcileError> {
        self.ctx.remove_finalizer(&self.tunnel, names::FINALIZER).await?;
        Ok(Action::Done)
    }
}
