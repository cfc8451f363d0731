//! The clusters of a fleet, and one of them with its shards. Pure.

use std::collections::{BTreeMap, BTreeSet};

use fleet::{Fleet, FleetShard, word};
use jiff::Timestamp;
use maud::{Markup, html};
use model::{ClusterName, MemberId};
use sharding::api::Phase;

use crate::page::{Part, ago, badge, cluster_link, first, member_link, search, table};

/// How many owners a row names.
const OWNERS: usize = 3;

/// How a cluster stands, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Unserved,
    Unowned,
    InDoubt,
    Down,
    Moving,
    Paused,
    Served,
}

impl Standing {
    fn badge(self) -> Markup {
        let (class, word) = match self {
            Self::Unserved => ("bad", "not served"),
            Self::Unowned => ("bad", "without owner"),
            Self::InDoubt => ("warn", "perhaps not served"),
            Self::Down => ("warn", "down for some"),
            Self::Moving => ("warn", "moving"),
            Self::Paused => ("plain", "paused"),
            Self::Served => ("good", "served"),
        };
        badge(class, word)
    }
}

/// A cluster in the list.
#[derive(Debug, PartialEq, Eq)]
struct Row<'f> {
    standing: Standing,
    cluster: &'f ClusterName,
    shards: usize,
    owned: usize,
    owners: BTreeSet<&'f MemberId>,
    /// Why members cannot use it.
    reasons: BTreeSet<&'f str>,
}

/// All clusters whose name contains `wanted`; those with the worst standing come first.
fn rows<'f>(fleet: &'f Fleet, wanted: &str) -> Vec<Row<'f>> {
    let mut found: BTreeMap<&ClusterName, Row<'f>> = BTreeMap::new();
    let new = |cluster| Row {
        standing: Standing::Served,
        cluster,
        shards: 0,
        owned: 0,
        owners: BTreeSet::new(),
        reasons: BTreeSet::new(),
    };
    for shard in &fleet.shards {
        let cluster = &shard.shard.cluster;
        let row = found.entry(cluster).or_insert_with(|| new(cluster));
        let standing = match (shard.phase, &shard.paused_by) {
            (Phase::Unowned, Some(_)) => Standing::Paused,
            (Phase::Unowned, None) => Standing::Unowned,
            _ if shard.unserved => Standing::Unserved,
            _ if shard.in_doubt => Standing::InDoubt,
            (Phase::Draining, _) => Standing::Moving,
            (Phase::Owned, _) => Standing::Served,
        };
        row.standing = row.standing.min(standing);
        row.shards += 1;
        row.owned += usize::from(shard.phase == Phase::Owned);
        row.owners.extend(&shard.owner);
    }
    for ((cluster, reason), _) in fleet.down() {
        let row = found.entry(cluster).or_insert_with(|| new(cluster));
        row.standing = row.standing.min(Standing::Down);
        row.reasons.insert(reason);
    }
    let mut found: Vec<_> =
        found.into_values().filter(|row| row.cluster.as_str().contains(wanted)).collect();
    found.sort_by_key(|row| (row.standing, row.cluster));
    found
}

/// The list of clusters.
pub(crate) fn list(fleet: &Fleet, wanted: &str, number: Option<usize>) -> Markup {
    let found = rows(fleet, wanted);
    let part = Part::of(&found, number);
    let row = |row: &Row<'_>| {
        let more = row.owners.len().saturating_sub(OWNERS);
        [
            cluster_link(row.cluster),
            row.standing.badge(),
            html! { (row.owned) " of " (row.shards) },
            html! {
                @for owner in row.owners.iter().take(OWNERS) { (member_link(owner)) " " }
                @if more > 0 { "and " (more) " more" }
            },
            html! { @for reason in row.reasons.iter().take(1) { (reason) } },
        ]
    };
    let empty = match wanted {
        "" => "There are no shards: no member has a cluster configured, or could use one yet.",
        _ => "No cluster has such a name.",
    };
    html! {
        (search("/clusters", wanted, "part of a cluster's name"))
        (table(["Cluster", "State", "Owned", "Owners", "Why"], empty, part.rows.iter().map(row)))
        (part.links("/clusters", wanted))
    }
}

