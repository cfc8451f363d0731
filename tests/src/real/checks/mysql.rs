//! MySQL with real MySQL in real Pods, under transfers between accounts of a bank: one instance becomes
//! three, primaries die, are cut off and lose their volume, Pods are made anew one by one, and a backup
//! begins another cluster. Replicas that own it are killed in the midst of takeovers. What was
//! acknowledged is never lost, and every balance is explained by its transfers.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{DEADLINE, Stage, claim};
use crate::harness::Scene;
use crate::harness::faults::{address, container_id};
use crate::harness::kubectl::{self, Kubectl, holds};
use crate::harness::servers::MYSQL;
use crate::harness::wait::Stopwatch;
use crate::harness::workload::Workload;

const GROUP: &str = "/apis/cr.mysqloperator.grtl.github.com/v1/namespaces/default";
const SPACE: &str = "/api/v1/namespaces/default";
pub(super) const NAME: &str = "db";
pub(super) const CONTAINER: &str = "mysql";
const PORT: u16 = 3_306;
/// It has signs that a shell, SQL and a file of options would each take for their own.
const PASSWORD: &str = r#"it's "a" \pass$word #1"#;
/// The users' own manifest, as it stands.
const MANIFEST: &str = include_str!("../../../../crates/mysql/src/users.yaml");
/// Its cluster.
const USERS: &str = "my-cluster";
/// The backup that it begins with.
const BACKUP: &str = "my-backup-2017-12-14-01-22";
/// What users may name so, and a backup has to have.
const ODD_NAMES: [&str; 5] = [
    "CREATE DATABASE `--no-data`",
    "CREATE TABLE `--no-data`.`a\nb` SELECT 7",
    "CREATE DATABASE `c\nd`",
    "CREATE USER 'it\\'s\\na'@'%' IDENTIFIED BY 'x'",
    "GRANT SELECT ON `c\nd`.* TO 'it\\'s\\na'@'%'",
];
/// The longest time without an acknowledged commit, whatever happened.
const LONGEST_GAP_MS: u64 = 60_000;
/// So many commits are acknowledged after a step before the next begins.
pub(super) const WRITES: u64 = 60;

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let mut stage = Stage::start(scene, "mysql", &[scene.tools().mysql_image()], 3).await?;
    stage.apply(&[secret("root"), cluster(1)]).await?;
    settled(&mut stage, NAME, 1).await?;
    stage.unreachable(&instance(&stage, "db-0").await?, PORT).await?;
    let mut bank = bank(scene, &stage, NAME)?;
    bank.writes(WRITES, DEADLINE).await?;
    println!("one instance takes writes after {watch}");

    grown(&mut stage, &mut bank).await?;
    println!("three instances, and a replica was killed meanwhile, after {watch}");
    killed(&mut stage, &mut bank).await?;
    println!("the commits of a killed primary are there after {watch}");
    cut_off(&mut stage, &mut bank).await?;
    println!("a primary that was cut off follows after {watch}");
    lost(&mut stage, &mut bank).await?;
    println!("lost volumes were cloned anew after {watch}");
    switched(&mut stage, &mut bank).await?;
    println!("another instance is primary by request after {watch}");
    rolled(&mut stage, &mut bank).await?;
    println!("all Pods were made anew after {watch}");
    rotated(&mut stage, &mut bank).await?;
    println!("passwords were rotated, then lost, and work after {watch}");
    let report = bank.finish("sound").await?;
    ensure!(
        report.longest_gap_ms <= LONGEST_GAP_MS,
        "no commit was acknowledged for {} ms",
        report.longest_gap_ms
    );
    restored(&mut stage).await?;
    println!("the users' manifest began with a backup after {watch}");
    cornered(&mut stage).await?;
    println!("the only replica was cloned although commits waited for it after {watch}");
    deleted(&mut stage).await?;
    println!("everything is gone with the objects after {watch}");
    stage.leave().await
}

pub(super) fn secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
        "stringData": {"password": PASSWORD},
    })
}

