//! S1: per shard, dispatch intervals of different members never overlap.
//!
//! An interval counts while its process runs: one that is stopped does nothing. And no write of a
//! reconcile is sent once a later owner has begun, however late it would have landed.

use std::collections::BTreeMap;

use model::ShardId;

use super::Violation;
use super::reading::{Reading, Run};

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut shards: BTreeMap<&ShardId, Vec<&Run<'_>>> = BTreeMap::new();
    for run in &reading.runs {
        shards.entry(&run.dispatch.shard).or_default().push(run);
    }
    let mut found: Vec<_> = shards.values().flat_map(|runs| overlaps(runs)).collect();
    found.extend(late(reading));
    found
}

fn overlaps(runs: &[&Run<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, first) in runs.iter().enumerate() {
        for second in &runs[index + 1..] {
            if first.dispatch.member == second.dispatch.member {
                continue;
            }
            if let Some(at_us) = meet(first, second) {
                let text = format!("{:?} overlaps {:?}", first.dispatch, second.dispatch);
                found.push(Violation { rule: "S1", at_us, text });
            }
        }
    }
    found
}

/// When two runs run at once, if ever.
fn meet(first: &Run<'_>, second: &Run<'_>) -> Option<u64> {
    let pairs = first.live.iter().flat_map(|a| second.live.iter().map(move |b| (a, b)));
    let mut both = pairs.filter(|(a, b)| a.0 < b.1 && b.0 < a.1);
    both.next().map(|(a, b)| a.0.max(b.0))
}

/// Writes of an epoch that were sent after a later epoch's first dispatch.
fn late(reading: &Reading<'_>) -> Vec<Violation> {
    let mut firsts: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for run in &reading.runs {
        let epochs = firsts.entry(run.dispatch.shard.to_string()).or_default();
        epochs.entry(run.dispatch.epoch.0).or_insert(run.from_us);
    }
    let late = reading.sent.iter().filter_map(|sent| {
        let agent = &sent.request.agent;
        let mut later = firsts.get(&agent.shard)?.range(agent.epoch + 1..);
        let (epoch, _) = later.find(|(_, began)| **began < sent.at_us)?;
        let text = format!("{agent:?} sent #{} while epoch {epoch} ran", sent.request.id);
        Some(Violation { rule: "S1", at_us: sent.at_us, text })
    });
    late.collect()
}
