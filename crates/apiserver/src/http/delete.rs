//! Delete and deletecollection.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;

use super::answer::{self, Body};
use super::options::{FieldValidation, ListOptions, WriteOptions, dry_run};
use super::write::{Outcome, Writer, Written};
use super::{Call, read};
use crate::api::{Api, key_of};
use crate::kinds::DEFINITIONS;
use crate::objects::decode;
use crate::objects::deletion::{self, DeletionStep, Options};
use crate::status::{self, ApiError};
use crate::store::{Change, Stored};

/// How often a delete is decided again because another write came first.
const MAX_ATTEMPTS: usize = 64;

/// The result of a delete.
pub(super) enum Deletion {
    /// The object is gone, or would be without dry run.
    Removed(Arc<Stored>),
    /// It stays for now, in this form.
    Pending(Written),
}

/// Answers a delete.
pub(super) fn delete(api: &Api, call: &Call) -> Result<Response<Body>, ApiError> {
    let encoder = read::encoder(call)?;
    let options = options(call)?;
    let info = &call.resource.info;
    let writer = writer(api, call, &options, call.key());
    match remove(&writer, &options)? {
        Deletion::Removed(last) if deletion::returns_object(info) => {
            Ok(answer::json(StatusCode::OK, encoder.stored(&last, api.now())))
        }
        Deletion::Removed(last) => {
            let status = status::deleted(info, &writer.key.name, last.uid());
            Ok(answer::value(StatusCode::OK, &status))
        }
        Deletion::Pending(written) => {
            let outcome = Outcome { written, created: false, warnings: Vec::new() };
            let mut response = super::write::respond(api, &encoder, outcome);
            if options.orphan_dependents == Some(false) {
                *response.status_mut() = StatusCode::ACCEPTED;
            }
            Ok(response)
        }
    }
}

/// Answers a deletecollection: every matching object is deleted on its own.
pub(super) async fn delete_collection(api: &Api, call: &Call) -> Result<Response<Body>, ApiError> {
    let encoder = read::encoder(call)?;
    let options = options(call)?;
    let selector = read::selector(api, call)?;
    let namespace = call.place.namespace.as_deref();
    let list = ListOptions::parse(&call.query, namespace)?;
    let snapshot = api
        .store
        .list(&call.resource.table, namespace, None, None)
        .map_err(|_| ApiError::internal("the newest revision is gone"))?;
    let chosen: Vec<Arc<Stored>> = snapshot
        .items
        .into_iter()
        .filter(|object| selector.matches(&object.to_value()))
        .take(list.limit.unwrap_or(usize::MAX))
        .collect();
    for object in &chosen {
        let writer = writer(api, call, &options, key_of(&object.to_value()));
        match remove(&writer, &options) {
            Err(error) if error.code != 404 => return Err(error),
            _ => {}
        }
    }
    let meta = super::encode::ListMeta {
        revision: snapshot.revision,
        next: None,
        remaining: None,
        shard: selector.shard().map(ToString::to_string),
    };
    let body = encoder.list(&chosen, &meta, api.now());
    Ok(answer::large_json(&call.headers, body).await)
}

/// A writer that deletes an object.
pub(super) fn writer<'a>(
    api: &'a Api,
    call: &'a Call,
    options: &Options,
    key: crate::store::Key,
) -> Writer<'a> {
    let options = WriteOptions {
        dry_run: !options.dry_run.is_empty(),
        field_manager: None,
        field_validation: FieldValidation::Ignore,
        force: false,
    };
    Writer { key, ..Writer::of(api, call, "delete", options) }
}

/// Deletes an object, at once or in stages.
///
/// # Errors
/// 404 if it is absent, 409 for failed preconditions.
pub(super) fn remove(writer: &Writer<'_>, options: &Options) -> Result<Deletion, ApiError> {
    let (api, resource) = (writer.api, writer.resource);
    let info = &resource.info;
    for _ in 0..MAX_ATTEMPTS {
        let Some(stored) = api.store.get(&resource.table, &writer.key) else {
            return Err(ApiError::not_found(info, &writer.key.name));
        };
        let current = resource.served(stored.to_value());
        let change = match deletion::decide(info, &current, options, api.now())? {
            DeletionStep::Wait => return Ok(Deletion::Pending(Written::Stored(stored))),
            DeletionStep::Mark(next) if writer.options.dry_run => {
                return Ok(Deletion::Pending(Written::Draft(next)));
            }
            DeletionStep::Remove if writer.options.dry_run => return Ok(Deletion::Removed(stored)),
            DeletionStep::Mark(next) => Change::Put(resource.stored(next)),
            DeletionStep::Remove => Change::Delete(resource.stored(current)),
        };
        let removes = matches!(change, Change::Delete(_));
        let Some(written) = writer.commit(Some(&stored), change) else { continue };
        if !removes {
            return Ok(Deletion::Pending(Written::Stored(written)));
        }
        if info.is("apiextensions.k8s.io", DEFINITIONS) {
            api.definition_removed(&written.to_value());
        }
        return Ok(Deletion::Removed(written));
    }
    Err(ApiError::conflict(info, &writer.key.name))
}

/// The options of a delete: its body, over its query.
fn options(call: &Call) -> Result<Options, ApiError> {
    let mut options = if call.body.iter().all(u8::is_ascii_whitespace) {
        Options::default()
    } else {
        read_options(decode::parse("DeleteOptions", call.media_type(), &call.body)?)?
    };
    let query = &call.query;
    if options.propagation_policy.is_none() {
        options.propagation_policy = query.get("propagationPolicy").map(Into::into);
    }
    if options.orphan_dependents.is_none() {
        options.orphan_dependents = query.flag("orphanDependents");
    }
    if options.grace_period_seconds.is_none() {
        options.grace_period_seconds = query.number("gracePeriodSeconds")?;
    }
    if options.dry_run.is_empty() {
        options.dry_run = query.all("dryRun").into_iter().map(Into::into).collect();
    }
    check_options(&options)?;
    Ok(options)
}

/// Reads `DeleteOptions`.
///
/// # Errors
/// 400 for other things.
pub(super) fn read_options(value: Value) -> Result<Options, ApiError> {
    serde_json::from_value(value).map_err(|e| {
        ApiError::bad_request(format!(
            "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: {e}"
        ))
    })
}

/// Checks `DeleteOptions` by their own rules.
///
/// # Errors
/// 422 for options that mean nothing.
pub(super) fn check_options(options: &Options) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    let given: Vec<&str> = options.dry_run.iter().map(String::as_str).collect();
    dry_run(&given, &mut errors);
    if !errors.is_empty() {
        return Err(ApiError::invalid_kind("meta.k8s.io", "DeleteOptions", "", &errors));
    }
    options.propagation().map(drop)
}