/// A small cluster.
pub(super) fn cluster(replicas: usize) -> Value {
    json!({
        "apiVersion": "cr.mysqloperator.grtl.github.com/v1", "kind": "MySQLCluster",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "secret": "root", "replicas": replicas, "image": MYSQL, "storage": "512Mi",
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
            "mysqlConf": {"innodb_buffer_pool_size": "64M"},
        },
    })
}

pub(super) fn path(name: &str) -> String {
    format!("{GROUP}/mysqlclusters/{name}")
}

/// Waits until `count` instances serve, and nothing is left to do.
pub(super) async fn settled(stage: &mut Stage<'_>, name: &str, count: usize) -> Result<Value> {
    let what = format!("{count} instances of {name} to serve");
    let (path, ready) = (path(name), format!("{count}/{count}"));
    let object = stage.until(&path, &what, |object| {
        let status = &object["status"];
        holds(object, "Available")
            && (!holds(object, "Progressing") || is_rotating(object))
            && !holds(object, "Degraded")
            && status["observedGeneration"] == object["metadata"]["generation"]
            && status["ready"] == *ready
            && status["replication"]["members"].as_array().is_some_and(|all| all.len() == count)
    });
    object.await
}

/// Whether nothing happens but that former passwords still work for a while.
fn is_rotating(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "Progressing" && one["reason"] == "RotatingPasswords")
}

pub(super) async fn instance(stage: &Stage<'_>, name: &str) -> Result<Value> {
    let pod = stage.get(&format!("{SPACE}/pods/{name}")).await?;
    ensure!(!pod.is_null(), "there is no Pod {name}");
    Ok(pod)
}

/// The instance that takes writes.
pub(super) async fn primary(stage: &Stage<'_>) -> Result<String> {
    let object = stage.get(&path(NAME)).await?;
    Ok(object["status"]["primary"].as_str().context("nobody is primary")?.to_owned())
}

/// The transfers, as an application in the cluster makes them.
pub(super) fn bank(scene: &Scene, stage: &Stage<'_>, name: &str) -> Result<Workload> {
    let file = scene.dir().join("password");
    fs::write(&file, PASSWORD)?;
    let arguments = [
        format!("--address={name}.default.svc:{PORT}"),
        format!("--password-file={}", file.display()),
    ];
    Workload::start(scene, &stage.node, "bank", "bank", &arguments)
}

/// One becomes three, though the replica of the manager that began it is killed.
async fn grown(stage: &mut Stage<'_>, bank: &mut Workload) -> Result<()> {
    stage.merge(&path(NAME), &json!({"spec": {"replicas": 3}})).await?;
    let joined = |object: &Value| {
        let members = object["status"]["replication"]["members"].as_array();
        members.is_some_and(|all| all.len() > 1)
    };
    stage.until(&path(NAME), "the second member", joined).await?;
    stage.kill_owner(&path(NAME)).await?;
    settled(stage, NAME, 3).await?;
    bank.writes(WRITES, DEADLINE).await
}

/// The primary's Pod dies and stays away for a while; the manager dies once nobody is primary.
async fn killed(stage: &mut Stage<'_>, bank: &mut Workload) -> Result<()> {
    let victim = primary(stage).await?;
    let pod = instance(stage, &victim).await?;
    let container = container_id(&pod, CONTAINER)?;
    // It neither answers nor ends, so no restart is quicker than the takeover.
    stage.node.pause_container(&container)?;
    deposed(stage, &victim).await?;
    stage.kill_owner(&path(NAME)).await?;
    other(stage, &victim).await?;
    bank.writes(WRITES, DEADLINE).await?;
    stage.node.kill_container(&container)?;
    settled(stage, NAME, 3).await?;
    bank.writes(WRITES, DEADLINE).await?;

    let victim = primary(stage).await?;
    stage.node.kill_container(&container_id(&instance(stage, &victim).await?, CONTAINER)?)?;
    bank.writes(WRITES, DEADLINE).await?;
    settled(stage, NAME, 3).await.map(drop)
}

