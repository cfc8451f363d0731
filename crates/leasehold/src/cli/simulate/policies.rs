//! FleetPolicies of a file: those that an API server would take, and nothing else. One that is misspelled would be
//! simulated as if it said nothing.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use kube::{CustomResourceExt, Resource};
use serde_json::Value;
use sharding::api::{FleetPolicy, FleetPolicySpec};
use sharding::policy::PolicyRecord;

/// What every object has, whatever its definition.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The FleetPolicies of a file.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<PolicyRecord>> {
    let what = || format!("read FleetPolicies from {}", path.display());
    parse(&std::fs::read_to_string(path).with_context(what)?).with_context(what)
}

/// The FleetPolicies of a text.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<PolicyRecord>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let documents = documents.iter().filter(|document| !document.is_null());
    let schema = serde_json::to_value(FleetPolicy::crd())?;
    let schema = &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let (mut policies, mut names) = (Vec::new(), BTreeSet::new());
    for (number, document) in (1..).zip(documents) {
        let policy = policy(document, schema).with_context(|| format!("document {number}"))?;
        ensure!(names.insert(policy.name.clone()), "two FleetPolicies are called {}", policy.name);
        policies.push(policy);
    }
    ensure!(!policies.is_empty(), "there is none");
    Ok(policies)
}

fn policy(document: &Value, schema: &Value) -> anyhow::Result<PolicyRecord> {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    let (version, kind) = (FleetPolicy::api_version(&()), FleetPolicy::kind(&()));
    ensure!(
        (text("apiVersion"), text("kind")) == (&*version, &*kind),
        "it is of the kind {:?} in {:?}, and not {kind} in {version}",
        text("kind"),
        text("apiVersion")
    );
    let mut own = document.clone();
    own.as_object_mut().into_iter().for_each(|own| own.retain(|key, _| !COMMON.contains(&&**key)));
    if let Some(path) = unknown(&own, schema) {
        bail!("there is no field {path}");
    }
    let named = document.pointer("/metadata/name").and_then(Value::as_str);
    let name = named.context("it has no metadata.name")?.to_owned();
    let policy: FleetPolicy = serde_json::from_value(document.clone())?;
    // Neither of them does anything alone.
    let FleetPolicySpec { shards: _, reason: _, pause, pin, avoid, busy, members, moves } =
        &policy.spec;
    let places = pin.is_some() || avoid.is_some();
    let says = pause.is_some() || places || busy.is_some() || members.is_some() || moves.is_some();
    ensure!(says, "{name} says nothing: give it pause, pin, avoid, busy, members or moves");
    Ok(PolicyRecord::new(&name, policy.spec))
}

/// The path of a field that a schema does not have. What has no schema of its fields may have any.
fn unknown(value: &Value, schema: &Value) -> Option<String> {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object()?;
            fields.iter().find_map(|(key, value)| match known.get(key) {
                Some(schema) => unknown(value, schema).map(|below| match below.starts_with('[') {
                    true => format!("{key}{below}"),
                    false => format!("{key}.{below}"),
                }),
                None => Some(key.clone()),
            })
        }
        Value::Array(items) => (0..).zip(items).find_map(|(number, item): (usize, _)| {
            Some(format!("[{number}].{}", unknown(item, &schema["items"])?))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "apiVersion: leasehold.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: p}\n";

    #[track_caller]
    fn refused(text: &str, expect: &str) {
        let error = parse(text).unwrap_err();
        let found = model::error::chain(&*error);
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn what_an_api_server_would_not_take_is_refused_and_named() {
        refused(
            &format!("{HEAD}spec: {{pauze: true}}"),
            "document 1: there is no field spec.pauze",
        );
        refused(
            &format!("{HEAD}spec: {{pin: {{zones: [a], require: true}}}}"),
            "document 1: there is no field spec.pin.require",
        );
        refused(&format!("{HEAD}sepc: {{pause: true}}"), "document 1: there is no field sepc");
        refused(
            &format!("{HEAD}spec: {{shards: {{clusters: [a]}}, reason: why}}"),
            "document 1: p says nothing: give it pause, pin, avoid, busy, members or moves",
        );
        refused(
            &format!(
                "{HEAD}spec: {{pause: true}}\n---\napiVersion: tdset.example.com/v1\nkind: TDSet\n"
            ),
            "document 2: it is of the kind \"TDSet\" in \"tdset.example.com/v1\", and not FleetPolicy in \
             leasehold.dev/v1alpha1",
        );
        refused(
            "apiVersion: leasehold.dev/v1alpha1\nkind: FleetPolicy\nspec: {pause: true}",
            "document 1: it has no metadata.name",
        );
        let one = format!("{HEAD}spec: {{pause: true}}\n");
        refused(&format!("{one}---\n{one}"), "two FleetPolicies are called p");
        for empty in ["", "---\n", "# nothing\n"] {
            refused(empty, "there is none");
        }
    }

    #[test]
    fn what_an_api_server_takes_is_read() {
        let text = format!(
            "{HEAD}spec: {{pause: false, reason: x, shards: {{clusters: [a]}}}}\n---\n---\n\
             apiVersion: leasehold.dev/v1alpha1\nkind: FleetPolicy\n\
             metadata: {{name: q, labels: {{a: b}}, uid: u}}\n\
             spec: {{pin: {{zones: [z], required: false}}, members: {{cordon: true}}}}\n"
        );
        let names: Vec<_> = parse(&text).unwrap().into_iter().map(|policy| policy.name).collect();
        assert_eq!(names, ["p", "q"]);
    }
}
