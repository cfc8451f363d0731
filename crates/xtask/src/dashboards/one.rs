//! The dashboards of one cluster and of one controller.

use super::Kind::{Lines, Stack};
use super::{
    Board, CLUSTER, CONTROLLER, FLEET, Row, by, first, fleet_and, max, mean, p99, panel, quantile,
    rate, sum, table,
};

pub(super) fn cluster() -> Board {
    let up = format!("leasehold_cluster_up{FLEET}");
    Board {
        uid: "leasehold-cluster",
        title: "Leasehold cluster",
        about: "One cluster: who works on it, how it answers, what waits",
        variables: fleet_and("cluster", "Cluster", up),
        rows: vec![health(), work(), sqs()],
    }
}

fn health() -> Row {
    let panels = vec![
        panel(
            (Lines, "Reachable", "short"),
            "1 if the cluster is engaged and answers, by member: those that work on it, and those that cannot use it.",
            [by(max, "instance", "leasehold_cluster_up", CLUSTER)],
        ),
        table(
            ("Owners", "none", ""),
            "The member that holds each shard of this cluster.",
            max("group, range, member", "leasehold_shard_owner", CLUSTER),
        ),
        panel(
            (Lines, "Circuit breaker", "short"),
            "By member: 0 closed, requests pass; 1 half-open, one does, to see whether the cluster answers; 2 open, none does until a pause is over.",
            [by(max, "instance", "leasehold_cluster_breaker_state", CLUSTER)],
        ),
        panel(
            (Lines, "Requests by answer", "reqps"),
            "Requests to the cluster's API server, by the class of the answer.",
            [by(rate, "code", "leasehold_cluster_requests_total", CLUSTER)],
        ),
        panel(
            (Lines, "Request latency, p99", "s"),
            "Time until the API server begins its answer. Watches begin theirs at once.",
            [(p99("", "leasehold_cluster_request_seconds", CLUSTER), "p99")],
        ),
        panel(
            (Lines, "Concurrency limit", "short"),
            "By member: requests that may be under way at once. Fewer when the server is overloaded or has become slow.",
            [by(max, "instance", "leasehold_cluster_concurrency_limit", CLUSTER)],
        ),
    ];
    Row { title: "Cluster $cluster", panels }
}

fn work() -> Row {
    let panels = vec![
        panel(
            (Lines, "Keys that wait", "short"),
            "Ready keys of this cluster, by controller.",
            [by(sum, "controller", "leasehold_cluster_queue_depth", CLUSTER)],
        ),
        panel(
            (Lines, "Time in queue, p99", "s"),
            "How long a ready key of this cluster waits.",
            [(p99("", "leasehold_cluster_queue_seconds", CLUSTER), "p99")],
        ),
        panel(
            (Lines, "Reconcile latency, mean", "s"),
            "How long reconciles of this cluster take, by controller.",
            [by(mean, "controller", "leasehold_cluster_reconcile_seconds", CLUSTER)],
        ),
        panel(
            (Lines, "Reconciles", "ops"),
            "Reconciles of this cluster, by controller.",
            [by(rate, "controller", "leasehold_cluster_reconcile_seconds_count", CLUSTER)],
        ),
        panel(
            (Stack, "Cached objects", "short"),
            "Objects in the caches of this cluster, by kind; those of small kinds together.",
            [by(sum, "kind", "leasehold_cache_objects", CLUSTER)],
        ),
        panel(
            (Stack, "Cached bytes", "bytes"),
            "What these objects take, packed.",
            [by(sum, "kind", "leasehold_cache_bytes", CLUSTER)],
        ),
    ];
    Row { title: "Work", panels }
}

