//! S5: self-fence precedes takeover.
//!
//! Once another member has taken its Lease, a member runs nothing, begins nothing and sends no
//! write. And an owner loses a shard only by its own acknowledgement, or after its Lease was taken,
//! given back or gone.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::Value;

use super::Violation;
use super::reading::{Reading, items, text};

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (at_us, member) in takeovers(reading) {
        found.extend(still_acting(reading, member, at_us));
    }
    found.extend(Home::default().replay(reading));
    found
}

/// When the Lease of which member was taken by another.
fn takeovers<'a>(reading: &Reading<'a>) -> Vec<(u64, &'a str)> {
    let taken = reading.home("leases").filter_map(|(at_us, applied, lease)| {
        let member = lease.strip_prefix("leasehold-member-")?;
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

/// The home cluster, as its writes left it.
#[derive(Default)]
struct Home<'a> {
    /// Who holds which member's Lease.
    holders: BTreeMap<&'a str, &'a str>,
    /// What each member has acknowledged.
    acknowledged: BTreeMap<&'a str, BTreeSet<(&'a str, u64)>>,
    /// The owner of each shard, and its epoch.
    owners: BTreeMap<String, (&'a str, u64)>,
}

impl<'a> Home<'a> {
    fn replay(mut self, reading: &Reading<'a>) -> Vec<Violation> {
        let mut found = Vec::new();
        for &(at_us, applied) in &reading.applied {
            let (plural, named) = applied.place();
            let gone = applied.request.method == Method::DELETE;
            let name = applied.answer["metadata"]["name"].as_str().unwrap_or(named);
            let name = if named.is_empty() { name } else { named };
            match plural {
                "leases" => self.lease(name, gone, &applied.body),
                "members" => self.member(name, gone, &applied.body),
                "shardmaps" if !gone => {
                    for text in self.map(name, &applied.body) {
                        found.push(Violation { rule: "S5", at_us, text });
                    }
                }
                _ => {}
            }
        }
        found
    }

    fn lease(&mut self, name: &'a str, gone: bool, body: &'a Value) {
        let Some(member) = name.strip_prefix("leasehold-member-") else { return };
        if gone {
            self.holders.remove(member);
        } else {
            self.holders.insert(member, text(&body["spec"]["holderIdentity"]));
        }
    }

    fn member(&mut self, name: &'a str, gone: bool, body: &'a Value) {
        let told = items(&body["spec"]["acknowledgedDrains"]).iter();
        let told = told.map(|d| (text(&d["shard"]), d["epoch"].as_u64().unwrap_or_default()));
        if !gone {
            self.acknowledged.insert(name, told.collect());
        }
    }

    /// Takes in a map; gives what it takes away from owners that may still act.
    fn map(&mut self, cluster: &str, body: &'a Value) -> Vec<String> {
        let mut found = Vec::new();
        for entry in items(&body["spec"]["shards"]) {
            let shard = format!("{cluster}/{}", text(&entry["shard"]));
            let epoch = entry["epoch"].as_u64().unwrap_or_default();
            let owner = entry["owner"].as_str();
            let before = match owner {
                Some(owner) => self.owners.insert(shard.clone(), (owner, epoch)),
                None => self.owners.remove(&shard),
            };
            let Some((was, at)) = before.filter(|(was, _)| Some(*was) != owner) else { continue };
            let drained = self.acknowledged.get(was);
            let drained = drained.is_some_and(|told| told.contains(&(shard.as_str(), at)));
            let dead = self.holders.get(was).is_none_or(|holder| *holder != was);
            if !drained && !dead {
                found.push(format!("{shard} was taken from {was}, which may act at {at}"));
            }
        }
        found
    }
}
