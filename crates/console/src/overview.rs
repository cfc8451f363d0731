//! The first page: what is wrong, who is there, what moved. And the page of one member. Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use fleet::{Fleet, FleetMember, FleetShard, LeaseStanding, word};
use jiff::Timestamp;
use maud::{Markup, html};
use model::MemberId;
use sharding::api::{MemberState, Phase};

use crate::clusters::shards;
use crate::page::{Part, ago, badge, cluster_link, first, member_link, search, table, tile};

/// How many of the last moves are shown.
const MOVES: usize = 15;

pub(crate) fn overview(fleet: &Fleet, now: Timestamp) -> Markup {
    let problems = fleet.problems(now);
    let (shown, further) = first(&problems);
    let alive = fleet.members.iter().filter(|member| member.is_heard(now)).count();
    let count = |phase| fleet.shards.iter().filter(|shard| shard.phase == phase).count();
    let paused = fleet.shards.iter().filter(|shard| shard.paused_by.is_some()).count();
    let clusters: BTreeSet<_> = fleet.shards.iter().map(|shard| &shard.shard.cluster).collect();
    let down: BTreeSet<_> = fleet.down().into_keys().map(|(cluster, _)| cluster).collect();
    // Who cannot name all that it fails to reach says how many they are.
    let more = fleet.alive().any(|member| member.failing.is_some());
    let down =
        format!("{}{} down for some member", if more { "more than " } else { "" }, down.len());
    let coordinator = fleet.coordinator.as_ref().map_or("nobody", |member| member.as_str());
    let workers: u32 = fleet.members.iter().map(|member| member.busy).sum();
    let unowned = unowned(fleet);
    html! {
        div.tiles {
            (tile("Members", &alive.to_string(), &format!("of {} that home knows", fleet.members.len())))
            (tile("Clusters", &clusters.len().to_string(), &down))
            (tile("Shards", &fleet.shards.len().to_string(), &format!("{} owned", count(Phase::Owned))))
            (tile("Moving", &count(Phase::Draining).to_string(), "shards that are handed over"))
            (tile("Without owner", &unowned.to_string(), &format!("{paused} paused")))
            (tile("Busy", &format!("{:.2}", f64::from(workers) / 1e3), "workers, in all"))
        }
        section {
            @if problems.is_empty() {
                p.well { "Nothing is wrong, as far as home tells. Coordinator: " (coordinator) }
            } @else {
                h2 { "What is wrong" }
                ul.problems {
                    @for problem in shown { li { b { (problem.what) } br; "fix: " (problem.fix) } }
                }
                (further)
            }
        }
        section { h2 { "Members" } (members(fleet, now)) }
        section { h2 { "Last moves" } (moves(fleet, now)) }
    }
}

/// How many shards wait for an owner: not those that people pause, which lose theirs one by one.
fn unowned(fleet: &Fleet) -> usize {
    let waits = |shard: &&FleetShard| shard.phase == Phase::Unowned && shard.paused_by.is_none();
    fleet.shards.iter().filter(waits).count()
}

fn members(fleet: &Fleet, now: Timestamp) -> Markup {
    let most = fleet.members.iter().map(|member| member.busy).max().unwrap_or_default();
    // Below one worker, a full bar would look like much.
    let most = most.max(1000);
    let row = |m: &FleetMember| {
        [
            member_link(&m.member),
            state(m, now),
            html! { (renewed(m, now)) },
            html! { (m.shards) },
            html! {
                meter min="0" max=(most) value=(m.busy) {}
                " " (format!("{:.2}", f64::from(m.busy) / 1e3))
            },
            html! { (m.capacity) },
            html! { @if m.coordinator { "coordinator" } },
        ]
    };
    let head = ["Member", "State", "Renewed", "Shards", "Busy workers", "Capacity", "Role"];
    // The dead last.
    let (mut all, dead): (Vec<_>, Vec<_>) =
        fleet.members.iter().partition(|member| member.is_alive());
    all.extend(dead);
    let (shown, more) = first(&all);
    html! {
        (table(head, "Home knows no member.", shown.iter().map(|member| row(member))))
        (more)
    }
}

fn state(member: &FleetMember, now: Timestamp) -> Markup {
    let (class, word) = match (member.lease, member.state) {
        (LeaseStanding::Held, _) if !member.is_heard(now) => ("bad", "silent".to_owned()),
        (LeaseStanding::Held, MemberState::Active) if member.drain => {
            let drains = if member.shards == 0 { "drained" } else { "draining" };
            let policy = member.cordoned_by.as_ref();
            (
                "warn",
                drains.to_owned()
                    + &policy.map(|p| format!(", cordoned by {p}")).unwrap_or_default(),
            )
        }
        (LeaseStanding::Held, MemberState::Active) => ("good", "active".to_owned()),
        (LeaseStanding::Held, state) => ("warn", word(&state)),
        (lease, _) => ("bad", format!("lease {}", word(&lease))),
    };
    badge(class, &word)
}

