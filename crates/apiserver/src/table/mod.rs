//! Tables: what `kubectl get` prints, rendered by the server.
//!
//! Owns the columns of built-in kinds (`core`, `apps`, `network`, `storage`), the columns a
//! definition declares (`declared`) and how ages are written (`age`). Does not own content
//! negotiation or list metadata, which the caller fills in.
//!
//! Pure: `now` is an argument.

mod age;
mod apps;
mod cells;
mod core;
mod declared;
mod network;
mod storage;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::KindInfo;

/// How much of each object a row includes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata, as `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

/// A column of a built-in kind.
pub(crate) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// 0 for every table, 1 for wide ones only.
    priority: i32,
    cell: fn(&Row<'_>) -> Value,
}

/// An object that is printed.
pub(crate) struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

// === impl IncludeObject ===

impl IncludeObject {
    /// Parses the `includeObject` parameter; `None` for an unknown word.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "Metadata" => Self::Metadata,
            "None" => Self::None,
            "Object" => Self::Object,
            _ => return None,
        })
    }

    fn of(self, object: &Value) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Metadata => Some(json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            })),
            Self::Object => Some(object.clone()),
        }
    }
}

/// A `meta.k8s.io/v1` Table of objects of one kind, with empty list metadata.
pub fn render<'a>(
    kind: &KindInfo,
    items: impl IntoIterator<Item = &'a Value>,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let row = |cells: Vec<Value>, object: &Value| match include.of(object) {
        Some(object) => json!({"cells": cells, "object": object}),
        None => json!({ "cells": cells }),
    };
    let (definitions, rows): (Vec<Value>, Vec<Value>) = if kind.custom {
        let columns = declared::Columns::new(&kind.columns);
        let rows = items.into_iter().map(|o| row(columns.cells(&Row { object: o, now }), o));
        (columns.definitions(), rows.collect())
    } else {
        let columns = builtin(kind);
        let cells = |object| {
            let row = Row { object, now };
            columns.iter().map(|column| (column.cell)(&row)).collect()
        };
        let definitions = columns.iter().map(Column::definition).collect();
        (definitions, items.into_iter().map(|o| row(cells(o), o)).collect())
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn builtin(kind: &KindInfo) -> &'static [Column] {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "configmaps") => core::CONFIG_MAPS,
        ("" | "events.k8s.io", "events") => core::EVENTS,
        ("", "namespaces") => core::NAMESPACES,
        ("", "nodes") => core::NODES,
        ("", "endpoints") => network::ENDPOINTS,
        ("", "persistentvolumeclaims") => storage::CLAIMS,
        ("", "persistentvolumes") => storage::VOLUMES,
        ("", "pods") => core::PODS,
        ("", "secrets") => core::SECRETS,
        ("", "serviceaccounts") => core::SERVICE_ACCOUNTS,
        ("", "services") => core::SERVICES,
        ("apps", "daemonsets") => apps::DAEMON_SETS,
        ("apps", "deployments") => apps::DEPLOYMENTS,
        ("apps", "replicasets") => apps::REPLICA_SETS,
        ("apps", "statefulsets") => apps::STATEFUL_SETS,
        ("autoscaling", "horizontalpodautoscalers") => apps::AUTOSCALERS,
        ("batch", "cronjobs") => apps::CRON_JOBS,
        ("batch", "jobs") => apps::JOBS,
        ("coordination.k8s.io", "leases") => core::LEASES,
        ("discovery.k8s.io", "endpointslices") => network::ENDPOINT_SLICES,
        ("networking.k8s.io", "ingresses") => network::INGRESSES,
        ("policy", "poddisruptionbudgets") => apps::DISRUPTION_BUDGETS,
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => core::BINDINGS,
        ("storage.k8s.io", "storageclasses") => storage::CLASSES,
        _ => core::OTHERS,
    }
}

/// The description of the first column on a real server; nobody reads those of the others.
const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating \
    resources, although some resources may allow a client to request the generation of an \
    appropriate name automatically. Name is primarily intended for creation idempotence and \
    configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

// === impl Column ===

impl Column {
    /// A column of text that every table shows.
    pub(crate) const fn text(name: &'static str, cell: fn(&Row<'_>) -> Value) -> Self {
        Self { name, kind: "string", format: "", priority: 0, cell }
    }

    /// A column of whole numbers.
    pub(crate) const fn count(name: &'static str, cell: fn(&Row<'_>) -> Value) -> Self {
        Self { kind: "integer", ..Self::text(name, cell) }
    }

    /// A column of text that only wide tables show.
    pub(crate) const fn wide(name: &'static str, cell: fn(&Row<'_>) -> Value) -> Self {
        Self { priority: 1, ..Self::text(name, cell) }
    }

    /// The object's name.
    pub(crate) const NAME: Self = Self { format: "name", ..Self::text("Name", cells::name) };

    /// The time since the object was created.
    pub(crate) const AGE: Self = Self::text("Age", cells::age);

    /// The time the object was created.
    pub(crate) const CREATED_AT: Self =
        Self { kind: "date", ..Self::text("Created At", cells::created_at) };

    fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": if self.name == Self::NAME.name { NAME_DESCRIPTION } else { "" },
            "priority": self.priority,
        })
    }
}
