//! How a Tunnel's status is written, and that what stops the controller takes nothing away that works. Shell.

use std::time::Duration;

use sdk::{Action, Event, ReconcileError, spread};

use crate::account::Blocked;
use crate::api::{HostStatus, Tunnel};
use crate::choice::open_ports;
use crate::clients::Clients;
use crate::ipv6::{Ipv6, NO_ADDRESS};
use crate::names;
use crate::plan::{CHECK, Mark, Outcome, RECHECK, is_public, marked, status};
use crate::probe::{AGAIN, At, EVERY, Proof};
use crate::reconcile::TunnelRun;

impl TunnelRun<'_> {
    /// Whether the status names that reason already, not of the IPv6 address alone.
    pub(super) fn is_told(&self, reason: &str) -> bool {
        let mut conditions = self.status().conditions.into_iter();
        conditions.any(|told| told.reason == reason && told.type_ != names::IPV6)
    }

    /// Looks again at what only a person can fix.
    pub(super) fn recheck(&self) -> Action {
        Action::RequeueAfter(spread(RECHECK, &self.tunnel))
    }

    /// Records what stops the controller, with an Event if it is new. A host that serves goes on: it is tried as before,
    /// and its address stays as long as connections come through.
    pub(super) async fn blocked(
        &mut self,
        blocked: Blocked,
        then: Action,
    ) -> Result<Action, ReconcileError> {
        if self.serving().is_none() {
            self.tell(blocked).await?;
            return Ok(then);
        }
        let Blocked { reason, message } = blocked.clone();
        let is_new = !self.is_told(reason);
        let then = self.serve_on(Some(blocked), then).await?;
        if is_new {
            self.ctx.publish(Event::warning(&self.tunnel, reason, "Provision", message)).await;
        }
        Ok(then)
    }

    /// Tries a host that serves, of which nothing new is known: because of an obstacle, or while another comes, or
    /// something fails. Returns the earlier of what follows and the next try.
    pub(super) async fn serve_on(
        &mut self,
        obstacle: Option<Blocked>,
        then: Action,
    ) -> Result<Action, ReconcileError> {
        let Some(address) = self.serving() else { return Ok(then) };
        let clients = self.clients()?;
        let usual = spread(CHECK, &self.tunnel);
        let check = match then {
            Action::RequeueAfter(wait) => wait.min(usual),
            Action::Done => usual,
        };
        let status = self.status();
        let has_none = status.conditions.iter().any(|told| told.reason == NO_ADDRESS);
        let ipv6 = status.host_ipv6.map(|address| Ipv6::of(address.parse().ok()));
        let ipv6 = ipv6.or(has_none.then_some(Ipv6::None));
        let ipv6 = ipv6.filter(|_| self.defaults.ipv6() != Ok(false));
        let (at, obstacle) = (address.clone(), obstacle.map(|found| (found.reason, found.message)));
        let serving = |closed, ipv6| Outcome::Serving { obstacle, address: at, closed, ipv6 };
        self.served(address, ipv6, clients, check, serving).await
    }

    /// The address at which a host serves, as far as the status says. Others may write that, so no address of a local
    /// network is tried.
    pub(super) fn serving(&self) -> Option<String> {
        let status = self.status();
        let clients = self.defaults.clients().unwrap_or(1);
        let serves = status.host_status == Some(HostStatus::Active)
            && !open_ports(&self.tunnel.spec, clients).is_empty();
        status.host_ip.filter(|address| serves && is_public(address))
    }

    /// Tries whether connections come through at an address, and at the IPv6 one, and records what that makes of the
    /// outcome. All is looked at again after `check`.
    pub(super) async fn served(
        &mut self,
        address: String,
        ipv6: Option<Ipv6>,
        clients: Clients,
        check: Duration,
        outcome: impl FnOnce(Option<String>, Option<Ipv6>) -> Outcome,
    ) -> Result<Action, ReconcileError> {
        // What is not known is told elsewhere, and publishes nothing unseen.
        let proof = self.defaults.proof().unwrap_or(Some(Proof::End));
        let probes = proof.is_some() && clients.serve(&self.tunnel.spec);
        let (tries, proof) = (clients.wanted, proof.unwrap_or(Proof::Open));
        let mut at = At { address, ipv6, tries, through: 0, clients: None, proof };
        let (tried, second) = match probes {
            true => {
                let ports = open_ports(&self.tunnel.spec, at.tries);
                self.settings.probe.both(&at, &ports).await
            }
            false => (None, None),
        };
        if probes && clients.wanted > 1 {
            at.clients = Some(self.settings.probe.connected(&at.address).await);
        }
        let through = tried.clone().and_then(Result::ok);
        at.through = through.unwrap_or_default();
        let clients = Clients { connected: at.clients, through, ..clients };
        at.ipv6 = at.ipv6.map(|ipv6| ipv6.tried(second.and_then(Result::err)));
        let closed = tried.clone().and_then(Result::err);
        let is_new = closed.is_some() && !self.is_told("Unreachable");
        self.record(&outcome(closed.clone(), at.ipv6.clone()), Some(clients)).await?;
        if let Some(why) = closed.filter(|_| is_new) {
            let note = format!("no connection comes through at {why}");
            self.ctx.publish(Event::warning(&self.tunnel, "Unreachable", "Probe", note)).await;
        }
        let (uid, now) = (self.uid(), self.ctx.now());
        Ok(Action::RequeueAfter(match tried {
            None => check,
            Some(Ok(_)) => {
                self.schedule.found(&uid, at, now, now + check);
                EVERY.min(check)
            }
            Some(Err(_)) => {
                self.schedule.forget(&uid);
                AGAIN.min(check)
            }
        }))
    }

    /// Records why the Tunnel does not serve, with an Event if it is new. Returns whether it still exists.
    pub(super) async fn tell(&mut self, blocked: Blocked) -> Result<bool, ReconcileError> {
        let Blocked { reason, message } = blocked;
        let is_new = !self.is_told(reason);
        let told =
            self.record(&Outcome::Blocked { reason, message: message.clone() }, None).await?;
        if is_new {
            self.ctx.publish(Event::warning(&self.tunnel, reason, "Provision", message)).await;
        }
        Ok(told)
    }

    /// Writes a mark into the status. Returns whether the Tunnel still exists.
    pub(super) async fn mark(&mut self, mark: &Mark) -> Result<bool, ReconcileError> {
        let status = marked(&self.tunnel, mark, self.ctx.now());
        self.write(Tunnel { status: Some(status), ..self.tunnel.clone() }).await
    }

    /// Writes the status if it says something new. Returns whether the Tunnel still exists.
    pub(super) async fn record(
        &mut self,
        outcome: &Outcome,
        clients: Option<Clients>,
    ) -> Result<bool, ReconcileError> {
        let status = status(&self.tunnel, outcome, clients, self.ctx.now());
        if self.tunnel.status.as_ref() == Some(&status) {
            return Ok(true);
        }
        self.write(Tunnel { status: Some(status), ..self.tunnel.clone() }).await
    }

    async fn write(&mut self, tunnel: Tunnel) -> Result<bool, ReconcileError> {
        let written = self.ctx.update_status(&tunnel).await?;
        Ok(written.map(|written| self.tunnel = written).is_some())
    }
}