fn renewed(member: &FleetMember, now: Timestamp) -> String {
    member.renewed.map_or_else(|| "never".to_owned(), |at| ago(at, now))
}

fn moves(fleet: &Fleet, now: Timestamp) -> Markup {
    let mut moved: Vec<(Timestamp, &FleetShard)> = fleet
        .shards
        .iter()
        .filter_map(|shard| Some((shard.moved.as_ref()?.at.as_ref()?.0, shard)))
        .collect();
    moved.sort_by_key(|(at, shard)| (Reverse(*at), &shard.shard));
    moved.truncate(MOVES);
    let row = |(at, shard): &(Timestamp, &FleetShard)| {
        [
            html! { (ago(*at, now)) },
            cluster_link(&shard.shard.cluster),
            html! { (shard.shard) },
            html! { @if let Some(moved) = &shard.moved { (moved.why) } },
            html! { @if let Some(owner) = &shard.owner { (member_link(owner)) } },
        ]
    };
    let head = ["When", "Cluster", "Shard", "Why", "Owner"];
    table(head, "No shard has moved yet.", moved.iter().map(row))
}

/// The page of one member, if home knows it.
pub(crate) fn member(
    fleet: &Fleet,
    id: &MemberId,
    (wanted, number): (&str, Option<usize>),
    now: Timestamp,
) -> Option<Markup> {
    let member = fleet.members.iter().find(|member| member.member == *id)?;
    let has =
        |shard: &&FleetShard| shard.owner.as_ref() == Some(id) || shard.target.as_ref() == Some(id);
    let found: Vec<&FleetShard> = fleet
        .shards
        .iter()
        .filter(has)
        .filter(|shard| shard.shard.to_string().contains(wanted))
        .collect();
    let (part, path) = (Part::of(&found, number), format!("/members/{id}"));
    let fact = |name: &str, value: Markup| html! { dt { (name) } dd { (value) } };
    Some(html! {
        dl {
            (fact("Identity", html! { (member.identity) }))
            (fact("State", state(member, now)))
            (fact("Renewed", html! { (renewed(member, now)) ", for " (member.lease_seconds) " s" }))
            (fact("Shards", html! { (member.shards) }))
            (fact("Busy workers", html! { (format!("{:.2}", f64::from(member.busy) / 1e3)) }))
            (fact("Protocol", html! { (member.oldest_protocol_version) " to " (member.protocol_version) }))
        }
        @if !member.down_clusters.is_empty() {
            h2 { "Clusters that it cannot use" }
            @let down = Part::of(&member.down_clusters, None);
            (table(["Cluster", "Why"], "", down.rows.iter().map(|down| {
                [cluster_link(&down.cluster), html! { (down.reason) }]
            })))
            (down.links(&path, ""))
        }
        h2 { "Shards" }
        (search(&path, wanted, "part of a shard's name"))
        (shards(part.rows, now))
        (part.links(&path, wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::{down, fleet, shard};

    #[test]
    fn shards_that_people_pause_do_not_hide_those_that_lost_their_owner() {
        let paused = |name, owner, phase| FleetShard {
            paused_by: Some("p".into()),
            ..shard(name, owner, phase)
        };
        let fleet = fleet(vec![
            shard("east/g/0/1", None, Phase::Unowned),
            shard("east/h/0/1", Some("m-0"), Phase::Owned),
            paused("west/g/0/1", Some("m-0"), Phase::Draining),
            paused("west/h/0/1", None, Phase::Unowned),
        ]);
        assert_eq!(unowned(&fleet), 1);
    }

    #[test]
    fn of_a_fleet_in_which_much_is_wrong_the_first_page_is_bounded() {
        let mut fleet = fleet(Vec::new());
        fleet.members[0].lease = LeaseStanding::Taken;
        for number in 0..1000 {
            let mut member = FleetMember::example(&format!("x-{number}"));
            member.down_clusters = vec![down(&format!("c-{number}"), "no route")];
            fleet.members.push(member);
        }
        let page = overview(&fleet, Timestamp::UNIX_EPOCH).into_string();
        assert!(page.matches("<li>").count() <= 100 && page.matches("<tr>").count() <= 101);
        assert_eq!(page.matches("more: <code>leasehold status</code>").count(), 2, "{page}");
        assert!(page.contains(">x-98<") && !page.contains(">m-0<"), "the dead come last: {page}");
    }

    #[test]
    fn the_bars_of_an_idle_fleet_are_short() {
        let mut fleet = fleet(Vec::new());
        let bars = |fleet: &Fleet| members(fleet, Timestamp::UNIX_EPOCH).into_string();
        fleet.members[0].busy = 40;
        assert!(bars(&fleet).contains(r#"max="1000" value="40""#), "{}", bars(&fleet));
        fleet.members[0].busy = 4000;
        assert!(bars(&fleet).contains(r#"max="4000" value="500""#), "{}", bars(&fleet));
    }
}
