//! What the Jobs do.

use std::fs;
use std::process::Command;

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use operands::backup::destination::Destination;

use super::*;
use crate::testkit::cluster;

fn backup() -> MySQLBackup {
    serde_json::from_value(json!({
        "apiVersion": "cr.mysqloperator.grtl.github.com/v1", "kind": "MySQLBackup",
        "metadata": {"name": "db-1", "namespace": "web", "uid": "b1"},
        "spec": {"cluster": "db", "destination": {"s3": {"bucket": "dumps", "secretName": "keys"}}},
    }))
    .unwrap()
}

fn pod_of(job: Job) -> PodSpec {
    job.spec.unwrap().template.spec.unwrap()
}

fn stored(spec: Value) -> PodSpec {
    pod_of(store(&backup(), &cluster(spec), "9.1.0", "web/db/db-1", "leasehold:1").unwrap())
}

/// Every volume that a container mounts is one of its Pod, and no registry is asked for what a node has.
fn check_containers(pod: &PodSpec) {
    let volumes = pod.volumes.as_ref().unwrap();
    for container in pod.init_containers.iter().flatten().chain(&pod.containers) {
        assert_eq!(container.image_pull_policy.as_deref(), Some("IfNotPresent"));
        for mount in container.volume_mounts.iter().flatten() {
            let is_there = volumes.iter().any(|volume| volume.name == mount.name);
            assert!(is_there, "{} of {}", mount.name, container.name);
        }
    }
}

#[test]
fn a_dump_is_of_a_replica_by_an_account_that_may_only_read() {
    let pod = stored(json!({"image": "mysql:9.1.0", "port": 3307, "imagePullSecrets": ["pull"]}));
    check_containers(&pod);
    let dump = &pod.init_containers.as_ref().unwrap()[0];
    assert_eq!(dump.image.as_deref(), Some("mysql:9.1.0"));
    let arguments = dump.args.as_ref().unwrap();
    assert_eq!(arguments[1..], ["db-replicas.web.svc", "3307", "/work/dump.sql.gz"]);
    let accounts = pod.volumes.iter().flatten().find(|volume| volume.name == "accounts").unwrap();
    let items = accounts.secret.as_ref().unwrap().items.as_ref().unwrap();
    let keys: Vec<_> = items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["backup"], "no other password is in the Job");
    let store = pod.containers[0].args.as_ref().unwrap().join(" ");
    for part in ["--check=mysql-dump", "--name=web/db/db-1", "--owner=b1", "--bucket=dumps"] {
        assert!(store.contains(part), "{part}: {store}");
    }
    assert_eq!(pod.image_pull_secrets.unwrap()[0].name, "pull");
}

/// As anybody who may create a database names it.
#[test]
fn no_name_of_a_database_or_an_account_is_an_option_or_two() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("backup"), "secret").unwrap();
    // They answer as MySQL does, and write down what they are asked.
    let (mysql, mysqldump) = (
        r#"read -r first
case $first in
'SELECT schema'*) printf '%s\n' shop --no-data 'a\nb' 'c\\d' ;;
'SELECT CONCAT'*) printf '%s\n' "'e\\\\'\\nf'@'%'" ;;
*) printf '%s\n' "$first" "$(cat)" >>"$0.asked" && printf '%s\n' 'GRANT `x\ny`' ;;
esac"#,
        r#"printf '<%s>' "$@" >>"$0.asked""#,
    );
    for (name, script) in [("mysql", mysql), ("mysqldump", mysqldump)] {
        fs::write(at(name), format!("#!/bin/sh\n{script}")).unwrap();
        Command::new("chmod").args(["+x", &at(name)]).status().unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let script = DUMP.replace("/leasehold-accounts", &folder.path().display().to_string());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "dump", "db", "3306", &at("dump.sql.gz")]).env("PATH", path);
    assert!(shell.status().unwrap().success());

    let asked = fs::read_to_string(at("mysqldump.asked")).unwrap();
    let names = "<--databases><--><shop><--no-data><a\nb><c\\d>";
    assert_eq!(asked.matches(names).count(), 2, "{asked}");
    assert_eq!(asked.matches("--databases").count(), 2);
    let asked = fs::read_to_string(at("mysql.asked")).unwrap();
    for statement in ["SHOW CREATE USER 'e\\'\nf'@'%';\n", "SHOW GRANTS FOR 'e\\'\nf'@'%';\n"] {
        assert!(asked.contains(statement), "{asked}");
    }
    let dump = Command::new("gzip").args(["-dc", &at("dump.sql.gz")]).output().unwrap().stdout;
    let dump = String::from_utf8(dump).unwrap();
    // One in a text of MySQL, one as it is.
    for statement in ["run('GRANT `x\\ny`');\n", "GRANT `x\ny`;\n"] {
        assert!(dump.contains(statement), "{dump}");
    }
}

#[test]
fn a_single_instance_is_asked_itself() {
    let pod = stored(json!({"replicas": 1}));
    assert_eq!(pod.init_containers.unwrap()[0].args.as_ref().unwrap()[1], "db.web.svc");
}

fn origin(destination: Destination) -> Origin {
    Origin { destination, key: "web/db/db-1".to_owned(), sha256: None }
}

#[test]
fn a_restore_makes_the_data_as_an_instance_makes_it() {
    let origin = origin(backup().spec.destination);
    let job = restore(&cluster(json!({})), "v1", &origin, "leasehold:1").unwrap();
    assert_eq!(job.name_any(), "db-restore");
    assert_eq!(job.spec.as_ref().unwrap().ttl_seconds_after_finished, None);
    let pod = pod_of(job);
    check_containers(&pod);
    let fetch = pod.init_containers.as_ref().unwrap()[0].args.as_ref().unwrap().join(" ");
    for part in ["--clear=/var/lib/mysql/restore", "--name=web/db/db-1", "--check=mysql-dump"] {
        assert!(fetch.contains(part), "{part}: {fetch}");
    }
    let load = &pod.containers[0];
    let file = "/var/lib/mysql/restore/dump.sql.gz";
    assert_eq!(load.args.as_ref().unwrap()[..2], ["/leasehold", file]);
    let claims =
        pod.volumes.unwrap().into_iter().filter_map(|volume| volume.persistent_volume_claim);
    assert_eq!(claims.map(|claim| claim.claim_name).collect::<Vec<_>>(), ["data-db-0"]);
}

#[test]
fn the_jobs_run_where_instances_may_and_within_a_quota() {
    let spec = json!({
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"memory": "1Gi"}},
        "pod": {"nodeSelector": {"disk": "fast"}, "tolerations": [{"operator": "Exists"}]},
    });
    let origin = origin(backup().spec.destination);
    let restored = pod_of(restore(&cluster(spec.clone()), "v1", &origin, "leasehold:1").unwrap());
    for pod in [stored(spec), restored] {
        assert_eq!(pod.node_selector.unwrap()["disk"], "fast");
        assert_eq!(pod.tolerations.unwrap().len(), 1);
        for container in pod.init_containers.iter().flatten().chain(&pod.containers) {
            let resources = container.resources.clone().unwrap();
            assert!(resources.limits.unwrap().contains_key("memory"), "{}", container.name);
            assert!(resources.requests.unwrap().contains_key("memory"), "{}", container.name);
        }
    }
}

#[test]
fn nothing_is_restored_from_a_place_that_is_none() {
    assert!(
        restore(&cluster(json!({})), "v1", &origin(Default::default()), "leasehold:1").is_err()
    );
}
