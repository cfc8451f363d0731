//! Schemas of Kubernetes' own types that custom resources hold: times and conditions.
//!
//! k8s-openapi has them too, behind a feature that compiles a schema for each of its thousand types.
//!
//! ```
//! use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
//! use schemars::{JsonSchema, schema_for};
//!
//! #[derive(JsonSchema)]
//! struct PostStatus {
//!     #[schemars(schema_with = "leasehold_sdk::schema::time")]
//!     published: Option<Time>,
//!     #[schemars(schema_with = "leasehold_sdk::schema::conditions")]
//!     conditions: Vec<Condition>,
//! }
//!
//! let schema = schema_for!(PostStatus);
//! let properties = &schema.as_value()["properties"];
//! assert_eq!(properties["published"]["format"], "date-time");
//! assert_eq!(properties["conditions"]["x-kubernetes-list-type"], "map");
//! ```

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The schema of an optional time.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "format": "date-time"})
}

/// The schema of a list of conditions, one for each type.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    let text =
        |description: &str| -> Value { json!({"description": description, "type": "string"}) };
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "Condition contains details for one aspect of the current state of this \
                API Resource.",
            "type": "object",
            "properties": {
                "lastTransitionTime": {
                    "description": "lastTransitionTime is the last time the condition transitioned \
                        from one status to another. This should be when the underlying condition \
                        changed.  If that is not known, then using the time when the API field \
                        changed is acceptable.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": text(
                    "message is a human readable message indicating details about the transition. \
                     This may be an empty string.",
                ),
                "observedGeneration": {
                    "description": "observedGeneration represents the .metadata.generation that the \
                        condition was set based upon. For instance, if .metadata.generation is \
                        currently 12, but the .status.conditions[x].observedGeneration is 9, the \
                        condition is out of date with respect to the current state of the instance.",
                    "type": "integer",
                    "format": "int64",
                },
                "reason": text(
                    "reason contains a programmatic identifier indicating the reason for the \
                     condition's last transition. Producers of specific condition types may define \
                     expected values and meanings for this field, and whether the values are \
                     considered a guaranteed API. The value should be a CamelCase string. This \
                     field may not be empty.",
                ),
                "status": text("status of the condition, one of True, False, Unknown."),
                "type": text("type of condition in CamelCase or in foo.example.com/CamelCase."),
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
    })
}
