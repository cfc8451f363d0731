//! DigitalOcean's droplets (<https://docs.digitalocean.com/reference/api/reference/droplets/>).
//!
//! Names are not unique there, so tags tell hosts apart; a tag is one word, `key:value`.

use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::text;
use super::rest::Dialect;
use super::{Host, HostRequest, Kind, State};
use crate::names::{EXIT_TAG, TUNNEL_TAG, Tag};

/// The API's own address.
pub(super) const ENDPOINT: &str = "https://api.digitalocean.com/v2";

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
}

#[derive(Deserialize)]
struct Network {
    ip_address: String,
    #[serde(rename = "type")]
    type_: String,
}

impl Dialect for DigitalOcean {
    const NAME: &'static str = "digitalocean";
    const HOSTS: &'static str = "droplets";
    const HOST: &'static str = "droplet";
    const PAGE: usize = 200;
    const MAX_PAGES: usize = 100;
    const OURS: &'static str = "";
    type Item = Droplet;

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
        })
    }

    /// An error has an `id` for programs and a `message` for people. Only the message says that an
    /// account is full: `creating this/these droplet(s) will exceed your droplet limit`.
    fn judge(status: StatusCode, body: &Value) -> (Kind, String) {
        let message = text(body, "/message");
        let kind = match status {
            StatusCode::NOT_FOUND => Kind::Gone,
            StatusCode::FORBIDDEN => Kind::Token,
            _ if message.contains("droplet limit") => Kind::Quota,
            _ => Kind::Refused,
        };
        (kind, message)
    }
}

impl From<Droplet> for Host {
    fn from(droplet: Droplet) -> Self {
        let mut public =
            droplet.networks.v4.into_iter().filter(|network| network.type_ == "public");
        let tagged = |key: &str| {
            let mut values = droplet.tags.iter().filter_map(|tag| tag.strip_prefix(key));
            values.find_map(|value| value.strip_prefix(':')).map(str::to_owned)
        };
        Self {
            id: droplet.id.to_string(),
            // `new`, `active`, `off` or `archive`.
            state: match &*droplet.status {
                "new" => State::Starting,
                "active" => State::Running,
                "archive" => State::Leaving,
                _ => State::Stopped,
            },
            address: public.next().map(|network| network.ip_address),
            created: droplet.created_at,
            tunnel: tagged(TUNNEL_TAG),
            exit: tagged(EXIT_TAG),
        }
    }
}

fn word(tag: &Tag) -> String {
    format!("{}:{}", tag.key, tag.value)
}
