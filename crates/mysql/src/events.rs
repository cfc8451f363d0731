//! What is new in a status, as Events say it. Pure: an Event follows from what was written, so that a
//! step that is taken twice is told once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use operands::report::{News, turned};

use crate::memory::Memory;
use crate::status::MySQLClusterStatus;
use crate::step::Change;

/// What is new: whether it is good, a reason, and a sentence. `change` is why the memory changes, if it does.
pub(crate) fn news(
    before: &MySQLClusterStatus,
    after: &MySQLClusterStatus,
    change: Option<&Change>,
) -> Vec<News> {
    let (was, is) = (&before.replication, &after.replication);
    let mut news: Vec<_> = primary(was, is, change).into_iter().collect();
    news.extend(resumed(before, after));
    if was.term > 0 && is.reign > was.reign {
        let note = "the replica of the manager that this Event names as reportingInstance looks after the \
                    cluster from now on: another one did, or it did itself and was restarted";
        news.push((true, "ManagerChanged", note.to_owned()));
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
    for (type_, bad) in [("Degraded", "True"), ("SpecValid", "False")] {
        if let Some(found) = turned(&before.conditions, &after.conditions, type_, bad) {
            news.push((false, type_, format!("{}: {}", found.reason, found.message)));
        }
    }
    news
}

/// Who is primary now, and no longer, and why.
fn primary(was: &Memory, is: &Memory, change: Option<&Change>) -> Option<News> {
    Some(match (&was.primary, &is.primary) {
        (None, Some(name)) if is.term > was.term => {
            (true, "Founded", format!("{name} is the primary of a new cluster"))
        }
        (Some(name), None) => match change {
            Some(Change::HandOver(why)) => {
                (true, "PrimaryDeposed", format!("{name} hands over: {why}"))
            }
            Some(Change::Depose(why)) => {
                (false, "PrimaryDeposed", format!("{name} is primary no longer: {why}"))
            }
            _ => (false, "PrimaryDeposed", format!("{name} is primary no longer")),
        },
        (None, Some(name)) => {
            let former = was.former.as_ref().filter(|former| *former != name);
            let note = match former {
                Some(former) => format!("{name} becomes primary in the place of {former}"),
                None => format!("{name} becomes primary again"),
            };
            (true, "PrimaryElected", note)
        }
        _ => return None,
    })
}

/// That a cluster whose primary has changed once takes writes again, and for how long it did not.
fn resumed(before: &MySQLClusterStatus, after: &MySQLClusterStatus) -> Option<News> {
    let (was, is) = (available(before)?, available(after)?);
    let memory = &after.replication;
    let name = memory.primary.as_ref().filter(|_| memory.term > 1)?;
    if (&*was.status, &*is.status) != ("False", "True") {
        return None;
    }
    let [since, now] = [was, is].map(|found| found.last_transition_time.0.as_second());
    let time = match now - since {
        ..1 => "less than a second".to_owned(),
        seconds => format!("about {seconds} s"),
    };
    Some((true, "WritesResumed", format!("{name} takes writes: Available was False for {time}")))
}

fn available(status: &MySQLClusterStatus) -> Option<&Condition> {
    status.conditions.iter().find(|found| found.type_ == "Available")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reasons(before: Value, after: Value) -> Vec<&'static str> {
        let status = |value| serde_json::from_value::<MySQLClusterStatus>(value).unwrap();
        let news = news(&status(before), &status(after), None);
        news.into_iter().map(|(_, reason, _)| reason).collect()
    }

    /// What `kubectl describe` shows of a takeover: from whom to whom, why, and for how long nobody took writes.
    #[test]
    fn a_takeover_is_told_from_its_beginning_to_its_end() {
        let status = |reign: i64, term: i64, primary: Option<&str>, former: Option<&str>| {
            let status = json!({"replication": {
                "reign": reign, "term": term, "primary": primary, "former": former,
            }});
            serde_json::from_value::<MySQLClusterStatus>(status).unwrap()
        };
        let with = |status: &MySQLClusterStatus, available: &str, second: i64| {
            let since = jiff::Timestamp::from_second(second).unwrap().to_string();
            let told = json!([{"type": "Available", "status": available, "reason": "R",
                "message": "m", "lastTransitionTime": since}]);
            let conditions = serde_json::from_value(told).unwrap();
            MySQLClusterStatus { conditions, ..status.clone() }
        };
        let (first, nobody) = (status(1, 1, Some("db-0"), None), status(1, 2, None, Some("db-0")));
        let (second, again) = (status(1, 2, Some("db-1"), None), status(1, 2, Some("db-0"), None));
        let lost = Change::Depose("it does not answer".to_owned());
        let planned = Change::HandOver("another one is asked for".to_owned());
        let begun = status(2, 2, Some("db-1"), None);
        for (before, after, change, expect) in [
            (&first, &nobody, Some(&lost), (false, "PrimaryDeposed", "longer: it does not answer")),
            (&first, &nobody, Some(&planned), (true, "PrimaryDeposed", "db-0 hands over: another")),
            (
                &nobody,
                &second,
                None,
                (true, "PrimaryElected", "db-1 becomes primary in the place of db-0"),
            ),
            (&nobody, &again, None, (true, "PrimaryElected", "db-0 becomes primary again")),
            (&second, &begun, Some(&Change::Begin), (true, "ManagerChanged", "reportingInstance")),
            (
                &with(&second, "False", 10),
                &with(&second, "True", 17),
                None,
                (true, "WritesResumed", "db-1 takes writes: Available was False for about 7 s"),
            ),
            (
                &with(&second, "False", 10),
                &with(&second, "True", 10),
                None,
                (true, "WritesResumed", "less than a second"),
            ),
        ] {
            let told = news(before, after, change);
            let [(is_good, reason, note)] = &told[..] else { panic!("{told:?}") };
            assert_eq!((*is_good, *reason), (expect.0, expect.1), "{note}");
            assert!(note.contains(expect.2), "{note}");
        }
        for (before, after) in [
            // A new cluster takes its first writes.
            (&with(&first, "False", 10), &with(&first, "True", 17)),
            (&with(&second, "True", 10), &with(&second, "False", 17)),
            (&with(&second, "True", 10), &with(&second, "True", 10)),
            // The first manager of a new cluster.
            (&status(0, 0, None, None), &status(1, 0, None, None)),
        ] {
            let told = news(before, after, None);
            assert!(told.is_empty(), "{told:?}");
        }
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
