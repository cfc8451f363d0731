//! Tables over a schema that uses most keywords.

use serde_json::{Value, json};

use super::Schema;
use super::parse::ParseError;

/// The schedule kind of the examples, with one field for each further keyword.
fn schema() -> Schema {
    Schema::parse(&json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "required": ["defaultReplica"],
                "properties": {
                    "defaultReplica": {"type": "integer", "format": "int32", "minimum": 1},
                    "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
                    "name": {
                        "type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$",
                    },
                    "note": {"type": "string", "nullable": true},
                    "port": {"x-kubernetes-int-or-string": true},
                    "ratio": {"type": "number", "exclusiveMaximum": true, "maximum": 1.5},
                    "step": {"type": "integer", "multipleOf": 5},
                    "since": {"type": "string", "format": "date-time"},
                    "labels": {
                        "type": "object", "maxProperties": 2,
                        "additionalProperties": {"type": "string"},
                    },
                    "open": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"closed": {"type": "object", "properties": {}}},
                    },
                    "object": {"type": "object", "x-kubernetes-embedded-resource": true,
                        "properties": {"spec": {"type": "object"}}},
                    "tags": {
                        "type": "array", "x-kubernetes-list-type": "set",
                        "items": {"type": "string"},
                    },
                    "schedulingConfig": {
                        "type": "array", "maxItems": 2, "minItems": 1,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["startTime"],
                        "items": {
                            "type": "object",
                            "required": ["startTime"],
                            "properties": {
                                "startTime": {"type": "integer", "minimum": 0, "maximum": 23},
                                "replica": {"type": "integer", "default": 1},
                            },
                        },
                    },
                },
                "oneOf": [
                    {"required": ["mode"]},
                    {"required": ["ratio"]},
                ],
                "not": {"required": ["forbidden"]},
            },
        },
    }))
    .unwrap()
}

fn errors(spec: Value) -> Vec<String> {
    let object = json!({"apiVersion": "v1", "kind": "T", "metadata": {"name": "t"}, "spec": spec});
    schema().validate(&object).iter().map(ToString::to_string).collect()
}

/// A spec that breaks only the rules that `extra` breaks.
fn broken(extra: Value) -> Vec<String> {
    let mut spec = json!({"defaultReplica": 1, "mode": "fast"});
    json_patch::merge(&mut spec, &extra);
    errors(spec)
}

#[test]
fn a_valid_object_has_no_errors() {
    assert_eq!(broken(json!({})), Vec::<String>::new());
    assert_eq!(broken(json!({"port": "http"})), Vec::<String>::new());
    assert_eq!(broken(json!({"port": 80, "note": "x", "step": 10.0})), Vec::<String>::new());
}

#[test]
fn texts_are_those_of_a_real_server() {
    let cases = [
        (
            json!({"schedulingConfig": [{"startTime": 24}]}),
            "spec.schedulingConfig[0].startTime: Invalid value: 24: \
             spec.schedulingConfig[0].startTime in body should be less than or equal to 23",
        ),
        (
            json!({"defaultReplica": 0}),
            "spec.defaultReplica: Invalid value: 0: spec.defaultReplica in body should be greater \
             than or equal to 1",
        ),
        (
            json!({"defaultReplica": "3"}),
            "spec.defaultReplica: Invalid value: \"string\": spec.defaultReplica in body must be of \
             type integer: \"string\"",
        ),
        (
            json!({"port": true}),
            "spec.port: Invalid value: \"boolean\": spec.port in body must be of type \
             integer,string: \"boolean\"",
        ),
        (
            json!({"defaultReplica": 3_000_000_000_u64}),
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in \
             spec.defaultReplica",
        ),
        (
            json!({"mode": "medium"}),
            "spec.mode: Unsupported value: \"medium\": supported values: \"fast\", \"slow\"",
        ),
        (
            json!({"name": "a"}),
            "spec.name: Invalid value: \"a\": spec.name in body should be at least 2 chars long",
        ),
        (json!({"name": "abcdef"}), "spec.name: Too long: may not be more than 5 bytes"),
        (
            json!({"name": "AB"}),
            "spec.name: Invalid value: \"AB\": spec.name in body should match '^[a-z]+$'",
        ),
        (
            json!({"step": 7}),
            "spec.step: Invalid value: 7: spec.step in body should be a multiple of 5",
        ),
        (
            json!({"since": "yesterday"}),
            "spec.since: Invalid value: \"yesterday\": spec.since in body must be of type \
             date-time: \"yesterday\"",
        ),
        (
            json!({"schedulingConfig": []}),
            "spec.schedulingConfig: Invalid value: 0: spec.schedulingConfig in body should have at \
             least 1 items",
        ),
        (
            json!({"labels": {"a": "1", "b": "2", "c": "3"}}),
            "spec.labels: Too many: 3: must have at most 2 items",
        ),
        (json!({"tags": ["a", "b", "a"]}), "spec.tags[2]: Duplicate value: \"a\""),
        (
            json!({"schedulingConfig": [{"startTime": 1}, {"startTime": 1, "replica": 2}]}),
            "spec.schedulingConfig[1]: Duplicate value: {\"startTime\":1}",
        ),
        (json!({"schedulingConfig": [{}]}), "spec.schedulingConfig[0].startTime: Required value"),
        (
            json!({"forbidden": 1}),
            "<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)",
        ),
        (
            json!({"object": {"kind": "K", "metadata": {}}}),
            "spec.object.apiVersion: Required value: must not be empty",
        ),
    ];
    for (extra, expected) in cases {
        assert_eq!(broken(extra.clone()), [expected], "for {extra}");
    }
}

