//! Hetzner Cloud's servers (<https://docs.hetzner.cloud/reference/cloud#servers>).
//!
//! Names are unique in a project there, so a request that is sent twice makes one server.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::text;
use super::rest::Dialect;
use super::{Address, AddressRequest, Host, HostRequest, Kind, State};
use crate::names::{CLUSTER_TAG, EXIT_TAG, TUNNEL_TAG, Tag};

/// The API's dialect.
pub(super) struct Hetzner;

#[derive(Deserialize)]
pub(super) struct Server {
    id: u64,
    status: String,
    created: Option<Timestamp>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    public_net: PublicNet,
}

#[derive(Default, Deserialize)]
struct PublicNet {
    ipv4: Option<Ip>,
    ipv6: Option<Ip>,
}

/// An address of IPv4, or a network of IPv6 such as `2a01:4f8:c0c:1::/64`.
#[derive(Deserialize)]
struct Ip {
    ip: String,
}

/// The address that a server has of the network that is its own: the first.
fn first(network: &str) -> Option<Ipv6Addr> {
    let network: Ipv6Addr = network.strip_suffix("/64")?.parse().ok()?;
    Some((network.to_bits() & !u128::from(u64::MAX) | 1).into())
}

/// A floating IP (<https://docs.hetzner.cloud/reference/cloud#floating-ips>). Its name is unique. The server that has it
/// must know it; with a primary IP it need not, but that moves only between servers that are switched off.
#[derive(Deserialize)]
pub(super) struct FloatingIp {
    id: u64,
    // One of IPv6 is a network.
    ip: String,
    server: Option<u64>,
    created: Option<Timestamp>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    home_location: Location,
}

#[derive(Default, Deserialize)]
struct Location {
    #[serde(default)]
    name: String,
}

impl Dialect for Hetzner {
    const NAME: &'static str = "hetzner";
    const ENDPOINT: &'static str = "https://api.hetzner.cloud/v1";
    const HOSTS: &'static str = "servers";
    const HOST: &'static str = "server";
    const PAGE: usize = 50;
    const MAX_PAGES: usize = 400;
    // A key alone selects what has it, whatever the value.
    const OURS: &'static str = "label_selector=leasehold-tunnel&";
    const NEXT: &'static str = "/meta/pagination/next_page";
    type Item = Server;
    const ADDRESSES: &'static str = "floating_ips";
    const ADDRESS: &'static str = "floating_ip";
    const TELLS_ADDRESS: bool = true;
    type Place = FloatingIp;

    /// `%3D%3D` is the `==` of a label selector, written for a query.
    fn tagged(Tag { key, value }: &Tag) -> String {
        format!("label_selector={key}%3D%3D{value}")
    }

    fn body(request: &HostRequest) -> Value {
        let labels = labels(&request.tags);
        // Servers get one anyway, unless it is denied.
        let public_net = request.ipv6.then(|| json!({"enable_ipv4": true, "enable_ipv6": true}));
        let mut body = json!({
            "name": request.name,
            "location": request.placement.region,
            "server_type": request.placement.size,
            "image": "ubuntu-24.04",
            "labels": labels,
            "user_data": request.exit.user_data(),
            "start_after_create": true,
        });
        if let Some(public_net) = public_net {
            body["public_net"] = public_net;
        }
        body
    }

    fn address_body(request: &AddressRequest) -> Value {
        json!({
            "type": "ipv4",
            "name": request.name,
            "home_location": request.region,
            "labels": labels(&request.tags),
        })
    }

    fn assignment(host: u64) -> (&'static str, Value) {
        ("actions/assign", json!({"server": host}))
    }

    /// An error has a `code` for programs and a `message` for people
    /// (<https://docs.hetzner.cloud/reference/cloud#errors>).
    fn judge(status: StatusCode, body: &Value) -> (Kind, String) {
        let (code, message) = (text(body, "/error/code"), text(body, "/error/message"));
        let kind = match &*code {
            "unauthorized" | "token_readonly" | "forbidden" => Kind::Token,
            "resource_limit_exceeded" => Kind::Quota,
            "uniqueness_error" => Kind::Exists,
            "rate_limit_exceeded" => Kind::Overloaded,
            // The server is being changed, or the location is full at the moment.
            "locked" | "conflict" | "resource_unavailable" | "placement_error" | "maintenance" => {
                Kind::Busy
            }
            "not_found" if status == StatusCode::NOT_FOUND => Kind::Gone,
            _ => Kind::Refused,
        };
        (kind, message)
    }
}

fn labels(tags: &[Tag]) -> BTreeMap<&str, &str> {
    tags.iter().map(|tag| (tag.key, tag.value.as_str())).collect()
}

impl From<FloatingIp> for Address {
    fn from(floating: FloatingIp) -> Self {
        Self {
            id: floating.id.to_string(),
            ip: floating.ip,
            region: floating.home_location.name,
            host: floating.server.map(|id| id.to_string()),
            created: floating.created,
            tunnel: floating.labels.get(TUNNEL_TAG).cloned(),
            cluster: floating.labels.get(CLUSTER_TAG).cloned(),
        }
    }
}

impl From<Server> for Host {
    fn from(server: Server) -> Self {
        Self {
            id: server.id.to_string(),
            state: match &*server.status {
                "running" => State::Running,
                "initializing" | "starting" | "rebuilding" => State::Starting,
                "deleting" => State::Leaving,
                "off" => State::Stopped,
                // `stopping`, and `migrating` and `unknown`: a server may run meanwhile.
                _ => State::Unclear,
            },
            address: server.public_net.ipv4.map(|address| address.ip),
            ipv6: server.public_net.ipv6.and_then(|network| first(&network.ip)),
            created: server.created,
            tunnel: server.labels.get(TUNNEL_TAG).cloned(),
            cluster: server.labels.get(CLUSTER_TAG).cloned(),
            exit: server.labels.get(EXIT_TAG).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All words of the API, and one that it has not yet.
    #[test]
    fn only_a_server_that_is_off_is_stopped() {
        for (status, expect) in [
            ("running", State::Running),
            ("initializing", State::Starting),
            ("starting", State::Starting),
            ("rebuilding", State::Starting),
            ("deleting", State::Leaving),
            ("off", State::Stopped),
            ("stopping", State::Unclear),
            ("migrating", State::Unclear),
            ("unknown", State::Unclear),
            ("hibernating", State::Unclear),
        ] {
            let server: Server =
                serde_json::from_value(json!({"id": 1, "status": status})).unwrap();
            assert_eq!(Host::from(server).state, expect, "{status}");
        }
    }

    #[test]
    fn a_server_has_the_first_address_of_its_network() {
        for (network, expect) in [
            ("2a01:4f8:c0c:1::/64", Some("2a01:4f8:c0c:1::1")),
            ("2a01:4f8:c0c:1:2::/64", Some("2a01:4f8:c0c:1::1")),
            ("2a01:4f8:c0c:1::", None),
            ("203.0.113.0/64", None),
            ("/64", None),
        ] {
            assert_eq!(first(network).map(|ip| ip.to_string()).as_deref(), expect, "{network}");
        }
    }
}
