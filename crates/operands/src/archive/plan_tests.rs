//! Each state of a backup and its step.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::*;
use crate::archive::testkind::{Dump, dump, merge};

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn minutes(count: i64) -> jiff::SignedDuration {
    jiff::SignedDuration::from_mins(count)
}

fn running() -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": "db", "uid": "d1"}, "data": {"version": "3.6.4"},
    }))
    .unwrap()
}

fn job(outcome: Outcome) -> JobSeen {
    JobSeen { name: "job".to_owned(), uid: "j1".to_owned(), outcome, ..JobSeen::default() }
}

fn observed<'a>(backup: &'a Dump, database: Option<&'a ConfigMap>) -> Observed<'a, Dump> {
    Observed {
        backup,
        database,
        image: Some("leasehold:1"),
        store: None,
        delete: None,
        pods: PodsSeen::default(),
        missing: None,
        now: now(),
    }
}

fn started() -> Value {
    json!({"status": {"phase": "Running", "key": "web/db/db-1", "version": "3.6.4",
        "location": "pvc://backups/web/db/db-1", "started": "2026-03-01T11:59:30Z"}})
}

/// One whose deletion was seen so many minutes ago.
fn ending(minutes_ago: i64) -> Value {
    let since = now() - minutes(minutes_ago);
    let deleted = json!({"type": "Deleted", "status": "False", "reason": "Deleting", "message": "so",
        "lastTransitionTime": since.to_string()});
    let mut object = started();
    merge(&mut object, json!({"status": {"conditions": [deleted]}}));
    object
}

/// Phase and reason of a status that a step writes.
fn told(step: &Step) -> (BackupPhase, String) {
    let (Step::Record(status) | Step::Wait(status, _)) = step else { panic!("{step:?}") };
    (status.phase, status.conditions[0].reason.clone())
}