async fn deposed(stage: &mut Stage<'_>, victim: &str) -> Result<()> {
    let what = format!("{victim} to be primary no longer");
    let is_deposed = |object: &Value| object["status"]["replication"]["primary"] != victim;
    stage.until(&path(NAME), &what, is_deposed).await.map(drop)
}

/// Waits until another than `victim` takes writes.
async fn other(stage: &mut Stage<'_>, victim: &str) -> Result<()> {
    let what = format!("another than {victim} to take writes");
    let takes = |object: &Value| {
        let primary = object["status"]["primary"].as_str();
        primary.is_some_and(|name| name != victim)
    };
    stage.until(&path(NAME), &what, takes).await.map(drop)
}

/// The primary's network is cut both ways, while its kubelet and the way of the manager work.
async fn cut_off(stage: &mut Stage<'_>, bank: &mut Workload) -> Result<()> {
    let victim = primary(stage).await?;
    let cut = address(&instance(stage, &victim).await?)?;
    stage.node.cut(cut)?;
    let taken = other(stage, &victim).await;
    let written = match taken {
        Ok(()) => bank.writes(WRITES, DEADLINE).await,
        failed => failed,
    };
    // A Pod that was made anew has another address.
    stage.node.mend(cut)?;
    written?;
    settled(stage, NAME, 3).await?;
    bank.writes(WRITES, DEADLINE).await
}

/// A replica loses its volume, then the primary does.
async fn lost(stage: &mut Stage<'_>, bank: &mut Workload) -> Result<()> {
    let first = primary(stage).await?;
    let replica = ["db-0", "db-1", "db-2"].into_iter().find(|name| *name != first);
    for victim in [replica.context("there is no replica")?, &first] {
        let container = container_id(&instance(stage, victim).await?, CONTAINER)?;
        let before = uuid(stage, victim).await?;
        stage.node.pause_container(&container)?;
        stage.volumes.erase("default", &format!("data-{victim}")).await?;
        stage.node.kill_container(&container)?;
        bank.writes(WRITES, DEADLINE).await?;
        let what = format!("{victim} to have the data of another");
        let is_cloned = |object: &Value| {
            let uuid = member_uuid(object, victim);
            uuid.is_some_and(|uuid| uuid != before)
        };
        stage.until(&path(NAME), &what, is_cloned).await?;
        settled(stage, NAME, 3).await?;
        bank.writes(WRITES, DEADLINE).await?;
    }
    Ok(())
}

fn member_uuid(object: &Value, name: &str) -> Option<String> {
    let mut members = object["status"]["replication"]["members"].as_array()?.iter();
    let member = members.find(|member| member["name"] == name)?;
    Some(member["uuid"].as_str()?.to_owned())
}

async fn uuid(stage: &Stage<'_>, name: &str) -> Result<String> {
    let object = stage.get(&path(NAME)).await?;
    member_uuid(&object, name).with_context(|| format!("{name} is no member"))
}

/// A person asks for another primary.
async fn switched(stage: &mut Stage<'_>, bank: &mut Workload) -> Result<()> {
    let from = primary(stage).await?;
    let to = ["db-0", "db-1"].into_iter().find(|name| *name != from).context("two names")?;
    let watch = Stopwatch::start();
    stage.merge(&path(NAME), &json!({"spec": {"primary": to}})).await?;
    let is_it = |object: &Value| object["status"]["primary"] == to;
    stage.until(&path(NAME), "the other primary", is_it).await?;
    println!("  a planned change of the primary took {watch}");
    settled(stage, NAME, 3).await?;
    stage.merge(&path(NAME), &json!({"spec": {"primary": null}})).await?;
    bank.writes(WRITES, DEADLINE).await
}