#[test]
fn an_exclusive_limit_excludes_its_value() {
    let found = errors(json!({"defaultReplica": 1, "ratio": 1.5}));
    assert_eq!(
        found,
        ["spec.ratio: Invalid value: 1.5: spec.ratio in body should be less than 1.5"]
    );
}

#[test]
fn one_of_names_the_alternatives_and_the_nearest_failure() {
    let rule =
        "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf).";
    assert_eq!(
        errors(json!({"defaultReplica": 1})),
        [format!("{rule} Found none valid"), "spec.mode: Required value".into()]
    );
    assert_eq!(
        errors(json!({"defaultReplica": 1, "mode": "fast", "ratio": 1})),
        [format!("{rule} Found 2 valid alternatives")]
    );
}

#[test]
fn any_of_and_all_of_say_which_rule_failed() {
    let schema = Schema::parse(&json!({
        "type": "object",
        "properties": {
            "any": {"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 1}]},
            "all": {"type": "integer", "allOf": [{"minimum": 1}, {"multipleOf": 2}]},
        },
    }))
    .unwrap();
    let texts = |object: Value| -> Vec<String> {
        schema.validate(&object).iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        texts(json!({"any": 5})),
        [
            "<nil>: Invalid value: \"\": \"any\" must validate at least one schema (anyOf)",
            "any: Invalid value: 5: any in body should be greater than or equal to 10",
        ]
    );
    assert_eq!(
        texts(json!({"all": 3})),
        [
            "all: Invalid value: 3: all in body should be a multiple of 2",
            "<nil>: Invalid value: \"\": \"all\" must validate all the schemas (allOf)",
        ]
    );
}

#[test]
fn a_missing_spec_is_required_and_a_null_is_no_object() {
    let found = schema().validate(&json!({"apiVersion": "v1", "kind": "T"}));
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["spec: Required value"]);
    let found = schema().validate(&json!({"spec": null}));
    assert_eq!(
        found[0].to_string(),
        "spec: Invalid value: \"null\": spec in body must be of type object: \"null\""
    );
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let mut object = json!({
        "apiVersion": "v1", "kind": "T", "extra": 1,
        "metadata": {"name": "t", "labels": {"a": "b"}, "owner": "me"},
        "spec": {
            "defaultReplica": 1,
            "unknown": {"deep": true},
            "labels": {"anything": "goes"},
            "schedulingConfig": [{"startTime": 1, "endTime": 2}],
            "open": {"anything": {"goes": 1}, "closed": {"x": 1}},
            "object": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "x": 1},
        },
    });
    let mut unknown = schema().prune(&mut object);
    unknown.sort();
    assert_eq!(
        unknown,
        [
            "extra",
            "metadata.owner",
            "spec.object.x",
            "spec.open.closed.x",
            "spec.schedulingConfig[0].endTime",
            "spec.unknown",
        ]
    );
    assert_eq!(schema().prune(&mut object), Vec::<String>::new());
    assert_eq!(object["spec"]["open"], json!({"anything": {"goes": 1}, "closed": {}}));
    assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn defaults_fill_what_is_absent_and_replace_nulls_that_mean_absence() {
    let mut object = json!({"spec": {
        "mode": null, "note": null, "name": null,
        "schedulingConfig": [{"startTime": 1}, {"startTime": 2, "replica": 0}],
    }});
    schema().apply_defaults(&mut object);
    let expected = json!({"spec": {
        "mode": "slow", "note": null,
        "schedulingConfig": [{"startTime": 1, "replica": 1}, {"startTime": 2, "replica": 0}],
    }});
    assert_eq!(object, expected);
    schema().apply_defaults(&mut object);
    assert_eq!(object, expected);
}

#[test]
fn a_wrong_schema_says_where() {
    let parse = |source| Schema::parse(&source).unwrap_err().to_string();
    assert_eq!(
        parse(json!({"properties": {"spec": {"type": "text"}}})),
        "schema properties[spec].type: unsupported type \"text\""
    );
    assert_eq!(
        parse(json!({"anyOf": [{"properties": []}]})),
        "schema anyOf[0].properties: expected an object of schemas"
    );
    assert_eq!(
        parse(json!({"x-kubernetes-list-type": "map"})),
        "schema x-kubernetes-list-type: unsupported list type \"map\""
    );
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"items": deep});
    }
    assert!(matches!(Schema::parse(&deep), Err(ParseError::TooDeep { .. })));
}
