//! The shell of a Tunnel: its host at the provider, and its client in the cluster.
//!
//! A cache may lag, and a host costs money. So the cache only shows that there is something to do: the
//! Tunnel is then read from the server, and every write of the status carries the resourceVersion of
//! that read.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use sdk::ObjectKey;
use sdk::{
    Action, Context, Controller, ControllerSpec, ExternalError, Lifecycle, ReconcileError,
    Reconciler, RetryClass, Selector, UpstreamError, controlled_by, spread,
};
use serde_json::json;

use crate::account::{Blocked, ProviderClient, account, cluster_uid, defaults, watching_defaults};
use crate::api::{HostStatus, Placement, Tunnel, TunnelStatus};
use crate::balance::MAX_CLIENTS;
use crate::choice::{
    Defaults, InvalidTunnel, TokenRef, check_image, check_ports, in_account, open_ports, token,
    wanted, wants_address,
};
use crate::clients::Clients;
use crate::exit::{Archives, Exit};
use crate::inventory::{FRESH, Inventory};
use crate::names;
use crate::number::Number;
use crate::plan::{CHECK, Outcome, POLL, Step, next};
use crate::probe::{AGAIN, EVERY, Schedule};
use crate::provider::{Address, Failure, Host, State};
use crate::rank::check_number;
use crate::settings::Settings;
use crate::stable;
use crate::used::{Used, held_token, misses};

/// The pause before a step that follows from this one.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// Reconciles Tunnels.
#[derive(Debug, Default)]
pub(super) struct TunnelReconciler {
    settings: Settings,
    inventory: Inventory,
    schedule: Schedule,
    number: Number,
}

/// The controller of Tunnels.
pub(super) fn controller(workers: usize, settings: Settings) -> ControllerSpec {
    let controller = Controller::for_kind::<Tunnel>(crate::NAME).owns::<Deployment>();
    watching_defaults(controller, &settings.access)
        .group(crate::GROUP)
        .field_manager(crate::FIELD_MANAGER)
        .workers(workers)
        .reconciler(TunnelReconciler { settings, ..TunnelReconciler::default() })
}

impl Reconciler for TunnelReconciler {
    type Kind = Tunnel;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let Some(cached) = ctx.get::<Tunnel>(Some(namespace), &key.name)? else {
            return Ok(Action::Done);
        };
        if let Some(then) = self.probe(ctx, &cached).await {
            return Ok(then);
        }
        let tunnels = Api::<Tunnel>::namespaced(ctx.client(), namespace);
        let Some(tunnel) = tunnels.get_opt(&key.name).await? else { return Ok(Action::Done) };
        let defaults = defaults(ctx, &self.settings.access)?;
        let (tunnel, ends) = match ctx.finalizer(&tunnel, names::FINALIZER).await? {
            Lifecycle::Over => return Ok(Action::Done),
            Lifecycle::Ending => (tunnel, true),
            Lifecycle::Live(tunnel) => (tunnel.into_owned(), false),
        };
        let Self { settings, inventory, schedule, number } = self;
        let secrets = Secrets::default();
        let mut run = TunnelRun {
            ctx,
            settings,
            inventory,
            schedule,
            number,
            defaults,
            tunnel,
            secrets,
            clients: None,
        };
        if ends { run.end().await } else { run.live().await }
    }
}

impl TunnelReconciler {
    /// Tries only whether connections still come through a Tunnel, if that is all that is due. `None` if there is
    /// more to do.
    async fn probe(&self, ctx: &Context, tunnel: &Tunnel) -> Option<Action> {
        let (uid, status) = (tunnel.uid()?, tunnel.status.as_ref()?);
        let as_told = status.observed_generation == tunnel.metadata.generation
            && tunnel.metadata.deletion_timestamp.is_none();
        // The address of the last look, not what the status says: others may write that.
        let at = self.schedule.due(&uid, ctx.now()).filter(|_| as_told)?;
        let ports = open_ports(&tunnel.spec, at.tries);
        let (tried, ipv6) = self.settings.probe.both(&at, &ports).await;
        let clients = match at.clients {
            Some(_) => Some(self.settings.probe.connected(&at.address).await),
            None => None,
        };
        if at.is_still(tried?.unwrap_or_default(), ipv6.as_ref(), clients) {
            self.schedule.passed(&uid, ctx.now());
            return Some(Action::RequeueAfter(EVERY));
        }
        // One connection may be lost. The next one is tried with a look at everything.
        self.schedule.doubt(&uid);
        Some(Action::RequeueAfter(AGAIN))
    }
}