/// The page of one cluster, if home knows it.
pub(crate) fn one(
    fleet: &Fleet,
    cluster: &ClusterName,
    (wanted, number): (&str, Option<usize>),
    now: Timestamp,
) -> Option<Markup> {
    let row = rows(fleet, cluster.as_str()).into_iter().find(|row| row.cluster == cluster)?;
    let found: Vec<&FleetShard> = fleet
        .shards_of(cluster)
        .into_iter()
        .filter(|shard| shard.shard.to_string().contains(wanted))
        .collect();
    let (part, path) = (Part::of(&found, number), format!("/clusters/{cluster}"));
    let down = fleet.down();
    let down: Vec<_> = down.iter().filter(|((name, _), _)| *name == cluster).collect();
    let (down, more) = first(&down);
    Some(html! {
        p { (row.standing.badge()) " " (row.owned) " of " (row.shards) " shards are owned" }
        @if !down.is_empty() {
            h2 { "Members that cannot use it" }
            (table(["Members", "Why"], "", down.iter().map(|((_, reason), members)| {
                let (members, more) = first(members);
                [html! { @for member in members { (member_link(member)) " " } (more) }, html! { (reason) }]
            })))
            (more)
        }
        h2 { "Shards" }
        (search(&path, wanted, "part of a shard's name"))
        (shards(part.rows, now))
        (part.links(&path, wanted))
    })
}

/// Shards with owner and last move.
pub(crate) fn shards(shards: &[&FleetShard], now: Timestamp) -> Markup {
    let row = |s: &&FleetShard| {
        let moved = s.moved.as_ref().and_then(|moved| Some((&moved.why, moved.at.as_ref()?.0)));
        [
            html! { (s.shard) },
            phase(s),
            html! { (s.epoch) },
            html! { @if let Some(owner) = &s.owner { (member_link(owner)) } },
            html! { @if let Some(target) = &s.target { (member_link(target)) } },
            html! { @if let Some((why, at)) = moved { (ago(at, now)) ": " (why) } },
        ]
    };
    let head = ["Shard", "Phase", "Epoch", "Owner", "Next owner", "Moved"];
    table(head, "There is no such shard.", shards.iter().map(row))
}

fn phase(shard: &FleetShard) -> Markup {
    let class = match (shard.phase, &shard.paused_by) {
        _ if shard.unserved => "bad",
        (Phase::Unowned, None) => "bad",
        (Phase::Unowned, Some(_)) => "plain",
        (Phase::Draining, _) => "warn",
        (Phase::Owned, _) if shard.in_doubt => "warn",
        (Phase::Owned, _) => "good",
    };
    html! {
        (badge(class, &word(&shard.phase)))
        @if shard.unserved { " not served" } @else if shard.in_doubt { " perhaps not served" }
        @if let Some(policy) = &shard.paused_by { " paused by " (policy) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::{down, fleet, shard};

    #[test]
    fn the_worst_clusters_come_first_and_each_says_how_it_stands() {
        let mut shards = vec![
            shard("a/g/0/1", Some("m-0"), Phase::Owned),
            shard("b/g/0/1", Some("m-0"), Phase::Draining),
            shard("c/g/0/1", None, Phase::Unowned),
            shard("c/h/0/1", Some("m-1"), Phase::Owned),
            shard("d/g/0/1", None, Phase::Unowned),
            shard("e/g/0/1", Some("m-1"), Phase::Owned),
            shard("f/g/0/1", Some("m-1"), Phase::Owned),
        ];
        shards[4].paused_by = Some("p".into());
        shards[5].unserved = true;
        shards
            .push(FleetShard { in_doubt: true, ..shard("doubt/g/0/1", Some("m-1"), Phase::Owned) });
        let mut fleet = fleet(shards);
        fleet.members[0].down_clusters = vec![down("f", "refused"), down("lost", "no such host")];
        let found = rows(&fleet, "");
        let standings: Vec<_> =
            found.iter().map(|row| (row.cluster.as_str(), row.standing)).collect();
        assert_eq!(
            standings,
            [
                ("e", Standing::Unserved),
                ("c", Standing::Unowned),
                ("doubt", Standing::InDoubt),
                ("f", Standing::Down),
                ("lost", Standing::Down),
                ("b", Standing::Moving),
                ("d", Standing::Paused),
                ("a", Standing::Served),
            ]
        );
        assert_eq!((found[1].owned, found[1].shards), (1, 2));
        assert_eq!(rows(&fleet, "os").len(), 1);
        let page = one(&fleet, &"f".parse().unwrap(), ("", None), Timestamp::UNIX_EPOCH).unwrap();
        assert!(page.into_string().contains("refused"));
        assert!(one(&fleet, &"g".parse().unwrap(), ("", None), Timestamp::UNIX_EPOCH).is_none());
    }
}