/// The passwords of the controller's accounts are rotated by request, then their Secret is lost. A replica
/// that is killed afterwards follows with those of the new one.
async fn rotated(stage: &mut Stage<'_>, bank: &mut Workload) -> Result<()> {
    let secret = format!("{SPACE}/secrets/{NAME}-accounts");
    let before = stage.get(&secret).await?;
    let old = stage.get(&path(NAME)).await?["status"]["passwordsRotated"].clone();
    let asked = json!({"metadata": {"annotations": {"mysql.leasehold.dev/rotate": "now"}}});
    stage.merge(&path(NAME), &asked).await?;
    let is_rotated = |object: &Value| object["status"]["passwordsRotated"] != old;
    stage.until(&path(NAME), "the new passwords to be in use", is_rotated).await?;
    let rotated = stage.get(&secret).await?;
    ensure!(
        rotated["data"]["replication"] != before["data"]["replication"],
        "they are the former ones"
    );
    bank.writes(WRITES, DEADLINE).await?;

    let kubectl = &stage.node.control.kubectl;
    kubectl.run(&["delete", "secret", &format!("{NAME}-accounts"), "--timeout=60s"]).await?;
    let is_new = |object: &Value| {
        let uid = &object["metadata"]["uid"];
        uid.is_string() && *uid != rotated["metadata"]["uid"]
    };
    stage.until(&secret, "another Secret with passwords", is_new).await?;
    bank.writes(WRITES, DEADLINE).await?;
    let first = primary(stage).await?;
    let replica = ["db-0", "db-1", "db-2"].into_iter().find(|name| *name != first);
    let replica = instance(stage, replica.context("there is no replica")?).await?;
    stage.node.kill_container(&container_id(&replica, CONTAINER)?)?;
    settled(stage, NAME, 3).await?;
    bank.writes(WRITES, DEADLINE).await
}

/// Another template: replicas first, the primary last, though the replica of the manager that began is
/// killed once nobody is primary.
async fn rolled(stage: &mut Stage<'_>, bank: &mut Workload) -> Result<()> {
    let old = primary(stage).await?;
    let before = template(&instance(stage, &old).await?);
    let conf = json!({"spec": {"mysqlConf": {"max_connections": 77}, "storage": "768Mi"}});
    stage.merge(&path(NAME), &conf).await?;
    deposed(stage, &old).await?;
    stage.kill_owner(&path(NAME)).await?;
    settled(stage, NAME, 3).await?;
    for name in ["db-0", "db-1", "db-2"] {
        let pod = instance(stage, name).await?;
        ensure!(template(&pod) != before, "{name} has the old template");
        let said = query(stage, name, "SELECT @@max_connections").await?;
        ensure!(said.trim() == "77", "{name} allows {said} connections");
        let claim = stage.get(&format!("{SPACE}/persistentvolumeclaims/data-{name}")).await?;
        ensure!(claim["status"]["capacity"]["storage"] == "768Mi", "{}", claim["status"]);
    }
    ensure!(primary(stage).await? != old, "{old} is primary again");
    bank.writes(WRITES, DEADLINE).await
}

fn template(pod: &Value) -> Value {
    pod["metadata"]["annotations"]["mysql.leasehold.dev/template"].clone()
}

/// What an instance answers to a statement of root.
async fn query(stage: &Stage<'_>, name: &str, statement: &str) -> Result<String> {
    ask(&stage.node.control.kubectl, name, statement).await
}

async fn ask(kubectl: &Kubectl, name: &str, statement: &str) -> Result<String> {
    let quoted = PASSWORD.replace('\'', "'\\''");
    let script = format!(
        "MYSQL_PWD='{quoted}' mysql --no-defaults --socket=/var/run/mysqld/mysqld.sock --user=root \
         --batch --skip-column-names --execute=\"$0\""
    );
    kubectl.run(&["exec", name, "-c", CONTAINER, "--", "sh", "-c", &script, statement]).await
}

