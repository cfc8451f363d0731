//! Each state of an EtcdSnapshot and its step.

use serde_json::{Value, json};

use super::*;
use crate::tests::cluster;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

pub(super) fn snapshot(change: Value) -> EtcdSnapshot {
    let mut object = json!({
        "apiVersion": "data.leasehold.dev/v1alpha1", "kind": "EtcdSnapshot",
        "metadata": {"name": "db-1", "namespace": "web", "uid": "s1", "generation": 1,
            "creationTimestamp": "2026-03-01T11:59:00Z"},
        "spec": {"cluster": "db", "destination": {"volume": {"claimName": "backups"}}},
    });
    merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn running() -> EtcdCluster {
    let mut cluster = cluster(json!({"version": "3.6.5"}));
    cluster.status = serde_json::from_value(
        json!({"clusterID": "c1", "ready": "3/3", "version": "3.6.4", "nextMember": 3}),
    )
    .unwrap();
    cluster
}

fn job(outcome: Outcome) -> JobSeen {
    JobSeen { name: "job".to_owned(), uid: "j1".to_owned(), outcome, ..JobSeen::default() }
}

fn observed<'a>(snapshot: &'a EtcdSnapshot, cluster: Option<&'a EtcdCluster>) -> Observed<'a> {
    Observed {
        snapshot,
        cluster,
        image: Some("leasehold:1"),
        store: None,
        delete: None,
        pods: PodsSeen::default(),
        missing: None,
        now: now(),
    }
}

fn started() -> Value {
    json!({"status": {"phase": "Running", "key": "web/db/db-1", "etcdVersion": "3.6.4",
        "location": "pvc://backups/web/db/db-1", "started": "2026-03-01T11:59:30Z"}})
}

/// Phase and reason of a status that a step writes.
fn told(step: &Step) -> (SnapshotPhase, String) {
    let (Step::Record(status) | Step::Wait(status, _)) = step else { panic!("{step:?}") };
    (status.phase, status.conditions[0].reason.clone())
}

#[test]
fn the_key_is_recorded_before_the_job_is_created() {
    let (fresh, cluster) = (snapshot(json!({})), running());
    let Step::Record(status) = next(&observed(&fresh, Some(&cluster))) else { panic!() };
    assert_eq!(status.key.as_deref(), Some("web/db/db-1"));
    assert_eq!(status.location.as_deref(), Some("pvc://backups/web/db/db-1"));
    assert_eq!(status.etcd_version.as_deref(), Some("3.6.4"));
    let recorded = EtcdSnapshot { status: Some(*status), ..fresh };
    let Step::Create(job) = next(&observed(&recorded, Some(&cluster))) else { panic!() };
    let pod = job.spec.unwrap().template.spec.unwrap();
    let save = &pod.init_containers.unwrap()[0];
    assert_eq!(save.image.as_deref(), Some("gcr.io/etcd-development/etcd:v3.6.4"));
    let arguments = save.args.clone().unwrap();
    for wanted in ["--endpoints=https://db.web.svc:2379", "--cert=/etc/etcd/tls/tls.crt"] {
        assert!(arguments.iter().any(|argument| argument == wanted), "{arguments:?}");
    }
    let store = &pod.containers[0];
    let arguments = store.args.clone().unwrap();
    for wanted in ["--name=web/db/db-1", "--owner=s1", "--folder=/backups", "--check=etcd-snapshot"]
    {
        assert!(arguments.iter().any(|argument| argument == wanted), "{arguments:?}");
    }
    assert!(job.metadata.name.unwrap().len() <= 63);
}

#[test]
fn what_is_missing_is_awaited_and_at_last_given_up() {
    let (fresh, cluster) = (snapshot(json!({})), running());
    let mut young = cluster.clone();
    young.status = None;
    let mut lost = cluster.clone();
    lost.status.as_mut().unwrap().ready = Some("0/3".to_owned());
    let base = || observed(&fresh, Some(&cluster));
    let cases = [
        (Observed { cluster: None, ..base() }, "NoCluster"),
        (Observed { cluster: Some(&young), ..base() }, "ClusterNotReady"),
        (Observed { cluster: Some(&lost), ..base() }, "ClusterNotReady"),
        (Observed { missing: Some("Secret x".to_owned()), ..base() }, "DestinationGone"),
        (Observed { image: None, ..base() }, "NoImage"),
    ];
    for (observed, reason) in cases {
        let expected = |phase| (phase, reason.to_owned());
        assert_eq!(told(&next(&observed)), expected(SnapshotPhase::Pending));
        let later = Observed { now: now() + minutes(60), ..observed };
        assert_eq!(told(&next(&later)), expected(SnapshotPhase::Failed));
    }
    let nowhere = snapshot(json!({"spec": {"destination": {"volume": null}}}));
    let step = next(&observed(&nowhere, Some(&cluster)));
    assert_eq!(told(&step), (SnapshotPhase::Failed, "InvalidDestination".to_owned()));
}

#[test]
fn a_job_that_ends_ends_the_snapshot() {
    let (snapshot, cluster) = (snapshot(started()), running());
    let report = json!({"count": 1, "backups": [{"name": "web/db/db-1", "size": 4128, "sha256": "ab",
        "kind": "etcd-snapshot", "version": "3.6.4", "owner": "s1", "created": "2026-03-01T12:00:00Z"}]});
    let with = |outcome, pods| Observed {
        store: Some(job(outcome)),
        pods,
        ..observed(&snapshot, Some(&cluster))
    };
    let runs = with(Outcome::Running, PodsSeen::default());
    assert_eq!(told(&next(&runs)), (SnapshotPhase::Running, "Running".to_owned()));
    let pods = PodsSeen { report: serde_json::from_value(report).unwrap(), trouble: None };
    let step = next(&with(Outcome::Complete, pods));
    assert_eq!(told(&step), (SnapshotPhase::Complete, "Stored".to_owned()));
    let Step::Record(status) = step else { panic!() };
    assert_eq!((status.size, status.sha256.as_deref()), (Some(4128), Some("ab")));
    assert!(status.finished.is_some());
    let over = EtcdSnapshot { status: Some(*status), ..snapshot.clone() };
    assert_eq!(next(&observed(&over, None)), Step::Rest);
    let pods = PodsSeen { report: None, trouble: Some("no space".to_owned()) };
    let step = next(&with(Outcome::Failed("BackoffLimitExceeded".to_owned()), pods));
    assert_eq!(told(&step), (SnapshotPhase::Failed, "JobFailed".to_owned()));
    let Step::Record(status) = step else { panic!() };
    assert!(status.conditions[0].message.contains("no space"));
    // Somebody deleted the Job: another one finds what it stored.
    assert!(matches!(next(&observed(&snapshot, Some(&cluster))), Step::Create(_)));
    assert_eq!(told(&next(&observed(&snapshot, None))).0, SnapshotPhase::Failed);
}

#[test]
fn deletion_stops_the_job_deletes_what_is_stored_and_never_wedges() {
    let stored = snapshot(started());
    let base = || observed(&stored, None);
    let since = now() - minutes(1);
    let stopping = JobSeen { is_deleting: true, ..job(Outcome::Running) };
    let gone = || Some("PersistentVolumeClaim backups does not exist".to_owned());
    let step = end(&Observed { store: Some(job(Outcome::Running)), ..base() }, since);
    assert!(matches!(step, Step::Delete { .. }), "{step:?}");
    let step = end(&Observed { store: Some(stopping), ..base() }, since);
    assert!(matches!(step, Step::Wait(..)), "{step:?}");
    let step = end(&Observed { store: Some(job(Outcome::Complete)), ..base() }, since);
    let Step::Create(created) = step else { panic!("{step:?}") };
    assert!(created.metadata.owner_references.is_none());
    let step = end(&Observed { delete: Some(job(Outcome::Running)), ..base() }, since);
    assert!(matches!(step, Step::Wait(..)), "{step:?}");
    let step = end(&Observed { delete: Some(job(Outcome::Complete)), ..base() }, since);
    assert_eq!(step, Step::Release(None));
    for blocked in [Observed { missing: gone(), ..base() }, Observed { image: None, ..base() }] {
        let Step::Wait(status, _) = end(&blocked, since) else { panic!() };
        assert_eq!(status.phase, SnapshotPhase::Deleting);
        let late = Observed { now: since + minutes(10), ..blocked };
        let Step::Release(Some(warning)) = end(&late, since) else { panic!() };
        assert!(warning.contains("pvc://backups/web/db/db-1"), "{warning}");
    }
}

#[test]
fn a_deletion_that_fails_is_said_and_tried_again() {
    let stored = snapshot(started());
    let failed = |snapshot| Observed {
        delete: Some(job(Outcome::Failed("DeadlineExceeded".to_owned()))),
        ..observed(snapshot, None)
    };
    let since = now() - minutes(1);
    let Step::Record(status) = end(&failed(&stored), since) else { panic!() };
    assert!(status.conditions.iter().any(|found| found.reason == "DeleteFailed"));
    let told = EtcdSnapshot { status: Some(*status), ..stored.clone() };
    assert!(matches!(end(&failed(&told), since), Step::Delete { .. }));
    assert!(matches!(end(&observed(&told, None), since), Step::Create(_)));
}

#[test]
fn what_stored_nothing_or_should_stay_is_released_at_once() {
    let fresh = snapshot(json!({}));
    assert_eq!(end(&observed(&fresh, None), now()), Step::Release(None));
    let mut kept = started();
    merge(&mut kept, json!({"spec": {"deletionPolicy": "Retain"}}));
    assert_eq!(end(&observed(&snapshot(kept), None), now()), Step::Release(None));
}
