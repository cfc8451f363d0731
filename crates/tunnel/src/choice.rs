//! Which provider creates a Service's host, and where: from the Service's annotations, then from the
//! administrator's ConfigMap of defaults. Pure.
//!
//! Who writes Services and Tunnels chooses only from what the administrator's ConfigMap, in the one namespace for it,
//! allows: no other endpoint gets a token, no other Secret is read, and no other size is paid for. The token of
//! the defaults is used only with the provider and the endpoint that the same ConfigMap names.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;

use crate::api::{Placement, Protocol, SecretKey, Tunnel, TunnelPort, TunnelSpec};
use crate::balance::MAX_CLIENTS;
use crate::exit::{self, Archives, reserved};
use crate::names::{ACCOUNT, CONFIG_MAP};
use crate::probe::Proof;
use crate::spelling::ANNOTATION;

const PROVIDERS: &[(&str, &str, &str)] = &[
    // The smallest, as of 2026: enough for a relay.
    ("digitalocean", "fra1", "s-1vcpu-512mb-10gb"),
    ("hetzner", "fsn1", "cx23"),
    ("local", "here", "process"),
];

/// How many hosts the Tunnels of a cluster may have unless the administrator says otherwise.
const MAX_HOSTS: usize = 100;

/// The defaults of a ConfigMap, for the Services that it applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Defaults {
    /// The namespace of the ConfigMap, where its Secret is too.
    pub namespace: String,
    /// Its data.
    values: BTreeMap<String, String>,
    /// The accounts that it has recorded: its annotations for them.
    pub used: BTreeMap<String, String>,
}

/// Which Tunnels have an address that outlives their hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stable {
    All,
    Asked,
    None,
}

/// Where a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenRef {
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret and the key in it.
    pub secret: SecretKey,
}

/// A Tunnel that cannot be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidTunnel {
    /// No provider is named.
    #[error(
        "no provider is named: set annotation leasehold.dev/tunnel-provider on Service {service}, or provider in \
         ConfigMap leasehold-tunnel of namespace leasehold-system (or of the manager's \
         controllers.tunnel.configNamespace), to digitalocean or hetzner"
    )]
    NoProvider {
        /// The Service that asks.
        service: String,
    },
    /// A provider that does not exist.
    #[error("{name:?} is not a provider: use digitalocean, hetzner or local")]
    UnknownProvider {
        /// What was asked for.
        name: String,
    },
    /// A port that the host needs for itself.
    #[error("port {port} is used by the host itself: give Service {service} another port")]
    PortReserved {
        /// The port.
        port: i32,
        /// The Service.
        service: String,
    },
    /// No port at all.
    #[error("Service {service} has no TCP or UDP port, and only these can be forwarded")]
    NoPorts {
        /// The Service.
        service: String,
    },
    /// No token for this provider.
    #[error(
        "no token for provider {provider} at {endpoint}: name tokenSecret in a ConfigMap leasehold-tunnel of \
         namespace leasehold-system (or of the manager's controllers.tunnel.configNamespace) that names the same \
         provider and endpoint"
    )]
    NoToken {
        /// The provider.
        provider: String,
        /// Its address.
        endpoint: String,
    },
    /// The administrator's ConfigMap says what it cannot.
    #[error("{key} is {value:?} in ConfigMap leasehold-tunnel: write {wanted}")]
    InvalidDefault {
        /// The key.
        key: &'static str,
        /// What it says.
        value: String,
        /// What it could say.
        wanted: &'static str,
    },
    /// The Tunnels of this cluster have as many hosts as they may.
    #[error(
        "{max} Tunnels of this cluster have hosts or are to get one first, and no more may: delete one, or raise maxHosts in ConfigMap \
         leasehold-tunnel of namespace leasehold-system (or of the manager's controllers.tunnel.configNamespace)"
    )]
    TooManyHosts {
        /// How many may.
        max: usize,
    },
    /// The account has as many hosts as it may have over all clusters.
    #[error(
        "account {account} has {max} hosts of Tunnels in all clusters, and no more may be made: delete Tunnels that \
         are not needed, or have controllers.tunnel.maxHostsPerAccount raised in the manager's configuration"
    )]
    AccountFull {
        /// The account.
        account: String,
        /// How many it may have.
        max: usize,
    },
    /// The account is for others.
    #[error(
        "the manager's configuration lets namespace {namespace} of cluster {cluster} not use account {account}: ask \
         its administrator for an entry in controllers.tunnel.access, or name another Secret by annotation \
         leasehold.dev/tunnel-token-secret"
    )]
    AccountNotPermitted {
        /// The account.
        account: String,
        /// The namespace that asks.
        namespace: String,
        /// Its cluster.
        cluster: String,
    },
    /// No more accounts are recorded.
    #[error(
        "ConfigMap leasehold-tunnel of namespace {namespace} has recorded {max} accounts, and hosts are made only at \
         those: remove its annotations tunnel-account.leasehold.dev/... of accounts that have no hosts any more"
    )]
    TooManyAccounts {
        /// The ConfigMap's namespace.
        namespace: String,
        /// How many it may record.
        max: usize,
    },
    /// No more accounts of one namespace are recorded.
    #[error(
        "ConfigMap leasehold-tunnel has recorded {max} accounts with tokens of namespace {namespace}, and no more: use \
         a Secret and key that were used before; an account without hosts that no Tunnel names is forgotten in an hour"
    )]
    TooManyOwnAccounts {
        /// The namespace.
        namespace: String,
        /// How many may be recorded.
        max: usize,
    },
    /// The administrator does not allow it.
    #[error(
        "{what} {value:?} is not allowed: leave it out, or have it named as {key} in ConfigMap leasehold-tunnel \
         of namespace leasehold-system (or of the manager's controllers.tunnel.configNamespace)"
    )]
    NotPermitted {
        /// The field.
        what: &'static str,
        /// What it asks for.
        value: String,
        /// The key of the ConfigMap that would allow it.
        key: &'static str,
    },
}

