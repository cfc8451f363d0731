//! An object as the plans read it. What they do not look into stays JSON, because to read Pods and
//! their owners as the types of Kubernetes is more code than all of the server besides.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::core::DynamicResourceScope;
use serde::Deserialize;
use serde_json::{Value, json};

use super::action::Kind;
use crate::follow::Metadata;

/// A Pod, or what has Pods.
#[derive(Debug, Deserialize)]
pub(crate) struct Object {
    #[serde(with = "Metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: Value,
    #[serde(default)]
    pub(crate) status: Value,
}

/// A count in JSON.
pub(crate) fn count(value: &Value) -> Option<i32> {
    value.as_i64().and_then(|count| count.try_into().ok())
}

// === impl Object ===

impl Object {
    /// All that is known of it.
    pub(crate) fn to_value(&self) -> Value {
        // Metadata are text, numbers and maps of text.
        let metadata = serde_json::to_value(&self.metadata).unwrap_or_default();
        json!({"metadata": metadata, "spec": self.spec, "status": self.status})
    }

    /// The reference to its controller.
    pub(crate) fn controller(&self) -> Option<&OwnerReference> {
        let mut references = self.metadata.owner_references.iter().flatten();
        references.find(|reference| reference.controller == Some(true))
    }
}

impl AsRef<ObjectMeta> for Object {
    fn as_ref(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Resource for Object {
    type DynamicType = Kind;
    type Scope = DynamicResourceScope;

    fn kind(kind: &Kind) -> Cow<'_, str> {
        kind.as_str().into()
    }

    fn group(kind: &Kind) -> Cow<'_, str> {
        kind.group().into()
    }

    fn version(_: &Kind) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(kind: &Kind) -> Cow<'_, str> {
        format!("{}s", kind.as_str().to_ascii_lowercase()).into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
