//! From a Service to its Tunnel and its address. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use sdk::condition::{Finding, conditions};
use sdk::controlled_by;

use crate::api::{HostStatus, Tunnel, TunnelSpec, TunnelStatus};
use crate::choice::{self, Defaults, InvalidTunnel, account_name, placement, token};
use crate::ipv6;
use crate::names::{CLASS, CONDITION, IPV6, OPT, READY, tunnel};
use crate::spelling;

/// The annotation for what is `loadBalancerSourceRanges` today
/// (<https://kubernetes.io/docs/reference/labels-annotations-taints/>).
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// Why a Service is refused that is only for some addresses, and what a person can do about it.
const RESTRICTED: &str = "SourceRangesUnsupported";
const UNRESTRICT: &str = "a Tunnel's host is open to every address: remove loadBalancerSourceRanges, or give the \
     Service another loadBalancerClass";

/// What to do about a Service's Tunnel.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// The Service is not ours, and never was.
    Ignore,
    /// It is ours: apply this Tunnel.
    Apply(Box<Tunnel>),
    /// It is ours, and the server refuses its Tunnel, with these words.
    Rejected(String),
    /// It is ours, and one of its annotations says what has no meaning, in these words: what it has stays as it is.
    Unclear(String),
    /// It is ours, and its Tunnel is being deleted: wait until it is gone.
    Await,
    /// It is ours, and another object has the Tunnel's name.
    Taken,
    /// It is ours, and asks for what no Tunnel can give it: remove the Tunnel, if there is one, and the address.
    Refuse {
        /// One word.
        reason: &'static str,
        /// Cause and remedy.
        message: String,
    },
    /// It is no longer ours: remove the Tunnel, if there is one, and the address.
    Withdraw,
}

/// Whether the Service asks for a Tunnel.
pub(super) fn asks(service: &Service, defaults: &Defaults) -> bool {
    let Some(spec) = &service.spec else { return false };
    let is_ending = service.metadata.deletion_timestamp.is_some();
    if is_ending || spec.type_.as_deref() != Some("LoadBalancer") {
        return false;
    }
    if service.annotations().get(OPT).is_some_and(|value| value == "false") {
        return false;
    }
    match &spec.load_balancer_class {
        Some(class) => class == CLASS,
        None => match defaults.serves_classless() {
            Some(serves) => serves && (is_served(service) || !has_address(service)),
            // What we have taken on stays ours, also while it has no address, unless others give it one.
            None => told(service).is_some() && (is_served(service) || !has_address(service)),
        },
    }
}

/// Whether only some addresses may connect to the Service. A host opens its ports to all.
fn is_restricted(service: &Service) -> bool {
    let ranges = service.spec.as_ref().and_then(|spec| spec.load_balancer_source_ranges.as_ref());
    ranges.is_some_and(|ranges| !ranges.is_empty())
        || service.annotations().get(SOURCE_RANGES).is_some_and(|ranges| !ranges.trim().is_empty())
}

/// Our condition of the Service, if it has one.
pub(super) fn told(service: &Service) -> Option<&Condition> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == CONDITION)
}

/// Whether the Service's address is one that we wrote: address and condition are one write.
fn is_served(service: &Service) -> bool {
    told(service).is_some_and(|condition| condition.status == "True")
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.is_some_and(|balancer| balancer.ingress.as_ref().is_some_and(|list| !list.is_empty()))
}

/// The step for a Service, given the object under its Tunnel's name and what says whether it may use an account.
pub(super) fn plan(
    service: &Service,
    defaults: &Defaults,
    found: Option<&Tunnel>,
    permit: impl Fn(&str) -> Result<(), InvalidTunnel>,
) -> Step {
    let ours = found.filter(|found| controlled_by(*found, service));
    if !asks(service, defaults) {
        let ours = ours.is_some_and(|ours| ours.metadata.deletion_timestamp.is_none());
        return if ours || told(service).is_some() { Step::Withdraw } else { Step::Ignore };
    }
    if is_restricted(service) {
        return Step::Refuse { reason: RESTRICTED, message: UNRESTRICT.to_owned() };
    }
    let mut spec = choice::spec(service, defaults);
    let has_host = |found: &&Tunnel| found.status.as_ref().is_some_and(TunnelStatus::has_host);
    if let Some(found) = ours.filter(has_host)
        && found.spec.provider == spec.provider
    {
        // Defaults are for new hosts: a mistyped one removes none.
        spec.region = choice::own(service, "region").or_else(|| found.spec.region.clone());
        spec.size = choice::own(service, "size").or_else(|| found.spec.size.clone());
    }
    let namespace = service.namespace().unwrap_or_default();
    // What else is wrong with it, the Tunnel says.
    if let Ok(account) = account(&spec, &namespace, defaults)
        && let Err(refused) = permit(&account)
    {
        return Step::Refuse { reason: refused.reason(), message: refused.to_string() };
    }
    match (found, ours) {
        (Some(found), _) if found.metadata.deletion_timestamp.is_some() => Step::Await,
        (Some(_), None) => Step::Taken,
        _ => match spelling::check(service.annotations()) {
            Err(why) => Step::Unclear(why),
            Ok(()) => {
                let mut desired = Tunnel::new(&tunnel(&service.name_any()), spec);
                desired.metadata.namespace = service.namespace();
                Step::Apply(Box::new(desired))
            }
        },
    }
}

