//! Backups by a schedule, and a crash at every write of it.
#![expect(
    clippy::disallowed_methods,
    reason = "the embedded server stamps objects with the wall clock"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{Exit, Matcher, Process, Program, Start, State};
use demo::standin::mysql::MySql;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use mysql::{BackupPhase, MySQLBackup, MySQLBackupSchedule, Settings};
use sdk::ControllerSpec;
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::watch;

use super::kit::{NAMESPACE, create, says, settled, world_of};
use crate::controllers::crash::at_every_write;
use crate::controllers::merge;

fn controllers() -> Vec<ControllerSpec> {
    mysql::controllers(4, &Settings { image: Some("leasehold:1".to_owned()) })
}

/// What is stored: names, with the backup that owns each. Runs where Jobs run `leasehold backup`.
#[derive(Default)]
struct Destination(Mutex<BTreeMap<String, String>>);

struct Done(watch::Receiver<State>);

impl Program for Destination {
    fn start(&self, start: &Start) -> Arc<dyn Process> {
        let arguments = start.spec()["args"].as_array().cloned().unwrap_or_default();
        let value = |name: &str| {
            let mut values = arguments.iter().filter_map(|one| one.as_str()?.strip_prefix(name));
            values.next().unwrap().to_owned()
        };
        let (name, owner) = (value("--name="), value("--owner="));
        let mut stored = self.0.lock().unwrap();
        let known = match start.container.as_str() {
            "store" => stored.insert(name, owner.clone()),
            _ => stored.remove(&name),
        };
        let code = i32::from(known.is_some_and(|known| known != owner));
        let message = String::new();
        Arc::new(Done(watch::channel(State::Exited(Exit { code, message })).1))
    }
}

impl Process for Done {
    fn connect(&self, _: u16) -> Option<DuplexStream> {
        None
    }

    fn state(&self) -> Option<watch::Receiver<State>> {
        Some(self.0.clone())
    }
}

/// The backups that are complete, oldest first; and how many are not.
async fn backups(env: &TestEnv) -> (Vec<MySQLBackup>, usize) {
    let all = env.api::<MySQLBackup>(NAMESPACE).list(&ListParams::default()).await.unwrap().items;
    let is_complete = |backup: &MySQLBackup| {
        let status = backup.status.as_ref();
        backup.metadata.deletion_timestamp.is_none()
            && status.is_some_and(|status| status.phase == BackupPhase::Complete)
    };
    let (mut complete, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_complete);
    complete.sort_by_key(ResourceExt::name_any);
    (complete, others.len())
}

/// A cluster, and a place for its backups.
async fn world() -> (TestEnv, MySql, Arc<Destination>) {
    let destination = Arc::new(Destination::default());
    let (mut env, servers) = world_of(|env| {
        let program = |name: &str| Matcher::Container(name.to_owned());
        // The server says when objects were created, by its own clock: the controllers' begins with it.
        env.at(&Timestamp::now().to_string())
            .deadline(Duration::from_secs(900))
            .program(program("store"), destination.clone())
            .program(program("delete"), destination.clone())
    })
    .await;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "backups"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .unwrap();
    env.api(NAMESPACE).create(&Default::default(), &claim).await.unwrap();
    env.run(controllers());
    create(&env, "db", json!({"replicas": 1})).await;
    settled(&env, "db").await;
    (env, servers, destination)
}

/// A backup each two minutes.
async fn schedule(env: &TestEnv, keep: i32) -> Api<MySQLBackupSchedule> {
    let schedule: MySQLBackupSchedule = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {"cluster": "db", "schedule": "*/2 * * * *", "keep": keep,
            "destination": {"volume": {"claimName": "backups"}}},
    }))
    .unwrap();
    let schedules = env.api(NAMESPACE);
    schedules.create(&Default::default(), &schedule).await.unwrap();
    schedules
}

