//! The status of a Memcached after a reconcile, as numbers, nodes and conditions. Pure.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use sdk::condition::{Finding, conditions};

use super::api::{Memcached, MemcachedStatus};
use super::desired::LABEL;
use super::nodes::Nodes;
use super::obstacle::{Obstacle, explained};
use super::plan::Observed;
use super::sizing::{Sizing, quantity};
use sdk::controlled_by;

/// The nodes as they are, beside how many there should be.
struct Standing<'a> {
    set: Option<&'a StatefulSet>,
    nodes: Nodes<'a>,
    size: i32,
}

/// The status, after the plan was carried out or kept back by an obstacle.
pub(super) fn status(
    observed: Observed<'_>,
    obstacle: Option<&Obstacle>,
    now: Timestamp,
) -> MemcachedStatus {
    let memcached = observed.memcached;
    let generation = memcached.metadata.generation;
    let before = memcached.status.clone().unwrap_or_default();
    let standing = Standing::of(observed, obstacle.is_some());
    let nodes = standing.nodes.listed(memcached, &before.nodes, standing.size);
    let sizing = Sizing::of(&memcached.spec).ok();
    let findings = findings(memcached, &standing, obstacle, nodes.len());
    MemcachedStatus {
        observed_generation: generation,
        applied_generation: if obstacle.is_none() { generation } else { before.applied_generation },
        size: standing.nodes.count(),
        ready: standing.nodes.ready(standing.size),
        nodes,
        version: standing.nodes.version().or(before.version),
        memory: sizing.map(|sizing| quantity(sizing.items_mib)).or(before.memory),
        selector: Some(format!("{LABEL}={}", memcached.name_any())),
        conditions: conditions(findings, &before.conditions, generation, now),
    }
}

fn findings(
    memcached: &Memcached,
    standing: &Standing<'_>,
    obstacle: Option<&Obstacle>,
    listed: usize,
) -> Vec<Finding> {
    let finding = |type_, holds, reason, message| Finding { type_, holds, reason, message };
    let (is_ready, moves, (reason, message)) = match obstacle {
        Some(obstacle) => {
            let waits = matches!(obstacle, Obstacle::Terminating { .. });
            (false, waits, explained(obstacle, memcached))
        }
        None => {
            let (settled, words) = standing.progress(&memcached.name_any(), listed);
            (settled, !settled, words)
        }
    };
    let (is_available, serving) = standing.availability();
    let availability = if is_available { "NodesReady" } else { "NodesMissing" };
    vec![
        finding("Ready", is_ready, reason, message.clone()),
        finding("Available", is_available, availability, serving),
        finding("Progressing", moves, if is_ready { "Complete" } else { reason }, message),
    ]
}

// === impl Standing ===

impl<'a> Standing<'a> {
    /// While something blocks, the nodes should be as many as the StatefulSet says.
    fn of(observed: Observed<'a>, is_blocked: bool) -> Self {
        let memcached = observed.memcached;
        // A StatefulSet that is not ours says nothing about us.
        let set = observed.stateful_set.filter(|set| controlled_by(*set, memcached));
        let nodes = set.map(|set| Nodes::of(set, observed.pods)).unwrap_or_default();
        let replicas = set.and_then(|set| set.spec.replicas).unwrap_or(0);
        let size = if is_blocked { replicas } else { memcached.spec.size };
        Self { set, nodes, size }
    }

    /// Whether all but one node serve, which is what an update and an eviction leave.
    fn availability(&self) -> (bool, String) {
        let (size, ready) = (self.size, self.nodes.ready(self.size));
        let holds = self.set.is_some() && (size == 0 || ready >= (size - 1).max(1));
        (holds, format!("{ready} of {size} nodes are ready"))
    }

    /// Whether every node is ready and runs the present spec; a reason and a sentence.
    fn progress(&self, name: &str, listed: usize) -> (bool, (&'static str, String)) {
        let size = self.size;
        let found = self.set.and_then(|set| set.status.clone()).unwrap_or_default();
        let generation = self.set.and_then(|set| set.metadata.generation).unwrap_or(0);
        let is_seen = self.set.is_some() && found.observed_generation.unwrap_or(0) >= generation;
        let (updated, exist) = (found.updated_replicas.unwrap_or(0), self.nodes.count());
        if !is_seen {
            return (false, ("Applied", format!("StatefulSet {name} has been written")));
        }
        if exist != size {
            let words = format!("{exist} nodes exist, {size} are wanted");
            return (false, ("Scaling", words));
        }
        if updated != size {
            let words = format!("{updated} of {size} nodes run the present spec");
            return (false, ("Updating", words));
        }
        if let Some((ordinal, why)) = self.nodes.trouble(size) {
            let unlisted = size - i32::try_from(listed).unwrap_or(size);
            let after = match unlisted {
                ..=0 => String::new(),
                _ => format!("; {listed} of {size} nodes are listed"),
            };
            return (false, ("NodesNotReady", format!("node {name}-{ordinal} {why}{after}")));
        }
        if found.available_replicas.unwrap_or(0) < size {
            let words = "the last node that started is not ready for long enough".to_owned();
            return (false, ("Settling", words));
        }
        let words = format!("all {size} nodes are ready and run the present spec");
        (true, ("NodesReady", words))
    }
}
