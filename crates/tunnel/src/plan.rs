//! From a Tunnel and its observed hosts to the next step, and to the status. Pure.
//!
//! ```text
//!            ┌──────────── not seen within the grace time: ask again ────────────┐
//!            ▼                                                                   │
//!   no host ──mark: creatingSince──▶ ask the provider ──seen──▶ hostID ──runs──▶ active
//!      ▲                                  │ refused: mark off, a condition        │
//!      └──────────────────────────────────┴────────── lost ◀─────────────────────┘
//! ```
//!
//! The mark is written by resourceVersion before the provider is asked. While it is set, a host may
//! exist that no list shows yet: then no other is requested, and the Tunnel stays. All hosts of a
//! Tunnel carry its uid, so a host whose creation was not answered is found in a list. If more than
//! one is found, one is kept.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use sdk::condition::{Finding, conditions, rest, whole_seconds};

use crate::api::{HostStatus, Placement, ReservedAddress, Tunnel, TunnelStatus};
use crate::clients::Clients;
use crate::exit::has_usual_image;
use crate::ipv6::Ipv6;
use crate::names::{MANAGED, READY, client};
use crate::provider::{Host, State};

/// How long a requested host may stay unseen: the request may be delayed, and lists lag.
pub(super) const GRACE: Duration = Duration::from_secs(120);
/// How long a host that was just seen may be missing from lists that lag.
const SETTLING: Duration = Duration::from_secs(60);
/// How often a host is checked until it runs, or is gone.
pub(super) const POLL: Duration = Duration::from_secs(10);
/// How often a running host is checked.
pub(super) const CHECK: Duration = Duration::from_secs(600);
/// How often something that only a person can fix is checked, where a check writes nothing.
pub(super) const RECHECK: Duration = Duration::from_secs(60);
/// How long a host that is off stays so, at two looks at least, until it is removed: one look shows a restart too.
pub(super) const OFF: Duration = Duration::from_secs(180);
/// How long a host may take until it runs, or serves in the place of another.
const COMING: Duration = Duration::from_secs(900);
/// How long to wait after a provider refused a host, or one did not come to serve, unless the spec changes.
pub(super) const RETRY: Duration = Duration::from_secs(1_800);

/// What a person can do where the client's own image cannot run: the controller sees no nodes.
const ONLY_AMD64: &str = "; its image is for amd64 nodes: in a cluster without any, name one for its nodes as \
     clientImage in ConfigMap leasehold-tunnel";

/// The next step for a Tunnel that is not being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Request a host.
    Create,
    /// A host was requested; check again later.
    Await(Duration),
    /// The host is on its way.
    Follow(Host),
    /// The host runs.
    Connect {
        /// The host.
        host: Host,
        /// Its address.
        address: String,
    },
    /// The host is gone.
    Lost(String),
    /// The host was told something else than desired: another key.
    Outdated(Host),
    /// The host was told something else than desired, and this one runs in its place.
    Switch {
        /// The host that comes.
        host: Host,
        /// Its address.
        address: String,
    },
    /// This one should have served in the place of another long ago: remove it.
    GiveUp(Host),
    /// Remove these hosts: duplicates, stopped ones, or all of them if the Tunnel asks for another
    /// placement.
    Discard(Vec<Host>),
}

/// The next step for a Tunnel that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cleanup {
    /// Delete these.
    Delete(Vec<Host>),
    /// Check again later.
    Await(Duration),
    /// Nothing is left.
    Release,
}

