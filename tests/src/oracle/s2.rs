//! S2: a drain is acknowledged only with nothing queued, delayed or in flight for the shard.
//!
//! By the Member objects that the home cluster accepted, no reconcile of the shard runs at that
//! epoch when the acknowledgement is sent, none begins later, and none writes later.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Violation;
use super::reading::{Reading, items, text};

/// A shard at an epoch.
type Drained = (String, u64);

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut known: BTreeMap<&str, BTreeSet<Drained>> = BTreeMap::new();
    let mut found = Vec::new();
    for (_, applied, member) in reading.home("members") {
        let now = acknowledged(&applied.body);
        let before = known.insert(member, now.clone()).unwrap_or_default();
        for drained in now.difference(&before) {
            found.extend(not_idle(reading, member, drained, applied.sent_us));
        }
    }
    found
}

fn acknowledged(member: &Value) -> BTreeSet<Drained> {
    let all = items(&member["spec"]["acknowledgedDrains"]).iter();
    all.map(|d| (text(&d["shard"]).to_owned(), d["epoch"].as_u64().unwrap_or_default())).collect()
}

/// What a member still did for a shard after it acknowledged the drain at `sent_us`.
fn not_idle(
    reading: &Reading<'_>,
    member: &str,
    (shard, epoch): &Drained,
    sent_us: u64,
) -> Vec<Violation> {
    let runs = reading.runs.iter().filter(|run| {
        let of = run.dispatch;
        of.member.as_str() == member && of.epoch.0 == *epoch && run.until_us > sent_us
    });
    let runs = runs.filter(|run| run.dispatch.shard.to_string() == *shard);
    let runs = runs.map(|run| (run.from_us.max(sent_us), format!("runs {}", run.dispatch.key)));
    let writes = reading.sent.iter().filter(|sent| {
        let agent = &sent.request.agent;
        agent.member == member && agent.epoch == *epoch && sent.at_us > sent_us
    });
    let writes = writes.filter(|sent| sent.request.agent.shard == *shard);
    let writes = writes.map(|sent| (sent.at_us, format!("sends #{}", sent.request.id)));
    let violation = |(at_us, what)| Violation {
        rule: "S2",
        at_us,
        text: format!("{member} acknowledged {shard} at {epoch} and {what}"),
    };
    runs.chain(writes).map(violation).collect()
}
