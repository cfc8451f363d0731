//! The two APIs, on the same machines: DigitalOcean's below `/v2`, Hetzner's below `/v1`. Pure.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use bytes::Bytes;
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::state::{Machine, Machines, Refusal};

mod addresses;

/// A refusal that does not depend on the request.
pub(super) fn refusal(status: u16) -> Response<Bytes> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = error(status, "trouble", "there is trouble");
    if status == StatusCode::TOO_MANY_REQUESTS {
        answer.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static("2"));
    }
    answer
}

/// The answer to a request.
pub(super) fn answer(
    machines: &mut Machines,
    request: &Request<Bytes>,
    now: Timestamp,
) -> Response<Bytes> {
    let shown = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if shown != Some(&*format!("Bearer {}", machines.token)) {
        return error(StatusCode::UNAUTHORIZED, "unauthorized", "Unable to authenticate you");
    }
    let path = request.uri().path().trim_matches('/');
    let (api, rest) = match path.split_once('/') {
        Some(("v2", rest)) => (Api::DigitalOcean, rest),
        Some(("v1", rest)) => (Api::Hetzner, rest),
        _ => return not_found(),
    };
    let (collection, id) = rest.split_once('/').map_or((rest, None), |(c, id)| (c, Some(id)));
    if collection == api.addresses() {
        return addresses::answer(api, machines, request, id, now);
    }
    if collection != api.collection() {
        return not_found();
    }
    let id = id.map(|id| id.parse::<u64>().unwrap_or_default());
    match (request.method(), id) {
        (&Method::POST, None) => api.create(machines, request.body(), now),
        (&Method::GET, None) => api.list(machines, request.uri().query().unwrap_or_default(), now),
        (&Method::GET, Some(id)) => match machines.get(id) {
            Some(machine) => {
                ok(StatusCode::OK, &json!({api.item(): api.show(machine, machines, now)}))
            }
            None => not_found(),
        },
        (&Method::DELETE, Some(id)) if machines.delete(id, now) => api.deleted(),
        (&Method::DELETE, Some(_)) => not_found(),
        _ => error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "no such method"),
    }
}

#[derive(Clone, Copy)]
enum Api {
    DigitalOcean,
    Hetzner,
}

