//! Hetzner Cloud's servers (<https://docs.hetzner.cloud/reference/cloud#servers>).
//!
//! Names are unique in a project there, so a request that is sent twice makes one server.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::text;
use super::rest::Dialect;
use super::{Address, AddressRequest, Host, HostRequest, Kind, State};
use crate::names::{CLUSTER_TAG, EXIT_TAG, TUNNEL_TAG, Tag};

/// The API's own address.
pub(super) const ENDPOINT: &str = "https://api.hetzner.cloud/v1";

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
    ipv4: Option<Ipv4>,
}

#[derive(Deserialize)]
struct Ipv4 {
    ip: String,
}

/// A floating IP (<https://docs.hetzner.cloud/reference/cloud#floating-ips>). Its name is unique. The server that has it
/// must know it; with a primary IP it need not, but that moves only between servers that are switched off.
#[derive(Deserialize)]
pub(super) struct FloatingIp {
    id: u64,
    ip: IpAddr,
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
    const HOSTS: &'static str = "servers";
    const HOST: &'static str = "server";
    const PAGE: usize = 50;
    const MAX_PAGES: usize = 400;
    // A key alone selects what has it, whatever the value.
    const OURS: &'static str = "label_selector=leasehold-tunnel&";
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
        json!({
            "name": request.name,
            "location": request.placement.region,
            "server_type": request.placement.size,
            "image": "ubuntu-24.04",
            "labels": labels,
            "user_data": request.exit.user_data(),
            "start_after_create": true,
        })
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
            ip: floating.ip.to_string(),
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
                "initializing" | "starting" | "rebuilding" | "migrating" => State::Starting,
                "deleting" => State::Leaving,
                _ => State::Stopped,
            },
            address: server.public_net.ipv4.map(|address| address.ip),
            created: server.created,
            tunnel: server.labels.get(TUNNEL_TAG).cloned(),
            exit: server.labels.get(EXIT_TAG).cloned(),
        }
    }
}
