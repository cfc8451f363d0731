//! How a Tunnel gives back what it has: when it is deleted, or when it may not use its account any more. Shell.

use kube::ResourceExt;
use sdk::{Action, Event, ReconcileError};

use crate::account::Blocked;
use crate::api::{HostStatus, Placement};
use crate::names;
use crate::plan::{Cleanup, Mark, Outcome, POLL, cleanup};
use crate::reconcile::TunnelRun;
use crate::spelling;

impl TunnelRun<'_> {
    /// Takes back what the Tunnel may not have any more: its address first, then the client, then its hosts.
    pub(super) async fn withdraw(
        &mut self,
        at: &Placement,
        blocked: Blocked,
    ) -> Result<Action, ReconcileError> {
        self.schedule.forget(&self.uid());
        let is_held = self.status().held().is_some();
        // What is in the way is told too, and stays until it is over.
        let is_told = is_held && self.is_unready(blocked.reason);
        if !is_told && !self.tell(blocked.clone()).await? {
            return Ok(Action::Done);
        }
        let runs_on = self.stop_clients().await;
        if is_held {
            match self.give_back(at).await? {
                Ok(Some(again)) => return Ok(again),
                Ok(None) => {}
                Err(Blocked { message, .. }) => {
                    let message =
                        format!("{}; its host is not removed yet: {message}", blocked.message);
                    self.tell(Blocked { message, ..blocked }).await?;
                    return Ok(self.recheck());
                }
            }
            let Blocked { reason, message } = blocked;
            self.record(&Outcome::Withdrawn { reason, message }, None).await?;
        }
        match self.let_go().await?.or(runs_on?) {
            Some(_) => Ok(self.recheck()),
            None => Ok(Action::Done),
        }
    }

    /// Ends all clients, so that nobody gets through a host that stays. One that may not be stopped keeps no host: returns
    /// why.
    async fn stop_clients(&self) -> Result<Option<Blocked>, ReconcileError> {
        let Err(error) = self.rest_clients(0).await else { return Ok(None) };
        let blocked = Blocked::within(error)?;
        let Blocked { reason, message } = blocked.clone();
        self.ctx.publish(Event::warning(&self.tunnel, reason, "Rest", message)).await;
        Ok(Some(blocked))
    }

    /// Whether the Tunnel does not serve, for that reason.
    fn is_unready(&self, reason: &str) -> bool {
        let conditions = self.status().conditions;
        conditions.iter().any(|told| told.type_ == names::READY && told.reason == reason)
    }

    /// Gives back what the Tunnel has at a place, and says when to look again: `None` when nothing is left. Or says
    /// what is in the way that only a person can remove.
    async fn give_back(
        &mut self,
        at: &Placement,
    ) -> Result<Result<Option<Action>, Blocked>, ReconcileError> {
        match self.clear(at).await {
            Ok(again) => Ok(Ok(again)),
            Err(error) => Ok(Err(Blocked::within(error)?)),
        }
    }

    /// Deletes the addresses and hosts that are left, and says when to look again; `None` when nothing is left.
    async fn clear(&mut self, at: &Placement) -> Result<Option<Action>, ReconcileError> {
        let provider = self.provider(at).await?;
        let hosts = self.hosts(&provider).await?;
        // Before the hosts: an address without tags is known by its host.
        if self.may_have_address(false) {
            let own = self.own_addresses(&provider, &provider.addresses().await?);
            if !own.is_empty() {
                self.release_addresses(&provider, &own).await?;
                return Ok(Some(Action::RequeueAfter(POLL)));
            }
        }
        match cleanup(&self.status(), &hosts, self.ctx.now()) {
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

    /// Ends the clients of a Tunnel that is being deleted, as far as possible, removes its hosts, then its finalizer.
    pub(super) async fn end(&mut self) -> Result<Action, ReconcileError> {
        let status = self.status();
        if self.tunnel.annotations().get(names::ABANDON).is_some_and(|value| value == "true") {
            return self.abandon().await;
        }
        let Some(placement) = status.placement else { return self.release().await };
        let what = status.host_id.unwrap_or_else(|| "any that was requested".to_owned());
        let waits = format!("host {what} is being removed at {}", placement.provider);
        if !self.deleting(&waits, None).await? {
            return Ok(Action::Done);
        }
        let stopped = self.stop_clients().await;
        match self.give_back(&placement).await? {
            Ok(Some(again)) => Ok(again),
            Ok(None) => self.release().await,
            Err(blocked) => {
                self.deleting(&waits, Some(&blocked)).await?;
                stopped.map(|_| self.recheck())
            }
        }
    }

    /// Records that the Tunnel is being deleted, and what delays that. An earlier cause stays until it
    /// is known to be over.
    async fn deleting(
        &mut self,
        waits: &str,
        blocked: Option<&Blocked>,
    ) -> Result<bool, ReconcileError> {
        let status = self.status();
        let escape = escape(self.tunnel.annotations().get(names::ABANDON));
        let is_told = status.conditions.iter().any(|told| told.message.ends_with(&escape));
        if blocked.is_none() && is_told && status.host_status == Some(HostStatus::Deleting) {
            return Ok(true);
        }
        let message = match blocked {
            Some(Blocked { message, .. }) => format!("{waits}: {message}; {escape}"),
            None => format!("{waits}; {escape}"),
        };
        self.record(&Outcome::Deleting { message }, None).await
    }

    async fn abandon(&mut self) -> Result<Action, ReconcileError> {
        // What stays on the Secret an Event has named.
        self.let_go().await?;
        let status = self.status();
        let held = status.held().map(|placement| placement.provider.clone());
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

    /// Lets the Tunnel go, of which nothing is left, and its Secret before.
    async fn release(&mut self) -> Result<Action, ReconcileError> {
        // Without the Secret nothing could be looked for any more.
        if self.status().token_secret.is_some() && !self.mark(&Mark::Cleared).await? {
            return Ok(Action::Done);
        }
        if let Some(kept) = self.let_go().await? {
            self.deleting("nothing is left of its host", Some(&kept)).await?;
            return Ok(self.recheck());
        }
        self.ctx.remove_finalizer(&self.tunnel, names::FINALIZER).await?;
        Ok(Action::Done)
    }
}

/// What deletes a Tunnel all the same, given what its annotation for that says.
fn escape(said: Option<&String>) -> String {
    let name = names::ABANDON;
    match said.map(String::as_str) {
        None | Some("" | "true" | "false") => {
            format!("annotation {name}=true deletes the Tunnel all the same")
        }
        Some(other) => format!(
            "annotation {name} is {}, which is neither true nor false: {name}=true deletes the Tunnel all the same",
            spelling::shown(other)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_abandons_no_tunnel_is_told() {
        let usual = "annotation leasehold.dev/abandon=true deletes the Tunnel all the same";
        for said in [None, Some(""), Some("true"), Some("false")] {
            assert_eq!(escape(said.map(str::to_owned).as_ref()), usual, "{said:?}");
        }
        for said in ["True", "yes", "true "] {
            let told = escape(Some(&said.to_owned()));
            let expect = format!(
                "annotation leasehold.dev/abandon is {said:?}, which is neither true nor false: "
            );
            assert!(told.starts_with(&expect) && told.contains("leasehold.dev/abandon=true"));
            assert!(!told.ends_with(usual), "it is told anew when it is mended");
        }
    }
}
