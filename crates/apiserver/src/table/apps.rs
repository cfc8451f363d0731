//! Columns of workloads and Jobs.

use serde_json::{Value, json};

use super::cells::{NONE, container_images, container_names, selector};
use super::{Column, Row, age};

pub(crate) const DEPLOYMENTS: &[Column] = &[
    Column::NAME,
    Column::text("Ready", ready),
    Column::text("Up-to-date", |row| json!(row.number("/status/updatedReplicas"))),
    Column::text("Available", |row| json!(row.number("/status/availableReplicas"))),
    Column::AGE,
    Column::wide("Containers", container_names),
    Column::wide("Images", container_images),
    Column::wide("Selector", selector),
];

pub(crate) const REPLICA_SETS: &[Column] = &[
    Column::NAME,
    Column::count("Desired", |row| json!(row.number("/spec/replicas"))),
    Column::count("Current", |row| json!(row.number("/status/replicas"))),
    Column::count("Ready", |row| json!(row.number("/status/readyReplicas"))),
    Column::AGE,
    Column::wide("Containers", container_names),
    Column::wide("Images", container_images),
    Column::wide("Selector", selector),
];

pub(crate) const STATEFUL_SETS: &[Column] = &[
    Column::NAME,
    Column::text("Ready", ready),
    Column::AGE,
    Column::wide("Containers", container_names),
    Column::wide("Images", container_images),
];

pub(crate) const DAEMON_SETS: &[Column] = &[
    Column::NAME,
    Column::count("Desired", |row| json!(row.number("/status/desiredNumberScheduled"))),
    Column::count("Current", |row| json!(row.number("/status/currentNumberScheduled"))),
    Column::count("Ready", |row| json!(row.number("/status/numberReady"))),
    Column::count("Up-to-date", |row| json!(row.number("/status/updatedNumberScheduled"))),
    Column::count("Available", |row| json!(row.number("/status/numberAvailable"))),
    Column::text("Node Selector", node_selector),
    Column::AGE,
    Column::wide("Containers", container_names),
    Column::wide("Images", container_images),
    Column::wide("Selector", selector),
];

pub(crate) const JOBS: &[Column] = &[
    Column::NAME,
    Column::text("Status", job_status),
    Column::text("Completions", completions),
    Column::text("Duration", duration),
    Column::AGE,
    Column::wide("Containers", container_names),
    Column::wide("Images", container_images),
    Column::wide("Selector", selector),
];

fn ready(row: &Row<'_>) -> Value {
    json!(format!("{}/{}", row.number("/status/readyReplicas"), row.number("/spec/replicas")))
}

fn node_selector(row: &Row<'_>) -> Value {
    let labels = row.at("/spec/template/spec/nodeSelector").as_object();
    let terms: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)))
        .collect();
    json!(if terms.is_empty() { NONE.to_owned() } else { terms.join(",") })
}

fn job_status(row: &Row<'_>) -> Value {
    let has = |kind: &str| {
        row.list("/status/conditions").iter().any(|c| c["type"] == kind && c["status"] == "True")
    };
    json!(match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if row.at("/metadata/deletionTimestamp").is_string() => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    })
}

fn completions(row: &Row<'_>) -> Value {
    let succeeded = row.number("/status/succeeded");
    let parallelism = row.number("/spec/parallelism");
    json!(match row.at("/spec/completions").as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    })
}

fn duration(row: &Row<'_>) -> Value {
    json!(row.time("/status/startTime").map_or(String::new(), |start| {
        age::since(start, row.time("/status/completionTime").unwrap_or(row.now))
    }))
}
