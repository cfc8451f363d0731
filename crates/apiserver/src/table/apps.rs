//! Columns of workloads, Jobs, disruption budgets and autoscalers.

use serde_json::{Value, json};

use super::cells::{
    NONE, UNSET, container_images, container_names, containers, first, selector, selector_at,
};
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

pub(crate) const CRON_JOBS: &[Column] = &[
    Column::NAME,
    Column::text("Schedule", |row| json!(row.text("/spec/schedule"))),
    Column::text("Timezone", |row| row.text_or_none("/spec/timeZone")),
    Column { kind: "boolean", ..Column::text("Suspend", suspended) },
    Column::count("Active", |row| json!(row.length("/status/active"))),
    Column::text("Last Schedule", |row| match row.text("/status/lastScheduleTime") {
        "" => json!(NONE),
        _ => row.since("/status/lastScheduleTime"),
    }),
    Column::AGE,
    Column::wide("Containers", |row| containers(row, OF_JOBS, "name")),
    Column::wide("Images", |row| containers(row, OF_JOBS, "image")),
    Column::wide("Selector", |row| selector_at(row, "/spec/jobTemplate/spec/selector")),
];

/// Where the containers of a CronJob's Jobs are.
const OF_JOBS: &str = "/spec/jobTemplate/spec/template/spec/containers";

pub(crate) const AUTOSCALERS: &[Column] = &[
    Column::NAME,
    Column::text("Reference", |row| {
        let [kind, name] = ["/spec/scaleTargetRef/kind", "/spec/scaleTargetRef/name"];
        json!(format!("{}/{}", row.text(kind), row.text(name)))
    }),
    Column::text("Targets", targets),
    Column::text("MinPods", |row| match row.at("/spec/minReplicas") {
        Value::Number(number) => json!(number.to_string()),
        _ => json!(UNSET),
    }),
    Column::text("MaxPods", |row| json!(row.number("/spec/maxReplicas"))),
    Column::text("Replicas", |row| json!(row.number("/status/currentReplicas"))),
    Column::AGE,
];

pub(crate) const DISRUPTION_BUDGETS: &[Column] = &[
    Column::NAME,
    Column::text("Min Available", |row| number_or_share(row, "/spec/minAvailable")),
    Column::text("Max Unavailable", |row| number_or_share(row, "/spec/maxUnavailable")),
    Column::count("Allowed Disruptions", |row| json!(row.number("/status/disruptionsAllowed"))),
    Column::AGE,
];

/// A number, or a share such as `25%`.
fn number_or_share(row: &Row<'_>, pointer: &str) -> Value {
    json!(match row.at(pointer) {
        Value::Number(number) => number.to_string(),
        Value::String(share) => share.clone(),
        _ => "N/A".to_owned(),
    })
}

fn suspended(row: &Row<'_>) -> Value {
    json!(match row.at("/spec/suspend") {
        Value::Bool(true) => "True",
        Value::Bool(false) => "False",
        _ => UNSET,
    })
}

/// What an autoscaler's metrics are, and what they should be.
fn targets(row: &Row<'_>) -> Value {
    let found = row.list("/status/currentMetrics");
    let metrics = row.list("/spec/metrics").iter().enumerate();
    let targets: Vec<String> =
        metrics.map(|(at, metric)| target(metric, found.get(at).unwrap_or(&Value::Null))).collect();
    json!(if targets.is_empty() { NONE.to_owned() } else { first(&targets, 2, ", ") })
}

fn target(metric: &Value, found: &Value) -> String {
    const UNKNOWN: &str = "<unknown>";
    let place = match metric["type"].as_str() {
        Some("Resource") => "resource",
        Some("ContainerResource") => "containerResource",
        Some("Pods") => "pods",
        Some("Object") => "object",
        Some("External") => "external",
        _ => return "<unknown type>".to_owned(),
    };
    let (source, wanted) = (&metric[place], &metric[place]["target"]);
    let current = &found[place]["current"];
    let text = |value: &Value, absent: &str| value.as_str().unwrap_or(absent).to_owned();
    let share = |value: &Value, absent: &str| match value.as_i64() {
        Some(share) => format!("{share}%"),
        None => absent.to_owned(),
    };
    let average = &wanted["averageValue"];
    let averages = || format!("{}/{}", text(&current["averageValue"], UNKNOWN), text(average, ""));
    match (place, average.is_string()) {
        ("resource" | "containerResource", is_average) => {
            let name = text(&source["name"], "");
            if is_average {
                return format!("{name}: {}", averages());
            }
            let current = share(&current["averageUtilization"], UNKNOWN);
            format!("{name}: {current}/{}", share(&wanted["averageUtilization"], "<auto>"))
        }
        ("pods", _) => averages(),
        (_, true) => format!("{} (avg)", averages()),
        (_, false) => {
            format!("{}/{}", text(&current["value"], UNKNOWN), text(&wanted["value"], ""))
        }
    }
}

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
