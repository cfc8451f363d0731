//! The dashboard of the engine.

use super::Kind::{Lines, Stack};
use super::{Board, FLEET, Row, by, fleet, p99, panel, quantile, rate, sum};

pub(super) fn board() -> Board {
    Board {
        uid: "leasehold-engine",
        title: "Leasehold engine",
        about: "Requests, watches, caches and the processes themselves",
        variables: fleet().into(),
        rows: vec![requests(), home(), caches(), services(), processes()],
    }
}

fn requests() -> Row {
    let panels = vec![
        panel(
            (Lines, "Requests by answer", "reqps"),
            "Requests to API servers, by code.",
            [by(rate, "code", "rest_client_requests_total", FLEET)],
        ),
        panel(
            (Lines, "Request latency, p99", "s"),
            "Time until the API server begins its answer. Watches begin theirs at once.",
            [by(p99, "verb", "rest_client_request_duration_seconds", FLEET)],
        ),
        panel(
            (Lines, "Wait for a turn, p99", "s"),
            "How long requests wait before they are sent: for the budget, for the concurrency limit, or because the server asked for a pause.",
            [by(p99, "verb", "rest_client_rate_limiter_duration_seconds", FLEET)],
        ),
    ];
    Row { title: "Requests to API servers", panels }
}

fn home() -> Row {
    let panels = vec![
        panel(
            (Lines, "Requests to home", "reqps"),
            "Requests to the home cluster, by the class of the answer.",
            [by(rate, "code", "leasehold_home_requests_total", FLEET)],
        ),
        panel(
            (Lines, "Latency of home, p99", "s"),
            "Time until home begins its answer. Leases are renewed late when it is slow.",
            [by(p99, "verb", "leasehold_home_request_seconds", FLEET)],
        ),
        panel(
            (Lines, "Version", "short"),
            "Replicas by the version that they run.",
            [(format!("count by (version) (leasehold_build_info{FLEET})"), "{{version}}")],
        ),
    ];
    Row { title: "Home cluster", panels }
}

fn caches() -> Row {
    let panels = vec![
        panel(
            (Lines, "Event processing, p99", "s"),
            "From the arrival of a watch event until its keys are queued.",
            [by(p99, "resource", "informer_processing_latency_seconds", FLEET)],
        ),
        panel(
            (Stack, "Cached objects", "short"),
            "Objects in all caches, by kind.",
            [by(sum, "kind", "leasehold_cache_objects", FLEET)],
        ),
        panel(
            (Lines, "Cached bytes", "bytes"),
            "What these objects take: packed, and those that are kept decoded besides.",
            [
                (format!("sum(leasehold_cache_bytes{FLEET})"), "packed"),
                (format!("sum(leasehold_cache_decoded_bytes{FLEET})"), "decoded"),
            ],
        ),
    ];
    Row { title: "Watches and caches", panels }
}

fn services() -> Row {
    let latency = "leasehold_external_request_duration_seconds";
    let panels = vec![
        panel(
            (Lines, "Requests by result", "reqps"),
            "Calls to services such as SQS or a cloud, by how they ended.",
            [(
                rate("external_service, result", "leasehold_external_requests_total", FLEET),
                "{{external_service}} {{result}}",
            )],
        ),
        panel(
            (Lines, "Service latency", "s"),
            "How long calls to services outside take.",
            [
                (quantile("0.5", "external_service", latency, FLEET), "{{external_service}} p50"),
                (p99("external_service", latency, FLEET), "{{external_service}} p99"),
            ],
        ),
        panel(
            (Lines, "Reconciles put off", "cps"),
            "Reconciles that wait for their turn because the budget of a service is spent.",
            [by(rate, "external_service", "leasehold_external_held_back_total", FLEET)],
        ),
    ];
    Row { title: "Services outside of Kubernetes", panels }
}

fn processes() -> Row {
    let panels = vec![
        panel(
            (Lines, "CPU", "short"),
            "Cores that each replica uses.",
            [(format!("rate(process_cpu_seconds_total{FLEET}[$__rate_interval])"), "{{instance}}")],
        ),
        panel(
            (Lines, "Busy threads", "percentunit"),
            "How much of their time the threads run tasks. Near 1, all waits for them: give CPU, or replicas.",
            [(
                format!(
                    "rate(leasehold_runtime_busy_seconds_total{FLEET}[$__rate_interval]) / leasehold_runtime_workers{FLEET}"
                ),
                "{{instance}}",
            )],
        ),
        panel(
            (Lines, "Memory", "bytes"),
            "What each replica has in memory, and what of it is allocated. The rest is free in the allocator, which keeps it for the next burst.",
            [
                (format!("process_resident_memory_bytes{FLEET}"), "{{instance}}"),
                (format!("leasehold_allocator_allocated_bytes{FLEET}"), "{{instance}}, allocated"),
            ],
        ),
        panel(
            (Lines, "Open files", "short"),
            "File descriptors of each replica: mostly connections.",
            [(format!("process_open_fds{FLEET}"), "{{instance}}")],
        ),
    ];
    Row { title: "Processes", panels }
}
