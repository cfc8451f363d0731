//! Traces, as a real OpenTelemetry collector receives them: one trace leads from the watch event
//! through the queue and the reconcile to the API calls. A real Prometheus keeps the exemplars that lead to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::harness::control_plane::ControlPlane;
use crate::harness::manager::Manager;
use crate::harness::process::{ChildProcess, free_port};
use crate::harness::prometheus::Prometheus;
use crate::harness::{Scene, home, load, wait};

const DEADLINE: Duration = Duration::from_secs(60);

/// The spans of one change, from the API call back to its cause.
const PATH: [&str; 4] = ["api", "reconcile", "queue", "watch.event"];

const SETS: usize = 3;

/// The series whose exemplars lead to traces.
const BUCKETS: &str = "controller_runtime_reconcile_time_seconds_bucket";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let plane = ControlPlane::local(scene, "east").await?;
    home::install(&plane.kubectl).await?;

    let (mut collector, endpoint, file) = start_collector(scene)?;
    let telemetry = json!({"telemetry": {"otlp": {"endpoint": endpoint, "sampleRatio": 1.0}}});
    let mut manager = Manager::start(scene, "replica-0", &plane, &[&plane], &telemetry)?;
    plane.kubectl.apply(&load::manifests(SETS, "example.test/web:1")).await?;
    // A member lists what exists when it starts; only later changes come as watch events.
    let outcome = wait::until(DEADLINE, "the first reconcile", async || {
        manager.check_alive()?;
        let spans = spans(&fs::read_to_string(&file).unwrap_or_default());
        Ok(spans.values().any(|span| span.name == "reconcile").then_some(()))
    });
    outcome.await.with_context(|| format!("the collector received {}", names(&file)))?;
    plane.kubectl.apply(&load::manifests(SETS, "example.test/web:2")).await?;

    let mut found = Vec::new();
    let outcome = wait::until(DEADLINE, "a trace of the whole path", async || {
        collector.check_alive()?;
        manager.check_alive()?;
        let spans = spans(&fs::read_to_string(&file).unwrap_or_default());
        found = paths(&spans);
        Ok((!found.is_empty()).then_some(spans.len()))
    })
    .await;
    let spans = outcome.with_context(|| format!("the collector received {}", names(&file)))?;
    println!("{spans} spans received, {} calls traced back to a watch event, as in", found.len());
    println!("  {}", found[0]);

    let admin: Vec<String> = manager.admin().map(str::to_owned).into_iter().collect();
    let mut prometheus = Prometheus::start(scene.dir(), &admin, &[])?;
    let mut linked = (0, 0);
    let outcome = wait::until(DEADLINE, "buckets that lead to the traces", async || {
        prometheus.check_alive()?;
        // It refuses connections until it has started.
        let traces = prometheus.traces(BUCKETS).await.unwrap_or_default();
        let spans = self::spans(&fs::read_to_string(&file).unwrap_or_default());
        let reconciles: BTreeSet<&str> = spans
            .values()
            .filter(|span| span.name == "reconcile")
            .map(|span| span.trace.as_str())
            .collect();
        linked =
            (traces.iter().filter(|id| reconciles.contains(id.as_str())).count(), traces.len());
        Ok((linked.0 > 0 && linked.0 == linked.1).then_some(()))
    });
    outcome.await.with_context(|| format!("exemplars (received, all): {linked:?}"))?;
    println!("{} exemplars in Prometheus, each of them a trace that the collector has", linked.0);
    manager.leave().await?;
    Ok(())
}

/// The collector, the endpoint it listens on, and the file it writes to.
fn start_collector(scene: &Scene) -> Result<(ChildProcess, String, PathBuf)> {
    let (port, file) = (free_port()?, scene.logs().join("traces.jsonl"));
    fs::create_dir_all(scene.logs())?;
    let address = format!("127.0.0.1:{port}");
    let config = json!({
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": address}}}},
        "exporters": {"lines": {"path": file}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["lines"]}},
        },
    });
    let path = scene.dir().join("collector.yaml");
    fs::write(&path, config.to_string())?;
    let mut command = Command::new(scene.tools().collector());
    command.arg("--config").arg(path);
    let process = ChildProcess::spawn("collector", &command, &scene.logs())?;
    Ok((process, format!("http://{address}"), file))
}

