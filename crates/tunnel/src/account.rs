//! From a Tunnel to an account at its provider, and the requests to it. Shell.

use std::error::Error;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::Api;
use sdk::refusal::refused;
use sdk::{Context, Controller, External, ExternalError, Object, ReconcileError, Scope, Selector};

use crate::access::Access;
use crate::api::Placement;
use crate::choice::{Defaults, InvalidTunnel, TokenRef};
use crate::exit::Exit;
use crate::names::{CONFIG_MAP, Tag};
use crate::provider::{self, Account, Address, AddressRequest, Failure, Host, Kind};
use crate::settings::Settings;

/// What is asked of a provider about a host or an address that exists, and the words for it.
const CHANGES: [(&str, &str); 4] = [
    (CONFIGURE, "tell the host something else"),
    (ASSIGN, "give the host its address"),
    (RELEASE, "give up the address"),
    (DELETE, "remove the host"),
];
const CONFIGURE: &str = "ConfigureHost";
const ASSIGN: &str = "AssignAddress";
const RELEASE: &str = "ReleaseAddress";
const DELETE: &str = "DeleteHost";

/// Something that only a person can fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Blocked {
    /// One word, for a condition.
    pub reason: &'static str,
    /// Cause, object and remedy.
    pub message: String,
}

impl Blocked {
    /// What a person can do about a provider's failure, if anything.
    pub(super) fn by(failure: &Failure) -> Option<Self> {
        let (reason, remedy) = failure.obstacle()?;
        Some(Self { reason, message: format!("{failure}: {remedy}") })
    }

    /// What only a person can fix, if that is why a step failed: a provider or the API server refuses something for
    /// good.
    ///
    /// # Errors
    /// The step's error otherwise: it is retried.
    pub(super) fn within(error: ReconcileError) -> Result<Self, ReconcileError> {
        let source = error.source();
        let known = source.and_then(|source| source.downcast_ref::<Self>()).cloned();
        let failed = source.and_then(|source| source.downcast_ref());
        let blocked = match failed {
            Some(ExternalError::Failed { what, source }) => Self::of(what, source),
            _ => known,
        };
        match blocked {
            Some(blocked) => Ok(blocked),
            None => Ok(Self::rejected("what the Tunnel needs", &refused(error)?)),
        }
    }

    /// What the API server refuses, in its words.
    pub(super) fn rejected(what: &str, why: &str) -> Self {
        let remedy =
            "change the policy, quota or right that refuses it; it is tried again every minute";
        Self {
            reason: "Rejected",
            message: format!("the API server refuses {what}: {why}; {remedy}"),
        }
    }

    fn of(what: &str, failure: &Failure) -> Option<Self> {
        let change = CHANGES.iter().find(|(change, _)| *change == what);
        match (failure.kind, change) {
            // What is locked for a moment, or has gone meanwhile: the next look shows it.
            (Kind::Busy, _) | (Kind::Gone, Some(_)) => None,
            (Kind::Refused, Some((_, words))) => Some(Self {
                reason: "ChangeRefused",
                message: format!(
                    "{failure} (asked to {words}): remove there what protects or locks it; it is asked again every minute"
                ),
            }),
            _ => Self::by(failure),
        }
    }
}

impl From<Blocked> for ReconcileError {
    fn from(blocked: Blocked) -> Self {
        Self::transient(blocked)
    }
}

impl From<InvalidTunnel> for Blocked {
    fn from(invalid: InvalidTunnel) -> Self {
        Self { reason: invalid.reason(), message: invalid.to_string() }
    }
}

/// The scope of the ConfigMaps of defaults.
pub(super) fn defaults_scope() -> Scope {
    Scope { fields: format!("metadata.name={CONFIG_MAP}"), ..Scope::default() }
}

/// Reconciles every object that defaults may apply to when these change.
pub(super) fn watching_defaults<K: Object>(
    controller: Controller<K>,
    access: &Access,
) -> Controller<K> {
    let namespace = access.config_namespace().to_owned();
    controller.watches_with::<ConfigMap>(defaults_scope(), move |config_map, lookup| {
        if config_map.metadata.namespace.as_ref() != Some(&namespace) {
            return Vec::new();
        }
        let found = lookup.list::<K>(None, &Selector::all());
        let name = |found: &K| Some((found.meta().namespace.clone(), found.meta().name.clone()?));
        found.iter().filter_map(|found| name(found)).collect()
    })
}

/// The administrator's defaults.
pub(super) fn defaults(ctx: &Context, access: &Access) -> Result<Defaults, ReconcileError> {
    let config_maps = ctx.list::<ConfigMap>(None, &Selector::all())?;
    let config_maps = config_maps.iter().map(AsRef::as_ref);
    Ok(Defaults::of_system(config_maps, access.config_namespace()))
}