fn sqs() -> Row {
    let messages = |state: &str| {
        let of = CLUSTER.replace('}', &format!(r#", state="{state}"}}"#));
        sum("queue_namespace, queue", "leasehold_sqs_queue_messages", &of)
    };
    let panels = vec![
        panel(
            (Lines, "Messages that can be received", "short"),
            "Of the first 25 queues by name, and of all others: those that wait for consumers. No series where controller sqs does not run.",
            [(messages("visible"), "{{queue_namespace}}/{{queue}}")],
        ),
        panel(
            (Lines, "Messages in flight", "short"),
            "Received by consumers, and not deleted yet.",
            [(messages("in_flight"), "{{queue_namespace}}/{{queue}}")],
        ),
        panel(
            (Lines, "Messages delayed", "short"),
            "Sent, and still hidden from consumers.",
            [(messages("delayed"), "{{queue_namespace}}/{{queue}}")],
        ),
    ];
    Row { title: "Amazon SQS", panels }
}

pub(super) fn controller() -> Board {
    let series = format!("controller_runtime_reconcile_total{FLEET}");
    Board {
        uid: "leasehold-controller",
        title: "Leasehold controller",
        about: "One controller over all clusters: its queue, its reconciles, its slowest clusters",
        variables: fleet_and("controller", "Controller", series),
        rows: vec![queue(), reconciles()],
    }
}

fn queue() -> Row {
    let queue = |part| quantile(part, "", "workqueue_queue_duration_seconds", CONTROLLER);
    let panels = vec![
        panel(
            (Lines, "Keys that wait", "short"),
            "Keys ready to be reconciled, by member.",
            [by(sum, "instance", "workqueue_depth", CONTROLLER)],
        ),
        panel(
            (Lines, "Time in queue", "s"),
            "How long a ready key waits. The objective is 1 s at p99.",
            [(queue("0.99"), "p99"), (queue("0.5"), "p50")],
        ),
        panel(
            (Lines, "Oldest item", "s"),
            "How long the oldest ready key has been waiting, by member.",
            [by(max, "instance", "leasehold_queue_oldest_item_seconds", CONTROLLER)],
        ),
        panel(
            (Lines, "Adds and retries", "ops"),
            "Keys that became ready, and delayed adds.",
            [
                (total("workqueue_adds_total"), "adds"),
                (total("workqueue_retries_total"), "retries"),
            ],
        ),
        panel(
            (Lines, "Work duration, p99", "s"),
            "How long a key is processed once taken.",
            [(p99("", "workqueue_work_duration_seconds", CONTROLLER), "p99")],
        ),
        panel(
            (Lines, "Longest running", "s"),
            "How long the reconcile that runs longest has run, by member.",
            [by(max, "instance", "workqueue_longest_running_processor_seconds", CONTROLLER)],
        ),
    ];
    Row { title: "Queue of $controller", panels }
}

fn reconciles() -> Row {
    let time = |part| quantile(part, "", "controller_runtime_reconcile_time_seconds", CONTROLLER);
    let all = |series: &str| format!("sum({series}{CONTROLLER})");
    let latency = mean("cluster", "leasehold_cluster_reconcile_seconds", CONTROLLER);
    let panels = vec![
        panel(
            (Stack, "Reconciles by result", "ops"),
            "How reconciles ended.",
            [by(rate, "result", "controller_runtime_reconcile_total", CONTROLLER)],
        ),
        panel(
            (Lines, "Reconcile latency", "s"),
            "How long reconciles take.",
            [(time("0.99"), "p99"), (time("0.5"), "p50")],
        ),
        panel(
            (Lines, "Errors", "ops"),
            "Failed reconciles, those given up, panics and timeouts.",
            [
                (total("controller_runtime_reconcile_errors_total"), "errors"),
                (total("controller_runtime_terminal_reconcile_errors_total"), "terminal"),
                (total("controller_runtime_reconcile_panics_total"), "panics"),
                (total("controller_runtime_reconcile_timeouts_total"), "timeouts"),
            ],
        ),
        panel(
            (Lines, "Workers", "short"),
            "Reconciles that run, and how many may.",
            [
                (all("controller_runtime_active_workers"), "active"),
                (all("controller_runtime_max_concurrent_reconciles"), "at most"),
                (all("leasehold_queue_concurrency_limit"), "of all clusters, at most"),
            ],
        ),
        table(
            ("Most keys that wait", "short", "keys"),
            "Ready keys of this controller, by cluster.",
            first(&sum("cluster", "leasehold_cluster_queue_depth", CONTROLLER)),
        ),
        table(
            ("Slowest reconciles", "s", "mean"),
            "How long reconciles of this controller take, by cluster.",
            first(&latency),
        ),
    ];
    Row { title: "Reconciles of $controller", panels }
}

fn total(series: &str) -> String {
    format!("sum(rate({series}{CONTROLLER}[$__rate_interval]))")
}
