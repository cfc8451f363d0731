//! The address of a Tunnel that outlives its hosts: which of the account's is its own, and the next step for it. Pure.
//!
//! ```text
//!   none ──mark: reservingSince──▶ ask the provider ──seen──▶ recorded ──▶ given to the host ──▶ published
//! ```
//!
//! An address is the Tunnel's if its tags say so, or those of the host that has it. Where a provider's addresses have
//! no tags, one whose host is gone is the Tunnel's if its status says so with the controller's seal.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::{Placement, ReservedAddress, TunnelStatus};
use crate::plan::unseen;
use crate::provider::Address;

/// The next step for the address of a Tunnel that is not being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Give up these: doubles, those elsewhere, or all if it is to have none.
    Release(Vec<Address>),
    /// One was requested; check again later.
    Await(Duration),
    /// Request one.
    Reserve,
    /// It has this one, or none, and that is as it should be for now.
    Have(Option<Address>),
    /// It is to have none here, and one is published: first another takes its place, for who gets it next is unknown.
    Leave,
}

/// Of all addresses of an account, those of a Tunnel, given what its status has recorded under the controller's seal.
pub(super) fn own(uid: &str, sealed: Option<&ReservedAddress>, all: &[Address]) -> Vec<Address> {
    let is = |address: &&Address| match &address.tunnel {
        Some(tunnel) => tunnel == uid,
        None => address.host.is_none() && sealed.is_some_and(|sealed| sealed.id == address.id),
    };
    all.iter().filter(is).cloned().collect()
}

/// The next step. `can` says whether an address can be reserved now.
pub(super) fn step(
    wanted: Option<&Placement>,
    status: &TunnelStatus,
    own: &[Address],
    can: bool,
    now: Timestamp,
) -> Step {
    let here = |address: &&Address| wanted.is_some_and(|at| at.region == address.region);
    let is_recorded =
        |address: &Address| status.address.as_ref().is_some_and(|known| known.id == address.id);
    let kept = own.iter().filter(here);
    let kept = kept.min_by_key(|address| (!is_recorded(address), address.created, &address.id));
    let is_published = |address: &Address| status.host_ip.as_ref() == Some(&address.ip);
    if kept.is_none() && own.iter().any(is_published) {
        return Step::Leave;
    }
    let surplus: Vec<_> = own.iter().filter(|address| Some(*address) != kept).cloned().collect();
    if !surplus.is_empty() {
        return Step::Release(surplus);
    }
    if kept.is_some() {
        return Step::Have(kept.cloned());
    }
    if let Some(wait) = unseen(status.reserving_since.as_ref(), now) {
        return Step::Await(wait);
    }
    if can && wanted.is_some() { Step::Reserve } else { Step::Have(None) }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn address(id: &str, tunnel: Option<&str>, host: Option<&str>) -> Address {
        Address {
            id: id.to_owned(),
            ip: "203.0.113.7".to_owned(),
            region: "fra1".to_owned(),
            host: host.map(str::to_owned),
            created: None,
            tunnel: tunnel.map(str::to_owned),
            cluster: None,
        }
    }

    fn recorded(id: &str) -> ReservedAddress {
        ReservedAddress { id: id.to_owned(), ip: String::new(), seal: String::new() }
    }

    #[test]
    fn an_address_without_tags_counts_only_if_it_is_sealed_and_nobody_has_it() {
        let all = [
            address("tagged", Some("uid"), None),
            address("other", Some("x"), None),
            address("free", None, None),
            address("stranger", None, Some("1")),
        ];
        let of = |sealed: Option<&str>| {
            let sealed = sealed.map(recorded);
            let own = own("uid", sealed.as_ref(), &all);
            own.into_iter().map(|address| address.id).collect::<Vec<_>>()
        };
        assert_eq!(of(None), ["tagged"]);
        assert_eq!(of(Some("free")), ["tagged", "free"]);
        assert_eq!(of(Some("stranger")), ["tagged"]);
        assert_eq!(of(Some("other")), ["tagged"]);
    }

    #[test]
    fn the_next_step() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let placement = |region: &str| Placement {
            provider: "digitalocean".to_owned(),
            endpoint: None,
            region: region.to_owned(),
            size: "small".to_owned(),
            account: None,
            token_key: None,
        };
        let (here, there) = (placement("fra1"), placement("ams3"));
        let (one, two) = (address("1", Some("uid"), None), address("2", Some("uid"), None));
        let none = TunnelStatus::default();
        let of = |id: &str| TunnelStatus { address: Some(recorded(id)), ..none.clone() };
        let published = TunnelStatus { host_ip: Some(one.ip.clone()), ..of("1") };
        let asked = |seconds| TunnelStatus {
            reserving_since: Some(Time(now - jiff::SignedDuration::from_secs(seconds))),
            ..none.clone()
        };
        let both = vec![one.clone(), two.clone()];
        for (case, wanted, status, own, can, expect) in [
            ("none is wanted", None, none.clone(), vec![], true, Step::Have(None)),
            (
                "none any more",
                None,
                of("1"),
                vec![one.clone()],
                true,
                Step::Release(vec![one.clone()]),
            ),
            (
                "none any more, and published",
                None,
                published.clone(),
                vec![one.clone()],
                true,
                Step::Leave,
            ),
            ("published elsewhere", Some(&there), published, vec![one.clone()], true, Step::Leave),
            ("one is wanted", Some(&here), none.clone(), vec![], true, Step::Reserve),
            ("not yet", Some(&here), none.clone(), vec![], false, Step::Have(None)),
            ("asked", Some(&here), asked(115), vec![], true, Step::Await(Duration::from_secs(5))),
            ("asked, never seen", Some(&here), asked(120), vec![], true, Step::Reserve),
            (
                "there",
                Some(&here),
                asked(5),
                vec![one.clone()],
                true,
                Step::Have(Some(one.clone())),
            ),
            ("a double", Some(&here), of("2"), both, true, Step::Release(vec![one.clone()])),
            ("elsewhere", Some(&there), of("2"), vec![two.clone()], true, Step::Release(vec![two])),
        ] {
            assert_eq!(step(wanted, &status, &own, can, now), expect, "{case}");
        }
    }
}