/// One reconcile of one Tunnel.
pub(super) struct TunnelRun<'a> {
    pub(super) ctx: &'a Context,
    pub(super) settings: &'a Settings,
    inventory: &'a Inventory,
    pub(super) schedule: &'a Schedule,
    number: &'a Number,
    pub(super) defaults: Defaults,
    pub(super) tunnel: Tunnel,
    pub(super) secrets: Secrets,
    /// The clients of the present host, once they are up to date.
    pub(super) clients: Option<Clients>,
}

/// The Tunnel's Secrets, and the one with its provider's token, as far as they are read and exist.
#[derive(Default)]
pub(super) struct Secrets {
    pub credentials: Option<Secret>,
    pub clients: [Option<Secret>; MAX_CLIENTS],
    pub token: Option<Secret>,
}

/// What a Tunnel's spec asks for.
struct Asked {
    placement: Placement,
    archives: Archives,
    /// Whether its address is to outlive its host.
    stable: bool,
}

/// Hosts and reserved addresses, as listed.
type Seen = (Vec<Host>, Vec<Address>);

/// What is known when a step is taken.
#[derive(Clone)]
pub(super) struct Found {
    /// What a host is told.
    pub exit: Exit,
    /// The address that outlives hosts, if the Tunnel has one.
    pub address: Option<Address>,
}

impl Found {
    /// With an address, of which the host is told where it must be.
    fn with(mut self, address: Option<Address>, provider: &ProviderClient) -> Self {
        if provider.account.provider.tells_address() {
            self.exit.address = address.as_ref().and_then(|address| address.ip.parse().ok());
        }
        self.address = address;
        self
    }
}

