//! What is new in a status, as Events say it. Pure: an Event follows from what was written, so that a
//! step that is taken twice is told once.

use operands::report::News;

use crate::status::MySQLClusterStatus;

/// What is new: whether it is good, a reason, and a sentence.
pub(crate) fn news(before: &MySQLClusterStatus, after: &MySQLClusterStatus) -> Vec<News> {
    let mut news = Vec::new();
    let (was, is) = (&before.replication, &after.replication);
    match (&was.primary, &is.primary) {
        (None, Some(name)) if is.term > was.term => {
            news.push((true, "Founded", format!("{name} is the primary of a new cluster")));
        }
        (Some(name), None) => {
            news.push((false, "PrimaryDeposed", format!("{name} is primary no longer")));
        }
        (None, Some(name)) => news.push((true, "PrimaryElected", format!("{name} is primary"))),
        _ => {}
    }
    for member in &is.members {
        let known = was.members.iter().find(|known| known.name == member.name);
        if was.term > 0 && known.is_none_or(|known| known.uuid != member.uuid) {
            news.push((true, "MemberJoined", format!("{} may take over", member.name)));
        }
    }
    for member in &was.members {
        if !is.members.iter().any(|left| left.name == member.name) {
            news.push((true, "MemberLeft", format!("{} may not take over any more", member.name)));
        }
    }
    if let (Some(from), Some(to)) = (&before.version, &after.version)
        && from != to
    {
        news.push((
            true,
            "Upgraded",
            format!("all instances run {to} or later; before it was {from}"),
        ));
    }
    if let (Some(was), Some(is)) = (&before.passwords_rotated, &after.passwords_rotated)
        && was != is
    {
        let note = "the controller's accounts have new passwords; the former ones work for a while";
        news.push((true, "PasswordsRotated", note.to_owned()));
    }
    let bad = |status: &MySQLClusterStatus, type_: &str, bad: &str| {
        let mut all = status.conditions.iter();
        let found = all.find(|found| found.type_ == type_ && found.status == bad);
        found.map(|found| (found.reason.clone(), found.message.clone()))
    };
    for (type_, value) in [("Degraded", "True"), ("SpecValid", "False")] {
        if let Some((reason, message)) = bad(after, type_, value)
            && bad(before, type_, value).is_none_or(|(known, _)| known != reason)
        {
            news.push((false, type_, format!("{reason}: {message}")));
        }
    }
    news
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reasons(before: Value, after: Value) -> Vec<&'static str> {
        let status = |value| serde_json::from_value::<MySQLClusterStatus>(value).unwrap();
        let news = news(&status(before), &status(after));
        news.into_iter().map(|(_, reason, _)| reason).collect()
    }

    #[test]
    fn what_was_written_is_told_once() {
        let with = |term: i64, primary: Option<&str>, members: &[&str]| {
            let members: Vec<_> =
                members.iter().map(|name| json!({"name": name, "uuid": "u"})).collect();
            json!({"replication": {"term": term, "primary": primary, "members": members}})
        };
        let nobody = || with(2, None, &["db-0", "db-1"]);
        let second = || with(2, Some("db-1"), &["db-0", "db-1"]);
        for (before, after, expect) in [
            (json!({}), with(1, Some("db-0"), &["db-0"]), &["Founded"][..]),
            (with(1, Some("db-0"), &["db-0", "db-1"]), nobody(), &["PrimaryDeposed"]),
            (nobody(), second(), &["PrimaryElected"]),
            (second(), second(), &[]),
            (second(), with(2, Some("db-1"), &["db-1"]), &["MemberLeft"]),
            (with(2, Some("db-1"), &["db-1"]), second(), &["MemberJoined"]),
            (json!({"version": "8.4.3"}), json!({"version": "9.7.4"}), &["Upgraded"]),
            (json!({}), json!({"passwordsRotated": "a"}), &[]),
            (
                json!({"passwordsRotated": "a"}),
                json!({"passwordsRotated": "b"}),
                &["PasswordsRotated"],
            ),
        ] {
            assert_eq!(reasons(before.clone(), after.clone()), expect, "{before} {after}");
        }
        let stuck = |reason: &str| {
            json!({"conditions": [{"type": "Degraded", "status": "True", "reason": reason,
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        assert_eq!(reasons(json!({}), stuck("QuorumLost")), ["Degraded"]);
        assert_eq!(reasons(stuck("QuorumLost"), stuck("QuorumLost")), [""; 0]);
    }
}
