//! Reviews: whose a token is, who the caller is, and what somebody may do.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::options::WriteOptions;
use super::route::Verb;
use super::{Call, question, read};
use crate::access::attributes::Attributes;
use crate::access::policy::{Rule, text, texts};
use crate::access::token::{ISSUER, MAX_AUDIENCES, TokenError};
use crate::access::user::User;
use crate::api::Api;
use crate::clock;
use crate::kinds::AUTHORIZATION;
use crate::status::ApiError;

mod validate;

/// Answers a request on a kind of reviews, of which only creates are answered.
pub(super) fn answer(
    api: &Api,
    call: &Call,
    verb: Option<Verb>,
) -> Result<Response<Body>, ApiError> {
    let (info, place) = (&call.resource.info, &call.place);
    if place.name.is_some() || info.namespaced != place.namespace.is_some() {
        return Err(ApiError::no_such_resource());
    }
    if verb != Some(Verb::Create) {
        return Err(ApiError::method_not_allowed());
    }
    let encoder = read::encoder(call)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let (mut review, warnings) = question::read(call, &call.resource, &options)?;
    question::track(api, call, &call.resource, options, &mut review);
    let answered = match info.plural.as_str() {
        "tokenreviews" => token_review(api, review)?,
        "selfsubjectreviews" => self_review(api, call),
        "selfsubjectrulesreviews" => rules_review(api, call, &review)?,
        _ => access_review(api, call, review)?,
    };
    let mut response = answer::json(StatusCode::CREATED, encoder.value(&answered, api.now()));
    answer::warn(&mut response, &warnings);
    Ok(response)
}

/// Whose token it is.
fn token_review(api: &Api, mut review: Value) -> Result<Value, ApiError> {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        let why = "token is required for TokenReview in authentication";
        return Err(ApiError::bad_request(why));
    }
    let mut wanted = texts(&review["spec"]["audiences"]);
    wanted.truncate(MAX_AUDIENCES);
    if wanted.is_empty() {
        wanted.push(ISSUER.into());
    }
    let found = api.authenticator.authenticate(&api.store, token, &wanted, api.now());
    review["status"] = match found {
        Ok(found) => json!({
            "authenticated": true, "user": found.user.to_value(), "audiences": found.audiences,
        }),
        Err(TokenError::Foreign) => json!({"user": {}, "error": TokenError::Foreign.to_string()}),
        // A real server names what each of its ways of authentication says.
        Err(why) => json!({"user": {}, "error": format!("[{}, {why}]", TokenError::Foreign)}),
    };
    Ok(review)
}

/// Who the caller is.
fn self_review(api: &Api, call: &Call) -> Value {
    let info = &call.resource.info;
    json!({
        "kind": info.kind, "apiVersion": info.api_version(),
        "metadata": {"creationTimestamp": clock::seconds(api.now())},
        "status": {"userInfo": call.caller().to_value()},
    })
}

/// Whether somebody may do something.
fn access_review(api: &Api, call: &Call, mut review: Value) -> Result<Value, ApiError> {
    let errors = validate::access_review(&call.resource.info, &review);
    if !errors.is_empty() {
        return Err(ApiError::invalid_kind(AUTHORIZATION, "", "", &errors));
    }
    let spec = &review["spec"];
    let attributes = attributes(spec);
    let user = match call.resource.info.plural.as_str() {
        "selfsubjectaccessreviews" => call.caller(),
        _ => reviewed_user(spec),
    };
    let decision = api.authorize(&user, &attributes);
    review["status"] = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        review["status"]["reason"] = json!(decision.reason);
    }
    Ok(review)
}

/// What the caller may do in a namespace.
fn rules_review(api: &Api, call: &Call, review: &Value) -> Result<Value, ApiError> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let user = call.caller();
    let policy = api.policy();
    let all = everything();
    let (rules, failure) = match &policy {
        Some(policy) => policy.rules_of(&user, namespace),
        None => (all.iter().collect(), None),
    };
    let resources: Vec<Value> =
        rules.iter().filter(|r| !r.resources.is_empty()).map(|r| resource_rule(r)).collect();
    let paths: Vec<Value> = rules
        .iter()
        .filter(|r| !r.paths.is_empty())
        .map(|r| json!({"verbs": r.verbs, "nonResourceURLs": r.paths}))
        .collect();
    let info = &call.resource.info;
    let mut answered = json!({
        "kind": info.kind, "apiVersion": info.api_version(), "metadata": {}, "spec": {},
        "status": {"resourceRules": resources, "nonResourceRules": paths, "incomplete": false},
    });
    if let Some(failure) = failure {
        answered["status"]["evaluationError"] = json!(failure);
    }
    Ok(answered)
}

/// The rules of everybody without authorization.
fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), paths: all(), ..Rule::default() },
    ]
}

fn resource_rule(rule: &Rule) -> Value {
    let mut value = json!({"verbs": rule.verbs});
    for (field, texts) in [
        ("apiGroups", &rule.groups),
        ("resources", &rule.resources),
        ("resourceNames", &rule.names),
    ] {
        if !texts.is_empty() {
            value[field] = json!(texts);
        }
    }
    value
}

fn reviewed_user(spec: &Value) -> User {
    User {
        name: text(&spec["user"]),
        uid: text(&spec["uid"]),
        groups: texts(&spec["groups"]),
        extra: std::collections::BTreeMap::new(),
    }
}

fn attributes(spec: &Value) -> Attributes {
    let asked = &spec["resourceAttributes"];
    if asked.is_null() {
        let asked = &spec["nonResourceAttributes"];
        let (verb, path) = (text(&asked["verb"]), Some(text(&asked["path"])));
        return Attributes { verb, path, ..Attributes::default() };
    }
    Attributes {
        verb: text(&asked["verb"]),
        namespace: text(&asked["namespace"]),
        group: text(&asked["group"]),
        resource: text(&asked["resource"]),
        subresource: text(&asked["subresource"]),
        name: text(&asked["name"]),
        path: None,
    }
}
