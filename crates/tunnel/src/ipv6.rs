//! The IPv6 address of a Tunnel's host: which others can reach, what is said of it, and who gets it. Pure.
//!
//! It comes second: nothing of it changes what is said and published of the IPv4 address.

use std::net::Ipv6Addr;

use k8s_openapi::api::core::v1::Service;
use sdk::condition::Finding;

use crate::names::IPV6;

/// The reason of the condition of a host without one.
pub(super) const NO_ADDRESS: &str = "NoIPv6Address";

/// What is known of a host's IPv6 address, where the administrator wants one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ipv6 {
    /// There is none that others can reach.
    None,
    /// There is one.
    At {
        /// The address.
        address: String,
        /// Why no connection comes through, if none does.
        closed: Option<String>,
    },
}

impl Ipv6 {
    /// That of a host, not tried yet.
    pub(super) fn of(address: Option<Ipv6Addr>) -> Self {
        match address.filter(|address| is_public(*address)) {
            Some(address) => Self::At { address: address.to_string(), closed: None },
            None => Self::None,
        }
    }

    /// The same after a try.
    pub(super) fn tried(self, closed: Option<String>) -> Self {
        match self {
            Self::None => Self::None,
            Self::At { address, .. } => Self::At { address, closed },
        }
    }

    /// The address.
    pub(super) fn address(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::At { address, .. } => Some(address),
        }
    }

    /// Whether a Service may get the address. `serves` says whether a client runs.
    pub(super) fn finding(&self, serves: bool) -> Finding {
        let (holds, reason, message) = match self {
            Self::None => (
                false,
                NO_ADDRESS,
                "the host has no public IPv6 address: only a new host gets one".to_owned(),
            ),
            Self::At { .. } if !serves => {
                (false, "ClientUnavailable", "no Pod of the client is available".to_owned())
            }
            Self::At { closed: Some(why), .. } => {
                (false, "Unreachable", format!("no connection comes through at {why}"))
            }
            Self::At { address, closed: None } => {
                (true, "Connected", format!("the Service is served at {address} too"))
            }
        };
        Finding { type_: IPV6, holds, reason, message }
    }
}

/// Whether others can reach an address over the internet: it is global unicast, 2000::/3
/// (<https://www.iana.org/assignments/ipv6-address-space>), and of no special range in that
/// (<https://www.iana.org/assignments/iana-ipv6-special-registry>): protocols such as Teredo, documentation, 6to4. That
/// for benchmarking aside, in which stand-ins of clouds are.
pub(super) fn is_public(address: Ipv6Addr) -> bool {
    let [first, second, third, ..] = address.segments();
    let benchmarks = (first, second, third) == (0x2001, 2, 0);
    let protocols = first == 0x2001 && second < 0x200;
    let documentation = matches!((first, second), (0x2001, 0xdb8) | (0x3fff, ..0x1000));
    let is_special = protocols && !benchmarks || documentation || first == 0x2002;
    first & 0xe000 == 0x2000 && !is_special
}

/// Whether a Service asks for IPv6: by its families, or by a policy of two, which a cluster of IPv4 alone cannot give
/// it, and a host can.
pub(super) fn is_wanted(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| {
        let policy = spec.ip_family_policy.as_deref();
        policy.is_some_and(|policy| policy != "SingleStack")
            || spec.ip_families.iter().flatten().any(|family| family == "IPv6")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_global_unicast_addresses_are_published() {
        for (address, public) in [
            ("2a01:4f8:c0c:1::1", true),
            ("2604:a880:cad:d0::1", true),
            ("2001:200::1", true),
            ("2001:2:0:1::1", true),
            ("2001:2:1::1", false),
            ("2001::1", false),
            ("2001:20::1", false),
            ("2001:db8::1", false),
            ("2002:c000:204::1", false),
            ("3fff:fff::1", false),
            ("3fff:1000::1", true),
            ("::", false),
            ("::1", false),
            ("::ffff:68.183.4.5", false),
            ("64:ff9b::44b7:405", false),
            ("64:ff9b:1::1", false),
            ("100::1", false),
            ("5f00::1", false),
            ("fd00::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff0e::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
    }

    #[test]
    fn who_asks_for_ipv6() {
        for (spec, wanted) in [
            (json!({}), false),
            (json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}), false),
            (json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}), true),
            (json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4"]}), true),
            (json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}), true),
        ] {
            let service = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(is_wanted(&service), wanted, "{spec}");
        }
    }

    #[test]
    fn what_is_said_of_it() {
        let at = Ipv6::of(Some("2a01:4f8::1".parse().unwrap()));
        let closed = at.clone().tried(Some("[2a01:4f8::1]:80: refused".to_owned()));
        let unfit = Ipv6::of(Some("fe80::1".parse().unwrap()));
        for (ipv6, serves, expect) in [
            (&at, true, "true Connected the Service is served at 2a01:4f8::1 too"),
            (&at, false, "false ClientUnavailable no Pod of the client is available"),
            (
                &closed,
                true,
                "false Unreachable no connection comes through at [2a01:4f8::1]:80: refused",
            ),
            (
                &unfit,
                true,
                "false NoIPv6Address the host has no public IPv6 address: only a new host gets one",
            ),
        ] {
            let Finding { holds, reason, message, .. } = ipv6.finding(serves);
            assert_eq!(format!("{holds} {reason} {message}"), expect);
        }
        assert_eq!((at.address(), unfit.address()), (Some("2a01:4f8::1"), None));
    }
}
