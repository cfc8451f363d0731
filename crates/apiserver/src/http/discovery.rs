//! Discovery: which groups, versions and resources there are, in the legacy form (one document
//! per level) and the aggregated one (all at once, with an ETag).

use http::header::{ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::negotiate;
use crate::catalog::{Catalog, Group};
use crate::kinds::{AUTHENTICATION, KindInfo};
use crate::resource::Resource;

/// Verbs of an ordinary resource.
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The same of a custom resource, in the order a real server lists them.
const CUSTOM_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];

/// `/api`.
pub(super) fn core_versions(catalog: &Catalog, headers: &HeaderMap) -> Response<Body> {
    if let Some(version) = negotiate::aggregated_discovery(headers) {
        return aggregated(version, catalog.groups().iter().filter(|g| g.name.is_empty()), headers);
    }
    answer::value(
        StatusCode::OK,
        &json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
    )
}

/// `/apis`.
pub(super) fn groups(catalog: &Catalog, headers: &HeaderMap) -> Response<Body> {
    let named = catalog.groups().iter().filter(|g| !g.name.is_empty());
    if let Some(version) = negotiate::aggregated_discovery(headers) {
        return aggregated(version, named, headers);
    }
    let groups: Vec<Value> = named.map(group_value).collect();
    answer::value(
        StatusCode::OK,
        &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
    )
}

/// `/apis/{group}`.
pub(super) fn group(catalog: &Catalog, name: &str) -> Option<Response<Body>> {
    let group = catalog.groups().iter().find(|g| g.name == name)?;
    let mut value = group_value(group);
    value["kind"] = json!("APIGroup");
    value["apiVersion"] = json!("v1");
    Some(answer::value(StatusCode::OK, &value))
}

/// `/api/v1`, `/apis/{group}/{version}`.
pub(super) fn version(catalog: &Catalog, group: &str, version: &str) -> Option<Response<Body>> {
    let resources = catalog.version(group, version)?;
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let resources: Vec<Value> = resources.iter().flat_map(|r| legacy_resource(r)).collect();
    Some(answer::value(
        StatusCode::OK,
        &json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": name, "resources": resources,
        }),
    ))
}

fn group_value(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|(v, _)| json!({"groupVersion": format!("{}/{v}", group.name), "version": v}))
        .collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

/// Verbs of a kind.
fn verbs(info: &KindInfo) -> Vec<&'static str> {
    if !info.stored {
        return vec!["create"];
    }
    if info.custom {
        return CUSTOM_VERBS.to_vec();
    }
    let namespaces = info.is("", "namespaces");
    VERBS.iter().copied().filter(|v| !(namespaces && *v == "deletecollection")).collect()
}

/// Subresources of a kind with the group, version and kind they speak.
fn subresources(info: &KindInfo) -> Vec<(&'static str, [&str; 3], &'static [&'static str])> {
    let own = [info.group.as_str(), info.version.as_str(), info.kind.as_str()];
    let mut list = Vec::new();
    if info.is("", "namespaces") {
        list.push(("finalize", own, &["update"][..]));
    }
    if info.is("", "pods") {
        list.push(("eviction", ["policy", "v1", "Eviction"], &["create"]));
        list.push(("portforward", ["", "v1", "PodPortForwardOptions"], &["create", "get"]));
    }
    if info.scale.is_some() {
        list.push(("scale", ["autoscaling", "v1", "Scale"], SUBRESOURCE_VERBS));
    }
    if info.status {
        list.push(("status", own, SUBRESOURCE_VERBS));
    }
    if info.is("", "serviceaccounts") {
        list.push(("token", [AUTHENTICATION, "v1", "TokenRequest"], &["create"]));
    }
    list
}

fn legacy_resource(resource: &Resource) -> Vec<Value> {
    let info = &resource.info;
    let mut main = json!({
        "name": info.plural, "singularName": info.singular, "namespaced": info.namespaced,
        "kind": info.kind, "verbs": verbs(info),
    });
    if !info.short_names.is_empty() {
        main["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        main["categories"] = json!(info.categories);
    }
    let mut list = vec![main];
    for (name, [group, version, kind], verbs) in subresources(info) {
        let mut sub = json!({
            "name": format!("{}/{name}", info.plural), "singularName": "",
            "namespaced": info.namespaced, "kind": kind, "verbs": verbs,
        });
        if group != info.group {
            sub["group"] = json!(group);
            sub["version"] = json!(version);
        }
        list.push(sub);
    }
    list
}

fn aggregated<'a>(
    version: &str,
    groups: impl Iterator<Item = &'a Group>,
    headers: &HeaderMap,
) -> Response<Body> {
    let items: Vec<Value> = groups.map(aggregated_group).collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    })
    .to_string();
    let media_type =
        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    let etag = format!("\"{:016X}\"", fingerprint(body.as_bytes()));
    let known = headers.get(IF_NONE_MATCH).is_some_and(|v| v.as_bytes() == etag.as_bytes());
    let mut response = if known {
        answer::typed(StatusCode::NOT_MODIFIED, &media_type, "")
    } else {
        answer::typed(StatusCode::OK, &media_type, body)
    };
    answer::set(&mut response, ETAG, &etag);
    answer::set(&mut response, VARY, "Accept");
    response
}

/// FNV-1a: identifies a document, and has no security purpose.
pub(super) fn fingerprint(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn aggregated_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|(version, resources)| {
            let resources: Vec<Value> = resources.iter().map(|r| aggregated_resource(r)).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let info = &resource.info;
    let kind = |[group, version, kind]: [&str; 3]| json!({"group": group, "version": version, "kind": kind});
    let mut value = json!({
        "resource": info.plural,
        "responseKind": kind([&info.group, &info.version, &info.kind]),
        "scope": if info.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": info.singular,
        "verbs": verbs(info),
    });
    if !info.short_names.is_empty() {
        value["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        value["categories"] = json!(info.categories);
    }
    let subs: Vec<Value> = subresources(info)
        .into_iter()
        .map(|(name, gvk, verbs)| json!({"subresource": name, "responseKind": kind(gvk), "verbs": verbs}))
        .collect();
    if !subs.is_empty() {
        value["subresources"] = json!(subs);
    }
    value
}
