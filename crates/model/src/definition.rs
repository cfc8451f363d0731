//! What a server drops or refuses of objects, where it has another definition of their kind than this release. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::error::foreign;

/// The most differences that are named in one sentence.
const MAX_NAMED: usize = 5;
/// What every object has, whatever its definition.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// What the kind's schema in `document`, the OpenAPI v3 of its group and version as a server publishes it, does not keep
/// or take of what fits `wanted`, as the rest of a sentence; `None` if it is not there. Fields in `dispensable`, such as
/// `spec.shards[].moved`, may be missing.
pub fn differences(
    document: &Value,
    wanted: &CustomResourceDefinition,
    dispensable: &[&str],
) -> Option<impl Iterator<Item = String> + use<>> {
    let version = wanted.spec.versions.first()?;
    let kind = json!({
        "group": wanted.spec.group, "version": version.name, "kind": wanted.spec.names.kind,
    });
    let mut schemas = document["components"]["schemas"].as_object()?.values();
    let served = schemas.find(|schema| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.contains(&kind))
    })?;
    let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    let schema = serde_json::to_value(schema).ok()?;
    let mut found = Vec::new();
    compare("", (&schema, served), dispensable, &mut found);
    Some(found.into_iter())
}

/// Differences as a list for people: of many the first, and how many more there are; `None` if there are none.
pub fn named(mut differences: Vec<String>) -> Option<String> {
    let more = differences.len().saturating_sub(MAX_NAMED);
    differences.truncate(MAX_NAMED);
    if more > 0 {
        differences.push(format!("and {more} more"));
    }
    (!differences.is_empty()).then(|| differences.join(", "))
}

/// Adds what the second does not keep of what fits the first.
fn compare(
    at: &str,
    (wanted, served): (&Value, &Value),
    dispensable: &[&str],
    found: &mut Vec<String>,
) {
    let part = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    let open = served["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, wanted) in wanted["properties"].as_object().into_iter().flatten() {
        if at.is_empty() && COMMON.contains(&name.as_str()) {
            continue;
        }
        let below = part(name);
        match served["properties"].get(name) {
            Some(served) => compare(&below, (wanted, served), dispensable, found),
            None if open || dispensable.contains(&below.as_str()) => {}
            None => found.push(format!("does not keep {below}")),
        }
    }
    for (name, below) in [("items", format!("{at}[]")), ("additionalProperties", format!("{at}.*"))]
    {
        match (&wanted[name], &served[name]) {
            (Value::Object(_), Value::Null) if !open => {
                found.push(format!("does not keep {below}"));
            }
            (wanted @ Value::Object(_), served @ Value::Object(_)) => {
                compare(&below, (wanted, served), dispensable, found);
            }
            _ => {}
        }
    }
    if let (Some(wanted), Some(served)) = (wanted["enum"].as_array(), served["enum"].as_array()) {
        let refused = wanted.iter().filter(|value| !served.contains(value));
        found.extend(refused.map(|value| format!("does not take {value} as {at}")));
    }
    let required = wanted["required"].as_array().map_or(&[][..], Vec::as_slice);
    for name in served["required"].as_array().into_iter().flatten() {
        if !required.contains(name) {
            let name = foreign(name.as_str().unwrap_or_default());
            found.push(format!("requires {}", part(&name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_differences_the_first_are_named_and_the_others_counted() {
        let of = |number: usize| named((0..number).map(|n| n.to_string()).collect());
        assert_eq!(of(0), None);
        assert_eq!(of(2).as_deref(), Some("0, 1"));
        assert_eq!(of(5).as_deref(), Some("0, 1, 2, 3, 4"));
        assert_eq!(of(7).as_deref(), Some("0, 1, 2, 3, 4, and 2 more"));
    }
}
