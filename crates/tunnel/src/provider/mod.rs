//! Providers of hosts: one trait, one file for each.
//!
//! Every call can be repeated: a look for the Tunnel's tag precedes [`Provider::create`], and
//! [`Provider::delete`] of a host that is gone is not a failure. None of them retries by itself: the
//! engine does.

#[cfg(test)]
pub(crate) mod answers;
mod digitalocean;
mod hetzner;
pub mod http;
pub mod local;
mod rest;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use futures::future::BoxFuture;
use jiff::Timestamp;
use ring::hmac;
use sdk::{ExternalFailure, ExternalLimits, Verdict};
use sha2::{Digest, Sha256};

use self::http::Http;
use self::local::Local;
use self::rest::{Dialect, Rest};
use crate::api::Placement;
use crate::exit::Exit;
use crate::names::{CLUSTER_TAG, TUNNEL_TAG, Tag};

/// A host as its provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The provider's id.
    pub id: String,
    /// Its state.
    pub state: State,
    /// Its public IPv4 address, once it has one.
    pub address: Option<String>,
    /// Its public IPv6 address, if it has one.
    pub ipv6: Option<Ipv6Addr>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The uid of its Tunnel, from its tags.
    pub tunnel: Option<String>,
    /// The uid of its cluster, from its tags.
    pub cluster: Option<String>,
    /// The digest of its configuration, from its tags.
    pub exit: Option<String>,
}

impl Host {
    /// Whether it has the tag of a Tunnel or a cluster.
    pub(super) fn has(&self, tag: &Tag) -> bool {
        let own = match tag.key {
            TUNNEL_TAG => &self.tunnel,
            CLUSTER_TAG => &self.cluster,
            _ => return false,
        };
        own.as_ref() == Some(&tag.value)
    }
}

/// The state of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is being created.
    Starting,
    /// It runs.
    Running,
    /// It exists and is off.
    Stopped,
    /// It exists, and is being stopped or nobody knows: whether it serves only a connection shows.
    Unclear,
    /// It is being removed.
    Leaving,
}

/// A request for a host.
#[derive(Clone, Debug)]
pub struct HostRequest {
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Its placement.
    pub placement: Placement,
    /// What it runs.
    pub exit: Exit,
    /// Whether it gets an IPv6 address, where the provider has them.
    pub ipv6: bool,
    /// What time it is.
    pub now: Timestamp,
}

/// An address that outlives hosts, and is paid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The provider's id.
    pub id: String,
    /// The IPv4 address.
    pub ip: String,
    /// The region in which hosts can have it.
    pub region: String,
    /// The host that has it.
    pub host: Option<String>,
    /// When it, or its host, was created.
    pub created: Option<Timestamp>,
    /// The uid of its Tunnel, from its tags, or from its host's where addresses have none.
    pub tunnel: Option<String>,
    /// The uid of its cluster, likewise.
    pub cluster: Option<String>,
}

impl Address {
    /// Whether it can be a Tunnel's: an account may have others.
    fn is_of_ipv4(&self) -> bool {
        self.ip.parse::<Ipv4Addr>().is_ok()
    }
}

/// A request for an address that outlives hosts.
#[derive(Clone, Debug)]
pub struct AddressRequest {
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Its region.
    pub region: String,
    /// The host that gets it, if there is one already.
    pub host: Option<String>,
    /// What time it is.
    pub now: Timestamp,
}

/// The result of a call.
pub type Call<T> = BoxFuture<'static, Result<T, Failure>>;

/// Creates, finds and removes hosts.
pub trait Provider: Send + Sync + 'static {
    /// All hosts with the tag of a Tunnel or a cluster, and more where the provider takes no notice of the tag. May not
    /// show what was created or deleted a moment ago.
    fn list_by_tag(&self, tag: Tag) -> Call<Vec<Host>>;
    /// All hosts of Tunnels, of whatever cluster, with the same delay.
    fn list(&self) -> Call<Vec<Host>>;
    /// Creates a host.
    fn create(&self, wanted: HostRequest) -> Call<Host>;
    /// The host with an id, if there is one.
    fn get(&self, id: String) -> Call<Option<Host>>;
    /// Reconfigures the host with an id, one step at each call: it is done once the host has the tag of
    /// the configuration. `None` where a host cannot be reconfigured.
    fn reconfigure(&self, _id: String, _exit: Exit) -> Option<Call<()>> {
        None
    }
    /// Removes the host with an id, if there is one.
    fn delete(&self, id: String) -> Call<()>;

    /// Whether a host must know its reserved address when it is created. Where it need not, the address is reserved
    /// for a host that exists, and found by that.
    fn tells_address(&self) -> bool;
    /// All reserved addresses of the account that may be a Tunnel's, of whatever cluster. May lag like other lists.
    fn addresses(&self) -> Call<Vec<Address>>;
    /// Reserves an address. A request that is repeated for the same name, or the same host, reserves no second one.
    fn reserve(&self, wanted: AddressRequest) -> Call<Address>;
    /// Gives a host the address with an id, whoever had it.
    fn assign(&self, id: String, host: String) -> Call<()>;
    /// Gives up the address with an id, if there is one.
    fn release(&self, id: String) -> Call<()>;
}

