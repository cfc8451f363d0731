//! Who makes hosts: one trait, one file for each.
//!
//! Every call can be made again: [`Provider::create`] is preceded by a look for the Tunnel's tag, and
//! [`Provider::delete`] of a host that is gone is no failure. None of them retries by itself, for the
//! engine does.

mod digitalocean;
mod hetzner;
pub mod http;
pub mod local;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use sdk::{ExternalFailure, ExternalLimits, Verdict};
use sha2::{Digest, Sha256};

use self::http::Http;
use self::local::Local;
use super::api::Placement;
use super::exit::Exit;
use super::names::Tag;

/// A host as its provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The provider's id.
    pub id: String,
    /// Whether it runs.
    pub state: State,
    /// Its public IPv4 address, once it has one.
    pub address: Option<String>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// The uid of the Tunnel that it is tagged with.
    pub tunnel: Option<String>,
    /// The digest of what it was told to run, which it is tagged with.
    pub exit: Option<String>,
}

/// Whether a host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is being made.
    Starting,
    /// It runs.
    Running,
    /// It is there and does not run.
    Stopped,
    /// It is on its way out.
    Leaving,
}

/// A host to be made.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Where it is to be.
    pub placement: Placement,
    /// What is to run on it.
    pub exit: Exit,
    /// What time it is.
    pub now: Timestamp,
}

/// What a call comes to.
pub type Call<T> = BoxFuture<'static, Result<T, Failure>>;

/// Makes, finds and removes hosts.
pub trait Provider: Send + Sync + 'static {
    /// All hosts with a tag. May lag behind what was made or deleted a moment ago.
    fn list_by_tag(&self, tag: Tag) -> Call<Vec<Host>>;
    /// Makes a host.
    fn create(&self, wanted: Wanted) -> Call<Host>;
    /// The host with an id, if there is one.
    fn get(&self, id: String) -> Call<Option<Host>>;
    /// Has the host with an id run something else, one step at each call: it does once it is tagged
    /// with it. `None` where what a host runs is settled when it is made.
    fn reconfigure(&self, _id: String, _exit: Exit) -> Option<Call<()>> {
        None
    }
    /// Removes the host with an id, if there is one.
    fn delete(&self, id: String) -> Call<()>;
}

/// A provider with an account there, and what may be asked of it.
#[derive(Clone)]
pub struct Account {
    /// Makes the calls.
    pub provider: Arc<dyn Provider>,
    /// What metrics tell upstreams apart by.
    pub service: &'static str,
    /// What the provider counts requests by.
    pub upstream: String,
    /// How many it takes.
    pub limits: ExternalLimits,
}

/// DigitalOcean takes 5,000 requests an hour and 250 a minute of one token
/// (<https://docs.digitalocean.com/reference/api/reference/#rate-limit>); a tenth is left to others.
const DIGITALOCEAN: ExternalLimits = hourly(4_500, 100);
/// Hetzner takes 3,600 requests an hour of one project
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

/// The account at the provider of a placement, if there is such a provider and it may be used.
///
/// # Errors
/// If it may not, or its address is none.
pub fn account(
    placement: &Placement,
    token: &str,
    http: &Http,
    local: &Local,
) -> Result<Account, Failure> {
    let endpoint = |own: &str| placement.endpoint.clone().unwrap_or_else(|| own.to_owned());
    let of_token = |service: &str, endpoint: &str| {
        let digest = Sha256::digest(format!("{endpoint} {token}"));
        let digest: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("{service} {digest}")
    };
    match &*placement.provider {
        "digitalocean" => {
            let endpoint = endpoint(digitalocean::ENDPOINT);
            let upstream = of_token("digitalocean", &endpoint);
            let provider = digitalocean::DigitalOcean::new(http.at(&endpoint, token)?);
            let provider = Arc::new(provider);
            Ok(Account { provider, service: "digitalocean", upstream, limits: DIGITALOCEAN })
        }
        "hetzner" => {
            let endpoint = endpoint(hetzner::ENDPOINT);
            let upstream = of_token("hetzner", &endpoint);
            let provider = Arc::new(hetzner::Hetzner::new(http.at(&endpoint, token)?));
            Ok(Account { provider, service: "hetzner", upstream, limits: HETZNER })
        }
        _ => {
            let provider = Arc::new(local.provider()?);
            Ok(Account { provider, service: "local", upstream: "local".to_owned(), limits: LOCAL })
        }
    }
}

/// What kind of failure it is: what a controller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The token is none, or may not do this.
    Token,
    /// The account may have no more hosts.
    Quota,
    /// A host of that name is there already.
    Exists,
    /// The request will be refused again: an unknown region, size, ...
    Refused,
    /// Not now: the host is being changed, or the region is full. Nothing was changed.
    Busy,
    /// Something on this machine is missing.
    Unequipped,
    /// Too many requests.
    Overloaded,
    /// It is not there, or not ready. Whether a change was made is unknown.
    Unavailable,
    /// Nothing was heard, or nothing that can be read. Whether a change was made is unknown.
    Unanswered,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{provider} says: {message}")]
pub struct Failure {
    /// Who says so.
    pub provider: &'static str,
    /// What kind of failure it is.
    pub kind: Kind,
    /// In the provider's own words.
    pub message: String,
    /// When it wants to be asked again.
    pub retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn new(provider: &'static str, kind: Kind, message: impl Into<String>) -> Self {
        Self { provider, kind, message: message.into(), retry_after: None }
    }

    /// Whether it is certain that nothing was changed.
    pub fn changed_nothing(&self) -> bool {
        !matches!(self.kind, Kind::Unavailable | Kind::Unanswered)
    }

    /// The reason of a condition, and what a person can do, if only a person can do something.
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
            Kind::Refused => Some((
                "HostRefused",
                "set region, size or endpoint to what the provider has, by annotations \
                 leasehold.dev/tunnel-region, -size and -endpoint or in ConfigMap leasehold-tunnel",
            )),
            Kind::Unequipped => Some(("Unequipped", "the controller's page says what it needs")),
            Kind::Busy => Some(("HostUnavailable", "it is tried again; or choose another region")),
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