/// The next step, given the digests of what a host may have been told, and every host with the Tunnel's tag.
pub(super) fn next(
    tunnel: &Tunnel,
    wanted: &Placement,
    told: &[impl AsRef<str>],
    hosts: &[Host],
    now: Timestamp,
) -> Step {
    let status = &tunnel.status.clone().unwrap_or_default();
    let present: Vec<_> = hosts.iter().filter(|host| host.state != State::Leaving).collect();
    if status.placement.as_ref().is_some_and(|at| !at.is(wanted)) && !present.is_empty() {
        return Step::Discard(present.into_iter().cloned().collect());
    }
    let is = |digest: &str| told.iter().any(|told| told.as_ref() == digest);
    let outdated = |host: &Host| !host.exit.as_deref().is_some_and(is);
    let Some(kept) = keep(status, &present) else { return absent(tunnel, status, now) };
    // A host that was stopped to be reconfigured is about to run again.
    let given_up = |host: &Host| does_not_run(host, status, now) && !outdated(host);
    let others = present.iter().filter(|host| host.id != kept.id);
    let next = others.filter(|host| outdated(kept) && !outdated(host));
    let next = next.min_by_key(|host| (host.created, host.id.len(), &host.id)).copied();
    let is_next = |host: &Host| next.is_some_and(|next| next.id == host.id);
    let unwanted = present.iter().filter(|host| host.id != kept.id || given_up(host));
    let unwanted: Vec<_> = unwanted.filter(|host| !is_next(host)).copied().cloned().collect();
    if !unwanted.is_empty() {
        return Step::Discard(unwanted);
    }
    let reachable = |host: &Host, serves: bool| {
        let is_reachable = |address: &String| wanted.provider == "local" || is_public(address);
        host.address.clone().filter(|address| serves && is_reachable(address))
    };
    if outdated(kept) {
        let runs = |host: &Host| host.state == State::Running;
        return match next.map(|host| (host, reachable(host, runs(host)))) {
            Some((host, Some(address))) => Step::Switch { host: host.clone(), address },
            Some((next, None)) if is_late(next, now) => Step::GiveUp(next.clone()),
            Some((_, None)) => Step::Await(POLL),
            None => match pending(status, now).or_else(|| refused(tunnel, status, now)) {
                Some(wait) => Step::Await(wait),
                None => Step::Outdated(kept.clone()),
            },
        };
    }
    match reachable(kept, may_serve(kept, status)) {
        Some(address) => Step::Connect { host: kept.clone(), address },
        None => Step::Follow(kept.clone()),
    }
}

/// Whether the client should connect to a host: it runs, or it did, and its provider does not say that it is gone.
fn may_serve(host: &Host, status: &TunnelStatus) -> bool {
    let has_served = status.host_id.as_ref() == Some(&host.id) && status.host_ip.is_some();
    match host.state {
        State::Running => true,
        State::Stopped | State::Unclear => has_served,
        State::Starting | State::Leaving => false,
    }
}

/// Whether a host is off, and was at a look some minutes ago too, or has been on its way for longer than any should.
fn does_not_run(host: &Host, status: &TunnelStatus, now: Timestamp) -> bool {
    let (since, limit) = match host.state {
        State::Stopped => (&status.stopped_since, OFF),
        State::Starting => (&status.starting_since, COMING),
        State::Running | State::Unclear | State::Leaving => return false,
    };
    let since = since.as_ref().filter(|_| status.host_id.as_ref() == Some(&host.id));
    since.is_some_and(|since| rest(since.0, limit, now).is_none())
}

/// Whether a host that comes in the place of another should serve by now.
pub(super) fn is_late(host: &Host, now: Timestamp) -> bool {
    // By its provider's clock.
    host.created.is_some_and(|created| created.checked_add(COMING).is_ok_and(|end| now >= end))
}

/// Whether something was at most that long ago. A clock that was set back says no.
pub(super) fn is_within(at: Timestamp, length: Duration, now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(at)).is_ok_and(|age| age < length)
}

/// How long to wait after a request that the provider refused, unless the spec has changed since.
fn refused(tunnel: &Tunnel, status: &TunnelStatus, now: Timestamp) -> Option<Duration> {
    let same = status.observed_generation == tunnel.metadata.generation;
    // A later one was written by a clock that was ahead.
    let retry_at = status.retry_at.as_ref();
    let retry_at = retry_at.filter(|at| same && at.0 > now && at.0 <= now + RETRY);
    retry_at.map(|at| at.0.duration_since(now).unsigned_abs())
}

/// Whether others can reach an address over the internet: it is of no special range of IPv4
/// (<https://www.iana.org/assignments/iana-ipv4-special-registry>), those for
/// documentation and benchmarks aside, in which stand-ins of clouds are.
pub(super) fn is_public(address: &str) -> bool {
    address.parse::<Ipv4Addr>().is_ok_and(|ip| {
        let [first, second, third, _] = ip.octets();
        let shared = first == 100 && (64..128).contains(&second);
        let protocols = (first, second, third) == (192, 0, 0);
        !(ip.is_private()
            || ip.is_loopback()
            || ip.is_link_local()
            || ip.is_unspecified()
            || ip.is_multicast()
            || shared
            || protocols
            || first == 0
            || first >= 240)
    })
}

