//! What a look at a schedule decides.

use serde_json::{Value, json};

use super::*;
use crate::archive::testkind::{Dump, Plan};

fn now() -> Timestamp {
    "2026-03-01T12:00:30Z".parse().unwrap()
}

fn plan(spec: Value, status: Value) -> Plan {
    let metadata = json!({"name": "db", "namespace": "web", "uid": "p1",
        "creationTimestamp": "2026-03-01T10:30:00Z"});
    serde_json::from_value(json!({
        "apiVersion": "test/v1", "kind": "Plan", "metadata": metadata, "spec": spec, "status": status,
    }))
    .unwrap()
}

fn scheduled(change: Value, status: Value) -> Plan {
    let mut wanted = json!({"schedule": "0 * * * *", "keep": 2,
        "destination": {"volume": {"claimName": "backups"}}});
    wanted.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    plan(wanted, status)
}

/// The object of the database.
fn database() -> ObjectMeta {
    let created = Some(Time("2026-03-01T00:30:00Z".parse().unwrap()));
    ObjectMeta { uid: Some("d2".to_owned()), creation_timestamp: created, ..ObjectMeta::default() }
}

fn made(name: &str, phase: &str, started: &str) -> Arc<Dump> {
    let finished = ["Complete", "Failed"].contains(&phase).then_some(started);
    let object = json!({
        "apiVersion": "test/v1", "kind": "Dump",
        "metadata": {"name": name, "namespace": "web", "uid": format!("uid-{name}")},
        "spec": {"database": "db", "destination": {"volume": {"claimName": "backups"}}},
        "status": {"phase": phase, "started": started, "finished": finished},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

#[test]
fn the_last_run_that_is_due_is_made_once_under_its_name() {
    let cluster = scheduled(json!({}), Value::Null);
    let decision = decide(&cluster, &[], Some(&database()), now());
    let snapshot = decision.create.unwrap();
    assert_eq!(snapshot.name_any(), "db-2026-03-01-12-00");
    assert!(snapshot.metadata.owner_references.is_none());
    assert_eq!(decision.next.unwrap().to_string(), "2026-03-01T13:00:00Z");
    let status = decision.status.unwrap();
    // Killed between the two writes: the same name again, although that one runs.
    let running = made("db-2026-03-01-12-00", "Running", "2026-03-01T12:00:01Z");
    let again = decide(&cluster, &[running], Some(&database()), now());
    assert_eq!(again.create.unwrap().name_any(), "db-2026-03-01-12-00");
    // Recorded: not made again, even if a person deleted it.
    let recorded = scheduled(json!({}), json!(status));
    assert_eq!(decide(&recorded, &[], Some(&database()), now()).create, None);
}

#[test]
fn a_run_of_a_schedule_with_a_long_name_has_a_name_that_the_server_takes() {
    let run = now();
    let name = |length: usize| {
        let mut owner = scheduled(json!({}), Value::Null);
        owner.metadata.name = Some("a.".repeat(length)[..length - 1].to_owned() + "b");
        name_of(&owner, run)
    };
    for (length, expect) in [(3, 20), (236, 253), (237, 253), (253, 253)] {
        let name = name(length);
        assert_eq!(name.len(), expect, "{length}: {name}");
        assert!(name.ends_with("-2026-03-01-12-00") && !name.contains(".-"), "{name}");
    }
    assert_ne!(name(250), name(252));
}

/// Its manager had a clock that was ahead for a while.
#[test]
fn a_run_that_is_still_to_come_keeps_no_other_away() {
    let ahead = scheduled(json!({}), json!({"lastRun": "2026-04-01T12:00:00Z"}));
    let decision = decide(&ahead, &[], Some(&database()), now());
    assert_eq!(decision.create, None);
    let status = json!(decision.status.unwrap());
    assert_eq!(status["lastRun"], "2026-03-01T12:00:30Z");
    let later = "2026-03-01T13:00:00Z".parse().unwrap();
    let decision = decide(&scheduled(json!({}), status), &[], Some(&database()), later);
    assert_eq!(decision.create.unwrap().name_any(), "db-2026-03-01-13-00");
}

#[test]
fn a_run_is_skipped_while_another_is_made() {
    let running = made("db-2026-03-01-11-00", "Running", "2026-03-01T11:00:01Z");
    let decision = decide(&scheduled(json!({}), Value::Null), &[running], Some(&database()), now());
    assert_eq!(decision.create, None);
    let status = decision.status.unwrap();
    assert!(status.obstacle.unwrap().contains("db-2026-03-01-11-00 still ran"));
    assert_eq!(status.last_run.unwrap().0.to_string(), "2026-03-01T12:00:00Z");
}

#[test]
fn retention_keeps_the_last_good_ones() {
    let last = json!({"lastRun": "2026-03-01T12:00:00Z"});
    let all = [
        made("a", "Complete", "2026-03-01T01:00:00Z"),
        made("b", "Complete", "2026-03-01T02:00:00Z"),
        made("c", "Complete", "2026-03-01T03:00:00Z"),
        made("d", "Failed", "2026-03-01T04:00:00Z"),
        made("e", "Running", "2026-03-01T05:00:00Z"),
    ];
    let decision = decide(&scheduled(json!({}), last.clone()), &all, Some(&database()), now());
    assert_eq!(decision.delete, [("a".to_owned(), "uid-a".to_owned())]);
    assert_eq!(decision.status.unwrap().last_complete.as_deref(), Some("c"));
    let one = scheduled(json!({"keep": 1}), last);
    let names: Vec<_> = decide(&one, &all, Some(&database()), now())
        .delete
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn another_database_of_the_name_prunes_nothing_of_the_one_before() {
    let of = |uid: Option<&str>, name: &str, phase: &str, started: &str| {
        let mut backup = Arc::unwrap_or_clone(made(name, phase, started));
        backup.status.as_mut().unwrap().database_uid = uid.map(str::to_owned);
        Arc::new(backup)
    };
    let all = [
        of(None, "unmarked", "Complete", "2026-03-01T00:00:00Z"),
        of(Some("d1"), "lost-a", "Complete", "2026-03-01T01:00:00Z"),
        of(Some("d1"), "lost-b", "Complete", "2026-03-01T02:00:00Z"),
        of(Some("d2"), "c", "Complete", "2026-03-01T03:00:00Z"),
        of(Some("d2"), "d", "Complete", "2026-03-01T04:00:00Z"),
        of(None, "e", "Complete", "2026-03-01T05:00:00Z"),
    ];
    let owner = scheduled(json!({"keep": 1}), json!({"lastRun": "2026-03-01T12:00:00Z"}));
    let deleted = |database: Option<&ObjectMeta>| -> Vec<_> {
        let decision = decide(&owner, &all, database, now());
        decision.delete.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(deleted(Some(&database())), ["c", "d"]);
    assert!(deleted(None).is_empty(), "while there is none, nothing goes");
}

#[test]
fn a_bad_schedule_is_said_and_makes_nothing() {
    for (change, says) in [
        (json!({"schedule": "61 * * * *"}), "61 * * * *"),
        (json!({"timeZone": "Moon/Base"}), "Moon/Base"),
        (json!({"destination": {}}), "no place"),
    ] {
        let decision = decide(&scheduled(change, Value::Null), &[], Some(&database()), now());
        assert!(decision.status.unwrap().obstacle.unwrap().contains(says));
        assert_eq!((decision.create, decision.next), (None, None));
    }
    let mended =
        scheduled(json!({}), json!({"obstacle": "spec: bad", "lastRun": "2026-03-01T12:00:00Z"}));
    assert_eq!(decide(&mended, &[], Some(&database()), now()).status.unwrap().obstacle, None);
}

#[test]
fn a_cluster_without_a_schedule_or_on_its_way_out_makes_nothing() {
    assert_eq!(
        decide(&plan(json!({}), Value::Null), &[], Some(&database()), now()),
        Decision::default()
    );
    let mut ending = scheduled(json!({}), Value::Null);
    ending.metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(decide(&ending, &[], Some(&database()), now()), Decision::default());
}
