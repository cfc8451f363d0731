//! S3: a shard's epoch strictly increases with each owner change.
//!
//! That holds too for a cluster that is removed from the configuration and comes back: its map is
//! deleted, but its epochs continue.

use std::collections::BTreeMap;

use super::Violation;
use super::reading::{Reading, items, text};

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    // Entries stay when maps are deleted.
    let mut last: BTreeMap<(&str, &str), (&str, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    for (at_us, applied, cluster) in reading.home("shardmaps") {
        if applied.request.method == http::Method::DELETE {
            continue;
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
