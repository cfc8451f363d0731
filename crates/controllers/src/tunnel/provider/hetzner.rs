//! Hetzner Cloud's servers (<https://docs.hetzner.cloud/reference/cloud#servers>).
//!
//! Names are unique in a project there, so a create that is made twice makes one server.

use std::collections::BTreeMap;
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
pub(super) const ENDPOINT: &str = "https://api.hetzner.cloud/v1";
const NAME: &str = "hetzner";
/// Servers on a page: the most there are.
const PAGE: usize = 50;
/// Pages of one list, at most: a list that does not end is an error.
const MAX_PAGES: usize = 400;

/// Hosts of one project.
pub(super) struct Hetzner(Arc<Api>);

#[derive(Deserialize)]
struct One {
    server: Server,
}

#[derive(Deserialize)]
struct Many {
    servers: Vec<Server>,
}

#[derive(Deserialize)]
struct Server {
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

impl Hetzner {
    pub(super) fn new(api: Api) -> Self {
        Self(Arc::new(api))
    }
}

impl Provider for Hetzner {
    fn list_by_tag(&self, tag: Tag) -> Call<Vec<Host>> {
        let api = Arc::clone(&self.0);
        async move {
            let mut hosts = Vec::new();
            for page in 1..=MAX_PAGES {
                // `%3D` is the `==` of a label selector's equality, written for a query.
                let Tag { key, value } = &tag;
                let path = format!(
                    "/servers?label_selector={key}%3D%3D{value}&per_page={PAGE}&page={page}"
                );
                let body = api.send(NAME, judge, Method::GET, &path, None).await?;
                let Many { servers } = read(NAME, &body)?;
                let last = servers.len() < PAGE;
                hosts.extend(servers.into_iter().map(host));
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
            let labels: BTreeMap<_, _> =
                wanted.tags.iter().map(|tag| (tag.key, tag.value.as_str())).collect();
            let body = json!({
                "name": wanted.name,
                "location": wanted.placement.region,
                "server_type": wanted.placement.size,
                "image": "ubuntu-24.04",
                "labels": labels,
                "user_data": wanted.exit.user_data(),
                "start_after_create": true,
            });
            let body = api.send(NAME, judge, Method::POST, "/servers", Some(body)).await?;
            Ok(host(read::<One>(NAME, &body)?.server))
        }
        .boxed()
    }

    fn get(&self, id: String) -> Call<Option<Host>> {
        let api = Arc::clone(&self.0);
        async move {
            let path = format!("/servers/{id}");
            match api.send(NAME, judge, Method::GET, &path, None).await {
                Ok(body) => Ok(Some(host(read::<One>(NAME, &body)?.server))),
                Err(failure) if is_gone(&failure) => Ok(None),
                Err(failure) => Err(failure),
            }
        }
        .boxed()
    }

    fn delete(&self, id: String) -> Call<()> {
        let api = Arc::clone(&self.0);
        async move {
            let path = format!("/servers/{id}");
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

fn host(server: Server) -> Host {
    Host {
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
        "not_found" if status == StatusCode::NOT_FOUND => return (Kind::Refused, GONE.to_owned()),
        _ => Kind::Refused,
    };
    (kind, message)
}
