//! L3: with constant loads, shards come to rest.
//!
//! Members that join, leave, fall silent or are drained are reasons to move shards, and so are loads
//! that change, or that are known for the first time: a member reports none of a shard before it has held it for half a
//! minute, which may be after all faults. Once all that has ended, a shard has few more owners, and its ranges stay.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::reading::{Reading, SLACK, items, text, us};

/// The most times that a shard may begin with another owner or epoch after that.
const HANDOVERS: usize = 3;

/// A cluster and a group.
type Place<'a> = (&'a str, &'a str);

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let news_us = news_us(reading);
    // So long shards may move and split for it.
    let is_for_news = |at_us: u64| news_us.iter().any(|&of| (of..of + us(SLACK)).contains(&at_us));
    let mut counts: BTreeMap<Place<'_>, usize> = BTreeMap::new();
    let mut found = Vec::new();
    let handovers = handovers(reading, reading.recovered_us());
    for (at_us, place, shard) in handovers.into_iter().filter(|(at_us, ..)| !is_for_news(*at_us)) {
        let count = counts.entry(place).or_default();
        *count += 1;
        if *count == HANDOVERS + 1 {
            let text = format!("{place:?} does not come to rest: {shard} is handed over");
            found.push(Violation { rule: "L3", at_us, text });
        }
    }
    found
}

/// When members reported loads of a cluster and group of which they had reported none before. A split is no such news.
fn news_us(reading: &Reading<'_>) -> Vec<u64> {
    let mut known = BTreeSet::new();
    let mut news = Vec::new();
    for (at_us, applied, member) in reading.home("members") {
        for load in items(&applied.body["spec"]["loads"]) {
            let mut parts = text(&load["shard"]).split('/');
            if known.insert((member, parts.next(), parts.next())) {
                news.push(at_us);
            }
        }
    }
    news
}

/// The shards that began under another owner or epoch from a time on, except the first of their place.
pub(super) fn handovers<'a>(
    reading: &'a Reading<'_>,
    from_us: u64,
) -> Vec<(u64, Place<'a>, &'a str)> {
    let mut last: BTreeMap<Place<'a>, BTreeSet<(&str, &str, u64)>> = BTreeMap::new();
    let mut found = Vec::new();
    for (at_us, applied, cluster) in reading.home("shardmaps") {
        let mut now: BTreeMap<Place<'a>, BTreeSet<(&str, &str, u64)>> = BTreeMap::new();
        for entry in items(&applied.body["spec"]["shards"]) {
            let shard = text(&entry["shard"]);
            let group = shard.split('/').next().unwrap_or_default();
            let Some(owner) = entry["owner"].as_str() else { continue };
            let epoch = entry["epoch"].as_u64().unwrap_or_default();
            now.entry((cluster, group)).or_default().insert((shard, owner, epoch));
        }
        for (place, held) in now {
            let before = last.insert(place, held.clone());
            let Some(before) = before.filter(|_| at_us >= from_us) else { continue };
            let fresh = held.difference(&before);
            found.extend(fresh.map(|&(shard, _, _)| (at_us, place, shard)));
        }
    }
    found
}