impl TunnelRun<'_> {
    pub(super) fn status(&self) -> TunnelStatus {
        self.tunnel.status.clone().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> String {
        self.tunnel.uid().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> String {
        self.tunnel.namespace().unwrap_or_default()
    }

    /// The provider of a placement.
    ///
    /// # Errors
    /// [`Blocked`] if there is no token for it.
    pub(super) async fn provider(
        &mut self,
        placement: &Placement,
    ) -> Result<ProviderClient, ReconcileError> {
        let token = self.held_token(placement).map_err(Blocked::from)?;
        let (account, secret) = account(self.ctx, self.settings, placement, token.as_ref()).await?;
        self.secrets.token = secret;
        Ok(ProviderClient::new(self.ctx, account))
    }

    /// Where the token for a placement is, which may be that of a host that exists.
    fn held_token(&self, at: &Placement) -> Result<Option<TokenRef>, InvalidTunnel> {
        held_token(&self.tunnel.spec, &self.namespace(), &self.defaults, at)
    }

    /// Whether the Tunnel may use the account of a placement.
    fn permit(&self, at: &Placement) -> Result<(), InvalidTunnel> {
        let account = at.account.as_deref().unwrap_or_default();
        self.settings.access.permit(self.ctx, &self.namespace(), account)
    }

    /// A host that exists or may exist and that the Tunnel may not have any more, whatever its spec says, and why.
    fn unpermitted(&self) -> Option<(Placement, InvalidTunnel)> {
        let mut at = self.status().held()?.clone();
        if at.account.is_none() {
            let token = self.held_token(&at).ok()?;
            at = in_account(at, token.as_ref());
        }
        let refused = self.permit(&at).err()?;
        Some((at, refused))
    }

    /// What the spec asks for.
    fn asked(&self) -> Result<Asked, InvalidTunnel> {
        check_ports(&self.tunnel.spec, self.defaults.clients()?)?;
        check_image(&self.tunnel.spec, &self.defaults)?;
        self.defaults.ipv6()?;
        self.defaults.proof()?;
        Ok(Asked {
            placement: wanted(&self.tunnel, &self.defaults)?,
            archives: self.defaults.archives()?,
            stable: wants_address(&self.tunnel, &self.defaults)?,
        })
    }

    /// Records in the administrator's ConfigMap that an account is used, if it does not say so yet.
    async fn remember(&self, used: &Used) -> Result<(), ReconcileError> {
        if !misses(&self.defaults, used).map_err(Blocked::from)? {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {used.key(): used.value()}}});
        let config_maps = Api::<ConfigMap>::namespaced(self.ctx.client(), &self.defaults.namespace);
        let params = PatchParams::default();
        match config_maps.patch_metadata(names::CONFIG_MAP, &params, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(refused)) if refused.is_forbidden() => {
                let message = format!(
                    "the manager may not patch ConfigMap {} of namespace {}, which records the accounts to sweep: \
                     give it that right",
                    names::CONFIG_MAP,
                    self.defaults.namespace
                );
                Err(Blocked { reason: "AccountNotRecorded", message }.into())
            }
            patched => Ok(patched.map(drop)?),
        }
    }

    /// Every host of the Tunnel, and the account's addresses if these matter.
    async fn look(
        &self,
        provider: &ProviderClient,
        addresses: bool,
    ) -> Result<Seen, ExternalError<Failure>> {
        let hosts = self.hosts(provider).await?;
        Ok((hosts, if addresses { provider.addresses().await? } else { Vec::new() }))
    }

    /// Every host of the Tunnel.
    pub(super) async fn hosts(
        &self,
        provider: &ProviderClient,
    ) -> Result<Vec<Host>, ExternalError<Failure>> {
        provider.look(names::tunnel_tag(&self.uid()), self.status().host_id.as_deref()).await
    }

    /// Brings a Tunnel that is not being deleted a step on. What its provider or the API server refuses for good is
    /// told, and what serves is tried on, also while something fails.
    async fn live(&mut self) -> Result<Action, ReconcileError> {
        let doubts = self.schedule.take_doubt(&self.uid());
        if doubts && self.is_told("Connected") && self.unpermitted().is_none() {
            // Before its provider is asked: an address that fails must not wait for an answer.
            self.serve_on(None, self.recheck()).await?;
        }
        let error = match self.step().await {
            Err(error) => error,
            done => return done,
        };
        let recheck = self.recheck();
        let error = match Blocked::within(error) {
            Ok(blocked) => return self.blocked(blocked, recheck).await,
            Err(error) => error,
        };
        // What may not be used any more is not published again.
        let stays = self.unpermitted().is_none() && error.class() == RetryClass::Transient;
        if !stays || self.serving().is_none() {
            return Err(error);
        }
        match (self.serve_on(None, recheck).await?, UpstreamError::among(&error)) {
            // It is no failure that the turn comes later.
            (Action::RequeueAfter(next), Some(held)) => {
                Ok(Action::RequeueAfter(next.min(held.again_in())))
            }
            (Action::RequeueAfter(next), None) => Err(error.retry_after(next)),
            (Action::Done, _) => Err(error),
        }
    }

    async fn step(&mut self) -> Result<Action, ReconcileError> {
        if let Some((at, refused)) = self.unpermitted() {
            return self.withdraw(&at, refused.into()).await;
        }
        let Asked { placement: mut wanted, archives, stable } = match self.asked() {
            Ok(asked) => asked,
            Err(invalid) => return self.blocked(invalid.into(), Action::Done).await,
        };
        let recheck = self.recheck();
        let named = token(&self.tunnel.spec, &self.namespace(), &self.defaults, &wanted);
        let account = match named {
            Ok(token) => {
                wanted = in_account(wanted, token.as_ref());
                Used::new(&wanted, token.as_ref())
            }
            Err(refused) if refused.is_of_account() => {
                self.schedule.forget(&self.uid());
                self.tell(refused.into()).await?;
                return Ok(recheck);
            }
            Err(invalid) => return self.blocked(invalid.into(), recheck).await,
        };
        if let Err(refused) = self.permit(&wanted) {
            // What it has elsewhere it may keep.
            return match self.status().held() {
                None => self.withdraw(&wanted, refused.into()).await,
                Some(_) => self.blocked(refused.into(), recheck).await,
            };
        }
        let at = self.status().held().unwrap_or(&wanted).clone();
        if self.read_children().await? {
            return Ok(Action::RequeueAfter(POLL));
        }
        // The clients are updated even if the provider does not answer.
        // Where they cannot be, the host is looked at all the same: it may be lost. Before it is connected, they are
        // applied again, and then the error is told.
        self.clients = self.connected(archives.clone()).await.unwrap_or_default();
        let provider = self.provider(&at).await?;
        // Before the provider is asked: hundreds that wait for a place would use up what it answers in an hour.
        if self.status().held().is_none() {
            let all = self.ctx.list::<Tunnel>(None, &Selector::all())?;
            let all = all.iter().map(AsRef::as_ref);
            if let Err(full) = check_number(&self.tunnel, all, |_| false, &self.defaults) {
                return self.blocked(full.into(), recheck).await;
            }
        }
        self.hold().await?;
        self.remember(&account).await?;
        let exit = self.exit(archives).await?;
        let found = Found { exit, address: None };
        // An address moves only within its account and region.
        let stays = at.is(&Placement { size: at.size.clone(), ..wanted.clone() });
        let addressed = Some(&wanted).filter(|_| stable && stays);
        let looks = self.may_have_address(stable);
        if let Some(seen) = self.listed(&provider, looks).await? {
            let confirmed = self.confirmed(&provider, &wanted, addressed, &seen, &found);
            if let Some((step, found)) = confirmed {
                return self.take(step, &provider, wanted, found).await;
            }
        }
        let (hosts, addresses) = self.look(&provider, looks).await?;
        match self.address(&provider, addressed, &hosts, &addresses).await? {
            Err(then) => Ok(then),
            Ok(address) => {
                let found = found.with(address, &provider);
                let (told, now) = (found.exit.digests(), self.ctx.now());
                let step = next(&self.tunnel, &wanted, &told, &hosts, now);
                self.take(step, &provider, wanted, found).await
            }
        }
    }

    /// The next step, if lists of all hosts and addresses show that all is as it should be, or about to be: nothing is
    /// requested for what they show.
    fn confirmed(
        &self,
        provider: &ProviderClient,
        wanted: &Placement,
        addressed: Option<&Placement>,
        (hosts, addresses): &Seen,
        found: &Found,
    ) -> Option<(Step, Found)> {
        let (status, now) = (self.status(), self.ctx.now());
        let own = self.own_addresses(provider, addresses);
        let can = provider.account.provider.tells_address()
            || hosts.iter().any(|host| host.state == State::Running);
        let stable::Step::Have(stable) = stable::step(addressed, &status, &own, can, now) else {
            return None;
        };
        let recorded = status.address.as_ref().map(|recorded| &recorded.id);
        if stable.as_ref().map(|stable| &stable.id) != recorded || status.reserving_since.is_some()
        {
            return None;
        }
        let found = found.clone().with(stable, provider);
        let step = next(&self.tunnel, wanted, &found.exit.digests(), hosts, now);
        // A list that is older than the host shows one that has gone since.
        let is_recorded = |host: &Host| status.host_id.as_ref() == Some(&host.id);
        let elsewhere = |host: &Host| {
            found.address.as_ref().is_some_and(|stable| stable.host.as_ref() != Some(&host.id))
        };
        match &step {
            Step::Follow(host) if is_recorded(host) => Some((step, found)),
            Step::Connect { host, .. }
                if is_recorded(host) && !elsewhere(host) && host.state == State::Running =>
            {
                Some((step, found))
            }
            // Its provider made no other: until it is asked again, it need not be asked for this one.
            Step::Await(_) if status.retry_at.is_some() && hosts.iter().any(is_recorded) => {
                Some((step, found))
            }
            _ => None,
        }
    }

    /// The Tunnel's hosts in the last list of all hosts, if its host is known to exist, and the account's addresses if
    /// these matter; an old list is replaced. `None` where the Tunnel has to look for itself.
    async fn listed(
        &self,
        provider: &ProviderClient,
        addresses: bool,
    ) -> Result<Option<Seen>, ReconcileError> {
        let status = self.status();
        if status.stopped_since.is_some() {
            return Ok(None);
        }
        let age = match status.host_status {
            Some(HostStatus::Active) => FRESH,
            Some(HostStatus::Provisioning) if status.host_id.is_some() => POLL,
            _ => return Ok(None),
        };
        let uid = self.uid();
        if let Some(seen) = self.inventory.of(self.ctx, provider, &uid, addresses, age) {
            return Ok(Some(seen));
        }
        let cluster = names::cluster_tag(&cluster_uid(self.ctx).await?);
        let taken = self.inventory.take(self.ctx, provider, cluster, addresses).await;
        Ok(taken.ok().and_then(|()| self.inventory.of(self.ctx, provider, &uid, addresses, age)))
    }

    /// Takes a step.
    async fn take(
        &mut self,
        step: Step,
        provider: &ProviderClient,
        wanted: Placement,
        found: Found,
    ) -> Result<Action, ReconcileError> {
        if !matches!(step, Step::Connect { .. }) {
            // The address of its last host is no longer all that there is to try.
            self.schedule.forget(&self.uid());
        }
        match step {
            Step::Create => self.admit(provider, wanted, found.exit).await,
            Step::Await(wait) => self.serve_on(None, Action::RequeueAfter(wait)).await,
            Step::Follow(host) => {
                self.record(&Outcome::Provisioning { host, at: wanted }, None).await?;
                Ok(Action::RequeueAfter(POLL))
            }
            Step::Connect { host, address } => match found.address.clone() {
                Some(stable) if stable.host.as_ref() != Some(&host.id) => {
                    provider.assign(&stable.id, &host.id).await?;
                    // That takes a while, and may come to nothing: what is published is tried meanwhile.
                    if self.serving().is_none() {
                        let host = Host { address: None, ..host };
                        self.record(&Outcome::Provisioning { host, at: wanted }, None).await?;
                    }
                    self.serve_on(None, Action::RequeueAfter(POLL)).await
                }
                Some(stable) => self.connect(host, wanted, stable.ip, found).await,
                None => self.connect(host, wanted, address, found).await,
            },
            Step::Switch { host, address } => {
                self.switch(provider, wanted, host, address, found).await
            }
            Step::Lost(id) => {
                let message = format!("host {id} is gone from the provider: another is created");
                self.gone("HostLost", message).await
            }
            Step::Outdated(host) => self.outdated(provider, host, &wanted, found.exit).await,
            Step::GiveUp(host) => self.give_up(provider, host).await,
            Step::Discard(hosts) => self.discard(provider, hosts, &wanted).await,
        }
    }

    /// Requests a host, if there is a place for it in the cluster and in the account.
    async fn admit(
        &mut self,
        provider: &ProviderClient,
        wanted: Placement,
        exit: Exit,
    ) -> Result<Action, ReconcileError> {
        if self.status().held().is_some_and(|held| !held.is(&wanted)) {
            // The request at the earlier placement failed: the next step looks at the desired one.
            self.record(&Outcome::NotCreated { obstacle: None }, None).await?;
            return Ok(Action::RequeueAfter(SOON));
        }
        let all = self.ctx.list::<Tunnel>(None, &Selector::all())?;
        let admitted = self.number.admit(&self.uid(), self.ctx.now(), |others| {
            let all = all.iter().map(AsRef::as_ref);
            let asks = |uid: &str| others.contains_key(uid);
            check_number(&self.tunnel, all, asks, &self.defaults)
        });
        if let Err(full) = admitted {
            let recheck = self.recheck();
            return self.blocked(full.into(), recheck).await;
        }
        let max = self.settings.access.max_hosts();
        if self.number.request(self.ctx, provider, &self.uid(), max).await? {
            return self.create(provider, wanted, exit).await;
        }
        let account = wanted.account.unwrap_or_default();
        let full = InvalidTunnel::AccountFull { account, max };
        let later = Action::RequeueAfter(spread(CHECK, &self.tunnel));
        self.blocked(full.into(), later).await
    }

    /// Reads what is in the cluster under the names of the Tunnel's children. Returns whether some of it is of a Tunnel of
    /// the same name that is gone: it goes too.
    ///
    /// # Errors
    /// [`Blocked`] if some of it is of others.
    async fn read_children(&mut self) -> Result<bool, ReconcileError> {
        let (namespace, name) = (self.namespace(), self.tunnel.name_any());
        let secrets = Api::<Secret>::namespaced(self.ctx.client(), &namespace);
        self.secrets.credentials = secrets.get_opt(&names::credentials(&name)).await?;
        for client in 0..self.defaults.clients().map_err(Blocked::from)? {
            let name = names::client(&name, client);
            let deployment = self.ctx.get::<Deployment>(Some(&namespace), &name)?;
            let config = secrets.get_opt(&name).await?;
            if self.is_former(deployment.as_deref(), "Deployment")?
                || self.is_former(config.as_ref(), "Secret")?
            {
                return Ok(true);
            }
            self.secrets.clients[client] = config;
        }
        Ok(self.is_former(self.secrets.credentials.as_ref(), "Secret")?)
    }

    fn is_former<K: Resource>(&self, found: Option<&K>, kind: &str) -> Result<bool, Blocked> {
        let not_ours = found.filter(|found| !controlled_by(*found, &self.tunnel));
        let Some(found) = not_ours else { return Ok(false) };
        let (name, own) = (found.name_any(), self.tunnel.name_any());
        if found.owner_references().iter().any(|owner| names::is_tunnel(owner, &own)) {
            return Ok(true);
        }
        let message = format!(
            "{kind} {name} is not this Tunnel's: delete it, or rename the Service and with it the Tunnel"
        );
        Err(Blocked { reason: "NameTaken", message })
    }
}
