//! Whether ShardMaps, replicas and `leasehold status` agree on who owns what. Pure: JSON in,
//! sentences out.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::home::Entry;

/// What one replica says at `/debug/shards`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnView {
    /// The replica's identity.
    pub identity: String,
    /// What it said; `None` if it did not answer.
    pub said: Option<Value>,
}

/// Why a fleet is not settled, if it is not. It is settled when each of `clusters` has shards, all
/// shards are owned, each replica owns one, and the owners, with valid Leases, say so themselves.
pub fn unsettled(maps: &[Entry], clusters: usize, reports: &[OwnView]) -> Option<String> {
    let named: BTreeSet<&str> = maps.iter().filter_map(|e| e.shard.split('/').next()).collect();
    if named.len() != clusters {
        return Some(format!("{} of {clusters} clusters have shards", named.len()));
    }
    if let Some(entry) = maps.iter().find(|entry| entry.phase != "Owned") {
        return Some(format!("{} is {}", entry.shard, entry.phase));
    }
    let mut reported = BTreeSet::new();
    for OwnView { identity, said } in reports {
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
        for shard in active {
            reported.insert((shard["shard"].as_str(), shard["epoch"].as_u64(), member));
        }
    }
    let is_unreported = |entry: &&Entry| {
        let owner = entry.owner.as_deref().unwrap_or_default();
        !reported.contains(&(Some(entry.shard.as_str()), Some(entry.epoch), owner))
    };
    let entry = maps.iter().find(is_unreported)?;
    Some(format!("{:?} does not report that it owns {}", entry.owner, entry.shard))
}

/// What `leasehold status --output json` said that is not true, given the ShardMaps `before` and
/// `after` it was asked. `None` also if these differ, since then nothing can be concluded.
pub fn untrue(status: &Value, before: &[Entry], after: &[Entry]) -> Option<String> {
    if before != after {
        return None;
    }
    let shards = status["shards"].as_array().map_or(&[][..], Vec::as_slice);
    let mut shown: Vec<Entry> = shards.iter().filter_map(|s| Entry::read(s, "")).collect();
    shown.sort();
    if let Some((shown, entry)) = shown.iter().zip(before).find(|(shown, entry)| shown != entry) {
        return Some(format!("status shows {shown:?}, the ShardMap {entry:?}"));
    }
    if shown.len() != before.len() {
        return Some(format!("status shows {} shards of {}", shown.len(), before.len()));
    }
    let members = status["members"].as_array().map_or(&[][..], Vec::as_slice);
    for member in members {
        let name = member["member"].as_str().unwrap_or_default();
        let owned = before.iter().filter(|entry| entry.owner.as_deref() == Some(name)).count();
        if member["shards"].as_u64() != u64::try_from(owned).ok() {
            return Some(format!(
                "status counts {} shards of {name}, not {owned}",
                member["shards"]
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::harness::home;

    fn maps(phase: &str) -> Vec<Entry> {
        let map = json!({"metadata": {"name": "east"}, "spec": {"shards": [
            {"shard": "g/0/1", "epoch": 4, "owner": "a-x", "phase": phase},
            {"shard": "h/0/1", "epoch": 2, "owner": "b-x", "phase": "Owned"},
        ]}});
        home::entries(&map).map(Result::unwrap).collect()
    }

    fn report(identity: &str, valid: f64, shards: &[(&str, u64, &str)]) -> OwnView {
        let held = shards
            .iter()
            .map(|(shard, epoch, hold)| json!({"shard": shard, "epoch": epoch, "hold": hold}));
        let said = json!({
            "member": format!("{identity}-x"), "leaseValidSeconds": valid,
            "shards": held.collect::<Vec<_>>(),
        });
        OwnView { identity: identity.to_owned(), said: Some(said) }
    }

    #[test]
    fn settled_means_that_owners_agree() {
        let b = report("b", 3.0, &[("east/h/0/1", 2, "active")]);
        let a = |valid, epoch, hold| report("a", valid, &[("east/g/0/1", epoch, hold)]);
        for (phase, a, expect) in [
            ("Owned", a(3.0, 4, "active"), ""),
            ("Draining", a(3.0, 4, "active"), "east/g/0/1 is Draining"),
            ("Owned", a(0.0, 4, "active"), "a-x has no valid Lease"),
            ("Owned", a(3.0, 3, "active"), "does not report that it owns east/g/0/1"),
            ("Owned", a(3.0, 4, "warming"), "does not report that it owns east/g/0/1"),
            ("Owned", report("a", 3.0, &[]), "a-x holds nothing"),
            ("Owned", OwnView { identity: "a".to_owned(), said: None }, "a does not answer"),
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