/// The account that a Tunnel asks for.
fn account(
    spec: &TunnelSpec,
    namespace: &str,
    defaults: &Defaults,
) -> Result<String, InvalidTunnel> {
    let placement = placement(spec)?;
    let token = token(spec, namespace, defaults, &placement)?;
    Ok(account_name(&placement, token.as_ref()))
}

/// The status of the Service: its address and one condition are ours, the rest is left alone.
pub(super) fn status(
    service: &Service,
    step: &Step,
    found: Option<&Tunnel>,
    now: Timestamp,
) -> ServiceStatus {
    let before = service.status.clone().unwrap_or_default();
    let mut kept = before.conditions.clone().unwrap_or_default();
    kept.retain(|condition| condition.type_ != CONDITION);
    let keeps = matches!(step, Step::Apply(_) | Step::Rejected(_) | Step::Unclear(_));
    let found = found.filter(|_| keeps);
    let address = found.and_then(address);
    let ipv6 = found.filter(|_| address.is_some() && ipv6::is_wanted(service)).and_then(ipv6);
    let addresses: Vec<_> = address.into_iter().chain(ipv6).collect();
    let told = Some(addresses.join(" and ")).filter(|told| !told.is_empty());
    if let Some(finding) = finding(service, step, told.as_deref()) {
        let known = before.conditions.clone().unwrap_or_default();
        kept.extend(conditions(vec![finding], &known, service.metadata.generation, now));
    }
    // Only an address of ours is removed, not one that others wrote.
    let others = || before.load_balancer.and_then(|found| found.ingress);
    let ingress = match told {
        Some(_) => Some(addresses.into_iter().map(|ip| entry(service, ip)).collect()),
        None if is_served(service) => None,
        None => others(),
    };
    ServiceStatus {
        conditions: Some(kept).filter(|list| !list.is_empty()),
        load_balancer: Some(LoadBalancerStatus { ingress }),
    }
}

/// An address in the Service's status. Its mode is `Proxy`: packets must pass the host, and nodes must not answer
/// for it themselves.
fn entry(service: &Service, ip: String) -> LoadBalancerIngress {
    let balancer = service.status.iter().filter_map(|status| status.load_balancer.as_ref());
    let known = balancer.flat_map(|balancer| balancer.ingress.iter().flatten());
    let known = known.into_iter().find(|entry| entry.ip.as_ref() == Some(&ip)).cloned();
    LoadBalancerIngress {
        ip: Some(ip),
        ip_mode: Some("Proxy".to_owned()),
        ..known.unwrap_or_default()
    }
}

/// The address of a Tunnel through which connections come.
fn address(tunnel: &Tunnel) -> Option<String> {
    let status = tunnel.status.as_ref()?;
    let lives = tunnel.metadata.deletion_timestamp.is_none();
    let active = lives && status.host_status == Some(HostStatus::Active);
    status.host_ip.clone().filter(|_| active && says(status, READY))
}

/// The IPv6 address of its host, if they come through that too.
fn ipv6(tunnel: &Tunnel) -> Option<String> {
    let status = tunnel.status.as_ref()?;
    status.host_ipv6.clone().filter(|_| says(status, IPV6))
}

fn says(status: &TunnelStatus, type_: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// What is said of the ports that no Tunnel forwards; empty if there are none.
pub(super) fn unforwarded(service: &Service) -> String {
    let named: Vec<_> =
        choice::unforwarded(service).map(|(port, protocol)| format!("{port}/{protocol}")).collect();
    match named.is_empty() {
        true => String::new(),
        false => format!("; port {} is not forwarded: use TCP or UDP", named.join(", ")),
    }
}

fn finding(service: &Service, step: &Step, address: Option<&str>) -> Option<Finding> {
    let name = tunnel(&service.name_any());
    let as_before = address.map_or_else(String::new, |ip| format!("; it serves {ip} as before"));
    let (holds, reason, message) = match (step, address) {
        (Step::Ignore | Step::Withdraw, _) => return None,
        (Step::Taken, _) => (
            false,
            "NameTaken",
            format!("Tunnel {name} is not this Service's: delete it, or rename the Service"),
        ),
        (Step::Refuse { reason, message }, _) => (false, *reason, message.clone()),
        (Step::Await, _) => (false, "Replacing", format!("Tunnel {name} is being deleted")),
        (Step::Apply(_), Some(address)) => (
            true,
            "Active",
            format!("Tunnel {name} serves it at {address}{}", unforwarded(service)),
        ),
        (Step::Apply(_), None) => {
            (false, "Pending", format!("Tunnel {name} has no address yet{}", unforwarded(service)))
        }
        (Step::Rejected(why), _) => (
            address.is_some(),
            "Rejected",
            format!("the API server refuses Tunnel {name}: {why}{as_before}"),
        ),
        (Step::Unclear(why), _) => {
            (address.is_some(), "InvalidAnnotation", format!("{why}{as_before}"))
        }
    };
    Some(Finding { type_: CONDITION, holds, reason, message })
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