/// Which of several hosts is kept: the recorded one, else the oldest of those that are not off.
pub(super) fn keep<'a>(status: &TunnelStatus, hosts: &[&'a Host]) -> Option<&'a Host> {
    let recorded = hosts.iter().find(|host| status.host_id.as_ref() == Some(&host.id));
    let rank =
        |host: &&Host| (host.state == State::Stopped, host.created, host.id.len(), host.id.clone());
    let first = || hosts.iter().min_by_key(|host| rank(host));
    recorded.or_else(first).copied()
}

fn absent(tunnel: &Tunnel, status: &TunnelStatus, now: Timestamp) -> Step {
    if let Some(wait) = pending(status, now) {
        return Step::Await(wait);
    }
    let Some(id) = &status.host_id else {
        return refused(tunnel, status, now).map_or(Step::Create, Step::Await);
    };
    match status.host_since.as_ref().and_then(|since| rest(since.0, SETTLING, now)) {
        Some(wait) => Step::Await(wait.min(POLL)),
        None => Step::Lost(id.clone()),
    }
}

/// How long to wait until the next check for a host that may exist unseen; `None` if none can.
fn pending(status: &TunnelStatus, now: Timestamp) -> Option<Duration> {
    unseen(status.creating_since.as_ref(), now)
}

/// Likewise, since a request.
pub(super) fn unseen(since: Option<&Time>, now: Timestamp) -> Option<Duration> {
    rest(since?.0, GRACE, now).map(|wait| wait.min(POLL))
}

/// The next step for a Tunnel that is being deleted, given every host with its tag.
pub(super) fn cleanup(status: &TunnelStatus, hosts: &[Host], now: Timestamp) -> Cleanup {
    let present = hosts.iter().filter(|host| host.state != State::Leaving);
    let present: Vec<_> = present.cloned().collect();
    if !present.is_empty() {
        return Cleanup::Delete(present);
    }
    if !hosts.is_empty() {
        return Cleanup::Await(POLL);
    }
    let pending = pending(status, now).or_else(|| unseen(status.reserving_since.as_ref(), now));
    pending.map_or(Cleanup::Release, Cleanup::Await)
}