impl InvalidTunnel {
    /// The reason of the condition that reports it.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NoProvider { .. } => "NoProvider",
            Self::UnknownProvider { .. } => "UnknownProvider",
            Self::PortReserved { .. } => "PortReserved",
            Self::NoPorts { .. } => "NoPorts",
            Self::NoToken { .. } => "NoToken",
            Self::NotPermitted { .. } | Self::AccountNotPermitted { .. } => "NotPermitted",
            Self::AccountFull { .. } => "AccountFull",
            Self::TooManyAccounts { .. } | Self::TooManyOwnAccounts { .. } => "TooManyAccounts",
            Self::InvalidDefault { .. } => "InvalidDefaults",
            Self::TooManyHosts { .. } => "TooManyHosts",
        }
    }

    /// Whether the administrator refuses the account: where its token is sent, or whose it is. What serves through it
    /// serves no more.
    pub(super) fn is_of_account(&self) -> bool {
        matches!(self, Self::NotPermitted { what: "endpoint" | "tokenSecretRef", .. })
    }
}

impl Defaults {
    /// The defaults of a ConfigMap.
    pub(super) fn of(config_map: &ConfigMap) -> Self {
        let mut used = config_map.annotations().clone();
        used.retain(|key, _| key.starts_with(ACCOUNT));
        Self {
            namespace: config_map.namespace().unwrap_or_default(),
            values: config_map.data.clone().unwrap_or_default(),
            used,
        }
    }

