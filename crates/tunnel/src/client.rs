//! How a Tunnel's client is kept connected to its host, and tried. Shell.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use sdk::{Action, Event, ReconcileError, spread};

use crate::api::{HostStatus, Placement};
use crate::credentials::Credentials;
use crate::exit::{self, Archives, Exit, Form};
use crate::ipv6::Ipv6;
use crate::names;
use crate::plan::{CHECK, OFF, Outcome};
use crate::provider::{Host, State};
use crate::reconcile::{Found, TunnelRun};

impl TunnelRun<'_> {
    /// What a host of the Tunnel is told.
    pub(super) async fn exit(&mut self, archives: Archives) -> Result<Exit, ReconcileError> {
        let ports = self.tunnel.spec.ports.clone();
        Ok(Exit { credentials: self.credentials().await?, ports, archives, address: None })
    }

    /// Updates the client of a host that is known to run.
    pub(super) async fn connected(
        &mut self,
        archives: Archives,
    ) -> Result<Option<Deployment>, ReconcileError> {
        let status = self.status();
        let address = status.host_ip.filter(|_| status.host_status == Some(HostStatus::Active));
        let Some(address) = address else { return Ok(None) };
        let exit = self.exit(archives).await?;
        let recorded = status.address.and_then(|recorded| recorded.ip.parse().ok());
        let told = Exit { address: recorded, ..exit.clone() };
        let digest = status.host_exit.as_deref();
        let Some(form) = exit.form(digest).or_else(|| told.form(digest)) else { return Ok(None) };
        let host = status.host_id.unwrap_or_default();
        self.apply_client(&address, &host, &exit, form).await.map(Some)
    }

    async fn apply_client(
        &mut self,
        address: &str,
        host: &str,
        exit: &Exit,
        form: Form,
    ) -> Result<Deployment, ReconcileError> {
        let config = exit::client_config(&self.tunnel, address, &exit.credentials, form);
        let secret = exit::client_secret(&self.tunnel, &config);
        if self.secrets.client.as_ref().is_none_or(|found| found.data != secret.data) {
            self.ctx.apply_child(&self.tunnel, secret).await?;
        }
        // After the Secret: a new Pod must find its configuration.
        let client = exit::client(&self.tunnel, &config, host, self.defaults.priority());
        self.ctx.apply_child(&self.tunnel, client).await
    }

    pub(super) async fn connect(
        &mut self,
        host: Host,
        at: Placement,
        address: String,
        found: Found,
    ) -> Result<Action, ReconcileError> {
        let known = self.status().host_ip.as_ref() == Some(&address);
        let Found { exit, client, .. } = found;
        let client = match client.filter(|_| known) {
            Some(client) => client,
            None => {
                let form = exit.form(host.exit.as_deref()).unwrap_or(Form::Tokens);
                self.apply_client(&address, &host.id, &exit, form).await?
            }
        };
        let note = format!("host {} runs at {address}", host.id);
        let check = match host.state {
            State::Stopped => OFF,
            _ => spread(CHECK, &self.tunnel),
        };
        let ipv6 = self.defaults.ipv6().is_ok_and(|wants| wants).then(|| Ipv6::of(host.ipv6));
        let active = {
            let address = address.clone();
            |closed, ipv6| Outcome::Active { host, at, address, closed, ipv6 }
        };
        let then = self.served(address, ipv6, Some(&client), check, active).await?;
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
                sdk::set_controller(&self.tunnel, &mut secret).map_err(ReconcileError::terminal)?;
                let secrets = Api::<Secret>::namespaced(self.ctx.client(), &self.namespace());
                secrets.create(&PostParams::default(), &secret).await?
            }
        };
        let credentials = Credentials::of(&stored).map_err(ReconcileError::terminal);
        self.secrets.credentials = Some(stored);
        credentials
    }
}
