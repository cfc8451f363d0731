//! Addresses that outlive machines: DigitalOcean's reserved IPs, which have no tags and show the machine that has them,
//! and Hetzner's floating IPs. Pure.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Api, error, not_found, ok};
use crate::cloud::state::{Machines, Refusal, Reserved};

impl Api {
    /// The collection of addresses.
    pub(super) fn addresses(self) -> &'static str {
        match self {
            Self::DigitalOcean => "reserved_ips",
            Self::Hetzner => "floating_ips",
        }
    }

    fn address(self) -> &'static str {
        match self {
            Self::DigitalOcean => "reserved_ip",
            Self::Hetzner => "floating_ip",
        }
    }

    fn reserve(self, machines: &mut Machines, body: &Value, now: Timestamp) -> Response<Bytes> {
        let text = |key: &str| body[key].as_str().unwrap_or_default();
        let made = match self {
            Self::DigitalOcean => {
                let machine = body["droplet_id"].as_u64();
                machines.reserve("", text("region"), Default::default(), machine, false, now)
            }
            Self::Hetzner => {
                let tags = serde_json::from_value(body["labels"].clone()).unwrap_or_default();
                machines.reserve(text("name"), text("home_location"), tags, None, true, now)
            }
        };
        match made.cloned() {
            Ok(one) => {
                let shown = self.show_address(&one, machines, now);
                ok(StatusCode::CREATED, &json!({self.address(): shown}))
            }
            Err(Refusal::Quota) => error(
                StatusCode::UNPROCESSABLE_ENTITY,
                "resource_limit_exceeded",
                "you have reached your reserved IP limit",
            ),
            Err(_) => error(
                StatusCode::UNPROCESSABLE_ENTITY,
                "uniqueness_error",
                "there is an address of that name, or the Droplet has one",
            ),
        }
    }

    fn show_address(self, one: &Reserved, machines: &Machines, now: Timestamp) -> Value {
        let holder = machines.holder(one).and_then(|id| machines.get(id));
        match self {
            Self::DigitalOcean => json!({
                "ip": one.address(), "region": {"slug": one.region}, "locked": false,
                "droplet": holder.map(|machine| self.show(machine, machines, now)),
            }),
            Self::Hetzner => json!({
                "id": one.id, "ip": one.address(), "name": one.name, "labels": one.tags,
                "created": one.created, "home_location": {"name": one.region},
                "server": holder.map(|machine| machine.id), "type": "ipv4",
            }),
        }
    }

    /// The id of the address that a path names.
    fn named(self, machines: &Machines, name: &str) -> Option<u64> {
        let is = |one: &&Reserved| match self {
            Self::DigitalOcean => one.address().to_string() == name,
            Self::Hetzner => one.id.to_string() == name,
        };
        machines.reserved().find(is).map(|one| one.id)
    }
}

/// The answer to a request for what is below the collection.
pub(super) fn answer(
    api: Api,
    machines: &mut Machines,
    request: &Request<Bytes>,
    below: Option<&str>,
    now: Timestamp,
) -> Response<Bytes> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let Some(below) = below else {
        return match *request.method() {
            Method::POST => api.reserve(machines, &body, now),
            _ => list(api, machines, request.uri().query().unwrap_or_default(), now),
        };
    };
    let (name, action) = below.split_once('/').map_or((below, None), |(name, it)| (name, Some(it)));
    let Some(id) = api.named(machines, name) else { return not_found() };
    let machine = match (api, action) {
        (Api::DigitalOcean, Some("actions")) => body["droplet_id"].as_u64(),
        (Api::Hetzner, Some("actions/assign")) => body["server"].as_u64(),
        _ => None,
    };
    match (request.method(), machine) {
        (&Method::POST, Some(machine)) if machines.assign(id, machine) => {
            ok(StatusCode::CREATED, &json!({"action": {"status": "in-progress"}}))
        }
        (&Method::DELETE, None) if action.is_none() && machines.release(id, now) => api.deleted(),
        _ => not_found(),
    }
}

fn list(api: Api, machines: &Machines, query: &str, now: Timestamp) -> Response<Bytes> {
    let number = |key: &str, default: usize| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(found, _)| *found == key);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(default)
    };
    let (page, size) = (number("page", 1), number("per_page", 20));
    let labelled = query.contains("label_selector=leasehold-tunnel&");
    let wanted = |one: &&Reserved| !labelled || one.tags.contains_key("leasehold-tunnel");
    let found = machines.list_reserved(now).into_iter().filter(wanted);
    let shown = found.skip((page - 1) * size).take(size);
    let shown: Vec<_> = shown.map(|one| api.show_address(one, machines, now)).collect();
    ok(StatusCode::OK, &json!({api.addresses(): shown}))
}
