//! Small histories for tests.

use jiff::Timestamp;
use serde_json::json;

use super::history::{Evidence, Life};
use super::journal::Dispatch;
use crate::harness::audit::{self, Renewal};
use crate::harness::ownership::Ownership;

/// The shard of every history.
pub const SHARD: &str = "east/tdset/0/1";

/// A moment, in seconds.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a small number")
}

/// The versions of one ShardMap, as `second phase owner epoch`.
pub fn history(versions: &str) -> Evidence {
    let lines: Vec<String> = versions
        .split(", ")
        .map(|version| {
            let words: Vec<&str> = version.split(' ').collect();
            let [second, phase, owner, epoch] = words[..] else { panic!("{version}") };
            let at = at(second.parse().expect("a second"));
            let mut entry = json!({
                "shard": "tdset/0/1", "phase": phase, "epoch": epoch.parse::<u64>().expect("an epoch"),
            });
            if owner != "-" {
                entry["owner"] = owner.into();
            }
            json!({
                "verb": "update", "stage": "ResponseComplete", "requestURI": "/shardmaps/east",
                "objectRef": {"resource": "shardmaps", "name": "east"},
                "responseStatus": {"code": 200},
                "responseObject": {
                    "metadata": {"name": "east", "resourceVersion": second},
                    "spec": {"shards": [entry]},
                },
                "requestReceivedTimestamp": at, "stageTimestamp": at,
            })
            .to_string()
        })
        .collect();
    let events = audit::parse(&lines.join("\n"));
    Evidence { ownership: Ownership::from_events(&events, &[]), ..Evidence::default() }
}

/// A process that was stopped during `pauses` and had ended at `ended`.
pub fn life(identity: &str, pauses: &[(i64, i64)], ended: i64) -> Life {
    let pauses = pauses.iter().map(|(from, until)| (at(*from), at(*until))).collect();
    Life { identity: identity.to_owned(), pauses, ended: at(ended) }
}

/// A renewal.
pub fn renewal(member: &str, second: i64) -> Renewal {
    Renewal { member: member.to_owned(), at: at(second) }
}

/// A reconcile of the only key.
pub fn dispatch(member: &str, epoch: u64, from: i64, until: i64) -> Dispatch {
    Dispatch {
        member: member.to_owned(),
        shard: SHARD.to_owned(),
        epoch,
        subject: ("tdset".to_owned(), "east/load/x".to_owned()),
        from: at(from),
        until: Some(at(until)),
    }
}
