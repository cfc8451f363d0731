//! The rules of access reviews. Pure.

use serde_json::{Value, json};

use crate::access::MAX_GROUPS;
use crate::kinds::KindInfo;
use crate::status::{FieldError, FieldErrorKind};

const EXACTLY_ONE: &str =
    "exactly one of nonResourceAttributes or resourceAttributes must be specified";

/// What is wrong with a review of somebody's access.
pub(super) fn access_review(kind: &KindInfo, review: &Value) -> Vec<FieldError> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = Vec::new();
    if resource.is_null() == path.is_null() {
        errors.push(FieldError::invalid("spec", shown(path), EXACTLY_ONE));
    }
    if kind.plural != "selfsubjectaccessreviews" {
        subject(spec, &mut errors);
    }
    for field in ["fieldSelector", "labelSelector"] {
        selector(&format!("spec.resourceAttributes.{field}"), &resource[field], &mut errors);
    }
    metadata(kind, &review["metadata"], &mut errors);
    if kind.namespaced {
        local(review, &mut errors);
    }
    errors
}

fn subject(spec: &Value, errors: &mut Vec<FieldError>) {
    let groups = spec["groups"].as_array().map_or(0, Vec::len);
    if groups == 0 && spec["user"].as_str().unwrap_or_default().is_empty() {
        let rule = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", "", rule));
    }
    // A bound of this server only.
    if groups > MAX_GROUPS {
        let rule = format!("must have at most {MAX_GROUPS} items");
        errors.push(FieldError::new(FieldErrorKind::TooMany, "spec.groups", groups, rule));
    }
}

fn selector(path: &str, selector: &Value, errors: &mut Vec<FieldError>) {
    if selector.is_null() {
        return;
    }
    let raw = selector["rawSelector"].as_str().unwrap_or_default();
    let required = selector["requirements"].as_array().is_some_and(|r| !r.is_empty());
    match (raw, required) {
        ("", false) => {
            let rule = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), rule));
        }
        ("", true) | (_, false) => {}
        (raw, true) => {
            let rule = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, rule));
        }
    }
}

fn metadata(kind: &KindInfo, metadata: &Value, errors: &mut Vec<FieldError>) {
    let allowed = |field: &str| field == "managedFields" || kind.namespaced && field == "namespace";
    let given = metadata.as_object().into_iter().flatten();
    if given.into_iter().any(|(field, value)| !value.is_null() && !allowed(field)) {
        let rule =
            if kind.namespaced { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", metadata.clone(), rule));
    }
}

/// The rules of a review that is in a namespace.
fn local(review: &Value, errors: &mut Vec<FieldError>) {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let namespace = resource["namespace"].as_str().unwrap_or_default();
    if !resource.is_null() && review["metadata"]["namespace"] != namespace {
        let path = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(path, namespace, "must match metadata.namespace"));
    }
    if !path.is_null() {
        let rule = "disallowed on this kind of request";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", shown(path), rule));
    }
}

/// A path and a verb, as Go shows them.
fn shown(attributes: &Value) -> Value {
    let text = |field: &str| attributes[field].as_str().unwrap_or_default();
    if attributes.is_null() {
        return Value::Null;
    }
    json!({"Path": text("path"), "Verb": text("verb")})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn check(plural: &str, review: Value) -> Vec<String> {
        let kind = kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap();
        access_review(&kind, &review).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_review_asks_one_question_about_somebody() {
        let null = "spec: Invalid value: null: exactly one of nonResourceAttributes or \
                    resourceAttributes must be specified";
        let both = "spec: Invalid value: {\"Path\":\"/x\",\"Verb\":\"\"}: exactly one of \
                    nonResourceAttributes or resourceAttributes must be specified";
        let nobody =
            "spec.user: Invalid value: \"\": at least one of user or group must be specified";
        let cases = [
            ("subjectaccessreviews", json!({"user": "u", "resourceAttributes": {}}), vec![]),
            ("subjectaccessreviews", json!({"groups": ["g"], "resourceAttributes": {}}), vec![]),
            ("subjectaccessreviews", json!({}), vec![null, nobody]),
            ("selfsubjectaccessreviews", json!({}), vec![null]),
            (
                "selfsubjectaccessreviews",
                json!({"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x"}}),
                vec![both],
            ),
        ];
        for (plural, spec, expected) in cases {
            assert_eq!(check(plural, json!({"metadata": {}, "spec": spec})), expected, "{spec}");
        }
    }

    #[test]
    fn bounds_and_selectors_are_checked() {
        let groups = vec!["g"; MAX_GROUPS + 1];
        let spec = json!({
            "groups": groups,
            "resourceAttributes": {
                "labelSelector": {},
                "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "c"}]},
            },
        });
        let errors =
            check("subjectaccessreviews", json!({"metadata": {"name": "x"}, "spec": spec}));
        let paths: Vec<&str> = errors.iter().filter_map(|e| e.split(':').next()).collect();
        assert_eq!(
            paths,
            [
                "spec.groups",
                "spec.resourceAttributes.fieldSelector.rawSelector",
                "spec.resourceAttributes.labelSelector.requirements",
                "metadata",
            ]
        );
    }

    #[test]
    fn a_local_review_is_about_its_namespace() {
        let local = |spec| {
            let review = json!({"metadata": {"namespace": "a"}, "spec": spec});
            check("localsubjectaccessreviews", review)
        };
        assert!(local(json!({"user": "u", "resourceAttributes": {"namespace": "a"}})).is_empty());
        assert_eq!(
            local(json!({"user": "u", "resourceAttributes": {"namespace": "b"}})),
            [
                "spec.resourceAttributes.namespace: Invalid value: \"b\": must match metadata.namespace"
            ]
        );
        assert_eq!(
            local(json!({"user": "u", "nonResourceAttributes": {"path": "b"}})),
            [
                "spec.nonResourceAttributes: Invalid value: {\"Path\":\"b\",\"Verb\":\"\"}: disallowed on \
              this kind of request"
            ]
        );
    }
}
