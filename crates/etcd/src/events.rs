//! What is new in a status, as Events say it. Pure: an Event follows from what was written, so that a
//! step that is taken twice is told once.

use operands::report::{News, turned};

use crate::api::{EtcdClusterStatus, MemberPhase, MemberStatus};

/// What is new: whether it is good, a reason, and a sentence.
pub(crate) fn news(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> Vec<News> {
    let mut news = Vec::new();
    if let (None, Some(id)) = (&before.cluster_id, &after.cluster_id) {
        news.push((true, "Founded", format!("etcd founded cluster {id}")));
    }
    for member in &after.members {
        let known = before.members.iter().find(|known| known.name == member.name);
        news.extend(known.and_then(|known| of_member(known, member)));
    }
    for gone in &before.members {
        if !after.members.iter().any(|member| member.name == gone.name) {
            news.push((
                true,
                "MemberRemoved",
                format!("{} has left, with Pod and volume", gone.name),
            ));
        }
    }
    if let (Some(from), Some(to)) = (&before.leader, &after.leader)
        && from != to
    {
        news.push((true, "LeaderMoved", format!("{to} leads instead of {from}")));
    }
    if let (Some(from), Some(to)) = (&before.version, &after.version)
        && from != to
    {
        news.push((
            true,
            "Upgraded",
            format!("all members run {to} or later; before it was {from}"),
        ));
    }
    let lost = |status: &EtcdClusterStatus| {
        let mut conditions = status.conditions.iter();
        let found =
            conditions.find(|found| found.type_ == "Available" && found.reason == "QuorumLost");
        found.map(|found| found.message.clone())
    };
    match (lost(before), lost(after)) {
        (None, Some(message)) => news.push((false, "QuorumLost", message)),
        (Some(_), None) => {
            news.push((true, "QuorumRegained", "a majority serves again".to_owned()))
        }
        _ => {}
    }
    for (type_, bad) in [("Degraded", "True"), ("SpecValid", "False")] {
        let found = turned(&before.conditions, &after.conditions, type_, bad);
        // That the majority is lost is told above.
        if let Some(found) = found.filter(|found| found.reason != "QuorumLost") {
            news.push((false, type_, format!("{}: {}", found.reason, found.message)));
        }
    }
    news
}

fn of_member(before: &MemberStatus, after: &MemberStatus) -> Option<(bool, &'static str, String)> {
    let name = &after.name;
    match (before.phase, after.phase) {
        (MemberPhase::Joining, MemberPhase::Running) if before.id.is_some() => {
            Some((true, "MemberPromoted", format!("{name} is in sync and votes")))
        }
        (MemberPhase::Running, MemberPhase::Leaving) => Some(match &after.lost_since {
            Some(since) => {
                let note = format!("{name} is lost since {} and is replaced", since.0);
                (false, "MemberReplaced", note)
            }
            None => (true, "MemberLeaving", format!("{name} leaves")),
        }),
        (MemberPhase::Joining, MemberPhase::Leaving) => {
            Some((false, "MemberNotJoined", format!("{name} did not join in time and is removed")))
        }
        _ if before.id.is_none() && after.id.is_some() && after.phase == MemberPhase::Joining => {
            Some((true, "MemberAdded", format!("{name} learns from the others")))
        }
        _ => None,
    }
}