/// An account at a provider, and its limits.
#[derive(Clone)]
pub struct Account {
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// The name of the service in metrics.
    pub service: &'static str,
    /// The unit by which the provider counts requests.
    pub upstream: String,
    /// How many requests it accepts.
    pub limits: ExternalLimits,
    key: hmac::Key,
}

impl Account {
    /// What shows that something was written by one who had the account's token.
    pub(super) fn seal(&self, text: &str) -> String {
        HEXLOWER.encode(&hmac::sign(&self.key, text.as_bytes()).as_ref()[..16])
    }
}

/// DigitalOcean accepts 5,000 requests an hour and 250 a minute of one token
/// (<https://docs.digitalocean.com/reference/api/reference/#rate-limit>); a tenth is left to others.
const DIGITALOCEAN: ExternalLimits = hourly(4_500, 100);
/// Hetzner accepts 3,600 requests an hour of one project
/// (<https://docs.hetzner.cloud/reference/cloud#rate-limiting>); a tenth is left to others.
const HETZNER: ExternalLimits = hourly(3_240, 100);
/// This machine.
const LOCAL: ExternalLimits = hourly(360_000, 100);

const fn hourly(requests: u32, burst: u32) -> ExternalLimits {
    ExternalLimits {
        requests,
        per: Duration::from_secs(3_600),
        burst,
        max_concurrency: 8,
        first_pause: Duration::from_secs(1),
        max_pause: Duration::from_secs(60),
    }
}

/// The account at the provider of a placement.
///
/// # Errors
/// If the provider may not be used, or its address is wrong.
pub fn account(
    placement: &Placement,
    token: &str,
    http: &Http,
    local: &Local,
) -> Result<Account, Failure> {
    match &*placement.provider {
        "digitalocean" => api::<digitalocean::DigitalOcean>(placement, token, http, DIGITALOCEAN),
        "hetzner" => api::<hetzner::Hetzner>(placement, token, http, HETZNER),
        _ => {
            let (provider, upstream) = (Arc::new(local.provider()?), "local".to_owned());
            Ok(Account { provider, service: "local", upstream, limits: LOCAL, key: key(token) })
        }
    }
}

/// The account at an API.
fn api<D: Dialect>(
    placement: &Placement,
    token: &str,
    http: &Http,
    limits: ExternalLimits,
) -> Result<Account, Failure> {
    let endpoint = placement.endpoint.as_deref().unwrap_or(D::ENDPOINT);
    let digest = Sha256::digest(format!("{endpoint} {token}"));
    let upstream = format!("{} {}", D::NAME, HEXLOWER.encode(&digest[..6]));
    let provider = Arc::new(Rest::<D>::new(http.at(endpoint, token)?));
    Ok(Account { provider, service: D::NAME, upstream, limits, key: key(token) })
}

fn key(token: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, format!("address {token}").as_bytes())
}

/// The kind of a failure: what a controller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The token is wrong, or may not do this.
    Token,
    /// The account may have no more hosts.
    Quota,
    /// A host of that name exists already.
    Exists,
    /// There is no such host.
    Gone,
    /// The request will be refused again: an unknown region, size, ...
    Refused,
    /// Not now: the host is being changed, or the region is full. Nothing was changed.
    Busy,
    /// Something on this machine is missing.
    Unequipped,
    /// Too many requests.
    Overloaded,
    /// It is unreachable, or fails. Whether a change was made is unknown.
    Unavailable,
    /// No answer came, or an unreadable one. Whether a change was made is unknown.
    Unanswered,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{provider} says: {message}")]
pub struct Failure {
    /// The provider.
    pub provider: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The provider's message.
    pub message: String,
    /// When it wants the next request.
    pub retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn new(provider: &'static str, kind: Kind, message: impl AsRef<str>) -> Self {
        Self { provider, kind, message: sdk::error::foreign(message.as_ref()), retry_after: None }
    }

    /// Whether it is certain that nothing changed.
    pub fn changed_nothing(&self) -> bool {
        !matches!(self.kind, Kind::Unavailable | Kind::Unanswered)
    }

    /// The reason of a condition and what a person can do, if only a person can fix it.
    pub fn obstacle(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            Kind::Token => Some((
                "TokenRefused",
                "put a token that may read and write servers into the Secret that the Tunnel names",
            )),
            Kind::Quota => Some((
                "QuotaExceeded",
                "remove hosts that are not needed, or ask the provider for a higher limit",
            )),
            Kind::Refused | Kind::Gone => Some((
                "HostRefused",
                "set region, size or endpoint to what the provider has, by annotations \
                 leasehold.dev/tunnel-region, -size and -endpoint or in ConfigMap leasehold-tunnel",
            )),
            Kind::Unequipped => Some(("Unequipped", "the controller's page says what it needs")),
            Kind::Busy => Some(("HostUnavailable", "it is retried; or choose another region")),
            _ => None,
        }
    }
}

impl ExternalFailure for Failure {
    fn verdict(&self) -> Verdict {
        let retry_after = self.retry_after;
        match self.kind {
            Kind::Overloaded => Verdict::Overloaded { retry_after },
            Kind::Unavailable => Verdict::Unavailable { retry_after },
            Kind::Unanswered => Verdict::Unanswered,
            _ => Verdict::Answered,
        }
    }
}
