//! The shell of a Tunnel: its host at the provider, and its client in the cluster.
//!
//! A cache may lag, and a host costs money. So the cache only shows that there is something to do: the
//! Tunnel is then read from the server, and every write of the status carries the resourceVersion of
//! that read.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use sdk::ObjectKey;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ExternalError, Lifecycle, ReconcileError,
    Reconciler, Selector, controlled_by, spread,
};
use serde_json::json;

use crate::account::{Blocked, ProviderClient, account, cluster_uid, defaults, watching_defaults};
use crate::api::{HostStatus, Placement, Tunnel, TunnelStatus};
use crate::choice::{
    Defaults, InvalidTunnel, TokenRef, account_name, check_image, check_number, check_ports,
    check_size, placement, token,
};
use crate::credentials::Credentials;
use crate::exit::{self, Exit};
use crate::inventory::Inventory;
use crate::names;
use crate::number::Number;
use crate::plan::{CHECK, Outcome, POLL, RECHECK, Step, next, serves, status};
use crate::probe::{AGAIN, EVERY, Schedule};
use crate::provider::{Failure, Host, HostRequest, Kind};
use crate::settings::Settings;
use crate::used::Used;

/// The pause before a step that follows from this one.
const SOON: Duration = Duration::from_secs(1);

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
    watching_defaults(controller)
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
        let defaults = defaults(ctx)?;
        let Self { settings, inventory, schedule, number } = self;
        let secrets = Secrets::default();
        let run = |tunnel| TunnelRun {
            ctx,
            settings,
            inventory,
            schedule,
            number,
            defaults,
            tunnel,
            secrets,
        };
        match ctx.finalizer(&tunnel, names::FINALIZER).await? {
            Lifecycle::Over => Ok(Action::Done),
            Lifecycle::Ending => run(tunnel.clone()).end().await,
            Lifecycle::Live(tunnel) => run(tunnel.into_owned()).live().await,
        }
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
        let address = self.schedule.due(&uid, ctx.now()).filter(|_| as_told)?;
        match self.settings.probe.run(&address, &tunnel.spec.ports).await? {
            Ok(()) => {
                self.schedule.passed(&uid, ctx.now());
                Some(Action::RequeueAfter(EVERY))
            }
            // One connection may be lost. The next one is tried with a look at everything.
            Err(_) => {
                self.schedule.forget(&uid);
                Some(Action::RequeueAfter(AGAIN))
            }
        }
    }
}

/// One reconcile of one Tunnel.
pub(super) struct TunnelRun<'a> {
    pub(super) ctx: &'a Context,
    settings: &'a Settings,
    inventory: &'a Inventory,
    pub(super) schedule: &'a Schedule,
    number: &'a Number,
    defaults: Defaults,
    pub(super) tunnel: Tunnel,
    secrets: Secrets,
}

/// The Tunnel's Secrets, as far as they exist.
#[derive(Default)]
struct Secrets {
    credentials: Option<Secret>,
    client: Option<Secret>,
}

/// Why a name of a child is not free.
enum Taken {
    /// The child of a Tunnel of the same name that is gone: it goes too.
    ByFormer,
    /// An object of others.
    ByOthers(Blocked),
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

    /// The placement of a host that exists or may exist, which may differ from the desired one.
    pub(super) fn held(&self) -> Option<Placement> {
        let status = self.status();
        let exists = status.host_id.is_some() || status.creating_since.is_some();
        status.placement.filter(|_| exists)
    }

    pub(super) async fn provider(
        &self,
        placement: &Placement,
    ) -> Result<Result<ProviderClient, Blocked>, ReconcileError> {
        let token = match self.token(placement) {
            Ok(token) => token,
            Err(invalid) => return Ok(Err(invalid.into())),
        };
        let account = account(self.ctx, self.settings, placement, token.as_ref()).await?;
        Ok(account.map(|account| ProviderClient::new(self.ctx, account)))
    }