    /// Of all ConfigMaps of defaults, the one that applies: the administrator's, of that namespace. Those of other
    /// namespaces do not count, because their authors could have tokens sent anywhere.
    pub(super) fn of_system<'a>(
        config_maps: impl IntoIterator<Item = &'a ConfigMap>,
        namespace: &str,
    ) -> Self {
        let mut named = config_maps.into_iter().filter(|found| found.name_any() == CONFIG_MAP);
        let found = named.find(|found| found.metadata.namespace.as_deref() == Some(namespace));
        found.map_or_else(Self::default, Self::of)
    }

    /// Whether Services that name no class are served: another controller may serve them too. `None` if it is
    /// not said, or in other words.
    pub(super) fn serves_classless(&self) -> Option<bool> {
        self.get("claimServicesWithoutClass").and_then(|value| value.parse().ok())
    }

    /// How many hosts the Tunnels of the cluster may have.
    ///
    /// # Errors
    /// If that is no number.
    pub(super) fn max_hosts(&self) -> Result<usize, InvalidTunnel> {
        let Some(value) = self.get("maxHosts") else { return Ok(MAX_HOSTS) };
        value.parse().map_err(|_| invalid("maxHosts", value, "a whole number"))
    }

    /// Whether Tunnels have an address that outlives their hosts: all that do not refuse it, those that ask, or none.
    fn stable(&self) -> Result<Stable, InvalidTunnel> {
        let key = "stableAddress";
        match self.get(key) {
            Some("true") => Ok(Stable::All),
            Some("optional") => Ok(Stable::Asked),
            Some("false") | None => Ok(Stable::None),
            Some(value) => Err(invalid(key, value, "true, optional or false")),
        }
    }

    /// Whether new hosts get an IPv6 address, and Services that of theirs.
    ///
    /// # Errors
    /// If that is neither said nor denied.
    pub(super) fn ipv6(&self) -> Result<bool, InvalidTunnel> {
        let key = "ipv6";
        match self.get(key) {
            Some("true") => Ok(true),
            Some("false") | None => Ok(false),
            Some(value) => Err(invalid(key, value, "true or false")),
        }
    }

    /// How many clients connect a Tunnel's host to the cluster.
    ///
    /// # Errors
    /// If it may not be so many.
    pub(super) fn clients(&self) -> Result<usize, InvalidTunnel> {
        let Some(value) = self.get("clients") else { return Ok(1) };
        let clients = value.parse().ok().filter(|clients| (1..=MAX_CLIENTS).contains(clients));
        clients.ok_or_else(|| invalid("clients", value, "a number from 1 to 3"))
    }

    /// The PriorityClass of the clients' Pods.
    pub(super) fn priority(&self) -> Option<&str> {
        self.get("clientPriorityClass")
    }

    /// What has to show that connections come through before an address is published; `None` if nothing has to.
    ///
    /// # Errors
    /// If that is not known.
    pub(super) fn proof(&self) -> Result<Option<Proof>, InvalidTunnel> {
        let key = "probe";
        match self.get(key) {
            Some("true") | None => Ok(Some(Proof::End)),
            Some("answer") => Ok(Some(Proof::Answer)),
            Some("open") => Ok(Some(Proof::Open)),
            Some("false") => Ok(None),
            Some(value) => Err(invalid(key, value, "true, answer, open or false")),
        }
    }

    /// The sums of the archives that hosts download: what is named goes before what is known of rathole's release.
    ///
    /// # Errors
    /// If one cannot be a sum.
    pub(super) fn archives(&self) -> Result<Archives, InvalidTunnel> {
        let known = Archives::default();
        Ok(Archives {
            x86_64: self.sum("ratholeSha256")?.unwrap_or(known.x86_64),
            aarch64: self.sum("ratholeSha256Arm64")?.unwrap_or(known.aarch64),
        })
    }

    fn sum(&self, key: &'static str) -> Result<Option<String>, InvalidTunnel> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(Some(value.to_owned())),
            false => Err(invalid(key, value, "64 hexadecimal digits")),
        }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The values of a key that lists some, separated by commas.
    fn list(&self, key: &str) -> impl Iterator<Item = &str> {
        self.get(key).into_iter().flat_map(|list| list.split(',')).map(str::trim)
    }

    /// What a key says for a provider: the values belong to the provider beside them.
    fn of_provider(&self, provider: &str, key: &str) -> Option<&str> {
        self.get(key).filter(|_| self.get("provider") == Some(provider))
    }

    fn token(&self) -> Option<TokenRef> {
        let name = self.get("tokenSecret")?.to_owned();
        let key = self.get("tokenSecretKey").unwrap_or("token").to_owned();
        Some(TokenRef { namespace: self.namespace.clone(), secret: SecretKey { name, key } })
    }

    /// The account that this ConfigMap names, if it names one.
    pub(super) fn account(&self) -> Option<(Placement, Option<TokenRef>)> {
        let spec = TunnelSpec {
            provider: Some(self.get("provider")?.to_owned()),
            endpoint: self.get("endpoint").map(str::to_owned),
            ..TunnelSpec::default()
        };
        Some((placement(&spec).ok()?, self.token()))
    }
}

fn invalid(key: &'static str, value: &str, wanted: &'static str) -> InvalidTunnel {
    InvalidTunnel::InvalidDefault { key, value: value.to_owned(), wanted }
}

/// The spec of a Service's Tunnel.
pub(super) fn spec(service: &Service, defaults: &Defaults) -> TunnelSpec {
    let own = |key: &str| own(service, key);
    let provider = own("provider").or_else(|| defaults.get("provider").map(str::to_owned));
    // Regions and sizes belong to one provider: defaults apply only to the provider beside them.
    let same = provider.as_deref() == defaults.get("provider");
    let choose =
        |key: &str| own(key).or_else(|| defaults.get(key).filter(|_| same).map(Into::into));
    let secret = own("token-secret").map(|name| SecretKey {
        name,
        key: own("token-secret-key").unwrap_or_else(|| "token".to_owned()),
    });
    TunnelSpec {
        service_name: service.name_any(),
        ports: ports(service),
        region: choose("region"),
        size: choose("size"),
        endpoint: choose("endpoint"),
        token_secret_ref: secret,
        stable_address: own("stable-address").map(|value| value == "true"),
        client_image: defaults.get("clientImage").map(str::to_owned),
        provider,
    }
}

