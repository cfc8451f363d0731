//! S5: self-fence precedes takeover.
//!
//! Once another member has taken its Lease, a member runs nothing, begins nothing and sends no
//! write. And an owner loses a shard only after it acknowledged the drain, or after its Lease was
//! taken, released or deleted.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::Value;
use sharding::api::ShardPath;

use super::Violation;
use super::reading::{MEMBER_LEASE, Reading, items, text};

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (at_us, member) in takeovers(reading) {
        found.extend(still_acting(reading, member, at_us));
    }
    found.extend(Home::default().replay(reading));
    found
}

/// The times at which another member took a member's Lease.
fn takeovers<'a>(reading: &Reading<'a>) -> Vec<(u64, &'a str)> {
    let taken = reading.home("leases").filter_map(|(at_us, applied, lease)| {
        let member = lease.strip_prefix(MEMBER_LEASE)?;
        let holder = text(&applied.body["spec"]["holderIdentity"]);
        (!holder.is_empty() && holder != member).then_some((at_us, member))
    });
    taken.collect()
}

fn still_acting(reading: &Reading<'_>, member: &str, taken_us: u64) -> Vec<Violation> {
    let ours = reading.runs.iter().filter(|run| run.dispatch.member.as_str() == member);
    let runs = ours.flat_map(|run| {
        let late = run.live.iter().find(|(_, until)| *until > taken_us);
        late.map(|(from, _)| (*from.max(&taken_us), format!("runs {}", run.dispatch.key)))
    });
    let sent = reading.sent.iter().filter(|sent| sent.request.agent.member == member);
    let sent = sent.filter(|sent| sent.at_us > taken_us);
    let sent = sent.map(|sent| (sent.at_us, format!("sends #{}", sent.request.id)));
    let violation = |(at_us, what)| Violation {
        rule: "S5",
        at_us,
        text: format!("the Lease of {member} was taken at {taken_us} and it {what}"),
    };
    runs.chain(sent).map(violation).collect()
}

/// The state of the home cluster after some writes.
#[derive(Default)]
struct Home<'a> {
    /// The holder of each member's Lease.
    holders: BTreeMap<&'a str, &'a str>,
    /// What each member has acknowledged.
    acknowledged: BTreeMap<&'a str, BTreeSet<(&'a str, u64)>>,
    /// The owner of each shard of each map, and its epoch.
    owners: BTreeMap<&'a str, Owners<'a>>,
}

/// Owners and epochs of the shards of one map.
type Owners<'a> = BTreeMap<ShardPath, (&'a str, u64)>;

impl<'a> Home<'a> {
    fn replay(mut self, reading: &Reading<'a>) -> Vec<Violation> {
        let mut found = Vec::new();
        for &(at_us, applied) in reading.applied.iter().filter(|(_, a)| a.request.cluster == 0) {
            let (gone, name) = (applied.request.method == Method::DELETE, applied.name());
            match applied.place().0 {
                "leases" => self.lease(name, gone, &applied.body),
                "members" if !gone => {
                    self.acknowledged.insert(name, acknowledged(&applied.body));
                }
                "shardmaps" => {
                    let now = if gone { Owners::new() } else { owners(&applied.body) };
                    let taken = self.map(name, now).into_iter();
                    found.extend(taken.map(|text| Violation { rule: "S5", at_us, text }));
                }
                _ => {}
            }
        }
        found
    }

    fn lease(&mut self, name: &'a str, gone: bool, body: &'a Value) {
        let Some(member) = name.strip_prefix(MEMBER_LEASE) else { return };
        if gone {
            self.holders.remove(member);
        } else {
            self.holders.insert(member, text(&body["spec"]["holderIdentity"]));
        }
    }

    /// Applies a map; gives the shards that it takes from owners that may still act.
    fn map(&mut self, cluster: &'a str, now: Owners<'a>) -> Vec<String> {
        let mut found = Vec::new();
        let before = self.owners.insert(cluster, now.clone()).unwrap_or_default();
        for (shard, (was, epoch)) in before {
            // A shard that is split or merged stays with its owner under another name.
            let stays = now.iter().any(|(present, (owner, _))| {
                *owner == was && present.group == shard.group && present.range.overlaps(shard.range)
            });
            let id = format!("{cluster}/{shard}");
            let drained = self.acknowledged.get(was);
            let drained = drained.is_some_and(|all| all.contains(&(id.as_str(), epoch)));
            let dead = self.holders.get(was).is_none_or(|holder| *holder != was);
            if !stays && !drained && !dead {
                found.push(format!("{id} was taken from {was}, which may act at {epoch}"));
            }
        }
        found
    }
}

fn acknowledged(member: &Value) -> BTreeSet<(&str, u64)> {
    let all = items(&member["spec"]["acknowledgedDrains"]).iter();
    all.map(|d| (text(&d["shard"]), d["epoch"].as_u64().unwrap_or_default())).collect()
}

fn owners(map: &Value) -> Owners<'_> {
    let entries = items(&map["spec"]["shards"]).iter();
    let owned = entries.filter_map(|entry| {
        let shard = text(&entry["shard"]).parse().ok()?;
        Some((shard, (entry["owner"].as_str()?, entry["epoch"].as_u64()?)))
    });
    owned.collect()
}
