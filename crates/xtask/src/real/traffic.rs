//! What was written to a server: each committed write from its audit log, and bytes from its
//! metrics.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::manager::NAMESPACE;

/// Bytes of requests' bodies, by resource and verb. Alpha in Kubernetes, on by default.
const BODY_BYTES: &str = "apiserver_request_body_size_bytes_sum";

/// One committed write.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The object's name.
    pub name: String,
    /// `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// When the server had received it.
    pub at: Timestamp,
    /// The object as it was then stored, where the audit policy keeps that.
    pub object: Value,
}

/// The committed writes to objects of one resource in our namespace, in the order of the log.
///
/// # Errors
/// If the log cannot be read.
pub fn writes(audit_log: &Path, resource: &str) -> Result<Vec<Written>> {
    let text = fs::read_to_string(audit_log)
        .with_context(|| format!("reading {}", audit_log.display()))?;
    // A line that is being written ends the log.
    let events = text.lines().map_while(|line| serde_json::from_str(line).ok());
    Ok(events.filter_map(|event| written(event, resource)).collect())
}

fn written(mut event: Value, resource: &str) -> Option<Written> {
    let committed = event["responseStatus"]["code"].as_u64().is_some_and(|code| code / 100 == 2);
    let verb = event["verb"].as_str()?.to_owned();
    let is_write = matches!(verb.as_str(), "create" | "update" | "patch" | "delete");
    let target = &event["objectRef"];
    if !committed || !is_write || target["resource"] != resource || target["namespace"] != NAMESPACE
    {
        return None;
    }
    let name = target["name"].as_str().or(event["responseObject"]["metadata"]["name"].as_str());
    Some(Written {
        name: name.unwrap_or_default().to_owned(),
        at: event["requestReceivedTimestamp"].as_str()?.parse().ok()?,
        verb,
        object: event["responseObject"].take(),
    })
}

/// How many bytes of bodies the server was sent so far with writes to a resource, its own Lease's
/// among them.
///
/// # Errors
/// If its metrics cannot be read, or do not tell.
pub async fn body_bytes(client: &Client, resource: &str) -> Result<f64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = client.request_text(request).await.context("GET /metrics")?;
    ensure!(text.contains(BODY_BYTES), "the server does not tell {BODY_BYTES}");
    Ok(sum(&text, resource))
}

fn sum(metrics: &str, resource: &str) -> f64 {
    let label = format!("resource=\"{resource}\"");
    let series =
        metrics.lines().filter(|line| line.starts_with(BODY_BYTES) && line.contains(&label));
    series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_writes_are_read_and_others_are_not() {
        let line = |verb: &str, resource: &str, code: u16| {
            serde_json::json!({
                "verb": verb, "objectRef": {"resource": resource, "namespace": NAMESPACE, "name": "a"},
                "responseStatus": {"code": code}, "responseObject": {"spec": 1},
                "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z",
            })
        };
        let read = |event| written(event, "leases").map(|written| written.object["spec"].clone());
        assert_eq!(read(line("update", "leases", 200)), Some(1.into()));
        assert_eq!(read(line("update", "leases", 409)), None);
        assert_eq!(read(line("get", "leases", 200)), None);
        assert_eq!(read(line("update", "members", 200)), None);
    }

    #[test]
    fn bytes_are_summed_over_verbs() {
        let text = "# TYPE apiserver_request_body_size_bytes histogram\n\
            apiserver_request_body_size_bytes_sum{group=\"x\",resource=\"leases\",verb=\"create\"} 10\n\
            apiserver_request_body_size_bytes_sum{group=\"x\",resource=\"leases\",verb=\"update\"} 2.5e+01\n\
            apiserver_request_body_size_bytes_sum{group=\"x\",resource=\"pods\",verb=\"update\"} 7\n";
        assert!((sum(text, "leases") - 35.0).abs() < f64::EPSILON);
    }
}
