//! How a Tunnel's clients are kept connected to its host, and tried. Shell.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use sdk::refusal::refused;
use sdk::{Action, ApplyOptions, Event, Object, ReconcileError, controlled_by, spread};

use crate::account::Blocked;
use crate::api::{HostStatus, Placement};
use crate::balance::MAX_CLIENTS;
use crate::clients::Clients;
use crate::credentials::{Credentials, CredentialsError};
use crate::exit::{self, Archives, Exit, Form};
use crate::ipv6::Ipv6;
use crate::names;
use crate::plan::{CHECK, OFF, Outcome, RECHECK};
use crate::provider::{Host, State};
use crate::reconcile::{Found, TunnelRun};

impl TunnelRun<'_> {
    /// What a host of the Tunnel is told.
    pub(super) async fn exit(&mut self, archives: Archives) -> Result<Exit, ReconcileError> {
        let ports = self.tunnel.spec.ports.clone();
        let clients = self.defaults.clients().map_err(Blocked::from)?;
        Ok(Exit { credentials: self.credentials().await?, ports, archives, address: None, clients })
    }

    /// Updates the clients of a host that is known to run.
    pub(super) async fn connected(
        &mut self,
        archives: Archives,
    ) -> Result<Option<Clients>, ReconcileError> {
        let status = self.status();
        let address = status.host_ip.filter(|_| status.host_status == Some(HostStatus::Active));
        let Some(address) = address else { return Ok(None) };
        let exit = self.exit(archives).await?;
        let recorded = status.address.and_then(|recorded| recorded.ip.parse().ok());
        let told = Exit { address: recorded, ..exit.clone() };
        let digest = status.host_exit.as_deref();
        let Some(form) = exit.form(digest).or_else(|| told.form(digest)) else { return Ok(None) };
        let host = status.host_id.unwrap_or_default();
        self.apply_clients(&address, &host, &exit, form).await.map(Some)
    }

    /// Applies the clients of a host: the first one last, so that one of the others that fails takes it away from no
    /// other host. One of the others that the API server refuses is left out.
    async fn apply_clients(
        &mut self,
        address: &str,
        host: &str,
        exit: &Exit,
        form: Form,
    ) -> Result<Clients, ReconcileError> {
        // A host that another is about to replace knows another number, and keeps those that are still wanted.
        let wanted = form.clients().min(exit.clients);
        let (mut applied, mut refused) = ([const { None }; MAX_CLIENTS], None);
        for client in (0..wanted).rev() {
            let config =
                exit::client_config(&self.tunnel, address, &exit.credentials, form, client);
            match self.apply_client((client, wanted), &config, host).await {
                Ok(deployment) => applied[client] = Some(deployment),
                Err(error) if client > 0 => refused = Some(Blocked::within(error)?.message),
                Err(error) => return Err(error),
            }
        }
        // Not those that a host that comes may have already.
        self.rest_clients(exit.clients).await?;
        Ok(Clients { wanted, refused, ..Clients::of(applied.iter().map(Option::as_ref)) })
    }

    /// Applies one of so many clients of a host.
    async fn apply_client(
        &mut self,
        (client, clients): (usize, usize),
        config: &str,
        host: &str,
    ) -> Result<Deployment, ReconcileError> {
        let secret = exit::client_secret(&self.tunnel, client, config);
        let stored = match &self.secrets.clients[client] {
            Some(found) if found.data == secret.data => None,
            found => Some(match found {
                Some(found) => self.apply(Some(found), secret).await?,
                None => self.create_secret(secret).await?,
            }),
        };
        if stored.is_some() {
            self.secrets.clients[client] = stored;
        }
        // After the Secret: a new Pod must find its configuration.
        let priority = self.defaults.priority();
        let deployment = exit::client(&self.tunnel, (client, clients), config, host, priority);
        let found = self.deployment(client)?;
        self.apply(found.as_deref(), deployment).await
    }

    /// The Deployment of a client, if there is one that is ours.
    fn deployment(&self, client: usize) -> Result<Option<Arc<Deployment>>, ReconcileError> {
        let name = names::client(&self.tunnel.name_any(), client);
        let found = self.ctx.get::<Deployment>(Some(&self.namespace()), &name)?;
        Ok(found.filter(|found| controlled_by(&**found, &self.tunnel)))
    }

    /// The clients as they were applied, or as the cache shows them.
    pub(super) fn clients(&self) -> Result<Clients, ReconcileError> {
        if let Some(applied) = &self.clients {
            return Ok(applied.clone());
        }
        let found: Result<Vec<_>, _> =
            (0..MAX_CLIENTS).map(|client| self.deployment(client)).collect();
        Ok(Clients::of(found?.iter().map(Option::as_deref)))
    }

    /// Ends the Pods of the clients from a number on, if there are any: another owner may get the host's address.
    pub(super) async fn rest_clients(&self, from: usize) -> Result<(), ReconcileError> {
        for client in from..MAX_CLIENTS {
            let found = self.deployment(client)?.filter(|found| found.spec.replicas != Some(0));
            if found.is_some() {
                let mut resting = exit::client(&self.tunnel, (client, 1), "", "", None);
                resting.spec.replicas = Some(0);
                self.apply(found.as_deref(), resting).await?;
            }
        }
        Ok(())
    }

    /// Applies a child: the one that was found by its uid, and without force where none was. So one that others made
    /// since is a conflict, and not taken over.
    async fn apply<K: Object>(&self, found: Option<&K>, mut child: K) -> Result<K, ReconcileError> {
        child.meta_mut().uid = found.and_then(|found| found.meta().uid.clone());
        sdk::set_controller(&self.tunnel, &mut child).map_err(ReconcileError::terminal)?;
        let options = ApplyOptions::default().force(found.is_some());
        let applied = self.ctx.apply_with(&child, options).await;
        applied.map_err(|error| rejected(&child, error))
    }

    /// Creates a child, unless there is one of its name.
    async fn create_secret(&self, mut child: Secret) -> Result<Secret, ReconcileError> {
        sdk::set_controller(&self.tunnel, &mut child).map_err(ReconcileError::terminal)?;
        let secrets = Api::<Secret>::namespaced(self.ctx.client(), &self.namespace());
        let created = secrets.create(&PostParams::default(), &child).await;
        created.map_err(|error| rejected(&child, error.into()))
    }

    pub(super) async fn connect(
        &mut self,
        host: Host,
        at: Placement,
        address: String,
        found: Found,
    ) -> Result<Action, ReconcileError> {
        let known = self.status().host_ip.as_ref() == Some(&address);
        let exit = found.exit;
        let clients = match self.clients.take().filter(|_| known) {
            Some(clients) => clients,
            None => {
                let form = exit.form(host.exit.as_deref()).unwrap_or(Form::Tokens(exit.clients));
                self.apply_clients(&address, &host.id, &exit, form).await?
            }
        };
        let note = format!("host {} runs at {address}", host.id);
        let check = match host.state {
            State::Stopped => OFF,
            _ if clients.refused.is_some() => spread(RECHECK, &self.tunnel),
            _ => spread(CHECK, &self.tunnel),
        };
        let ipv6 = self.defaults.ipv6().is_ok_and(|wants| wants).then(|| Ipv6::of(host.ipv6));
        let active = {
            let address = address.clone();
            |closed, ipv6| Outcome::Active { host, at, address, closed, ipv6 }
        };
        let then = self.served(address, ipv6, clients, check, active).await?;
        if !known {
            self.ctx.publish(Event::normal(&self.tunnel, "HostActive", "Connect", note)).await;
        }
        Ok(then)
    }

    /// The Tunnel's credentials: the stored ones, or new ones, which are stored.
    async fn credentials(&mut self) -> Result<Credentials, ReconcileError> {
        let stored = match self.secrets.credentials.take() {
            Some(stored) => stored,
            None => {
                let drawn = Credentials::draw().map_err(ReconcileError::transient)?;
                let mut secret = Secret { data: Some(drawn.data()), ..Secret::default() };
                secret.metadata.name = Some(names::credentials(&self.tunnel.name_any()));
                self.create_secret(secret).await?
            }
        };
        let damaged = |error: CredentialsError| Blocked {
            reason: "CredentialsDamaged",
            message: error.to_string(),
        };
        let stored = self.secrets.credentials.insert(stored);
        Ok(Credentials::of(stored).map_err(damaged)?)
    }
}

/// The error of a write of a child.
fn rejected<K: Object>(child: &K, error: ReconcileError) -> ReconcileError {
    let what = format!("{} {}", K::kind(&()), child.name_any());
    match refused(error) {
        Ok(why) => Blocked::rejected(&what, &why).into(),
        Err(error) => error,
    }
}
