//! The `BlogPost` resource (`iximiuz.com/v1alpha1`).

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has its own type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A post of a blog.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "iximiuz.com",
    version = "v1alpha1",
    kind = "BlogPost",
    plural = "blogposts",
    category = "leasehold",
    namespaced,
    status = "BlogPostStatus",
    derive = "PartialEq",
    doc = "A BlogPost records the time at which it was published.",
    printcolumn(name = "Title", type_ = "string", json_path = ".spec.title"),
    printcolumn(name = "Author", type_ = "string", json_path = ".spec.author"),
    printcolumn(name = "Published", type_ = "date", json_path = ".status.publishedAt")
)]
pub struct BlogPostSpec {
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}

/// When it was published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlogPostStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The time of publication, as RFC 3339 in UTC and whole seconds. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<String>,
    /// `Ready`: true once the post is published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sdk::schema::conditions")]
    pub conditions: Vec<Condition>,
}