/// Spans by their ids.
type Spans = BTreeMap<String, Span>;

#[derive(Debug)]
struct Span {
    name: String,
    trace: String,
    parent: String,
    attributes: BTreeMap<String, String>,
}

/// The spans in the collector's lines; the last line may be incomplete.
fn spans(lines: &str) -> Spans {
    let mut spans = Spans::new();
    for document in lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        for span in document["resourceSpans"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|resource| resource["scopeSpans"].as_array().into_iter().flatten())
            .flat_map(|scope| scope["spans"].as_array().into_iter().flatten())
        {
            let text = |key: &str| span[key].as_str().unwrap_or_default().to_owned();
            let attributes = span["attributes"].as_array().into_iter().flatten();
            let value = |value: &Value| {
                let first = value.as_object().and_then(|object| object.values().next());
                first.map(|v| v.as_str().map_or(v.to_string(), str::to_owned)).unwrap_or_default()
            };
            let attributes = attributes
                .filter_map(|a| Some((a["key"].as_str()?.to_owned(), value(&a["value"]))));
            spans.insert(
                text("spanId"),
                Span {
                    name: text("name"),
                    trace: text("traceId"),
                    parent: text("parentSpanId"),
                    attributes: attributes.collect(),
                },
            );
        }
    }
    spans
}

/// Every API call whose ancestors, in its own trace, are the whole path; a line for each.
fn paths(spans: &Spans) -> Vec<String> {
    let mut found = Vec::new();
    for call in spans.values().filter(|span| span.name == PATH[0]) {
        let mut path = vec![call];
        while let Some(parent) = spans.get(&path[path.len() - 1].parent)
            && parent.trace == call.trace
            && path.len() < spans.len()
        {
            path.push(parent);
        }
        let mut names = path.iter().map(|span| span.name.as_str());
        if PATH.iter().all(|wanted| names.any(|name| name == *wanted)) {
            let shown = |span: &&Span| {
                let attribute = |key: &str| span.attributes.get(key).map(String::as_str);
                let parts = ["cluster", "key", "method", "path", "status"];
                let parts: Vec<&str> = parts.into_iter().filter_map(attribute).collect();
                format!("{} [{}]", span.name, parts.join(" "))
            };
            found.push(path.iter().rev().map(shown).collect::<Vec<_>>().join(" > "));
        }
    }
    found
}

/// The names of the spans received, for an error.
fn names(file: &Path) -> String {
    let mut count = BTreeMap::<String, usize>::new();
    for span in spans(&fs::read_to_string(file).unwrap_or_default()).into_values() {
        *count.entry(span.name).or_default() += 1;
    }
    format!("{count:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, id: &str, parent: &str, trace: &str) -> String {
        let span = json!({
            "name": name, "spanId": id, "parentSpanId": parent, "traceId": trace,
            "attributes": [{"key": "cluster", "value": {"stringValue": "east"}}],
        });
        json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).to_string()
    }

    #[test]
    fn only_the_whole_path_in_one_trace_counts() {
        let whole = [
            line("api", "4", "3", "t"),
            line("reconcile", "3", "2", "t"),
            line("queue", "2", "1", "t"),
            line("watch.event", "1", "", "t"),
        ];
        let found = paths(&spans(&whole.join("\n")));
        assert_eq!(found, ["watch.event [east] > queue [east] > reconcile [east] > api [east]"]);
        for missing in 0..whole.len() {
            let mut lines = whole.to_vec();
            lines.remove(missing);
            assert!(paths(&spans(&lines.join("\n"))).is_empty(), "without {missing}");
        }
        let mut broken = whole.to_vec();
        broken[2] = line("queue", "2", "1", "another");
        assert!(paths(&spans(&broken.join("\n"))).is_empty());
    }
}
