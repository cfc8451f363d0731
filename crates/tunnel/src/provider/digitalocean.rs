//! DigitalOcean's droplets (<https://docs.digitalocean.com/reference/api/reference/droplets/>).
//!
//! Names are not unique there, so tags tell hosts apart; a tag is one word, `key:value`.

use std::net::IpAddr;

use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::text;
use super::rest::Dialect;
use super::{Address, AddressRequest, Host, HostRequest, Kind, State};
use crate::names::{CLUSTER_TAG, EXIT_TAG, TUNNEL_TAG, Tag};

/// The API's dialect.
pub(super) struct DigitalOcean;

#[derive(Deserialize)]
pub(super) struct Droplet {
    id: u64,
    status: String,
    created_at: Option<Timestamp>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    networks: Networks,
}

#[derive(Default, Deserialize)]
struct Networks {
    #[serde(default)]
    v4: Vec<Network>,
    v6: Option<Vec<Network>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Network {
    ip_address: String,
    #[serde(rename = "type")]
    type_: String,
}

/// A reserved IP (<https://docs.digitalocean.com/reference/api/reference/reserved-ips/>). It has no tags, and shows the
/// whole droplet that it is assigned to.
#[derive(Deserialize)]
pub(super) struct ReservedIp {
    ip: IpAddr,
    #[serde(default)]
    region: Region,
    droplet: Option<Droplet>,
}

#[derive(Default, Deserialize)]
struct Region {
    #[serde(default)]
    slug: String,
}

impl Dialect for DigitalOcean {
    const NAME: &'static str = "digitalocean";
    const ENDPOINT: &'static str = "https://api.digitalocean.com/v2";
    const HOSTS: &'static str = "droplets";
    const HOST: &'static str = "droplet";
    const PAGE: usize = 200;
    const MAX_PAGES: usize = 100;
    const OURS: &'static str = "";
    const NEXT: &'static str = "/links/pages/next";
    type Item = Droplet;
    const ADDRESSES: &'static str = "reserved_ips";
    const ADDRESS: &'static str = "reserved_ip";
    const TELLS_ADDRESS: bool = false;
    type Place = ReservedIp;

    fn tagged(tag: &Tag) -> String {
        format!("tag_name={}", word(tag))
    }

    fn body(request: &HostRequest) -> Value {
        json!({
            "name": request.name,
            "region": request.placement.region,
            "size": request.placement.size,
            "image": "ubuntu-24-04-x64",
            "tags": request.tags.iter().map(word).collect::<Vec<_>>(),
            "user_data": request.exit.user_data(),
            "ipv6": request.ipv6,
        })
    }

    /// What is reserved for a droplet is assigned to it at once. A droplet has one at most.
    fn address_body(AddressRequest { host, region, .. }: &AddressRequest) -> Value {
        match host.as_deref().and_then(|id| id.parse::<u64>().ok()) {
            Some(droplet) => json!({"droplet_id": droplet}),
            None => json!({"region": region}),
        }
    }

    fn assignment(host: u64) -> (&'static str, Value) {
        ("actions", json!({"type": "assign", "droplet_id": host}))
    }

    /// An error has an `id` for programs and a `message` for people. Only the message says that an
    /// account is full: `creating this/these droplet(s) will exceed your droplet limit`.
    fn judge(status: StatusCode, body: &Value) -> (Kind, String) {
        let message = text(body, "/message");
        let kind = match status {
            StatusCode::NOT_FOUND => Kind::Gone,
            StatusCode::FORBIDDEN => Kind::Token,
            _ if message.contains("droplet limit") => Kind::Quota,
            _ if message.contains("reserved IP limit") => Kind::Quota,
            // Another action on it is under way.
            _ if message.contains("pending event") => Kind::Busy,
            _ => Kind::Refused,
        };
        (kind, message)
    }
}

impl From<Droplet> for Host {
    fn from(droplet: Droplet) -> Self {
        let public = |networks: Vec<Network>| {
            let public = networks.into_iter().filter(|network| network.type_ == "public");
            public.map(|network| network.ip_address)
        };
        let tagged = |key: &str| tagged(&droplet.tags, key);
        Self {
            id: droplet.id.to_string(),
            // `new`, `active`, `off` or `archive`.
            state: match &*droplet.status {
                "new" => State::Starting,
                "active" => State::Running,
                "archive" => State::Leaving,
                "off" => State::Stopped,
                _ => State::Unclear,
            },
            address: public(droplet.networks.v4).next(),
            ipv6: public(droplet.networks.v6.unwrap_or_default())
                .find_map(|address| address.parse().ok()),
            created: droplet.created_at,
            tunnel: tagged(TUNNEL_TAG),
            cluster: tagged(CLUSTER_TAG),
            exit: tagged(EXIT_TAG),
        }
    }
}

impl From<ReservedIp> for Address {
    fn from(reserved: ReservedIp) -> Self {
        let droplet = reserved.droplet;
        let tagged = |key: &str| tagged(&droplet.as_ref()?.tags, key);
        Self {
            id: reserved.ip.to_string(),
            ip: reserved.ip.to_string(),
            region: reserved.region.slug,
            host: droplet.as_ref().map(|droplet| droplet.id.to_string()),
            created: droplet.as_ref().and_then(|droplet| droplet.created_at),
            tunnel: tagged(TUNNEL_TAG),
            cluster: tagged(CLUSTER_TAG),
        }
    }
}

fn tagged(tags: &[String], key: &str) -> Option<String> {
    let mut values = tags.iter().filter_map(|tag| tag.strip_prefix(key));
    values.find_map(|value| value.strip_prefix(':')).map(str::to_owned)
}

fn word(tag: &Tag) -> String {
    format!("{}:{}", tag.key, tag.value)
}