    /// Where the token for a placement is.
    fn token(&self, placement: &Placement) -> Result<Option<TokenRef>, InvalidTunnel> {
        token(&self.tunnel.spec, &self.namespace(), &self.defaults, placement)
    }

    /// The account of a placement, if the Tunnel may use it.
    fn permitted(
        &self,
        placement: &Placement,
        token: Option<TokenRef>,
    ) -> Result<Used, InvalidTunnel> {
        let name = account_name(placement, token.as_ref());
        self.settings.access.permit(self.ctx, &self.namespace(), &name)?;
        Ok(Used::new(placement, token.as_ref()))
    }

    /// Records in the administrator's ConfigMap that an account is used, if it does not say so yet.
    async fn remember(&self, used: &Used) -> Result<Result<(), Blocked>, ReconcileError> {
        match self.defaults.misses(&used.key()) {
            Ok(false) => return Ok(Ok(())),
            Ok(true) => {}
            Err(full) => return Ok(Err(full.into())),
        }
        let patch = json!({"metadata": {"annotations": {used.key(): used.value()}}});
        let config_maps = Api::<ConfigMap>::namespaced(self.ctx.client(), &self.defaults.namespace);
        let params = PatchParams::default();
        match config_maps.patch_metadata(names::CONFIG_MAP, &params, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(refused)) if refused.is_forbidden() => Ok(Err(Blocked {
                reason: "AccountNotRecorded",
                message: format!(
                    "the manager may not patch ConfigMap {} of namespace {}, which records the accounts to sweep: \
                     give it that right",
                    names::CONFIG_MAP,
                    self.defaults.namespace
                ),
            })),
            patched => Ok(Ok(patched.map(drop)?)),
        }
    }

    pub(super) async fn look(
        &self,
        provider: &ProviderClient,
    ) -> Result<Vec<Host>, ExternalError<Failure>> {
        provider.look(names::tunnel_tag(&self.uid()), self.status().host_id.as_deref()).await
    }

    /// Looks again at what only a person can fix.
    pub(super) fn recheck(&self) -> Action {
        Action::RequeueAfter(spread(RECHECK, &self.tunnel))
    }

    async fn live(mut self) -> Result<Action, ReconcileError> {
        let spec = &self.tunnel.spec;
        let wanted = check_ports(spec)
            .and_then(|()| check_image(spec, &self.defaults))
            .and_then(|()| placement(spec));
        let wanted = wanted.and_then(|wanted| {
            // A host that exists stays, whatever the administrator allows now.
            let has = self.held().is_some_and(|held| held.size == wanted.size);
            if has { Ok(wanted) } else { check_size(&wanted, &self.defaults).map(|()| wanted) }
        });
        let (wanted, archive) =
            match wanted.and_then(|wanted| Ok((wanted, self.defaults.archive()?))) {
                Ok(found) => found,
                Err(invalid) => return self.blocked(invalid.into(), Action::Done).await,
            };
        let recheck = self.recheck();
        let at = self.held().unwrap_or_else(|| wanted.clone());
        let account = match self.token(&at).map(|token| self.permitted(&at, token)) {
            Ok(Ok(used)) => Some(used),
            Ok(Err(refused)) => return self.withdraw(&at, refused.into()).await,
            // The provider's client reports it.
            Err(_) => None,
        };
        match self.read_children().await? {
            Some(Taken::ByFormer) => return Ok(Action::RequeueAfter(POLL)),
            Some(Taken::ByOthers(blocked)) => return self.blocked(blocked, recheck).await,
            None => {}
        }
        // The client is updated even if the provider does not answer.
        let client = self.connected().await?;
        let provider = match self.provider(&at).await? {
            Ok(provider) => provider,
            Err(blocked) => return self.blocked(blocked, recheck).await,
        };
        if let Some(account) = account
            && let Err(blocked) = self.remember(&account).await?
        {
            return self.blocked(blocked, recheck).await;
        }
        let (credentials, ports) = (self.credentials().await?, self.tunnel.spec.ports.clone());
        let exit = Exit { credentials, ports, archive };
        let (now, told) = (self.ctx.now(), exit.digest());
        if let Some(hosts) = self.listed(&provider).await?
            && let Step::Connect { host, address } = next(&self.tunnel, &wanted, &told, &hosts, now)
        {
            return self.connect(host, address, client).await;
        }
        match self.look(&provider).await {
            Ok(hosts) => {
                let step = next(&self.tunnel, &wanted, &told, &hosts, now);
                self.take(step, &provider, wanted, exit, client).await
            }
            Err(error) => match error.failure().and_then(Blocked::by) {
                Some(blocked) => self.blocked(blocked, recheck).await,
                None => Err(error.into()),
            },
        }
    }

    /// The Tunnel's hosts in the last list of all hosts, if its host is known to run; an old list is
    /// replaced. `None` where the Tunnel has to look for itself.
    async fn listed(&self, provider: &ProviderClient) -> Result<Option<Vec<Host>>, ReconcileError> {
        if self.status().host_status != Some(HostStatus::Active) {
            return Ok(None);
        }
        let uid = self.uid();
        if let Some(hosts) = self.inventory.of(self.ctx, provider, &uid) {
            return Ok(Some(hosts));
        }
        let cluster = names::cluster_tag(&cluster_uid(self.ctx).await?);
        let taken = self.inventory.take(self.ctx, provider, cluster).await;
        Ok(taken.ok().and_then(|()| self.inventory.of(self.ctx, provider, &uid)))
    }

    /// Takes a step.
    async fn take(
        self,
        step: Step,
        provider: &ProviderClient,
        wanted: Placement,
        exit: Exit,
        client: Option<Deployment>,
    ) -> Result<Action, ReconcileError> {
        match step {
            Step::Create if self.held().is_some_and(|held| held != wanted) => {
                // The request at the earlier placement failed: the next step looks at the desired one.
                self.record(&Outcome::NotCreated { obstacle: None }, None).await?;
                Ok(Action::RequeueAfter(SOON))
            }
            Step::Create => {
                let all = self.ctx.list::<Tunnel>(None, &Selector::all())?;
                let all = all.iter().map(AsRef::as_ref);
                if let Err(invalid) = check_number(&self.tunnel, all, &self.defaults) {
                    let recheck = self.recheck();
                    return self.blocked(invalid.into(), recheck).await;
                }
                let max = self.settings.access.max_hosts();
                if self.number.request(self.ctx, provider, &self.uid(), max).await? {
                    return self.create(provider, wanted, exit).await;
                }
                let token = self.token(&wanted).ok().flatten();
                let account = account_name(&wanted, token.as_ref());
                let full = InvalidTunnel::AccountFull { account, max };
                let later = Action::RequeueAfter(spread(CHECK, &self.tunnel));
                self.blocked(full.into(), later).await
            }
            Step::Await(wait) => Ok(Action::RequeueAfter(wait)),
            Step::Follow(host) => {
                self.record(&Outcome::Provisioning(host), None).await?;
                Ok(Action::RequeueAfter(POLL))
            }
            Step::Connect { host, address } => self.connect(host, address, client).await,
            Step::Lost(id) => {
                let message = format!("host {id} is gone from the provider: another is created");
                self.gone("HostLost", message).await
            }
            Step::Outdated(host) => self.outdated(provider, host, exit).await,
            Step::Discard(hosts) => self.discard(provider, hosts, &wanted).await,
        }
    }

    /// Updates the client of a host that is known to run.
    async fn connected(&mut self) -> Result<Option<Deployment>, ReconcileError> {
        let status = self.status();
        let address = status.host_ip.filter(|_| status.host_status == Some(HostStatus::Active));
        let Some(address) = address else { return Ok(None) };
        self.apply_client(&address).await.map(Some)
    }

    async fn apply_client(&mut self, address: &str) -> Result<Deployment, ReconcileError> {
        let credentials = self.credentials().await?;
        let config = exit::client_config(&self.tunnel, address, &credentials);
        let secret = exit::client_secret(&self.tunnel, &config);
        if self.secrets.client.as_ref().is_none_or(|found| found.data != secret.data) {
            self.ctx.apply_child(&self.tunnel, secret).await?;
        }
        // After the Secret: a new Pod must find its configuration.
        self.ctx.apply_child(&self.tunnel, exit::client(&self.tunnel, &config)).await
    }

    async fn connect(
        mut self,
        host: Host,
        address: String,
        client: Option<Deployment>,
    ) -> Result<Action, ReconcileError> {
        let known = self.status().host_ip.as_ref() == Some(&address);
        let client = match client.filter(|_| known) {
            Some(client) => client,
            None => self.apply_client(&address).await?,
        };
        let tried = match self.defaults.probes() && serves(Some(&client)) {
            true => self.settings.probe.run(&address, &self.tunnel.spec.ports).await,
            false => None,
        };
        let note = format!("host {} runs at {address}", host.id);
        let closed = tried.clone().and_then(Result::err);
        let is_new = closed.is_some() && !self.is_told("Unreachable");
        let outcome = Outcome::Active { host, address: address.clone(), closed: closed.clone() };
        self.record(&outcome, Some(&client)).await?;
        if !known {
            self.ctx.publish(Event::normal(&self.tunnel, "HostActive", "Connect", note)).await;
        }
        if let Some(why) = closed.filter(|_| is_new) {
            let note = format!("no connection comes through at {why}");
            self.ctx.publish(Event::warning(&self.tunnel, "Unreachable", "Probe", note)).await;
        }
        let (uid, check) = (self.uid(), spread(CHECK, &self.tunnel));
        Ok(Action::RequeueAfter(match tried {
            None => check,
            Some(Ok(())) => {
                let now = self.ctx.now();
                self.schedule.found(&uid, address, now, now + check);
                EVERY
            }
            Some(Err(_)) => {
                self.schedule.forget(&uid);
                AGAIN
            }
        }))
    }

    /// Whether the status names that reason already.
    fn is_told(&self, reason: &str) -> bool {
        self.status().conditions.iter().any(|condition| condition.reason == reason)
    }

    /// Reads what is in the cluster under the names of the Tunnel's children. Returns why one is not free, if so.
    async fn read_children(&mut self) -> Result<Option<Taken>, ReconcileError> {
        let (namespace, name) = (self.namespace(), self.tunnel.name_any());
        let (client, credentials) = (names::client(&name), names::credentials(&name));
        let secrets = Api::<Secret>::namespaced(self.ctx.client(), &namespace);
        self.secrets = Secrets {
            credentials: secrets.get_opt(&credentials).await?,
            client: secrets.get_opt(&client).await?,
        };
        let deployment = self.ctx.get::<Deployment>(Some(&namespace), &client)?;
        let Secrets { credentials: found, client: config } = &self.secrets;
        let taken = deployment.and_then(|found| self.taken(&*found, "Deployment"));
        let taken = taken.or_else(|| self.taken(config.as_ref()?, "Secret"));
        Ok(taken.or_else(|| self.taken(found.as_ref()?, "Secret")))
    }

    /// Why an object under the name of a child is not the Tunnel's, if so.
    fn taken<K: Resource>(&self, found: &K, kind: &str) -> Option<Taken> {
        if controlled_by(found, &self.tunnel) {
            return None;
        }
        let (name, own) = (found.name_any(), self.tunnel.name_any());
        let mut owners = found.owner_references().iter();
        if owners.any(|owner| {
            owner.controller == Some(true) && owner.kind == "Tunnel" && owner.name == own
        }) {
            return Some(Taken::ByFormer);
        }
        let message = format!(
            "{kind} {name} is not this Tunnel's: delete it, or rename the Service and with it the Tunnel"
        );
        Some(Taken::ByOthers(Blocked { reason: "NameTaken", message }))
    }

    /// Requests a host. The mark of the request is written first. It uses the client of the look, which
    /// has been admitted already: another would queue behind all that look.
    async fn create(
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
        let Some(marked) = self.record(&Outcome::Creating(wanted), None).await? else {
            return Ok(Action::Done);
        };
        self.tunnel = marked;
        match provider.create(request).await {
            Ok(host) => {
                self.record(&Outcome::Provisioning(host), None).await?;
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
        Ok(Action::RequeueAfter(spread(crate::plan::RETRY, &self.tunnel)))
    }

    /// Reconfigures a host; where its provider cannot, removes it.
    async fn outdated(
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
    async fn discard(
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
        if status.placement.as_ref() == Some(wanted) {
            let message = format!("host {id} stopped: another is created");
            return self.gone("HostStopped", message).await;
        }
        let message = format!("host {id} is not where the Tunnel asks for one: another is created");
        self.gone("Replacing", message).await
    }

    async fn gone(self, reason: &'static str, message: String) -> Result<Action, ReconcileError> {
        self.record(&Outcome::Gone { reason, message: message.clone() }, None).await?;
        self.ctx.publish(Event::warning(&self.tunnel, reason, "Replace", message)).await;
        Ok(Action::RequeueAfter(SOON))
    }

    /// Records what blocks the Tunnel, with an Event if it is new.
    async fn blocked(self, blocked: Blocked, then: Action) -> Result<Action, ReconcileError> {
        self.tell(blocked).await?;
        Ok(then)
    }

    /// Likewise. Returns the Tunnel as it then is; `None` if it is gone.
    pub(super) async fn tell(&self, blocked: Blocked) -> Result<Option<Tunnel>, ReconcileError> {
        let Blocked { reason, message } = blocked;
        let known = self.is_told(reason);
        let told =
            self.record(&Outcome::Blocked { reason, message: message.clone() }, None).await?;
        if !known {
            self.ctx.publish(Event::warning(&self.tunnel, reason, "Provision", message)).await;
        }
        Ok(told)
    }

    /// The Tunnel's credentials: the stored ones, or new ones, which are stored.
    async fn credentials(&mut self) -> Result<Credentials, ReconcileError> {
        let stored = match self.secrets.credentials.take() {
            Some(stored) => stored,
            None => {
                let drawn = Credentials::draw().map_err(ReconcileError::transient)?;
                let mut secret = Secret { data: Some(drawn.data()), ..Secret::default() };
                secret.metadata.name = Some(names::credentials(&self.tunnel.name_any()));
                sdk::set_controller(&self.tunnel, &mut secret).map_err(ReconcileError::terminal)?;
                let secrets = Api::<Secret>::namespaced(self.ctx.client(), &self.namespace());
                secrets.create(&PostParams::default(), &secret).await?
            }
        };
        let credentials = Credentials::of(&stored).map_err(ReconcileError::terminal);
        self.secrets.credentials = Some(stored);
        credentials
    }

    /// Writes the status if it says something new. Returns the Tunnel as it then is; `None` if it is
    /// gone.
    pub(super) async fn record(
        &self,
        outcome: &Outcome,
        client: Option<&Deployment>,
    ) -> Result<Option<Tunnel>, ReconcileError> {
        let status = status(&self.tunnel, outcome, client, self.ctx.now());
        if self.tunnel.status.as_ref() == Some(&status) {
            return Ok(Some(self.tunnel.clone()));
        }
        self.ctx.update_status(&Tunnel { status: Some(status), ..self.tunnel.clone() }).await
    }
}
