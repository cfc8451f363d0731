//! Backups by a schedule, and a crash at every write of it.
#![expect(
    clippy::disallowed_methods,
    reason = "the embedded server stamps objects with the wall clock"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{Exit, Matcher, Process, Program, Start, State};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use leasehold::testing::TestEnv;
use mysql::{BackupPhase, MySQLBackup, MySQLBackupSchedule, Settings};
use sdk::ControllerSpec;
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::watch;

use super::kit::{NAMESPACE, create, settled, world_of};
use crate::controllers::crash::at_every_write;

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

#[tokio::test(start_paused = true)]
async fn a_crash_at_every_write_of_a_schedule_makes_each_backup_once_and_leaves_nothing_behind() {
    let writes = at_every_write(async |crash| {
        let destination = Arc::new(Destination::default());
        let (mut env, _servers) = world_of(|env| {
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
        env.stop().await;

        let schedule: MySQLBackupSchedule = serde_json::from_value(json!({
            "metadata": {"name": "db"},
            "spec": {"cluster": "db", "schedule": "*/2 * * * *", "keep": 1,
                "destination": {"volume": {"claimName": "backups"}}},
        }))
        .unwrap();
        let schedules: Api<MySQLBackupSchedule> = env.api(NAMESPACE);
        schedules.create(&Default::default(), &schedule).await.unwrap();
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
        let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
        schedules.patch("db", &PatchParams::default(), &suspend).await.unwrap();
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
