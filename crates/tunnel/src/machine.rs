//! How a Tunnel's host is requested, told something else, and removed for another. Shell.

use kube::ResourceExt;
use kube::api::{Api, ListParams};
use sdk::{Action, Event, ExternalError, ReconcileError, spread};

use crate::account::{Blocked, ProviderClient, cluster_uid};
use crate::api::{HostStatus, Placement, Protocol, Tunnel, TunnelPort};
use crate::choice::InvalidTunnel;
use crate::exit::{CONTROL_PORT, Exit};
use crate::names::{self, Tag};
use crate::plan::{Mark, Outcome, POLL, RETRY, is_late};
use crate::probe::Proof;
use crate::provider::{Failure, Host, HostRequest, Kind, State};
use crate::rank::check_marks;
use crate::reconcile::{Found, SOON, TunnelRun};

impl TunnelRun<'_> {
    /// Requests a host. The mark of the request is written first. It uses the client of the look, which
    /// has been admitted already: another would queue behind all that look.
    pub(super) async fn create(
        &mut self,
        provider: &ProviderClient,
        wanted: Placement,
        exit: Exit,
    ) -> Result<Action, ReconcileError> {
        let name = names::host(&self.uid());
        let request = self.request(name.clone(), &wanted, exit).await?;
        let is_repeated = self.status().creating_since.is_some();
        if !self.record(&Outcome::Creating(wanted.clone()), None).await? {
            return Ok(Action::Done);
        }
        let exceeds = if is_repeated { Ok(None) } else { self.exceeds().await };
        if !matches!(exceeds, Ok(None)) {
            // Nothing was requested.
            self.record(&Outcome::NotCreated { obstacle: None }, None).await?;
        }
        if let Some(full) = exceeds? {
            let recheck = self.recheck();
            return self.blocked(full.into(), recheck).await;
        }
        match provider.create(request).await {
            Ok(host) => {
                self.record(&Outcome::Provisioning { host, at: wanted }, None).await?;
                Ok(Action::RequeueAfter(POLL))
            }
            // The next look will find it.
            Err(error) if exists(&error) && !is_repeated => Ok(Action::RequeueAfter(POLL)),
            Err(error) => self.not_created(error, &name).await,
        }
    }

    /// Why the Tunnel's mark is one too many, if it is. Other replicas may have written some that the cache does not show;
    /// each writes its own before it looks, so of two that come at once one sees the other at least.
    async fn exceeds(&self) -> Result<Option<InvalidTunnel>, ReconcileError> {
        let tunnels = Api::<Tunnel>::all(self.ctx.client());
        match tunnels.list(&ListParams::default()).await {
            // Where only some namespaces may be listed, what the cache shows has to do.
            Err(kube::Error::Api(refused)) if refused.is_forbidden() => Ok(None),
            all => Ok(check_marks(&self.tunnel, &all?.items, &self.defaults).err()),
        }
    }

    /// Requests another host, in whose place the present one serves until that one does.
    async fn replace(
        &mut self,
        provider: &ProviderClient,
        old: &Host,
        wanted: &Placement,
        exit: Exit,
    ) -> Result<Action, ReconcileError> {
        let name = names::next_host(&self.uid(), &exit.digest());
        let request = self.request(name.clone(), wanted, exit).await?;
        let is_repeated = self.status().creating_since.is_some();
        if !self.mark(&Mark::Replacing).await? {
            return Ok(Action::Done);
        }
        match provider.create(request).await {
            Err(error) if is_repeated || !exists(&error) => {
                return self.not_created(error, &name).await;
            }
            _ => {}
        }
        let message = format!(
            "host {} was told something else and cannot be told anew: another is made, and takes its place when it \
             runs",
            old.id
        );
        self.ctx.publish(Event::normal(&self.tunnel, "ExitChanged", "Replace", message)).await;
        self.serve_on(None, Action::RequeueAfter(POLL)).await
    }

    async fn request(
        &self,
        name: String,
        wanted: &Placement,
        exit: Exit,
    ) -> Result<HostRequest, ReconcileError> {
        let mut tags = self.tags().await?;
        tags.push(names::exit_tag(exit.digest()));
        let (placement, now) = (wanted.clone(), self.ctx.now());
        let ipv6 = self.defaults.ipv6().is_ok_and(|wants| wants);
        Ok(HostRequest { name, tags, exit, placement, ipv6, now })
    }

    /// The tags by which what the Tunnel has at its provider is found.
    pub(super) async fn tags(&self) -> Result<Vec<Tag>, ReconcileError> {
        let (namespace, name) = (self.namespace(), self.tunnel.name_any());
        Ok(names::tags(&cluster_uid(self.ctx).await?, &self.uid(), &namespace, &name))
    }

    /// Lets another host serve in the place of the present one, once it takes connections of clients. The next look
    /// removes the present one.
    pub(super) async fn switch(
        &mut self,
        provider: &ProviderClient,
        at: Placement,
        host: Host,
        address: String,
        found: Found,
    ) -> Result<Action, ReconcileError> {
        let reserved = found.address.as_ref();
        let has_moved = reserved.is_some_and(|own| own.host.as_ref() == Some(&host.id));
        if !has_moved && self.defaults.proof() != Ok(None) {
            let control = [TunnelPort { port: CONTROL_PORT, protocol: Protocol::Tcp }];
            // rathole takes the handshakes of clients one after another, so its answer may take long.
            let opens = self.settings.probe.run(&address, &control, Proof::Open).await;
            if let Some(Err(_)) = opens {
                return match is_late(&host, self.ctx.now()) {
                    true => self.give_up(provider, host).await,
                    false => self.serve_on(None, Action::RequeueAfter(POLL)).await,
                };
            }
        }
        let address = match reserved {
            Some(stable) if !has_moved => {
                provider.assign(&stable.id, &host.id).await?;
                // That takes a while, and may come to nothing: until it is done, the present host stays.
                return self.serve_on(None, Action::RequeueAfter(POLL)).await;
            }
            Some(stable) => stable.ip.clone(),
            None => address,
        };
        // Those of the present host.
        self.clients = None;
        self.connect(host, at, address, found).await
    }

    /// Removes a host that does not come to serve in the place of the present one, and tries none for a while.
    pub(super) async fn give_up(
        &mut self,
        provider: &ProviderClient,
        host: Host,
    ) -> Result<Action, ReconcileError> {
        if !self.mark(&Mark::NotReplaced { refused: true }).await? {
            return Ok(Action::Done);
        }
        // Of the clients it may have some that the present one does not know.
        if let Some(known) = self.clients.as_ref().map(|clients| clients.wanted) {
            self.rest_clients(known).await?;
        }
        provider.delete(&host.id).await?;
        let message = format!(
            "host {} was to serve in the place of the present one and did not in time: it is removed, and another is \
             tried later; see its console at the provider",
            host.id
        );
        let later = Action::RequeueAfter(spread(RETRY, &self.tunnel));
        self.blocked(Blocked { reason: "NotReplaced", message }, later).await
    }

    async fn not_created(
        &mut self,
        error: ExternalError<Failure>,
        name: &str,
    ) -> Result<Action, ReconcileError> {
        let unsent = matches!(error, ExternalError::HeldBack { .. });
        if !unsent && !error.failure().is_some_and(Failure::changed_nothing) {
            // A host may exist: the mark stays, and the next looks show it.
            return Err(error.into());
        }
        let obstacle = match exists(&error) {
            true => Some(Blocked {
                reason: "NameTaken",
                message: format!(
                    "host {name} exists without the labels of this Tunnel, by which it is found: put them back, or \
                     delete it at the provider"
                ),
            }),
            false => error.failure().and_then(Blocked::by),
        };
        if self.status().host_id.is_some() {
            self.mark(&Mark::NotReplaced { refused: obstacle.is_some() }).await?;
            let Some(blocked) = obstacle else { return Err(error.into()) };
            let later = Action::RequeueAfter(spread(RETRY, &self.tunnel));
            return self.blocked(blocked, later).await;
        }
        let told = obstacle.clone().map(|Blocked { reason, message }| (reason, message));
        self.record(&Outcome::NotCreated { obstacle: told }, None).await?;
        let Some(Blocked { reason, message }) = obstacle else { return Err(error.into()) };
        self.ctx.publish(Event::warning(&self.tunnel, reason, "CreateHost", message)).await;
        Ok(Action::RequeueAfter(spread(RETRY, &self.tunnel)))
    }

    /// Reconfigures a host; where its provider cannot, makes another. One that never served is removed first.
    pub(super) async fn outdated(
        &mut self,
        provider: &ProviderClient,
        host: Host,
        wanted: &Placement,
        exit: Exit,
    ) -> Result<Action, ReconcileError> {
        if let Some(told) = provider.reconfigure(&host.id, exit.clone()).await {
            told?;
            return Ok(Action::RequeueAfter(SOON));
        }
        let status = self.status();
        let is_recorded = status.host_id.as_ref() == Some(&host.id);
        if is_recorded && status.host_status == Some(HostStatus::Active) {
            return self.replace(provider, &host, wanted, exit).await;
        }
        provider.delete(&host.id).await?;
        if !is_recorded {
            return Ok(Action::RequeueAfter(POLL));
        }
        let message = format!("host {} was told something else: another is created", host.id);
        self.gone("ExitChanged", message).await
    }

    /// Removes hosts.
    pub(super) async fn discard(
        &mut self,
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
            let is_off = |host: &Host| host.id == id && host.state == State::Stopped;
            let (reason, why) = match hosts.iter().any(is_off) {
                true => ("HostStopped", "is off, and has been for minutes"),
                false => ("HostStuck", "has not come to run within 15 minutes"),
            };
            let message = format!("host {id} {why}: another is created");
            return self.gone(reason, message).await;
        }
        let message = format!("host {id} is not where the Tunnel asks for one: another is created");
        self.gone("Replacing", message).await
    }

    pub(super) async fn gone(
        &mut self,
        reason: &'static str,
        message: String,
    ) -> Result<Action, ReconcileError> {
        self.record(&Outcome::Gone { reason, message: message.clone() }, None).await?;
        self.ctx.publish(Event::warning(&self.tunnel, reason, "Replace", message)).await;
        Ok(Action::RequeueAfter(SOON))
    }
}

/// Whether there is a host of that name.
fn exists(error: &ExternalError<Failure>) -> bool {
    error.failure().is_some_and(|found| found.kind == Kind::Exists)
}
