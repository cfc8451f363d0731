//! Admission, between proposal and commit: checks the namespace, checks the object against its
//! kind, and fills in defaults.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::options::FieldValidation;
use crate::api::Api;
use crate::crd;
use crate::kinds::{DEFINITIONS, KindInfo};
use crate::objects::{defaults, deleting, meta, validate};
use crate::resource::Resource;
use crate::status::{ApiError, Cause, FieldError};
use crate::store::{Key, Stored};
use crate::types;

/// Checks that the namespace exists and is not being deleted.
///
/// # Errors
/// 404 without the namespace, 403 while it is being deleted.
pub(super) fn namespace(api: &Api, kind: &KindInfo, key: &Key) -> Result<(), ApiError> {
    if !kind.namespaced {
        return Ok(());
    }
    let Some(namespace) = api.namespace(&key.namespace) else {
        let catalog = api.catalog();
        let namespaces = catalog.find("", "v1", "namespaces");
        let kind = namespaces.map_or(kind, |resource| &resource.info);
        return Err(ApiError::not_found(kind, &key.namespace));
    };
    if !deleting(&namespace.to_value()) {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {} because it is being terminated",
        key.namespace
    );
    let mut error = ApiError::forbidden(kind, &key.name, &why);
    if let Some(details) = &mut error.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {} is being terminated", key.namespace),
            field: "metadata.namespace".into(),
        });
    }
    Err(error)
}

/// Completes and validates an object that is created; returns warnings.
///
/// # Errors
/// 400 for unknown fields under `Strict`, 422 for broken rules.
pub(super) fn created(
    api: &Api,
    resource: &Resource,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let info = &resource.info;
    let warnings = shape(resource, object, validation)?;
    if info.is("", "namespaces") && object["spec"]["finalizers"].is_null() {
        object["spec"]["finalizers"] = json!(["kubernetes"]);
    }
    if info.is("", "services") {
        assign_address(api, resource, object);
    }
    defaults::initial_status(info, object);
    judge(resource, None, object)?;
    Ok(warnings)
}

/// Completes and validates an object that is replaced; returns warnings.
///
/// # Errors
/// As [`created`].
pub(super) fn updated(
    resource: &Resource,
    current: &Value,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let warnings = shape(resource, object, validation)?;
    if resource.info.is("", "services") {
        keep_address(current, object);
    }
    judge(resource, Some(current), object)?;
    Ok(warnings)
}

/// Brings an object into the form in which its kind is stored: without unknown fields, with defaults.
///
/// # Errors
/// 400 for unknown fields under `Strict`, and for values of the wrong shape.
pub(super) fn shape(
    resource: &Resource,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let info = &resource.info;
    let unknown = match (&resource.schema, types::of(info)) {
        (Some(schema), _) => schema.prune(object),
        (None, Some(message)) => {
            types::conform(message, object).map_err(|e| not_handled(info, &e.to_string()))?
        }
        (None, None) => Vec::new(),
    };
    let texts: Vec<String> =
        unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    if validation == FieldValidation::Strict && !texts.is_empty() {
        let why = format!("strict decoding error: {}", texts.join(", "));
        return Err(not_handled(info, &why));
    }
    match &resource.schema {
        Some(schema) => schema.apply_defaults(object),
        None if info.is("apiextensions.k8s.io", DEFINITIONS) => crd::apply_defaults(object),
        None => defaults::apply(info, object),
    }
    validate::normalize(info, object)?;
    Ok(if validation == FieldValidation::Warn { texts } else { Vec::new() })
}

/// 400 for a body that cannot be decoded into its kind.
fn not_handled(info: &KindInfo, why: &str) -> ApiError {
    let KindInfo { kind, version, .. } = info;
    ApiError::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
    ))
}

fn judge(resource: &Resource, current: Option<&Value>, object: &Value) -> Result<(), ApiError> {
    let info = &resource.info;
    let mut errors: Vec<FieldError> = validate::metadata(info, object);
    match &resource.schema {
        Some(schema) => errors.extend(schema.validate(object)),
        None if info.is("apiextensions.k8s.io", DEFINITIONS) => {
            errors.extend(crd::validate(object))
        }
        None => errors.extend(validate::builtin(info, current, object)),
    }
    if errors.is_empty() {
        Ok(())
    } else {
        // As on a real server: Events of either group belong to the core group here.
        let name = meta(object, "name");
        Err(ApiError::invalid_kind(&info.storage_group, &info.kind, name, &errors))
    }
}

/// The network of Service addresses: from 10.96.0.1 on, as with kubeadm.
const FIRST_ADDRESS: u32 = 0x0A60_0001;
/// How many addresses there are.
const ADDRESSES: u32 = (1 << 20) - 2;

/// Gives a Service the next free address, unless it has or wants none.
fn assign_address(api: &Api, resource: &Resource, service: &mut Value) {
    let spec = &mut service["spec"];
    if !spec.is_object() || spec["type"] == "ExternalName" {
        return;
    }
    if let Some(given) = spec["clusterIP"].as_str().filter(|ip| !ip.is_empty()) {
        spec["clusterIPs"] = json!([given]);
        return;
    }
    let listed = api.store.list(&resource.table, None, None, None);
    let services = listed.map(|snapshot| snapshot.items).unwrap_or_default();
    let free = (0..ADDRESSES)
        .map(|_| Ipv4Addr::from(FIRST_ADDRESS + api.next_address() % ADDRESSES))
        .find(|address| !services.iter().any(|service| has_address(service, *address)));
    if let Some(address) = free {
        spec["clusterIPs"] = json!([address]);
        spec["clusterIP"] = json!(address);
    }
}

/// Whether a stored Service has this address. It searches the text, since there may be thousands of
/// Services.
fn has_address(service: &Stored, address: Ipv4Addr) -> bool {
    let wanted = format!("\"clusterIP\":\"{address}\"");
    memchr::memmem::find(&service.json(), wanted.as_bytes()).is_some()
}

/// An update that leaves the address out keeps it.
fn keep_address(current: &Value, service: &mut Value) {
    for field in ["clusterIP", "clusterIPs"] {
        let old = current["spec"].get(field);
        if let (Some(old), true) = (old, service["spec"][field].is_null()) {
            service["spec"][field] = old.clone();
        }
    }
}