/// The outcome of a reconcile, for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Something blocks it that only a person can fix.
    Blocked {
        /// One word.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
    /// Its host serves, of which nothing new is known.
    Serving {
        /// What only a person can fix, as one word and a sentence. Without one, the last condition about that stays.
        obstacle: Option<(&'static str, String)>,
        /// The host's address.
        address: String,
        /// Why no connection comes through, if none does.
        closed: Option<String>,
        /// Its IPv6 address, if it is to have one.
        ipv6: Option<Ipv6>,
    },
    /// A host is about to be requested.
    Creating(Placement),
    /// The request failed.
    NotCreated {
        /// What a person can do about it, if anything.
        obstacle: Option<(&'static str, String)>,
    },
    /// The host exists and does not run yet.
    Provisioning {
        /// The host.
        host: Host,
        /// Where it is.
        at: Placement,
    },
    /// The host runs.
    Active {
        /// The host.
        host: Host,
        /// Where it is.
        at: Placement,
        /// Its address.
        address: String,
        /// Why no connection comes through, if none does.
        closed: Option<String>,
        /// Its IPv6 address, if it is to have one.
        ipv6: Option<Ipv6>,
    },
    /// The host is gone, or was discarded.
    Gone {
        /// One word.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
    /// The host was removed, and the Tunnel may have none.
    Withdrawn {
        /// One word.
        reason: &'static str,
        /// A sentence.
        message: String,
    },
    /// The Tunnel is being deleted.
    Deleting {
        /// What it waits for.
        message: String,
    },
}

/// The status after an outcome.
pub(super) fn status(
    tunnel: &Tunnel,
    outcome: &Outcome,
    clients: Option<Clients>,
    now: Timestamp,
) -> TunnelStatus {
    let (before, generation) =
        (tunnel.status.clone().unwrap_or_default(), tunnel.metadata.generation);
    let mut status = record(before.clone(), outcome, now);
    status.conditions =
        conditions(findings(tunnel, outcome, clients), &before.conditions, generation, now);
    match outcome {
        // The spec may not have been acted on yet.
        Outcome::Serving { obstacle: None, .. } => {
            let known = before.conditions.into_iter();
            status.conditions.extend(known.filter(|told| told.type_ == MANAGED));
        }
        _ => status.observed_generation = generation,
    }
    if let Outcome::Active { .. } = outcome {
        status.client_deployment = Some(client(&tunnel.name_any(), 0));
    }
    status
}

/// Something to remember before or after a request, that changes nothing of what the status says to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Another host is about to be requested. The present one serves until that one does.
    Replacing,
    /// No other host is made for now.
    NotReplaced {
        /// Whether the provider refused it, or it did not come to serve.
        refused: bool,
    },
    /// An address is about to be requested, for a host here.
    Reserving(Placement),
    /// Which address the Tunnel has is known.
    Addressed(Option<ReservedAddress>),
    /// Which Secret is held is about to change.
    Holding(Option<String>),
    /// Neither host nor address is left of a Tunnel that is being deleted.
    Cleared,
}

/// The status with a mark.
pub(super) fn marked(tunnel: &Tunnel, mark: &Mark, now: Timestamp) -> TunnelStatus {
    let before = tunnel.status.clone().unwrap_or_default();
    match mark {
        Mark::Replacing => {
            TunnelStatus { creating_since: Some(whole_seconds(now)), retry_at: None, ..before }
        }
        Mark::NotReplaced { refused } => TunnelStatus {
            observed_generation: tunnel.metadata.generation,
            creating_since: None,
            retry_at: refused.then(|| whole_seconds(now + RETRY)),
            ..before
        },
        Mark::Reserving(at) => TunnelStatus {
            reserving_since: Some(whole_seconds(now)),
            placement: before.placement.clone().or_else(|| Some(at.clone())),
            ..before
        },
        Mark::Addressed(address) => {
            TunnelStatus { address: address.clone(), reserving_since: None, ..before }
        }
        Mark::Holding(secret) => TunnelStatus { token_secret: secret.clone(), ..before },
        Mark::Cleared => TunnelStatus { placement: None, ..before },
    }
}

/// The recorded facts of the host.
fn record(before: TunnelStatus, outcome: &Outcome, now: Timestamp) -> TunnelStatus {
    let none = TunnelStatus {
        host_ip: None,
        host_ipv6: None,
        host_id: None,
        host_since: None,
        host_exit: None,
        stopped_since: None,
        starting_since: None,
        creating_since: None,
        retry_at: None,
        ..before.clone()
    };
    // The account of a host that was made by an earlier version, or of one that was never recorded.
    let place = |at: &Placement| {
        let here = before.placement.clone();
        here.map_or_else(|| Some(at.clone()), |here| Some(here.or_account_of(at)))
    };
    let still = |since: &Option<Time>, host: &Host| {
        let known = since.clone().filter(|_| before.host_id.as_ref() == Some(&host.id));
        known.or_else(|| Some(whole_seconds(now)))
    };
    let while_in = |state, since: &Option<Time>, host: &Host| {
        (host.state == state).then(|| still(since, host)).flatten()
    };
    let seen = |host: &Host, at: &Placement, host_status| TunnelStatus {
        placement: place(at),
        host_status: Some(host_status),
        host_since: still(&before.host_since, host),
        stopped_since: while_in(State::Stopped, &before.stopped_since, host),
        starting_since: while_in(State::Starting, &before.starting_since, host),
        host_id: Some(host.id.clone()),
        host_ip: host.address.clone(),
        host_ipv6: None,
        host_exit: host.exit.clone(),
        creating_since: None,
        retry_at: None,
        ..before.clone()
    };
    match outcome {
        Outcome::Blocked { .. } if before.host_id.is_some() => before,
        Outcome::Serving { .. } => before,
        Outcome::Blocked { .. } => TunnelStatus { host_status: Some(HostStatus::Error), ..before },
        Outcome::Creating(placement) => TunnelStatus {
            host_status: Some(HostStatus::Provisioning),
            creating_since: Some(whole_seconds(now)),
            placement: Some(placement.clone()),
            ..none
        },
        Outcome::NotCreated { obstacle } => TunnelStatus {
            host_status: Some(match obstacle {
                Some(_) => HostStatus::Error,
                None => HostStatus::Provisioning,
            }),
            retry_at: obstacle.as_ref().map(|_| whole_seconds(now + RETRY)),
            ..none
        },
        Outcome::Provisioning { host, at } => {
            TunnelStatus { host_ip: None, ..seen(host, at, HostStatus::Provisioning) }
        }
        Outcome::Active { host, at, address, ipv6, .. } => TunnelStatus {
            host_ip: Some(address.clone()),
            host_ipv6: ipv6.as_ref().and_then(Ipv6::address).map(str::to_owned),
            ..seen(host, at, HostStatus::Active)
        },
        Outcome::Gone { .. } => {
            TunnelStatus { host_status: Some(HostStatus::Provisioning), ..none }
        }
        Outcome::Withdrawn { .. } => {
            let status = TunnelStatus { placement: None, address: None, ..none };
            TunnelStatus { host_status: Some(HostStatus::Error), reserving_since: None, ..status }
        }
        Outcome::Deleting { .. } => {
            TunnelStatus { host_status: Some(HostStatus::Deleting), ..before }
        }
    }
}

fn findings(tunnel: &Tunnel, outcome: &Outcome, clients: Option<Clients>) -> Vec<Finding> {
    let spec = &tunnel.spec;
    let serves = clients.as_ref().is_some_and(|clients| clients.serve(spec));
    let mut findings = vec![finding(tunnel, outcome, serves)];
    if let Outcome::Active { ipv6, .. } | Outcome::Serving { ipv6, .. } = outcome {
        findings.extend(ipv6.as_ref().map(|ipv6| ipv6.finding(serves)));
        findings.extend(clients.and_then(|clients| clients.finding(spec)));
    }
    if let Outcome::Serving { obstacle: Some((reason, message)), .. } = outcome {
        let message = message.clone();
        findings.push(Finding { type_: MANAGED, holds: false, reason, message });
    }
    findings
}

fn finding(tunnel: &Tunnel, outcome: &Outcome, serves: bool) -> Finding {
    let ready = |holds, reason, message| Finding { type_: READY, holds, reason, message };
    match outcome {
        Outcome::Blocked { reason, message }
        | Outcome::Gone { reason, message }
        | Outcome::Withdrawn { reason, message } => ready(false, reason, message.clone()),
        Outcome::NotCreated { obstacle: Some((reason, message)) } => {
            ready(false, reason, message.clone())
        }
        Outcome::Creating(Placement { provider, region, size, .. }) => ready(
            false,
            "Creating",
            format!("requesting a host of size {size} in {region} from {provider}"),
        ),
        Outcome::NotCreated { obstacle: None } => {
            ready(false, "Creating", "no host is requested yet: it is tried again".to_owned())
        }
        Outcome::Provisioning { host, .. } => {
            let address = host.address.as_deref().filter(|_| host.state == State::Running);
            let message = match address {
                Some(address) => {
                    format!("host {} has address {address}, which others cannot reach", host.id)
                }
                None if host.state == State::Stopped => {
                    format!("host {} is off: another is made if it stays so for minutes", host.id)
                }
                None if host.state == State::Running => {
                    format!("host {} runs, and waits for its address", host.id)
                }
                None => format!("host {} is being created", host.id),
            };
            ready(false, "Provisioning", message)
        }
        Outcome::Active { address, closed, .. } | Outcome::Serving { address, closed, .. } => {
            match closed {
                _ if !serves => ready(
                    false,
                    "ClientUnavailable",
                    format!(
                        "the host at {address} runs, and Deployment {} has no Pod available{}",
                        client(&tunnel.name_any(), 0),
                        if has_usual_image(&tunnel.spec) { ONLY_AMD64 } else { "" },
                    ),
                ),
                Some(why) => {
                    ready(false, "Unreachable", format!("no connection comes through at {why}"))
                }
                None => {
                    let service = &tunnel.spec.service_name;
                    ready(true, "Connected", format!("{service} is served at {address}"))
                }
            }
        }
        Outcome::Deleting { message } => ready(false, "Deleting", message.clone()),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
