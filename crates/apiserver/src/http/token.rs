//! The token subresource of ServiceAccounts: issues a token (`TokenRequest`).

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::options::WriteOptions;
use super::route::Verb;
use super::{Call, admit, question, read};
use crate::access::token::{BoundObjects, Claims, ISSUER, MAX_AUDIENCE, MAX_AUDIENCES, Reference};
use crate::access::user::service_account_name;
use crate::api::Api;
use crate::clock;
use crate::kinds::{self, KindInfo};
use crate::objects::{meta, set_meta};
use crate::resource::Resource;
use crate::status::{ApiError, FieldError, FieldErrorKind};
use crate::store::Key;

/// Seconds that a token lasts by default.
const DEFAULT_SECONDS: i64 = 3600;
/// Least seconds that a token may last.
const MIN_SECONDS: i64 = 600;
/// Most seconds that a token may last.
const MAX_SECONDS: i64 = 1 << 32;
/// The time that kubelets ask for. A real server gives them a year, in case a Pod does not read its
/// token again.
const WARN_ONLY_SECONDS: i64 = 3607;
const YEAR_SECONDS: i64 = 365 * 24 * 3600;

/// Answers a request on `/token`, of which only creates are allowed.
pub(super) fn answer(api: &Api, call: &Call, verb: Verb) -> Result<Response<Body>, ApiError> {
    if verb != Verb::Create {
        return Err(ApiError::method_not_allowed());
    }
    read::encoder(call)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let kind = Resource::builtin(kinds::token_request());
    let (mut request, warnings) = question::read(call, &kind, &options)?;
    if request["spec"]["expirationSeconds"].is_null() {
        request["spec"]["expirationSeconds"] = json!(DEFAULT_SECONDS);
    }
    question::track(api, call, &kind, options, &mut request);
    admit::namespace(api, &call.resource.info, &call.key())?;
    check_name(&kind.info, &request, &call.key().name)?;
    let account = read::find(api, call)?.to_value();
    complete(&kind.info, &mut request, &account)?;
    let errors = validate(&request["spec"]);
    if !errors.is_empty() {
        return Err(ApiError::invalid(&kind.info, "", &errors));
    }
    issue(api, &account, &mut request)?;
    let mut response = answer::value(StatusCode::CREATED, &request);
    answer::warn(&mut response, &warnings);
    Ok(response)
}

fn check_name(kind: &KindInfo, request: &Value, account: &str) -> Result<(), ApiError> {
    let name = meta(request, "name");
    if name.is_empty() || name == account {
        return Ok(());
    }
    let rule = "must match the service account name if specified";
    let error = FieldError::invalid("metadata.name", name, rule);
    Err(ApiError::invalid(kind, account, &[error]))
}

/// Fills in what follows from the ServiceAccount.
fn complete(kind: &KindInfo, request: &mut Value, account: &Value) -> Result<(), ApiError> {
    let (wanted, uid) = (meta(request, "uid"), meta(account, "uid"));
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the token request ({wanted}) does not match the UID of the service account ({uid})"
        );
        // The real server puts the kind where the resource belongs, and so do we.
        let kind = KindInfo { plural: kind.kind.clone(), ..kind.clone() };
        return Err(ApiError::conflict_because(&kind, meta(account, "name"), &why));
    }
    for field in ["name", "namespace", "uid"] {
        set_meta(request, field, Some(account["metadata"][field].clone()));
    }
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!([ISSUER]);
    }
    Ok(())
}

/// What is wrong with the wishes for a token.
fn validate(spec: &Value) -> Vec<FieldError> {
    if spec["attestations"].as_object().is_some_and(|a| !a.is_empty()) {
        let rule = "attestations may only be specified with a webhook bound object reference";
        return vec![FieldError::invalid("spec.attestations", spec["attestations"].clone(), rule)];
    }
    let mut errors = Vec::new();
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or_default();
    let mut refuse =
        |rule| errors.push(FieldError::invalid("spec.expirationSeconds", seconds, rule));
    if seconds < MIN_SECONDS {
        refuse("may not specify a duration less than 10 minutes");
    }
    if seconds > MAX_SECONDS {
        refuse("may not specify a duration larger than 2^32 seconds");
    }
    // Bounds of this server only.
    let audiences = audiences(spec);
    if audiences.len() > MAX_AUDIENCES || audiences.iter().any(|a| a.len() > MAX_AUDIENCE) {
        let rule =
            format!("must have at most {MAX_AUDIENCES} items of at most {MAX_AUDIENCE} bytes");
        let (kind, found) = (FieldErrorKind::TooMany, audiences.len());
        errors.push(FieldError::new(kind, "spec.audiences", found, rule));
    }
    errors
}

