//! L1: once faults cease, every shard is owned within a bound.

use std::collections::BTreeMap;

use super::Violation;
use super::reading::{Reading, items, text};
use crate::world::process::cluster_name;

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut found = unowned(reading, reading.recovered_us());
    found.extend(unowned(reading, reading.outcome.plan.setup.end_us));
    found
}

/// Shards that have no running owner at a time.
fn unowned(reading: &Reading<'_>, at_us: u64) -> Vec<Violation> {
    let mut maps = BTreeMap::new();
    for (applied_us, applied, map) in reading.home("shardmaps") {
        if applied_us > at_us {
            break;
        }
        if applied.request.method == http::Method::DELETE {
            maps.remove(map);
        } else {
            maps.insert(map, &applied.body["spec"]["shards"]);
        }
    }
    let setup = &reading.outcome.plan.setup;
    let controllers = 1 + usize::from(setup.sets > 0);
    let mut found = Vec::new();
    for number in setup.workloads() {
        let cluster = cluster_name(number);
        let shards = maps.get(cluster.as_str()).map_or(&[][..], |shards| items(shards));
        let owned = shards.iter().filter(|shard| {
            let process = reading.members.get(text(&shard["owner"]));
            process.is_some_and(|process| reading.outcome.running.contains(process))
        });
        let count = owned.count();
        if count < controllers || count < shards.len() {
            let text = format!("{cluster}: {count} shards are owned of {shards:?}");
            found.push(Violation { rule: "L1", at_us, text });
        }
    }
    found
}
