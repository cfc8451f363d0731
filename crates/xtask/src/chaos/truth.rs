//! What ShardMaps, replicas and `leasehold status` say of who owns what, held against each other.
//! Pure: JSON in, sentences out.

use std::collections::BTreeSet;

use serde_json::Value;

/// One shard as somebody tells of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// As in `east/tdset/0/1`.
    pub shard: String,
    /// Its epoch.
    pub epoch: u64,
    /// Its owner, if it has one.
    pub owner: Option<String>,
    /// `Owned`, `Draining` or `Unowned`.
    pub phase: String,
}

/// What one replica says of itself at `/debug/shards`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the replica is called.
    pub identity: String,
    /// What it said; `None` if it did not answer.
    pub said: Option<Value>,
}

/// Every entry of the ShardMaps of a list, in order.
pub fn of_maps(maps: &[Value]) -> Vec<Entry> {
    let of_map = |map: &Value| -> Vec<Entry> {
        let cluster = map["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let entries = map["spec"]["shards"].as_array().map_or(&[][..], Vec::as_slice);
        entries.iter().map(|entry| Entry::read(entry, &format!("{cluster}/"))).collect()
    };
    let mut entries: Vec<Entry> = maps.iter().flat_map(of_map).collect();
    entries.sort();
    entries
}

impl Entry {
    fn read(value: &Value, cluster: &str) -> Self {
        Self {
            shard: format!("{cluster}{}", value["shard"].as_str().unwrap_or("?")),
            epoch: value["epoch"].as_u64().unwrap_or_default(),
            owner: value["owner"].as_str().map(str::to_owned),
            phase: value["phase"].as_str().unwrap_or_default().to_owned(),
        }
    }
}

/// What keeps a fleet from being settled: `clusters` each have shards, all of them are owned, and
/// their owners, each of the replicas at least for one, say so themselves with a valid Lease.
pub fn unsettled(maps: &[Entry], clusters: usize, reports: &[Report]) -> Option<String> {
    let named: BTreeSet<&str> = maps.iter().filter_map(|e| e.shard.split('/').next()).collect();
    if named.len() != clusters {
        return Some(format!("{} of {clusters} clusters have shards", named.len()));
    }
    if let Some(entry) = maps.iter().find(|entry| entry.phase != "Owned") {
        return Some(format!("{} is {}", entry.shard, entry.phase));
    }
    let mut told = BTreeSet::new();
    for Report { identity, said } in reports {
        let Some(said) = said else { return Some(format!("{identity} does not answer")) };
        let member = said["member"].as_str().unwrap_or_default();
        if said["leaseValidSeconds"].as_f64().unwrap_or_default() <= 0.0 {
            return Some(format!("{member} has no valid Lease"));
        }
        let held = said["shards"].as_array().map_or(&[][..], Vec::as_slice);
        if held.is_empty() && maps.len() >= reports.len() {
            return Some(format!("{member} holds nothing"));
        }
        let active = held.iter().filter(|shard| shard["hold"] == "active");
        told.extend(active.map(|shard| (shard["shard"].as_str(), shard["epoch"].as_u64(), member)));
    }
    let untold = |entry: &&Entry| {
        let owner = entry.owner.as_deref().unwrap_or_default();
        !told.contains(&(Some(entry.shard.as_str()), Some(entry.epoch), owner))
    };
    let entry = maps.iter().find(untold)?;
    Some(format!("{} of {:?} is not told of by its owner", entry.shard, entry.owner))
}

/// What is not true of what `leasehold status --output json` said, if the ShardMaps were `before`
/// it was asked what they are `after`; `None` also if they were not, for then nothing can be said.
pub fn untrue(status: &Value, before: &[Entry], after: &[Entry]) -> Option<String> {
    if before != after {
        return None;
    }
    let shards = status["shards"].as_array().map_or(&[][..], Vec::as_slice);
    let mut told: Vec<Entry> = shards.iter().map(|shard| Entry::read(shard, "")).collect();
    told.sort();
    let wrong = |(told, entry): &(&Entry, &Entry)| told != entry;
    if let Some((told, entry)) = told.iter().zip(before).find(wrong) {
        return Some(format!("status tells of {told:?}, the ShardMap of {entry:?}"));
    }
    if told.len() != before.len() {
        return Some(format!("status tells of {} shards of {}", told.len(), before.len()));
    }
    let members = status["members"].as_array().map_or(&[][..], Vec::as_slice);
    for member in members {
        let name = member["member"].as_str().unwrap_or_default();
        let owned = before.iter().filter(|entry| entry.owner.as_deref() == Some(name)).count();
        if member["shards"].as_u64() != u64::try_from(owned).ok() {
            return Some(format!("status counts {} shards of {name}: {owned}", member["shards"]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn maps(phase: &str) -> Vec<Entry> {
        of_maps(&[json!({"metadata": {"name": "east"}, "spec": {"shards": [
            {"shard": "g/0/1", "epoch": 4, "owner": "a-x", "phase": phase},
            {"shard": "h/0/1", "epoch": 2, "owner": "b-x", "phase": "Owned"},
        ]}})])
    }

    fn report(identity: &str, valid: f64, shards: &[(&str, u64, &str)]) -> Report {
        let held = shards
            .iter()
            .map(|(shard, epoch, hold)| json!({"shard": shard, "epoch": epoch, "hold": hold}));
        let said = json!({
            "member": format!("{identity}-x"), "leaseValidSeconds": valid,
            "shards": held.collect::<Vec<_>>(),
        });
        Report { identity: identity.to_owned(), said: Some(said) }
    }

    #[test]
    fn settled_means_that_owners_agree() {
        let b = report("b", 3.0, &[("east/h/0/1", 2, "active")]);
        let a = |valid, epoch, hold| report("a", valid, &[("east/g/0/1", epoch, hold)]);
        for (phase, a, expect) in [
            ("Owned", a(3.0, 4, "active"), ""),
            ("Draining", a(3.0, 4, "active"), "east/g/0/1 is Draining"),
            ("Owned", a(0.0, 4, "active"), "a-x has no valid Lease"),
            ("Owned", a(3.0, 3, "active"), "is not told of by its owner"),
            ("Owned", a(3.0, 4, "warming"), "is not told of by its owner"),
            ("Owned", report("a", 3.0, &[]), "a-x holds nothing"),
            ("Owned", Report { identity: "a".to_owned(), said: None }, "a does not answer"),
        ] {
            let found = unsettled(&maps(phase), 1, &[a, b.clone()]).unwrap_or_default();
            assert!(found.contains(expect) && found.is_empty() == expect.is_empty(), "{found}");
        }
        assert_eq!(unsettled(&[], 1, &[b]).unwrap(), "0 of 1 clusters have shards");
    }

    fn status(owner: &str, count: u64) -> Value {
        json!({
            "members": [{"member": "a-x", "shards": count}],
            "shards": [
                {"shard": "east/g/0/1", "epoch": 4, "owner": owner, "phase": "Owned"},
                {"shard": "east/h/0/1", "epoch": 2, "owner": "b-x", "phase": "Owned"},
            ],
        })
    }

    #[test]
    fn a_status_that_differs_from_the_maps_is_untrue() {
        let now = maps("Owned");
        assert_eq!(untrue(&status("a-x", 1), &now, &now), None);
        assert!(untrue(&status("c-x", 1), &now, &now).unwrap().contains("c-x"));
        assert!(untrue(&status("a-x", 2), &now, &now).unwrap().contains("counts 2"));
        assert!(untrue(&json!({}), &now, &now).unwrap().contains("0 shards of 2"));
        assert_eq!(untrue(&status("c-x", 1), &now, &maps("Draining")), None, "it moved meanwhile");
    }
}
