//! Get and list.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};

use super::answer::{self, Body};
use super::encode::{Encoder, ListMeta};
use super::options::{Freshness, ListOptions};
use super::{Call, negotiate};
use crate::api::Api;
use crate::selector::Selector;
use crate::status::{ApiError, Reason};
use crate::store::{Continue, Snapshot, Stored};
use crate::table::IncludeObject;

/// How long a request waits for a revision that the server has not reached.
const CATCH_UP: Duration = Duration::from_secs(3);

const PAGE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
const REVISION_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// Answers a get.
pub(super) async fn get(api: &Api, call: &Call) -> Result<Response<Body>, ApiError> {
    let encoder = encoder(call)?;
    if let Some(at_least) = call.query.get("resourceVersion").and_then(|v| v.parse().ok()) {
        wait_for(api, at_least).await?;
    }
    let object = find(api, call)?;
    Ok(answer::json(StatusCode::OK, encoder.stored(&object, api.now())))
}

/// The object a call names.
pub(super) fn find(api: &Api, call: &Call) -> Result<Arc<Stored>, ApiError> {
    let key = call.key();
    let missing = || ApiError::not_found(&call.resource.info, &key.name);
    api.store.get(&call.resource.table, &key).ok_or_else(missing)
}

/// Answers a list.
pub(super) async fn list(api: &Api, call: &Call) -> Result<Response<Body>, ApiError> {
    let encoder = encoder(call)?;
    let selector = selector(api, call)?;
    let namespace = call.place.namespace.as_deref();
    let options = ListOptions::parse(&call.query, namespace)?;
    if call.expire {
        return Err(expired(&options, namespace.is_some()));
    }
    let snapshot = snapshot(api, call, &options).await?;
    let page = page(snapshot, &selector, &options, namespace.is_some());
    let body = encoder.list(&page.items, &page.meta, api.now());
    Ok(answer::large_json(&call.headers, body).await)
}

/// The form of the answer to this call.
pub(super) fn encoder(call: &Call) -> Result<Encoder, ApiError> {
    let include = call.query.get("includeObject").unwrap_or_default();
    Ok(Encoder {
        resource: call.resource.clone(),
        form: negotiate::form(&call.headers, call.resource.info.custom)?,
        include: IncludeObject::parse(include).ok_or_else(|| {
            ApiError::bad_request(format!("unrecognized includeObject value: {include}"))
        })?,
    })
}

/// The selectors of a call.
pub(super) fn selector(api: &Api, call: &Call) -> Result<Selector, ApiError> {
    let selector = Selector::parse(
        &call.resource.info,
        &call.resource.selectable,
        call.query.get("labelSelector"),
        call.query.get("fieldSelector"),
    )?;
    match call.query.get("shardSelector") {
        Some(shard) if api.divides && !shard.is_empty() => selector.of_shard(shard),
        _ => Ok(selector),
    }
}

/// Waits for a while until the server has reached a revision.
///
/// # Errors
/// 504 if it does not reach it.
pub(super) async fn wait_for(api: &Api, revision: u64) -> Result<(), ApiError> {
    let mut reached = api.store.watch_revision();
    let wait = reached.wait_for(|current| *current >= revision);
    let outcome = tokio::time::timeout(CATCH_UP, wait).await.is_ok();
    if outcome {
        return Ok(());
    }
    Err(ApiError::too_large_resource_version(revision, api.store.revision()))
}

async fn snapshot(api: &Api, call: &Call, options: &ListOptions) -> Result<Snapshot, ApiError> {
    let at = match options.freshness {
        Freshness::Newest => None,
        Freshness::NotOlderThan(revision) => {
            wait_for(api, revision).await?;
            None
        }
        Freshness::Exact(revision) => {
            wait_for(api, revision).await?;
            Some(revision)
        }
    };
    let namespace = call.place.namespace.as_deref();
    let after = options.after.as_ref().map(|c| &c.after);
    api.store
        .list(&call.resource.table, namespace, after, at)
        .map_err(|_| expired(options, namespace.is_some()))
}

fn expired(options: &ListOptions, namespaced: bool) -> ApiError {
    match &options.after {
        None => ApiError::expired(REVISION_EXPIRED),
        Some(after) => {
            let fresh = Continue { revision: None, after: after.after.clone() };
            ApiError {
                continue_token: Some(fresh.encode(namespaced).into()),
                ..ApiError::new(Reason::Expired, PAGE_EXPIRED)
            }
        }
    }
}

struct Page {
    items: Vec<Arc<Stored>>,
    meta: ListMeta,
}

/// Cuts a page out of a snapshot.
fn page(snapshot: Snapshot, selector: &Selector, options: &ListOptions, namespaced: bool) -> Page {
    let Snapshot { revision, items } = snapshot;
    let total = items.len();
    let limit = options.limit.unwrap_or(usize::MAX);
    let mut taken = Vec::new();
    let mut passed = 0;
    let mut more = false;
    for object in items {
        if !selector.is_empty() && !selector.matches(&object.to_value()) {
            passed += 1;
            continue;
        }
        if taken.len() == limit {
            more = true;
            break;
        }
        passed += 1;
        taken.push(object);
    }
    let next = taken.last().filter(|_| more).map(|last: &Arc<Stored>| {
        let after = crate::api::key_of(&last.to_value());
        Continue { revision: Some(revision), after }.encode(namespaced)
    });
    let remaining = (next.is_some() && selector.is_empty()).then_some(total - passed);
    let shard = selector.shard().map(ToString::to_string);
    Page { items: taken, meta: ListMeta { revision, next, remaining, shard } }
}