/// What a Service's annotation says, if it says something.
pub(super) fn own(service: &Service, key: &str) -> Option<String> {
    let found = service.annotations().get(&format!("{ANNOTATION}{key}"));
    found.filter(|value| !value.is_empty()).cloned()
}

/// The ports of a Service and their protocols.
fn named(service: &Service) -> impl Iterator<Item = (i32, &str)> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.map(|port| (port.port, port.protocol.as_deref().unwrap_or("TCP")))
}

fn forwarded(protocol: &str) -> Option<Protocol> {
    match protocol {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        _ => None,
    }
}

/// The ports of a Service that no Tunnel forwards.
pub(super) fn unforwarded(service: &Service) -> impl Iterator<Item = (i32, &str)> {
    named(service).filter(|(_, protocol)| forwarded(protocol).is_none())
}

fn ports(service: &Service) -> Vec<TunnelPort> {
    let passed = named(service)
        .filter_map(|(port, name)| Some(TunnelPort { port, protocol: forwarded(name)? }));
    let mut ports: Vec<_> = passed.collect();
    ports.sort_by_key(|port| (port.port, port.protocol));
    ports
}

/// The placement of a Tunnel's host.
///
/// # Errors
/// If the spec names no provider, or an unknown one.
pub(super) fn placement(spec: &TunnelSpec) -> Result<Placement, InvalidTunnel> {
    let service = || spec.service_name.clone();
    let name =
        spec.provider.clone().ok_or_else(|| InvalidTunnel::NoProvider { service: service() })?;
    let known = PROVIDERS.iter().find(|(known, ..)| *known == name);
    let Some((_, region, size)) = known else {
        return Err(InvalidTunnel::UnknownProvider { name });
    };
    let or = |chosen: &Option<String>, default: &str| {
        chosen.clone().unwrap_or_else(|| default.to_owned())
    };
    Ok(Placement {
        region: or(&spec.region, region),
        size: or(&spec.size, size),
        endpoint: spec.endpoint.clone(),
        account: None,
        token_key: None,
        provider: name,
    })
}

/// The placement that a Tunnel asks for: of what its spec does not say, that of the host or address that it holds. The
/// defaults are those of this version, and concern new hosts.
///
/// # Errors
/// As [`placement`], or if a size is asked for that no new host may have.
pub(super) fn wanted(tunnel: &Tunnel, defaults: &Defaults) -> Result<Placement, InvalidTunnel> {
    let spec = &tunnel.spec;
    let mut wanted = placement(spec)?;
    let held = tunnel.status.as_ref().and_then(|status| Some((status.held()?, status.has_host())));
    let Some((held, has_host)) = held.filter(|(held, _)| held.provider == wanted.provider) else {
        check_size(&wanted, defaults)?;
        return Ok(wanted);
    };
    if spec.region.is_none() {
        wanted.region = held.region.clone();
    }
    if spec.size.is_none() && has_host {
        wanted.size = held.size.clone();
    }
    // A host that exists stays, whatever the administrator allows now.
    if !has_host || held.size != wanted.size {
        check_size(&wanted, defaults)?;
    }
    Ok(wanted)
}

/// The ports that a host with so many clients can open, of those that a spec names.
pub(super) fn open_ports(spec: &TunnelSpec, clients: usize) -> Vec<TunnelPort> {
    spec.ports.iter().filter(|port| !is_reserved(port, clients)).copied().collect()
}

/// Whether a host with so many clients needs a port itself.
fn is_reserved(port: &TunnelPort, clients: usize) -> bool {
    port.protocol == Protocol::Tcp && reserved(clients).contains(&port.port)
}

/// A placement in the account of a token.
pub(super) fn in_account(placement: Placement, token: Option<&TokenRef>) -> Placement {
    let account = Some(account_name(&placement, token));
    Placement { account, token_key: token.map(|token| token.secret.key.clone()), ..placement }
}

/// What an account is called: its provider, and the Secret with its token.
pub(super) fn account_name(placement: &Placement, token: Option<&TokenRef>) -> String {
    let provider = &placement.provider;
    match token {
        Some(TokenRef { namespace, secret }) => format!("{provider}/{namespace}/{}", secret.name),
        None => provider.clone(),
    }
}

