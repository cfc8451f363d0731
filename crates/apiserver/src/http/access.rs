//! Who makes a request, and whether that user may: the impersonated user if the headers name one,
//! and what the request does as authorization sees it.

use std::sync::Arc;

use http::Method;
use http::request::Parts;

use super::Call;
use super::options::Query;
use super::route::{Place, Route, Verb};
use crate::access::attributes::Attributes;
use crate::access::impersonation;
use crate::access::user::User;
use crate::api::Api;
use crate::status::ApiError;

/// The user of a request, among its extensions. A request without one is the administrator's.
#[derive(Debug, Clone)]
pub(crate) struct Identity(pub(crate) Arc<User>);

/// The user of a request, who may do what it asks; `None` is the administrator.
///
/// # Errors
/// 403 if the user may not, 400 for an incomplete impersonation.
pub(super) fn user(
    api: &Api,
    parts: &Parts,
    route: &Route,
    query: &Query,
) -> Result<Option<Arc<User>>, ApiError> {
    let sender = parts.extensions.get::<Identity>().map(|identity| identity.0.clone());
    let user = match impersonation::wanted(&parts.headers)? {
        None => sender,
        Some(wanted) => Some(Arc::new(act_as(api, sender.as_deref(), wanted)?)),
    };
    if let Some(user) = user.as_deref().filter(|_| api.has_rights()) {
        check(api, user, &attributes(parts, route, query))?;
    }
    Ok(user)
}

/// The impersonated user, if the sender may act as it; the administrator may.
fn act_as(api: &Api, sender: Option<&User>, wanted: User) -> Result<User, ApiError> {
    if let Some(sender) = sender {
        for demand in impersonation::demands(&wanted) {
            check(api, sender, &demand)?;
        }
    }
    Ok(impersonation::completed(wanted))
}

/// Asks for another verb than the request's own, as the real server does before it connects to a
/// Pod (`AuthorizePodWebsocketUpgradeCreatePermission`).
///
/// # Errors
/// 403 if the user may not.
pub(super) fn also(api: &Api, call: &Call, verb: &str) -> Result<(), ApiError> {
    let Some(user) = call.user.as_deref().filter(|_| api.has_rights()) else { return Ok(()) };
    let key = call.key();
    let asked = Attributes {
        verb: verb.into(),
        namespace: key.namespace,
        group: call.place.group.clone(),
        resource: call.place.plural.clone(),
        subresource: call.place.subresource.clone().unwrap_or_default(),
        name: key.name.clone(),
        path: None,
    };
    let decision = api.authorize(user, &asked);
    if decision.allowed {
        return Ok(());
    }
    Err(ApiError::forbidden(&call.resource.info, &key.name, &decision.reason))
}

fn check(api: &Api, user: &User, attributes: &Attributes) -> Result<(), ApiError> {
    let decision = api.authorize(user, attributes);
    if decision.allowed { Ok(()) } else { Err(attributes.forbidden(user, &decision.reason)) }
}

fn attributes(parts: &Parts, route: &Route, query: &Query) -> Attributes {
    let Route::Resource(place) = route else {
        return Attributes {
            verb: parts.method.as_str().to_lowercase(),
            path: Some(parts.uri.path().to_owned()),
            ..Attributes::default()
        };
    };
    let verb = verb(&parts.method, place, query);
    let named = place.name.clone().or_else(|| selected_name(verb, query));
    // A Namespace counts as being in itself.
    let namespace = match place.plural.as_str() {
        "namespaces" => place.name.clone(),
        _ => place.namespace.clone(),
    };
    Attributes {
        verb: verb.into(),
        namespace: namespace.unwrap_or_default(),
        group: place.group.clone(),
        resource: place.plural.clone(),
        subresource: place.subresource.clone().unwrap_or_default(),
        name: named.unwrap_or_default(),
        path: None,
    }
}

/// The verb, for methods too that the place does not allow.
fn verb(method: &Method, place: &Place, query: &Query) -> &'static str {
    match (Verb::of(method, place, query.is_watch()), method) {
        (Some(verb), _) => verb.as_str(),
        (None, &Method::POST) => "create",
        (None, &Method::PUT) => "update",
        (None, &Method::PATCH) => "patch",
        (None, _) => "",
    }
}

/// The one object that a list or watch selects by its name.
fn selected_name(verb: &str, query: &Query) -> Option<String> {
    let terms = query.get("fieldSelector").filter(|_| matches!(verb, "list" | "watch"))?;
    let name = |term: &str| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value).to_owned())
    };
    terms.split(',').find_map(name).filter(|name| !name.is_empty() && !name.contains(['/', '%']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, target: &str) -> String {
        let (parts, ()) =
            http::Request::builder().method(method).uri(target).body(()).unwrap().into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let found = attributes(&parts, &Route::parse(parts.uri.path()), &query);
        match &found.path {
            Some(path) => format!("{} {path}", found.verb),
            None => format!(
                "{} {}.{} {}/{}",
                found.verb,
                found.full_resource(),
                found.group,
                found.namespace,
                found.name
            ),
        }
    }

    #[test]
    fn requests_ask_for_what_they_do() {
        let cases = [
            (Method::GET, "/api/v1/pods", "list pods. /"),
            (Method::GET, "/api/v1/namespaces/a/pods/b/log", "get pods/log. a/b"),
            (Method::GET, "/apis/apps/v1/watch/deployments", "watch deployments.apps /"),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection deployments.apps a/",
            ),
            (
                Method::POST,
                "/api/v1/namespaces/a/serviceaccounts/b/token",
                "create serviceaccounts/token. a/b",
            ),
            (Method::GET, "/api/v1/namespaces/a", "get namespaces. a/a"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update namespaces/finalize. a/a"),
            (Method::PUT, "/api/v1/namespaces/a/pods", "update pods. a/"),
            (Method::OPTIONS, "/api/v1/pods", " pods. /"),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?watch=1&fieldSelector=x%3Dy,metadata.name%3Dq",
                "watch pods. a/q",
            ),
            (Method::GET, "/version", "get /version"),
            (Method::POST, "/apis/apps/v1", "post /apis/apps/v1"),
        ];
        for (method, target, expected) in cases {
            assert_eq!(asked(method, target), expected, "{target}");
        }
    }
}