/// As a quota refuses.
fn refuse(env: &TestEnv, resource: &'static str) {
    env.set_faults(move |request| match request.verb {
        "create" if request.resource == resource => {
            Fault::Error(ApiError::new(Reason::Forbidden, "exceeded quota"))
        }
        _ => Fault::None,
    });
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_refused_is_said_and_keeps_no_other_backup_away_for_ever() {
    let (env, _servers, _destination) = world().await;
    refuse(&env, "jobs");
    schedule(&env, 3).await;
    let all: Api<MySQLBackup> = env.api(NAMESPACE);
    let says = |backup: &MySQLBackup, phase: BackupPhase| {
        let status = backup.status.clone().unwrap_or_default();
        let mut told = status.conditions.into_iter();
        let is_told = told.any(|one| one.reason == "Rejected" && one.message.contains("quota"));
        is_told && status.phase == phase
    };
    let first = env
        .until("the refusal", async || {
            let found = all.list(&ListParams::default()).await.unwrap().items;
            found.iter().find(|one| says(one, BackupPhase::Running)).map(ResourceExt::name_any)
        })
        .await;
    env.pass(Duration::from_secs(3_600)).await;
    env.until_object(&all, &first, |one| says(one, BackupPhase::Failed)).await;
    env.end_faults();
    env.until("a later backup", async || {
        let (complete, _) = backups(&env).await;
        complete.iter().any(|one| one.name_any() > first).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_is_refused_is_said_and_what_is_not_kept_goes_all_the_same() {
    let (env, _servers, _destination) = world().await;
    let schedules = schedule(&env, 3).await;
    let complete = async |count: usize| {
        let (complete, _) = backups(&env).await;
        (complete.len() == count).then_some(complete)
    };
    let before = env.until("three backups", async || complete(3).await).await;
    refuse(&env, "mysqlbackups");
    let obstacle = |schedule: &MySQLBackupSchedule| {
        schedule.status.as_ref().and_then(|status| status.obstacle.clone())
    };
    let told = |schedule: &MySQLBackupSchedule| {
        obstacle(schedule).is_some_and(|text| text.contains("exceeded quota"))
    };
    env.until_object(&schedules, "db", told).await;
    merge(&schedules, "db", json!({"spec": {"keep": 1}})).await;
    let kept = env.until("room", async || complete(1).await).await;
    assert_eq!(kept[0].name_any(), before[2].name_any());
    env.end_faults();
    env.until_object(&schedules, "db", |one| obstacle(one).is_none()).await;
    env.until("another backup", async || {
        let kept = complete(1).await?;
        (kept[0].name_any() > before[2].name_any()).then_some(())
    })
    .await;
}

/// As one that is held for a court.
#[tokio::test(start_paused = true)]
async fn a_backup_that_may_not_be_deleted_is_said_and_keeps_no_other() {
    let (env, _servers, _destination) = world().await;
    let schedules = schedule(&env, 4).await;
    let before = env
        .until("four backups", async || {
            let (complete, _) = backups(&env).await;
            (complete.len() == 4).then_some(complete)
        })
        .await;
    let held = before[0].name_any();
    let name = held.clone();
    env.set_faults(move |request| match request.verb {
        "delete" if request.resource == "mysqlbackups" && request.name == name => {
            Fault::Error(ApiError::new(Reason::Forbidden, "a legal hold"))
        }
        _ => Fault::None,
    });
    merge(&schedules, "db", json!({"spec": {"keep": 1}})).await;
    let two = async || {
        let (complete, _) = backups(&env).await;
        (complete.len() == 2 && complete[0].name_any() == held).then_some(())
    };
    env.until("the others to go", two).await;
    let obstacle = |schedule: &MySQLBackupSchedule| {
        schedule.status.as_ref().and_then(|status| status.obstacle.clone())
    };
    let says = format!("the server refuses to delete MySQLBackup {held}: a legal hold");
    env.until_object(&schedules, "db", |one| obstacle(one).as_ref() == Some(&says)).await;
    let told = crate::controllers::reasons(&env, NAMESPACE).await;
    assert!(told.contains(&"BackupNotDeleted".to_owned()), "{told:?}");
    // The next runs come when they are due.
    env.pass(Duration::from_secs(300)).await;
    env.until("the others to go", two).await;
    env.end_faults();
    env.until_object(&schedules, "db", |one| obstacle(one).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_restore_that_is_refused_is_said() {
    for (resource, object) in [
        ("persistentvolumeclaims", "PersistentVolumeClaim data-new-0"),
        ("jobs", "Job new-restore"),
    ] {
        let (env, _servers, _destination) = world().await;
        refuse(&env, resource);
        let stored = json!({"destination": {"volume": {"claimName": "backups"}}, "key": "a"});
        create(&env, "new", json!({"replicas": 1, "fromStored": stored})).await;
        let message = says(&env, "new", "Degraded", "Rejected").await;
        assert!(message.contains(object) && message.contains("exceeded quota"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_every_write_of_a_schedule_makes_each_backup_once_and_leaves_nothing_behind() {
    let writes = at_every_write(async |crash| {
        let (mut env, _servers, destination) = world().await;
        env.stop().await;
        let schedules = schedule(&env, 1).await;
        crash.watch(&env);
        let first = Mutex::new(None);
        crash
            .survived(&mut env, controllers, async |env| {
                env.until("another backup in the place of the first", async || {
                    let (complete, others) = backups(env).await;
                    let newest = complete.last()?.name_any();
                    let first = first.lock().unwrap().get_or_insert(newest.clone()).clone();
                    (complete.len() == 1 && others == 0 && newest != first).then_some(())
                })
                .await;
            })
            .await;
        merge(&schedules, "db", json!({"spec": {"suspend": true}})).await;
        env.pass(Duration::from_secs(60)).await;
        let (complete, others) = backups(&env).await;
        let owners: Vec<_> = complete.iter().map(|backup| backup.uid().unwrap()).collect();
        let stored: Vec<_> = destination.0.lock().unwrap().values().cloned().collect();
        assert_eq!((others, owners.len()), (0, 1));
        assert_eq!(stored, owners, "what is stored is that of the backups");
    })
    .await;
    println!("{writes} writes");
}
