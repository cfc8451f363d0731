//! S3: a shard's epoch strictly increases with each owner change.
//!
//! A map that was deleted with its cluster is remembered by those who saw it go. If all of them are
//! gone when the cluster comes back, its epochs begin anew: that much the protocol does not promise.

use std::collections::BTreeMap;

use super::Violation;
use super::reading::{Reading, items, text};
use crate::world::history::{Event, Process};

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    // Kept when maps and entries go: epochs go on when they come back.
    let mut last: BTreeMap<(&str, &str), (&str, u64)> = BTreeMap::new();
    let mut deleted: BTreeMap<&str, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for (at_us, applied, cluster) in reading.home("shardmaps") {
        if applied.request.method == http::Method::DELETE {
            deleted.insert(cluster, at_us);
            continue;
        }
        if let Some(deleted_us) = deleted.remove(cluster)
            && born_us(reading, applied.process) > deleted_us
        {
            last.retain(|(of, _), _| *of != cluster);
        }
        for entry in items(&applied.body["spec"]["shards"]) {
            let Some(owner) = entry["owner"].as_str() else { continue };
            let shard = (cluster, text(&entry["shard"]));
            let now = (owner, entry["epoch"].as_u64().unwrap_or_default());
            if let Some(before) = last.insert(shard, now)
                && before != now
                && now.1 <= before.1
            {
                let text = format!("{shard:?} went from {before:?} to {now:?}");
                found.push(Violation { rule: "S3", at_us, text });
            }
        }
    }
    found
}

/// When a process began.
fn born_us(reading: &Reading<'_>, process: Process) -> u64 {
    let born = reading.outcome.records.iter().find_map(|record| match record.event {
        Event::Born(number, _) if number == process => Some(record.at_us),
        _ => None,
    });
    born.unwrap_or_default()
}
