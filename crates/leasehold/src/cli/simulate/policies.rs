//! FleetPolicies of a file: those that an API server would take, and nothing else. One that is misspelled would be
//! simulated as if it said nothing.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use kube::{CustomResourceExt, Resource};
use serde_json::Value;
use sharding::api::FleetPolicy;
use sharding::policy::PolicyRecord;

/// What every object has, whatever its definition.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The FleetPolicies of a file, for a fleet in this namespace.
pub(super) fn read(path: &Path, namespace: Option<&str>) -> anyhow::Result<Vec<PolicyRecord>> {
    let what = || format!("read FleetPolicies from {}", path.display());
    parse(&std::fs::read_to_string(path).with_context(what)?, namespace).with_context(what)
}

/// The FleetPolicies of a text, for a fleet in this namespace: one for another namespace would say nothing there.
pub(super) fn parse(text: &str, namespace: Option<&str>) -> anyhow::Result<Vec<PolicyRecord>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let documents = documents.iter().filter(|document| !document.is_null());
    let schema = serde_json::to_value(FleetPolicy::crd())?;
    let schema = &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let (mut policies, mut names) = (Vec::new(), BTreeSet::new());
    for (number, document) in (1..).zip(documents) {
        let policy = policy(document, schema, namespace);
        let policy = policy.with_context(|| format!("document {number}"))?;
        ensure!(names.insert(policy.name.clone()), "two FleetPolicies are called {}", policy.name);
        policies.push(policy);
    }
    ensure!(!policies.is_empty(), "there is none");
    Ok(policies)
}

fn policy(
    document: &Value,
    schema: &Value,
    namespace: Option<&str>,
) -> anyhow::Result<PolicyRecord> {
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
    let metadata = |key: &str| document["metadata"][key].as_str();
    let name = metadata("name").context("it has no metadata.name")?.to_owned();
    if let Some((said, namespace)) = metadata("namespace").zip(namespace) {
        ensure!(
            said == namespace,
            "FleetPolicy {name} is for the namespace {said}, and the fleet is in {namespace}; fix: correct one of them"
        );
    }
    let policy: FleetPolicy = serde_json::from_value(document.clone())?;
    if let Some(why) = unfit(&own["spec"], &schema["properties"]["spec"], "spec") {
        bail!("{why}");
    }
    Ok(PolicyRecord::new(&name, policy.spec))
}

/// Why a value is not one that a schema takes, by its bounds and rules: the first cause, with its path. What names are
/// is not judged here: of those that nothing can have, the coordinator tells.
fn unfit(value: &Value, schema: &Value, path: &str) -> Option<String> {
    let count = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
    let measured = match value {
        Value::Number(number) => number.as_f64().map(|it| ("is", it, "minimum", "maximum")),
        Value::String(text) => {
            Some(("has the length", count(text.chars().count()), "minLength", "maxLength"))
        }
        Value::Array(items) => Some(("has the length", count(items.len()), "minItems", "maxItems")),
        _ => None,
    };
    if let Some((is, size, least, most)) = measured {
        let bound = |key: &str| schema[key].as_f64();
        if let Some(least) = bound(least).filter(|least| size < *least) {
            return Some(format!("{path} {is} {size}, and not {least} or more"));
        }
        if let Some(most) = bound(most).filter(|most| size > *most) {
            return Some(format!("{path} {is} {size}, and not {most} or less"));
        }
    }
    match value {
        Value::Object(fields) => {
            let mut rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
            let broken = rules.find(|it| !holds(it["rule"].as_str().unwrap_or_default(), value));
            let message = broken.map(|rule| rule["message"].as_str().unwrap_or_default());
            message.map(|message| format!("{path}: {message}")).or_else(|| {
                let of = |key: &String| &schema["properties"][key];
                let mut fields = fields.iter();
                fields.find_map(|(key, value)| unfit(value, of(key), &format!("{path}.{key}")))
            })
        }
        Value::Array(items) => (0..).zip(items).find_map(|(number, item): (usize, _)| {
            unfit(item, &schema["items"], &format!("{path}[{number}]"))
        }),
        _ => None,
    }
}