fn audiences(spec: &Value) -> Vec<String> {
    let all = spec["audiences"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Issues the token, and writes it into the request.
fn issue(api: &Api, account: &Value, request: &mut Value) -> Result<(), ApiError> {
    let now = api.now();
    let spec = &mut request["spec"];
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    if spec["boundObjectRef"].is_null() {
        spec["boundObjectRef"] = Value::Null;
    }
    let mut bound = bound(api, account, &spec["boundObjectRef"])?;
    let (aud, start) = (audiences(spec), now.as_second());
    let mut lasts = seconds;
    if bound.pod.is_some() && seconds == WARN_ONLY_SECONDS && aud.iter().all(|a| a == ISSUER) {
        bound.warnafter = Some(start + seconds);
        lasts = YEAR_SECONDS;
    }
    let claims = Claims {
        aud,
        exp: start + lasts,
        iat: start,
        iss: ISSUER.into(),
        jti: api.uid(),
        sub: service_account_name(&bound.namespace, &bound.serviceaccount.name),
        bound,
        nbf: start,
    };
    let expires = now.checked_add(jiff::SignedDuration::from_secs(seconds));
    let expires = expires.map_err(|_| ApiError::internal("the time of expiration is too late"))?;
    set_meta(request, "creationTimestamp", Some(json!(clock::seconds(now))));
    request["status"] = json!({
        "token": api.authenticator.signer.sign(&claims),
        "expirationTimestamp": clock::seconds(expires),
    });
    Ok(())
}

/// The objects that a token is bound to: the ServiceAccount, and the one that `wanted` names.
fn bound(api: &Api, account: &Value, wanted: &Value) -> Result<BoundObjects, ApiError> {
    let namespace = meta(account, "namespace");
    let mut bound = BoundObjects {
        namespace: namespace.into(),
        serviceaccount: reference(account),
        ..BoundObjects::default()
    };
    if wanted.is_null() {
        return Ok(bound);
    }
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let object = match (api_version.contains('/'), kind) {
        (false, "Pod") => {
            let pod = find(api, "pods", namespace, name)?;
            check_account(&pod, meta(account, "name"))?;
            bound.node = node_of(api, &pod);
            bound.pod.insert(reference(&pod)).clone()
        }
        (false, "Secret") => {
            bound.secret.insert(reference(&find(api, "secrets", namespace, name)?)).clone()
        }
        (false, "Node") => bound.node.insert(reference(&find(api, "nodes", "", name)?)).clone(),
        _ => {
            let version = match api_version {
                "" => "/".to_owned(),
                version if version.contains('/') => version.to_owned(),
                version => format!("/{version}"),
            };
            let why = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(ApiError::bad_request(why));
        }
    };
    check_uid(kind, &object, text("uid"))?;
    Ok(bound)
}

fn reference(object: &Value) -> Reference {
    Reference { name: meta(object, "name").into(), uid: meta(object, "uid").into() }
}

fn find(api: &Api, plural: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let catalog = api.catalog();
    let resource = catalog.find("", "v1", plural).ok_or_else(ApiError::no_such_resource)?;
    let key = Key { namespace: namespace.into(), name: name.into() };
    let object = api.store.get(&resource.table, &key);
    Ok(object.ok_or_else(|| ApiError::not_found(&resource.info, name))?.to_value())
}

/// The node that a Pod runs on; without uid if it is absent.
fn node_of(api: &Api, pod: &Value) -> Option<Reference> {
    let name = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())?;
    let node = find(api, "nodes", "", name).ok();
    let absent = || Reference { name: name.into(), uid: String::new() };
    Some(node.as_ref().map_or_else(absent, reference))
}

fn check_account(pod: &Value, account: &str) -> Result<(), ApiError> {
    if pod["spec"]["serviceAccountName"] == account {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
    )))
}

fn check_uid(kind: &str, object: &Reference, wanted: &str) -> Result<(), ApiError> {
    if wanted.is_empty() || wanted == object.uid {
        return Ok(());
    }
    let why = format!(
        "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
    );
    // The real server puts the kind where the resource belongs, and so do we.
    let kind = KindInfo { group: String::new(), plural: kind.into(), ..kinds::token_request() };
    Err(ApiError::conflict_because(&kind, &object.name, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_have_bounds() {
        let check = |spec: Value| {
            let errors = validate(&spec);
            errors.iter().map(|e| e.path.clone()).collect::<Vec<_>>()
        };
        for seconds in [MIN_SECONDS, MAX_SECONDS] {
            assert!(check(json!({"expirationSeconds": seconds})).is_empty());
        }
        for seconds in [-1, MIN_SECONDS - 1, MAX_SECONDS + 1] {
            assert_eq!(check(json!({"expirationSeconds": seconds})), ["spec.expirationSeconds"]);
        }
        for audiences in
            [vec!["a".to_owned(); MAX_AUDIENCES + 1], vec!["a".repeat(MAX_AUDIENCE + 1)]]
        {
            let spec = json!({"expirationSeconds": 600, "audiences": audiences});
            assert_eq!(check(spec), ["spec.audiences"]);
        }
        let attested = json!({"expirationSeconds": 600, "attestations": {"a": ["b"]}});
        assert_eq!(check(attested), ["spec.attestations"]);
    }
}