/// The account at a placement's provider, with the token that a Secret holds, and that Secret.
///
/// The Secret is read when it is needed: a watch would cache every Secret of the cluster.
///
/// # Errors
/// [`Blocked`] if there is no such token.
pub(super) async fn account(
    ctx: &Context,
    settings: &Settings,
    placement: &Placement,
    token: Option<&TokenRef>,
) -> Result<(Account, Option<Secret>), ReconcileError> {
    let (mut value, mut held) = (String::new(), None);
    if let Some(TokenRef { namespace, secret }) = token {
        let missing = |message| Blocked { reason: "TokenMissing", message };
        let secrets = Api::<Secret>::namespaced(ctx.client(), namespace);
        held = match secrets.get_opt(&secret.name).await.map_err(ReconcileError::from) {
            Ok(held) => held,
            Err(error) => {
                let why = refused(error)?;
                return Err(missing(format!(
                    "the manager may not read Secret {namespace}/{} with the token of {}: {why}; give it that right",
                    secret.name, placement.provider
                ))
                .into());
            }
        };
        let data = held.as_ref().and_then(|held| held.data.as_ref()?.get(&secret.key));
        let Some(text) = data.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok()) else {
            return Err(missing(format!(
                "Secret {namespace}/{} has no key {}: put the token of {} there",
                secret.name, secret.key, placement.provider
            ))
            .into());
        };
        value = text;
    }
    match provider::account(placement, &value, &settings.http, &settings.local) {
        Ok(account) => Ok((account, held)),
        Err(failure) => {
            let unequipped = || Blocked { reason: "Unequipped", message: failure.to_string() };
            Err(Blocked::by(&failure).unwrap_or_else(unequipped).into())
        }
    }
}

/// The cluster's identity, whatever its name.
pub(super) async fn cluster_uid(ctx: &Context) -> Result<String, ReconcileError> {
    let namespaces = Api::<Namespace>::all(ctx.client());
    let found = namespaces.get_metadata("kube-system").await?;
    let nameless = || ReconcileError::transient("namespace kube-system has no uid");
    found.metadata.uid.ok_or_else(nameless)
}

/// A client of an account, for one reconcile.
pub(super) struct ProviderClient {
    /// The account.
    pub account: Account,
    external: External,
}

impl ProviderClient {
    /// The client of a reconcile.
    pub(super) fn new(ctx: &Context, account: Account) -> Self {
        let external = ctx.external(account.service, &account.upstream, &account.limits);
        Self { account, external }
    }

    /// Every host with a tag, and the recorded one, which a list that lags may not show. What is recorded is
    /// only an id, and an API or a proxy may list more than it is asked for: either may be a stranger's host, and
    /// counts only with the tag.
    pub(super) async fn look(
        &self,
        tag: Tag,
        recorded: Option<&str>,
    ) -> Result<Vec<Host>, ExternalError<Failure>> {
        let list = self.account.provider.list_by_tag(tag.clone());
        let mut hosts = self.external.read("ListHosts", list).await?;
        if let Some(id) = recorded.filter(|id| hosts.iter().all(|host| host.id != **id)) {
            let get = self.account.provider.get(id.to_owned());
            let found = self.external.read("GetHost", get).await?;
            hosts.extend(found);
        }
        hosts.retain(|host| host.has(&tag));
        Ok(hosts)
    }

    /// The account's hosts of Tunnels of all clusters.
    pub(super) async fn all(&self) -> Result<Vec<Host>, ExternalError<Failure>> {
        let list = self.account.provider.list();
        self.external.read("ListHosts", list).await
    }

    /// Creates a host.
    pub(super) async fn create(
        &self,
        wanted: provider::HostRequest,
    ) -> Result<Host, ExternalError<Failure>> {
        let provider = self.account.provider.clone();
        self.external.write("CreateHost", move |_| provider.create(wanted)).await
    }

    /// Reconfigures a host, one step at each call; `None` if its provider cannot.
    pub(super) async fn reconfigure(
        &self,
        id: &str,
        exit: Exit,
    ) -> Option<Result<(), ExternalError<Failure>>> {
        let call = self.account.provider.reconfigure(id.to_owned(), exit)?;
        Some(self.external.write(CONFIGURE, move |_| call).await)
    }

    /// Every reserved address of the account that may be a Tunnel's.
    pub(super) async fn addresses(&self) -> Result<Vec<Address>, ExternalError<Failure>> {
        self.external.read("ListAddresses", self.account.provider.addresses()).await
    }

    /// Reserves an address.
    pub(super) async fn reserve(
        &self,
        wanted: AddressRequest,
    ) -> Result<Address, ExternalError<Failure>> {
        let provider = self.account.provider.clone();
        self.external.write("ReserveAddress", move |_| provider.reserve(wanted)).await
    }

    /// Gives a host a reserved address.
    pub(super) async fn assign(&self, id: &str, host: &str) -> Result<(), ExternalError<Failure>> {
        let (provider, id, host) = (self.account.provider.clone(), id.to_owned(), host.to_owned());
        self.external.write(ASSIGN, move |_| provider.assign(id, host)).await
    }

    /// Gives up a reserved address.
    pub(super) async fn release(&self, id: &str) -> Result<(), ExternalError<Failure>> {
        let (provider, id) = (self.account.provider.clone(), id.to_owned());
        self.external.write(RELEASE, move |_| provider.release(id)).await
    }

    /// Removes a host.
    pub(super) async fn delete(&self, id: &str) -> Result<(), ExternalError<Failure>> {
        let (provider, id) = (self.account.provider.clone(), id.to_owned());
        self.external.write(DELETE, move |_| provider.delete(id)).await
    }
}
