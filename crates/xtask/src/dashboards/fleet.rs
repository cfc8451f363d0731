//! The dashboard of the fleet.

use super::Kind::{Lines, Stack};
use super::{
    Board, FAILED, FIRST, FLEET, Row, by, first, fleet, max, mean, number, p99, panel, rate, sum,
    table,
};

pub(super) fn board() -> Board {
    let up = &max("cluster", "leasehold_cluster_up", FLEET);
    Board {
        uid: "leasehold-fleet",
        title: "Leasehold fleet",
        about: "Members and shards, and which clusters need a look",
        variables: fleet().into(),
        rows: vec![members(up), clusters(up), shards(), work()],
    }
}

fn members(up: &str) -> Row {
    let panels = vec![
        number(
            "Members",
            (1, None),
            "Replicas that report.",
            &format!("count(leasehold_shards_unowned{FLEET})"),
        ),
        number(
            "Coordinators",
            (1, Some(2)),
            "Members that hold the coordinator Lease. One, but for moments of change.",
            &format!("sum(leasehold_coordinator_is_leader{FLEET})"),
        ),
        number(
            "Shards owned",
            (1, None),
            "Shards that some member holds.",
            &format!("sum(leasehold_shards_owned{FLEET})"),
        ),
        number(
            "Shards unowned",
            (0, Some(1)),
            "Shards that nobody holds: their objects are not reconciled.",
            &format!("max(leasehold_shards_unowned{FLEET})"),
        ),
        number(
            "Clusters up",
            (1, None),
            "Clusters that somebody works on and that answer.",
            &format!("sum({up})"),
        ),
        number(
            "Clusters down",
            (0, Some(1)),
            "Configured clusters that no member can use.",
            &format!("count({up}) - sum({up})"),
        ),
    ];
    Row { title: "Fleet", panels }
}

/// The first clusters by each measure.
fn clusters(up: &str) -> Row {
    let latency = mean("cluster", "leasehold_cluster_reconcile_seconds", FLEET);
    let answers = p99("cluster", "leasehold_cluster_request_seconds", FLEET);
    let panels = vec![
        table(
            ("Clusters, those that are down first", "bool_yes_no", "up"),
            "Whether some member works on the cluster and it answers. Click a cluster for its own dashboard.",
            format!("bottomk({FIRST}, {up})"),
        ),
        table(
            ("Most keys that wait", "short", "keys"),
            "Ready keys, by cluster.",
            first(&sum("cluster", "leasehold_cluster_queue_depth", FLEET)),
        ),
        table(
            ("Slowest reconciles", "s", "mean"),
            "How long reconciles take, by cluster.",
            first(&latency),
        ),
        table(
            ("Slowest answers", "s", "p99"),
            "Time until a cluster's API server begins its answer.",
            first(&answers),
        ),
        table(
            ("Most failed reconciles", "ops", "rate"),
            "Reconciles that ended with an error, by cluster.",
            first(&rate("cluster", "leasehold_cluster_reconciles_total", FAILED)),
        ),
        table(
            ("Most memory", "bytes", "packed"),
            "Cached objects, packed, by cluster.",
            first(&sum("cluster", "leasehold_cache_bytes", FLEET)),
        ),
    ];
    Row { title: "Clusters", panels }
}

fn shards() -> Row {
    let panels = vec![
        panel(
            (Stack, "Shards per member", "short"),
            "How evenly the work is split.",
            [by(sum, "member", "leasehold_shards_owned", FLEET)],
        ),
        panel(
            (Lines, "Lease age", "s"),
            "Time since each member last renewed its Lease. At the Lease's duration less its margin the member fences itself.",
            [by(max, "instance", "leasehold_member_lease_age_seconds", FLEET)],
        ),
        panel(
            (Lines, "Shards unowned", "short"),
            "Should be a spike after a crash and nothing else.",
            [(format!("max(leasehold_shards_unowned{FLEET})"), "unowned")],
        ),
        panel(
            (Lines, "Handover time, p99", "s"),
            "From the beginning of a drain, or a dead owner's last sign of life, to the next owner.",
            [by(p99, "reason", "leasehold_handover_seconds", FLEET)],
        ),
        panel(
            (Lines, "Moves", "ops"),
            "Shards that changed their owner.",
            [(
                format!("sum(rate(leasehold_moves_total{FLEET}[$__rate_interval]))"),
                "moves per second",
            )],
        ),
        panel(
            (Lines, "Oldest move", "s"),
            "For how long the first of all shards that are handed over has been so. It takes seconds.",
            [(format!("max(leasehold_oldest_move_seconds{FLEET})"), "oldest move")],
        ),
        panel(
            (Lines, "Writes refused by the fence", "ops"),
            "Writes not sent because the shard was no longer held. A few around a lost Lease show the fence at work.",
            [by(rate, "instance", "leasehold_fence_rejected_writes_total", FLEET)],
        ),
    ];
    Row { title: "Shards", panels }
}

fn work() -> Row {
    let panels = vec![
        panel(
            (Lines, "Keys that wait", "short"),
            "Keys ready to be reconciled, by controller.",
            [by(sum, "controller", "workqueue_depth", FLEET)],
        ),
        panel(
            (Lines, "Reconcile latency, p99", "s"),
            "How long reconciles take, by controller.",
            [by(p99, "controller", "controller_runtime_reconcile_time_seconds", FLEET)],
        ),
        panel(
            (Lines, "Failed reconciles", "ops"),
            "Reconciles that ended with an error, by controller.",
            [by(rate, "controller", "controller_runtime_reconcile_errors_total", FLEET)],
        ),
    ];
    Row { title: "Work", panels }
}