impl Api {
    fn collection(self) -> &'static str {
        match self {
            Self::DigitalOcean => "droplets",
            Self::Hetzner => "servers",
        }
    }

    fn item(self) -> &'static str {
        match self {
            Self::DigitalOcean => "droplet",
            Self::Hetzner => "server",
        }
    }

    fn create(self, machines: &mut Machines, body: &[u8], now: Timestamp) -> Response<Bytes> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        let (tags, region) = match self {
            Self::DigitalOcean => (words(&body["tags"]), text("region")),
            Self::Hetzner => {
                let labels = serde_json::from_value(body["labels"].clone());
                (labels.unwrap_or_default(), text("location"))
            }
        };
        let unique = matches!(self, Self::Hetzner);
        let ipv6 = match self {
            Self::DigitalOcean => body["ipv6"] == true,
            // Whoever says nothing gets one.
            Self::Hetzner => body["public_net"]["enable_ipv6"] != false,
        };
        let made = machines.create(&text("name"), &region, tags, unique, now);
        let made = made.map(|machine| {
            machine.ipv6 = ipv6;
            machine.clone()
        });
        match made {
            Ok(machine) => {
                let status = match self {
                    Self::DigitalOcean => StatusCode::ACCEPTED,
                    Self::Hetzner => StatusCode::CREATED,
                };
                ok(status, &json!({self.item(): self.show(&machine, machines, now)}))
            }
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn refuse(self, refusal: Refusal) -> Response<Bytes> {
        let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
        match (self, refusal) {
            (Self::DigitalOcean, Refusal::Quota) => error(
                unprocessable,
                "unprocessable_entity",
                "creating this/these droplet(s) will exceed your droplet limit",
            ),
            (Self::Hetzner, Refusal::Quota) => {
                error(StatusCode::FORBIDDEN, "resource_limit_exceeded", "server limit exceeded")
            }
            (_, Refusal::Taken) => {
                error(StatusCode::CONFLICT, "uniqueness_error", "server name is already used")
            }
            (_, Refusal::Region) => {
                error(unprocessable, "invalid_input", "there is no such region")
            }
        }
    }

    fn list(self, machines: &Machines, query: &str, now: Timestamp) -> Response<Bytes> {
        let parameters: BTreeMap<_, _> =
            query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let number = |key: &str, default: usize| {
            parameters.get(key).and_then(|value| value.parse().ok()).unwrap_or(default)
        };
        let (page, size) = (number("page", 1), number("per_page", 20));
        let wanted = match self {
            Self::DigitalOcean => parameters.get("tag_name").map(|tag| tag.split_once(':')),
            Self::Hetzner => parameters.get("label_selector").map(|tag| tag.split_once("%3D%3D")),
        };
        let found = match (self, wanted) {
            (_, Some(Some((key, value)))) => {
                machines.list(now, |tags| tags.get(key).is_some_and(|tag| tag == value))
            }
            (Self::DigitalOcean, None) => machines.list(now, |_| true),
            (Self::Hetzner, _) => {
                let key = parameters.get("label_selector").copied();
                machines.list(now, |tags| key.is_none_or(|key| tags.contains_key(key)))
            }
            _ => return refusal(422),
        };
        let shown = found.into_iter().skip((page - 1) * size).take(size);
        let shown: Vec<_> = shown.map(|machine| self.show(machine, machines, now)).collect();
        ok(StatusCode::OK, &json!({self.collection(): shown}))
    }

    fn show(self, machine: &Machine, machines: &Machines, now: Timestamp) -> Value {
        let runs = machine.runs(machines.boot, now);
        let address = runs.then(|| machine.address().to_string());
        let ipv6 = machine.ipv6().filter(|_| runs);
        match self {
            Self::DigitalOcean => {
                let status = if machine.off {
                    "off"
                } else if runs {
                    "active"
                } else {
                    "new"
                };
                let tags: Vec<_> =
                    machine.tags.iter().map(|(key, value)| format!("{key}:{value}")).collect();
                let public = address.map(|ip| json!({"ip_address": ip, "type": "public"}));
                let private = json!({"ip_address": "10.0.0.2", "type": "private"});
                let networks: Vec<_> = std::iter::once(private).chain(public).collect();
                let v6: Vec<_> = ipv6
                    .into_iter()
                    .map(|ip| json!({"ip_address": ip, "netmask": 64, "type": "public"}))
                    .collect();
                json!({
                    "id": machine.id, "name": machine.name, "status": status, "tags": tags,
                    "created_at": machine.created, "networks": {"v4": networks, "v6": v6},
                    "region": {"slug": machine.region},
                })
            }
            Self::Hetzner => {
                let status = if machine.off {
                    "off"
                } else if runs {
                    "running"
                } else {
                    "initializing"
                };
                // The network, of which the machine has the first address.
                let ipv6 = ipv6.map(|ip| format!("{}/64", Ipv6Addr::from(ip.to_bits() & !1)));
                json!({
                    "id": machine.id, "name": machine.name, "status": status,
                    "labels": machine.tags, "created": machine.created,
                    "public_net": {
                        "ipv4": address.map(|ip| json!({"ip": ip})),
                        "ipv6": ipv6.map(|ip| json!({"ip": ip})),
                    },
                })
            }
        }
    }

    fn deleted(self) -> Response<Bytes> {
        match self {
            Self::DigitalOcean => answered(StatusCode::NO_CONTENT, Bytes::new()),
            Self::Hetzner => ok(StatusCode::OK, &json!({"action": {"command": "delete_server"}})),
        }
    }
}

/// Tags of the form `key:value`.
fn words(tags: &Value) -> BTreeMap<String, String> {
    let words = tags.as_array().into_iter().flatten().filter_map(Value::as_str);
    let pairs = words.filter_map(|word| word.split_once(':'));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn not_found() -> Response<Bytes> {
    error(StatusCode::NOT_FOUND, "not_found", "The resource you requested could not be found.")
}

/// An error in the form of both APIs: each client reads its own.
fn error(status: StatusCode, code: &str, message: &str) -> Response<Bytes> {
    ok(
        status,
        &json!({
            "id": code, "message": message, "error": {"code": code, "message": message},
        }),
    )
}

fn ok(status: StatusCode, body: &Value) -> Response<Bytes> {
    answered(status, body.to_string().into())
}

fn answered(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
}