#[test]
fn the_key_is_recorded_before_the_job_is_created() {
    let (fresh, cluster) = (dump(json!({})), running());
    let Step::Record(status) = next(&observed(&fresh, Some(&cluster))) else { panic!() };
    let key = status.key.clone().unwrap();
    let digits = key.strip_prefix("web/db/db-1-").expect("the uid is in it");
    assert!(digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{key}");
    assert_eq!(status.location.as_deref(), Some(&*format!("pvc://backups/{key}")));
    assert_eq!(status.version.as_deref(), Some("3.6.4"));
    assert_eq!(status.database_uid.as_deref(), Some("d1"));
    let recorded = Dump { status: Some(*status), ..fresh };
    let Step::Create(job) = next(&observed(&recorded, Some(&cluster))) else { panic!() };
    let pod = job.spec.unwrap().template.spec.unwrap();
    let save = &pod.init_containers.unwrap()[0];
    assert_eq!(save.image.as_deref(), Some("db:3.6.4"));
    let store = &pod.containers[0];
    let arguments = store.args.clone().unwrap();
    for wanted in
        [&*format!("--name={key}"), "--owner=s1", "--folder=/backups", "--check=mysql-dump"]
    {
        assert!(arguments.iter().any(|argument| argument == wanted), "{arguments:?}");
    }
    assert!(job.metadata.name.unwrap().len() <= 63);
}

#[test]
fn what_is_missing_is_awaited_and_at_last_given_up() {
    let (fresh, cluster) = (dump(json!({})), running());
    let young = ConfigMap { data: None, ..cluster.clone() };
    let base = || observed(&fresh, Some(&cluster));
    let cases = [
        (Observed { database: None, ..base() }, "NoCluster"),
        (Observed { database: Some(&young), ..base() }, "ClusterNotReady"),
        (Observed { missing: Some("Secret x".to_owned()), ..base() }, "DestinationGone"),
        (Observed { image: None, ..base() }, "NoImage"),
    ];
    for (observed, reason) in cases {
        let expected = |phase| (phase, reason.to_owned());
        assert_eq!(told(&next(&observed)), expected(BackupPhase::Pending));
        let later = Observed { now: now() + minutes(60), ..observed };
        assert_eq!(told(&next(&later)), expected(BackupPhase::Failed));
    }
    let nowhere = dump(json!({"spec": {"destination": {"volume": null}}}));
    let step = next(&observed(&nowhere, Some(&cluster)));
    assert_eq!(told(&step), (BackupPhase::Failed, "InvalidDestination".to_owned()));
}

#[test]
fn a_job_that_ends_ends_the_dump() {
    let (backup, cluster) = (dump(started()), running());
    let report = json!({"count": 1, "backups": [{"name": "web/db/db-1", "size": 4128, "sha256": "ab",
        "kind": "etcd-snapshot", "version": "3.6.4", "owner": "s1", "created": "2026-03-01T12:00:00Z"}]});
    let with = |outcome, pods| Observed {
        store: Some(job(outcome)),
        pods,
        ..observed(&backup, Some(&cluster))
    };
    let runs = with(Outcome::Running, PodsSeen::default());
    assert_eq!(told(&next(&runs)), (BackupPhase::Running, "Running".to_owned()));
    let report = serde_json::from_value(report).unwrap();
    let pods = PodsSeen { report, is_any: true, ..PodsSeen::default() };
    let step = next(&with(Outcome::Complete, pods));
    assert_eq!(told(&step), (BackupPhase::Complete, "Stored".to_owned()));
    let Step::Record(status) = step else { panic!() };
    assert_eq!((status.size, status.sha256.as_deref()), (Some(4128), Some("ab")));
    assert!(status.finished.is_some());
    let over = Dump { status: Some(*status), ..backup.clone() };
    assert_eq!(next(&observed(&over, None)), Step::Rest);
    let trouble = Some("no space".to_owned());
    let pods = PodsSeen { trouble, is_any: true, ..PodsSeen::default() };
    let step = next(&with(Outcome::Failed("BackoffLimitExceeded".to_owned()), pods));
    assert_eq!(told(&step), (BackupPhase::Failed, "JobFailed".to_owned()));
    let Step::Record(status) = step else { panic!() };
    assert!(status.conditions[0].message.contains("no space"));
    // Somebody deleted the Job: another one finds what it stored.
    assert!(matches!(next(&observed(&backup, Some(&cluster))), Step::Create(_)));
    assert_eq!(told(&next(&observed(&backup, None))).0, BackupPhase::Failed);
}

#[test]
fn deletion_stops_the_job_deletes_what_is_stored_and_never_wedges() {
    let stored = dump(ending(1));
    let base = || observed(&stored, None);
    let stopping = JobSeen { is_deleting: true, ..job(Outcome::Running) };
    let gone = || Some("PersistentVolumeClaim backups does not exist".to_owned());
    let step = end(&Observed { store: Some(job(Outcome::Running)), ..base() });
    assert!(matches!(step, Step::Delete { .. }), "{step:?}");
    let step = end(&Observed { store: Some(stopping), ..base() });
    assert!(matches!(step, Step::Wait(..)), "{step:?}");
    let step = end(&Observed { store: Some(job(Outcome::Complete)), ..base() });
    let Step::Create(created) = step else { panic!("{step:?}") };
    assert!(created.metadata.owner_references.is_none());
    let step = end(&Observed { delete: Some(job(Outcome::Running)), ..base() });
    assert!(matches!(step, Step::Wait(..)), "{step:?}");
    let step = end(&Observed { delete: Some(job(Outcome::Complete)), ..base() });
    assert!(matches!(step, Step::Finish { .. }), "{step:?}");
    for blocked in [Observed { missing: gone(), ..base() }, Observed { image: None, ..base() }] {
        let Step::Wait(status, _) = end(&blocked) else { panic!() };
        assert_eq!(status.phase, BackupPhase::Deleting);
        let late = Observed { now: now() + minutes(9), ..blocked };
        let Step::Release(Some(warning)) = end(&late) else { panic!() };
        assert!(warning.contains("pvc://backups/web/db/db-1"), "{warning}");
    }
}

/// A cluster was paused, or the manager's clock is ahead.
#[test]
fn what_is_stored_is_given_up_only_after_tries() {
    let mut stored = dump(started());
    let hour_ago = serde_json::from_value(json!("2026-03-01T11:00:00Z")).unwrap();
    stored.metadata.deletion_timestamp = Some(hour_ago);
    let Step::Record(status) = end(&observed(&stored, None)) else { panic!() };
    assert_eq!(status.phase, BackupPhase::Deleting);
    let seen = Dump { status: Some(*status), ..stored };
    assert!(matches!(end(&observed(&seen, None)), Step::Create(_)));
}

/// A look by a clock that was two days ahead: a later one neither waits for as long nor gives up at once.
#[test]
fn tries_that_began_in_the_future_are_counted_from_now() {
    let ahead = dump(ending(-2 * 24 * 60));
    let Step::Record(status) = end(&observed(&ahead, None)) else { panic!() };
    let seen = Dump { status: Some(*status), ..ahead };
    assert!(matches!(end(&observed(&seen, None)), Step::Create(_)));
    let late = Observed { now: now() + minutes(10), ..observed(&seen, None) };
    assert!(matches!(end(&late), Step::Release(Some(_))));
    let mut begun = started();
    merge(&mut begun, json!({"status": {"started": "2026-03-03T12:00:00Z"}}));
    let (begun, cluster) = (dump(begun), running());
    let step = refused(&observed(&begun, Some(&cluster)), "job", "exceeded quota");
    assert_eq!(told(&step), (BackupPhase::Failed, "Rejected".to_owned()));
}

#[test]
fn of_another_database_with_the_name_nothing_is_saved() {
    let mut of_d1 = started();
    merge(&mut of_d1, json!({"status": {"databaseUID": "d1"}}));
    let (backup, same) = (dump(of_d1), running());
    let mut other = running();
    other.metadata.uid = Some("d2".to_owned());
    let noon = serde_json::from_value(json!("2026-03-01T12:00:00Z")).unwrap();
    other.metadata.creation_timestamp = Some(noon);
    let with = |database, store| next(&Observed { store, ..observed(&backup, Some(database)) });
    let done = |at: &str| {
        let completed = Some(at.parse().unwrap());
        Some(JobSeen { completed, ..job(Outcome::Complete) })
    };
    let lost = (BackupPhase::Failed, "NoCluster".to_owned());
    assert!(matches!(with(&same, None), Step::Create(_)));
    assert_eq!(told(&with(&other, None)), lost);
    assert!(matches!(with(&same, Some(job(Outcome::Running))), Step::Wait(..)));
    assert!(matches!(with(&other, Some(job(Outcome::Running))), Step::Delete { .. }));
    assert_eq!(told(&with(&other, done("2026-03-01T12:00:10Z"))), lost);
    // It was complete before there was another.
    let step = with(&other, done("2026-03-01T11:59:50Z"));
    assert_eq!(told(&step), (BackupPhase::Complete, "Stored".to_owned()));
}

#[test]
fn a_job_that_the_server_refuses_is_said_and_at_last_given_up() {
    let (backup, cluster) = (dump(started()), running());
    let step = |now| {
        let observed = Observed { now, ..observed(&backup, Some(&cluster)) };
        told(&refused(&observed, "job", "exceeded quota"))
    };
    let rejected = |phase| (phase, "Rejected".to_owned());
    assert_eq!(step(now()), rejected(BackupPhase::Running));
    assert_eq!(step(now() + minutes(60)), rejected(BackupPhase::Failed));
    let mut leaving = dump(ending(1));
    leaving.metadata.deletion_timestamp = Some(whole_seconds(now()));
    let step = |words| refused(&observed(&leaving, None), "job", words);
    assert_eq!(told(&step("exceeded quota")), rejected(BackupPhase::Deleting));
    let gone = "unable to create new content because it is being terminated";
    assert!(matches!(step(gone), Step::Release(Some(_))));
}

#[test]
fn a_deletion_that_fails_is_said_and_tried_again() {
    let stored = dump(ending(1));
    let failed = |backup| Observed {
        delete: Some(job(Outcome::Failed("DeadlineExceeded".to_owned()))),
        ..observed(backup, None)
    };
    let Step::Record(status) = end(&failed(&stored)) else { panic!() };
    assert!(status.conditions.iter().any(|found| found.reason == "DeleteFailed"));
    let told = Dump { status: Some(*status), ..stored.clone() };
    assert!(matches!(end(&failed(&told)), Step::Delete { .. }));
    assert!(matches!(end(&observed(&told, None)), Step::Create(_)));
}

#[test]
fn what_stored_nothing_or_should_stay_is_released_at_once() {
    let fresh = dump(json!({}));
    assert_eq!(end(&observed(&fresh, None)), Step::Release(None));
    let mut kept = started();
    merge(&mut kept, json!({"spec": {"deletionPolicy": "Retain"}}));
    assert_eq!(end(&observed(&dump(kept), None)), Step::Release(None));
}