/// A backup in a volume, and the users' own manifest, which waits for it.
async fn restored(stage: &mut Stage<'_>) -> Result<()> {
    stage.apply(&[secret("my-secret"), serde_saphyr::from_str(MANIFEST)?]).await?;
    let waits = |object: &Value| object["status"]["phase"] == "BackupNotFound";
    stage.until(&path(USERS), "the condition that the backup is absent", waits).await?;
    ensure!(stage.get(&format!("{SPACE}/pods/{USERS}-0")).await?.is_null(), "it has started");
    let primary = primary(stage).await?;
    for statement in ODD_NAMES {
        query(stage, &primary, statement).await?;
    }
    stage.apply(&[claim("backups"), backup()]).await?;
    let is_complete = |object: &Value| holds(object, "Complete");
    let path = format!("{GROUP}/mysqlbackups/{BACKUP}");
    stage.until(&path, "the backup", is_complete).await?;
    settled(stage, USERS, 2).await?;
    for table in ["transfers", "accounts"] {
        let statement = format!("SELECT * FROM bank.{table} ORDER BY id");
        let original = query(stage, "db-0", &statement).await?;
        ensure!(!original.is_empty(), "{table} is empty");
        for copy in [0, 1] {
            let found = query(stage, &format!("{USERS}-{copy}"), &statement).await?;
            ensure!(found == original, "{USERS}-{copy} has other rows in {table}");
        }
        println!("  all {} rows of {table} are in both instances", original.lines().count());
    }
    let found = query(stage, &format!("{USERS}-0"), "SELECT * FROM `--no-data`.`a\nb`").await?;
    ensure!(found.trim() == "7", "the table with odd names has {found}");
    let grants = "SHOW GRANTS FOR 'it\\'s\\na'@'%'";
    let found = query(stage, &format!("{USERS}-0"), grants).await?;
    ensure!(found.contains("SELECT ON"), "the account with an odd name has {found}");
    Ok(())
}

/// The only replica of two instances loses its data, and a client's commit waits for it: so it waits for the
/// clone, and the clone for it.
async fn cornered(stage: &mut Stage<'_>) -> Result<()> {
    let object = stage.get(&path(USERS)).await?;
    let first = object["status"]["primary"].as_str().context("nobody is primary")?.to_owned();
    let names = [0, 1].map(|ordinal| format!("{USERS}-{ordinal}"));
    let victim = names.iter().find(|name| **name != first).context("there is no replica")?;
    let before = member_uuid(&object, victim).context("it is no member")?;
    let container = container_id(&instance(stage, victim).await?, CONTAINER)?;
    stage.node.pause_container(&container)?;
    stage.volumes.erase("default", &format!("data-{victim}")).await?;
    let kubectl = stage.node.control.kubectl.clone();
    // Its client hears nothing: the server is ended.
    let commit = ask(&kubectl, &first, "CREATE DATABASE cornered");
    stage.node.kill_container(&container)?;
    let (heard, cloned) = tokio::join!(commit, async {
        let is_cloned = |object: &Value| {
            let uuid = member_uuid(object, victim);
            uuid.is_some_and(|uuid| uuid != before)
        };
        stage.until(&path(USERS), "the replica to have the data again", is_cloned).await?;
        settled(stage, USERS, 2).await
    });
    cloned?;
    ensure!(heard.is_err(), "a commit was acknowledged by nobody: {heard:?}");
    for name in &names {
        query(stage, name, "SELECT count(*) FROM bank.transfers").await?;
    }
    query(stage, &first, "CREATE DATABASE afterwards").await.map(drop)
}

fn backup() -> Value {
    json!({
        "apiVersion": "cr.mysqloperator.grtl.github.com/v1", "kind": "MySQLBackup",
        "metadata": {"name": BACKUP, "namespace": "default"},
        "spec": {"cluster": NAME, "destination": {"volume": {"claimName": "backups"}}},
    })
}

/// All goes with the objects, volumes too.
async fn deleted(stage: &mut Stage<'_>) -> Result<()> {
    let kubectl = &stage.node.control.kubectl;
    kubectl.run(&["delete", "mysqlclusters", NAME, USERS, "--timeout=60s"]).await?;
    kubectl.run(&["delete", "mysqlbackups", "--all", "--timeout=60s"]).await?;
    kubectl.run(&["delete", "pvc", "backups", "--timeout=60s"]).await?;
    let kinds = ["pods", "persistentvolumeclaims", "services", "secrets", "configmaps"];
    let is_theirs = |object: &Value| {
        [NAME, USERS].iter().any(|name| kubectl::name(object).contains(&format!("{name}-")))
    };
    stage.gone(&kinds, is_theirs).await
}
