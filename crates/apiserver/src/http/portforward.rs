//! The portforward subresource of Pods: connections to what listens in a Pod, over a websocket with
//! the sub-protocol `v4.channel.k8s.io`.
//!
//! A real API server passes the connection on to a kubelet, and that to a container runtime; the
//! answers here are those of the three, of containerd as runtime. SPDY is not served, which kubectl
//! uses.
//!
//! In data order: the checks of the API server, those of the kubelet, the handshake of the
//! websocket, and `tunnel`, which moves the bytes.

mod tunnel;

use std::sync::Arc;

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use serde_json::Value;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::answer::{self, Body};
use super::route::Verb;
use super::{Call, access, header, read};
use crate::api::Api;
use crate::objects::meta;
use crate::resource::table_id;
use crate::status::{ApiError, Reason};
use crate::store::Key;
use crate::workloads::VIRTUAL_NODE;

/// The most ports of one request.
const MAX_PORTS: usize = 32;
/// The sub-protocol. A client that asks for none gets the same.
const PROTOCOL: &str = "v4.channel.k8s.io";

/// Answers a request on `/portforward`: with the switch to another protocol, if all is well.
pub(super) fn answer(
    api: &Arc<Api>,
    method: &Method,
    call: &Call,
    verb: Verb,
) -> Result<Response<Body>, ApiError> {
    if !matches!(verb, Verb::Get | Verb::Create) {
        return Err(ApiError::method_not_allowed());
    }
    if call.query.get("dryRun").is_some() {
        return Err(ApiError::bad_request("dryRun is not supported"));
    }
    let ports = ports(call)?;
    access::also(api, call, "create")?;
    let pod = read::find(api, call)?.to_value();
    check_node(api, call, &pod)?;
    let Some(upgrade) = call.upgrade.clone() else {
        return Err(ApiError::bad_request("Upgrade request required"));
    };
    if let Some(refused) = refused_by_kubelet(&pod, &ports) {
        return Ok(refused);
    }
    let accepted = match accept(method, &call.headers) {
        Ok(accepted) => accepted,
        Err(refused) => return Ok(*refused),
    };
    spawn(api, upgrade, &pod, &ports)?;
    Ok(accepted)
}

/// The ports of the query, by the rules of the API server.
fn ports(call: &Call) -> Result<Vec<u16>, ApiError> {
    let mut ports = Vec::new();
    for text in call.query.all("ports").into_iter().flat_map(|list| list.split(',')) {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let why = if digits { "value out of range" } else { "invalid syntax" };
        ports.push(text.parse().map_err(|_| {
            let parsing = format!("strconv.ParseUint: parsing {text:?}: {why}");
            ApiError::bad_request(format!("cannot convert to []int32: {parsing}"))
        })?);
    }
    if ports.len() > MAX_PORTS {
        // A bound of this server only.
        let why = format!("at most {MAX_PORTS} ports can be forwarded at once");
        return Err(ApiError::bad_request(why));
    }
    Ok(ports)
}

/// A Pod must have a Node, and the Node must be there.
fn check_node(api: &Api, call: &Call, pod: &Value) -> Result<(), ApiError> {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        let name = call.key().name;
        return Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")));
    }
    if node == VIRTUAL_NODE {
        return Ok(());
    }
    let key = Key { namespace: String::new(), name: node.into() };
    // The real server, too, calls the Node a Pod here.
    let missing = || ApiError::not_found(&call.resource.info, node);
    api.store.get(&table_id("", "nodes"), &key).map(drop).ok_or_else(missing)
}

/// What a kubelet answers that does not even ask its runtime.
fn refused_by_kubelet(pod: &Value, ports: &[u16]) -> Option<Response<Body>> {
    if ports.is_empty() {
        let why = "query parameter \"port\" is required".to_owned();
        return Some(plain(StatusCode::BAD_REQUEST, why));
    }
    if let Some(port) = ports.iter().find(|port| **port == 0) {
        let why = format!("port \"{port}\" must be > 0");
        return Some(plain(StatusCode::BAD_REQUEST, why));
    }
    if pod["status"]["phase"] != "Running" {
        let full_name = format!("{}_{}", meta(pod, "name"), meta(pod, "namespace"));
        let why = format!("pod not found ({full_name:?})");
        return Some(plain(StatusCode::INTERNAL_SERVER_ERROR, why));
    }
    None
}

/// The answer that switches to a websocket, or the refusal.
fn accept(method: &Method, headers: &HeaderMap) -> Result<Response<Body>, Box<Response<Body>>> {
    let refuse = |code, why: &str| Err(Box::new(plain(code, why.to_owned())));
    if !header(headers, UPGRADE).eq_ignore_ascii_case("websocket") {
        // A bound of this server only.
        return refuse(StatusCode::BAD_REQUEST, "only websockets are served");
    }
    if method != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "bad method");
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty()) else {
        return refuse(StatusCode::BAD_REQUEST, "mismatch challenge/response");
    };
    if header(headers, SEC_WEBSOCKET_VERSION) != "13" {
        let why = "missing or bad WebSocket Version";
        let mut refused = plain(StatusCode::BAD_REQUEST, why.to_owned());
        answer::set(&mut refused, SEC_WEBSOCKET_VERSION, "13");
        return Err(Box::new(refused));
    }
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    let mut offered = offered.map(str::trim).filter(|name| !name.is_empty()).peekable();
    let any = offered.peek().is_none();
    if !any && !offered.any(|name| name == PROTOCOL) {
        return refuse(StatusCode::FORBIDDEN, "");
    }
    let mut accepted = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    let accepted_headers = accepted.headers_mut();
    accepted_headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    accepted_headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answer::set(&mut accepted, SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes()));
    if !any {
        answer::set(&mut accepted, SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    }
    Ok(accepted)
}

/// Serves the ports as soon as the connection has switched.
fn spawn(api: &Arc<Api>, upgrade: OnUpgrade, pod: &Value, ports: &[u16]) -> Result<(), ApiError> {
    let busy = || {
        let why = "too many connections to Pods at once, please try again";
        ApiError::new(Reason::TooManyRequests, why)
    };
    let slot = api.forwards.slots.clone().try_acquire_owned().map_err(|_| busy())?;
    let uid = meta(pod, "uid").to_owned();
    let doors = ports
        .iter()
        .map(|port| tunnel::Door { port: *port, stream: api.processes.connect(&uid, *port) })
        .collect();
    let shutdown = api.shutdown_token();
    api.forwards.tasks.spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            served = tunnel::serve(upgrade, &uid, doors) => {
                if let Err(error) = served {
                    tracing::debug!(error = &error as &dyn std::error::Error, uid, "portforward");
                }
            }
        }
        drop(slot);
    });
    Ok(())
}

fn plain(code: StatusCode, text: String) -> Response<Body> {
    answer::typed(code, "text/plain; charset=utf-8", text)
}
