//! S1: dispatch intervals of different members never overlap for one shard, nor for one object,
//! whose shard may have been split or merged meanwhile. (An object created under the name of a
//! deleted one is another object and may lie in another range. Then one member handles the end of
//! the first, and another the beginning of the second.)
//!
//! An interval counts only while its process runs. And no write of a reconcile is sent once a later
//! owner has begun, however late it would have arrived.

use std::collections::{BTreeMap, BTreeSet};

use engine::Dispatch;
use model::{ClusterName, Range, ShardId, uid_hash};

use super::Violation;
use super::reading::{Reading, Run};
use crate::world::history::Event;
use crate::world::process::cluster_name;

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut shards: BTreeMap<&ShardId, Vec<&Run<'_>>> = BTreeMap::new();
    let mut keys: BTreeMap<_, Vec<&Run<'_>>> = BTreeMap::new();
    for run in &reading.runs {
        let Dispatch { shard, controller, key, .. } = run.dispatch;
        shards.entry(shard).or_default().push(run);
        keys.entry((controller, key)).or_default().push(run);
    }
    let uids = uids(reading);
    let mut found: Vec<_> = shards.values().flat_map(|runs| overlaps(runs, |_| false)).collect();
    found.extend(keys.values().flat_map(|runs| {
        overlaps(runs, |pair| {
            let place = (pair[0].key.cluster.clone(), &*pair[0].key.name);
            uids.get(&place).is_some_and(|uids| are_of_two_objects(pair, uids))
        })
    }));
    found.extend(late(reading));
    found
}

/// The hashes of the uids that objects of one name had.
fn uids<'a>(reading: &Reading<'a>) -> BTreeMap<(ClusterName, &'a str), BTreeSet<u64>> {
    let mut uids: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    for record in &reading.outcome.records {
        if let Event::Edited(edit) = &record.event {
            let place = (cluster_name(edit.cluster), edit.name.as_str());
            uids.entry(place).or_default().insert(uid_hash(&edit.uid));
        }
    }
    uids
}

/// Whether two dispatches can have been for two different objects.
fn are_of_two_objects(pair: [&Dispatch; 2], uids: &BTreeSet<u64>) -> bool {
    let [first, second] = pair.map(|dispatch| dispatch.shard.range);
    let has = |range: Range| uids.iter().any(|uid| range.contains(*uid));
    !first.overlaps(second) && has(first) && has(second)
}

fn overlaps(runs: &[&Run<'_>], excused: impl Fn([&Dispatch; 2]) -> bool) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, first) in runs.iter().enumerate() {
        for second in &runs[index + 1..] {
            let pair = [first.dispatch, second.dispatch];
            if pair[0].member == pair[1].member || excused(pair) {
                continue;
            }
            if let Some(at_us) = meet(first, second) {
                let text = format!("{:?} overlaps {:?}", pair[0], pair[1]);
                found.push(Violation { rule: "S1", at_us, text });
            }
        }
    }
    found
}

/// When two runs were active at once, if ever.
fn meet(first: &Run<'_>, second: &Run<'_>) -> Option<u64> {
    let pairs = first.live.iter().flat_map(|a| second.live.iter().map(move |b| (a, b)));
    let mut both = pairs.filter(|(a, b)| a.0 < b.1 && b.0 < a.1);
    both.next().map(|(a, b)| a.0.max(b.0))
}

/// Writes of an epoch that were sent after the first dispatch of a later epoch.
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
