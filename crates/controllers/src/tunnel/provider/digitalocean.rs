//! DigitalOcean's droplets (<https://docs.digitalocean.com/reference/api/reference/droplets/>).
//!
//! Names are not unique there, so tags tell hosts apart; a tag is one word, `key:value`.

use std::sync::Arc;

use futures::FutureExt;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::{Api, read, text};
use super::{Call, Failure, Host, Kind, Provider, State, Wanted};
use crate::tunnel::names::{EXIT_TAG, TUNNEL_TAG, Tag};

/// The API's own address.
pub(super) const ENDPOINT: &str = "https://api.digitalocean.com/v2";
const NAME: &str = "digitalocean";
/// Hosts on a page: the most there are.
const PAGE: usize = 200;
/// Pages of one list, at most: a list that does not end is an error.
const MAX_PAGES: usize = 100;

/// Hosts of one account.
pub(super) struct DigitalOcean(Arc<Api>);

#[derive(Deserialize)]
struct One {
    droplet: Droplet,
}

#[derive(Deserialize)]
struct Many {
    droplets: Vec<Droplet>,
}

#[derive(Deserialize)]
struct Droplet {
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

impl DigitalOcean {
    pub(super) fn new(api: Api) -> Self {
        Self(Arc::new(api))
    }
}

impl Provider for DigitalOcean {
    fn list_by_tag(&self, tag: Tag) -> Call<Vec<Host>> {
        let api = Arc::clone(&self.0);
        async move {
            let tag = word(&tag);
            let mut hosts = Vec::new();
            for page in 1..=MAX_PAGES {
                let path = format!("/droplets?tag_name={tag}&per_page={PAGE}&page={page}");
                let body = api.send(NAME, judge, Method::GET, &path, None).await?;
                let Many { droplets } = read(NAME, &body)?;
                let last = droplets.len() < PAGE;
                hosts.extend(droplets.into_iter().map(host));
                if last {
                    return Ok(hosts);
                }
            }
            Err(Failure::new(NAME, Kind::Refused, format!("more than {MAX_PAGES} pages of hosts")))
        }
        .boxed()
    }

    fn create(&self, wanted: Wanted) -> Call<Host> {
        let api = Arc::clone(&self.0);
        async move {
            let body = json!({
                "name": wanted.name,
                "region": wanted.placement.region,
                "size": wanted.placement.size,
                "image": "ubuntu-24-04-x64",
                "tags": wanted.tags.iter().map(word).collect::<Vec<_>>(),
                "user_data": wanted.exit.user_data(),
            });
            let body = api.send(NAME, judge, Method::POST, "/droplets", Some(body)).await?;
            Ok(host(read::<One>(NAME, &body)?.droplet))
        }
        .boxed()
    }

    fn get(&self, id: String) -> Call<Option<Host>> {
        let api = Arc::clone(&self.0);
        async move {
            let path = format!("/droplets/{id}");
            match api.send(NAME, judge, Method::GET, &path, None).await {
                Ok(body) => Ok(Some(host(read::<One>(NAME, &body)?.droplet))),
                Err(failure) if failure.kind == Kind::Refused && is_gone(&failure) => Ok(None),
                Err(failure) => Err(failure),
            }
        }
        .boxed()
    }

    fn delete(&self, id: String) -> Call<()> {
        let api = Arc::clone(&self.0);
        async move {
            let path = format!("/droplets/{id}");
            match api.send(NAME, judge, Method::DELETE, &path, None).await {
                Err(failure) if !is_gone(&failure) => Err(failure),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

const GONE: &str = "there is no such host";

fn is_gone(failure: &Failure) -> bool {
    failure.message == GONE
}

fn word(tag: &Tag) -> String {
    format!("{}:{}", tag.key, tag.value)
}

fn host(droplet: Droplet) -> Host {
    let mut public = droplet.networks.v4.into_iter().filter(|network| network.type_ == "public");
    let tagged = |key: &str| {
        let mut values = droplet.tags.iter().filter_map(|tag| tag.strip_prefix(key));
        values.find_map(|value| value.strip_prefix(':')).map(str::to_owned)
    };
    Host {
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

/// An error has an `id` for programs and a `message` for people. That an account is full is said in
/// the message alone: `creating this/these droplet(s) will exceed your droplet limit`.
fn judge(status: StatusCode, body: &Value) -> (Kind, String) {
    let message = text(body, "/message");
    match status {
        StatusCode::NOT_FOUND => (Kind::Refused, GONE.to_owned()),
        StatusCode::FORBIDDEN => (Kind::Token, message),
        _ if message.contains("droplet limit") => (Kind::Quota, message),
        _ => (Kind::Refused, message),
    }
}