/// Whether an object keeps a rule of its definition: one of some fields must be there, or must not.
fn holds(rule: &str, object: &Value) -> bool {
    rule.split("||").any(|part| {
        let part = part.trim();
        let (part, wanted) = part.strip_prefix('!').map_or((part, true), |part| (part, false));
        let field = part.strip_prefix("has(self.").and_then(|part| part.strip_suffix(')'));
        // What is said in another way is not judged.
        field.is_none_or(|field| object[field].is_null() != wanted)
    })
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
        let error = parse(text, None).unwrap_err();
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
            "document 1: spec: a policy must say something: pause, pin, avoid, busy, members or moves",
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
    fn what_is_out_of_its_bounds_or_breaks_a_rule_is_refused() {
        let long = format!("{{pause: true, reason: {}}}", "x".repeat(257));
        for (spec, expect) in [
            ("{members: {capacity: 0}}", "spec.members.capacity is 0, and not 1 or more"),
            ("{members: {capacity: 1001}}", "spec.members.capacity is 1001, and not 1000 or less"),
            ("{moves: {inFleet: 10001}}", "spec.moves.inFleet is 10001, and not 10000 or less"),
            ("{pin: {zones: []}}", "spec.pin.zones has the length 0, and not 1 or more"),
            ("{pin: {names: [a, '']}}", "spec.pin.names[1] has the length 0, and not 1 or more"),
            (long.as_str(), "spec.reason has the length 257, and not 256 or less"),
            ("{busy: 5}", "spec: busy is of each of the selected shards: say which, under shards"),
            ("{avoid: {required: true}}", "spec.avoid: select members by names or zones"),
            (
                "{pause: true, shards: {}}",
                "spec.shards: select shards by clusters, groups or names; leave `shards` out to select all",
            ),
            (
                "{members: {cordon: true}, shards: {groups: [g]}}",
                "spec: shards are selected for pause, pin, avoid and busy: say one of them",
            ),
            (
                "{members: {names: [a]}}",
                "spec.members: say what holds for these members: capacity, maxShards or cordon",
            ),
        ] {
            refused(&format!("{HEAD}spec: {spec}"), &format!("document 1: {expect}"));
        }
        for number in ["1e308", "-1", ".nan", "0.5"] {
            let text = format!("{HEAD}spec: {{shards: {{groups: [g]}}, busy: {number}}}");
            assert!(parse(&text, None).is_err(), "{number}");
        }
        let most = "{shards: {groups: [g]}, busy: 100000, moves: {inFleet: 0, perMember: 1000}}";
        assert!(parse(&format!("{HEAD}spec: {most}"), None).is_ok());
    }

    #[test]
    fn what_an_api_server_takes_is_read() {
        let text = format!(
            "{HEAD}spec: {{pause: false, reason: x, shards: {{clusters: [a]}}}}\n---\n---\n\
             apiVersion: leasehold.dev/v1alpha1\nkind: FleetPolicy\n\
             metadata: {{name: q, labels: {{a: b}}, uid: u}}\n\
             spec: {{pin: {{zones: [z], required: false}}, members: {{cordon: true}}}}\n"
        );
        let policies = parse(&text, Some("lh")).unwrap();
        let names: Vec<_> = policies.into_iter().map(|policy| policy.name).collect();
        assert_eq!(names, ["p", "q"]);
    }

    #[test]
    fn a_policy_for_another_namespace_is_refused() {
        let text = format!("{HEAD}spec: {{pause: true}}");
        let text = text.replace("name: p", "name: p, namespace: other");
        let error = model::error::chain(&*parse(&text, Some("lh")).unwrap_err());
        let expect =
            "document 1: FleetPolicy p is for the namespace other, and the fleet is in lh; ";
        assert!(error.starts_with(expect), "{error}");
        // An invented fleet is in none.
        for namespace in [None, Some("other")] {
            assert_eq!(parse(&text, namespace).unwrap().len(), 1, "{namespace:?}");
        }
    }
}