/// Whether the ports can be opened on a host with so many clients.
///
/// # Errors
/// If there are none, or the host needs one itself.
pub(super) fn check_ports(spec: &TunnelSpec, clients: usize) -> Result<(), InvalidTunnel> {
    let service = || spec.service_name.clone();
    if spec.ports.is_empty() {
        return Err(InvalidTunnel::NoPorts { service: service() });
    }
    match spec.ports.iter().find(|port| is_reserved(port, clients)) {
        Some(port) => Err(InvalidTunnel::PortReserved { port: port.port, service: service() }),
        None => Ok(()),
    }
}

/// Whether hosts of that size may be created: the provider's default, or one that the administrator names.
///
/// # Errors
/// If not.
pub(super) fn check_size(placement: &Placement, defaults: &Defaults) -> Result<(), InvalidTunnel> {
    let usual = PROVIDERS.iter().find(|(name, ..)| *name == placement.provider);
    let own = defaults.of_provider(&placement.provider, "size");
    let named = own.into_iter().chain(defaults.list("sizes"));
    if usual.map(|(.., size)| *size).into_iter().chain(named).any(|it| it == placement.size) {
        return Ok(());
    }
    let value = placement.size.clone();
    Err(InvalidTunnel::NotPermitted { what: "size", value, key: "size or sizes" })
}

/// Whether a Tunnel gets an address that outlives its host.
///
/// # Errors
/// If it asks for one, has none, and the administrator pays for none.
pub(super) fn wants_address(tunnel: &Tunnel, defaults: &Defaults) -> Result<bool, InvalidTunnel> {
    let stable = defaults.stable()?;
    let has = tunnel.status.as_ref().is_some_and(|status| status.address.is_some());
    match tunnel.spec.stable_address {
        Some(true) if stable == Stable::None && !has => Err(InvalidTunnel::NotPermitted {
            what: "stableAddress",
            value: "true".to_owned(),
            key: "stableAddress",
        }),
        Some(asked) => Ok(asked),
        None => Ok(stable == Stable::All),
    }
}

/// Whether the client may run that image: the default, or one that the administrator names. Who may create Tunnels
/// need not be allowed to run anything else.
///
/// # Errors
/// If not.
pub(super) fn check_image(spec: &TunnelSpec, defaults: &Defaults) -> Result<(), InvalidTunnel> {
    let usual = exit::client_image();
    let mut allowed = [usual.as_str()]
        .into_iter()
        .chain(defaults.get("clientImage"))
        .chain(defaults.list("clientImages"));
    match &spec.client_image {
        Some(value) if !allowed.any(|image| image == value) => Err(InvalidTunnel::NotPermitted {
            what: "clientImage",
            value: value.clone(),
            key: "clientImage or clientImages",
        }),
        _ => Ok(()),
    }
}

/// Where the token for a host is: `None` for a provider that needs none.
///
/// # Errors
/// If no token is named that may be used with this provider at this address, or the administrator allows the
/// address or the Secret for nobody.
pub(super) fn token(
    spec: &TunnelSpec,
    namespace: &str,
    defaults: &Defaults,
    placement: &Placement,
) -> Result<Option<TokenRef>, InvalidTunnel> {
    if placement.provider == "local" {
        return Ok(None);
    }
    let known = defaults.of_provider(&placement.provider, "endpoint");
    if let Some(value) = placement.endpoint.clone().filter(|asked| known != Some(asked)) {
        return Err(InvalidTunnel::NotPermitted { what: "endpoint", value, key: "endpoint" });
    }
    if let Some(secret) = &spec.token_secret_ref {
        if !defaults.list("tokenSecrets").any(|name| name == secret.name) {
            let (what, value) = ("tokenSecretRef", secret.name.clone());
            return Err(InvalidTunnel::NotPermitted { what, value, key: "tokenSecrets" });
        }
        return Ok(Some(TokenRef { namespace: namespace.to_owned(), secret: secret.clone() }));
    }
    let same = defaults.get("provider") == Some(&*placement.provider);
    let meant = same && known == placement.endpoint.as_deref();
    let token = defaults.token().filter(|_| meant);
    token.map(Some).ok_or_else(|| InvalidTunnel::NoToken {
        provider: placement.provider.clone(),
        endpoint: placement.endpoint.clone().unwrap_or_else(|| "its own address".to_owned()),
    })
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
