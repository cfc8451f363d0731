//! The objects of a cluster.

use super::*;
use crate::tests::cluster;
use crate::wanted::wanted;

fn made(spec: Value, start: &Start) -> Pod {
    let cluster = cluster(spec);
    let wanted = wanted(&cluster).unwrap();
    pod(&cluster, &wanted, wanted.version, "db-1", start)
}

fn arguments_of(pod: &Pod) -> Vec<String> {
    pod.spec.as_ref().unwrap().containers[0].args.clone().unwrap()
}

fn digest(pod: &Pod) -> String {
    pod.annotations()[TEMPLATE].clone()
}

#[test]
fn a_pod_says_everything_in_arguments() {
    let pod = made(json!({"version": "3.6.5", "extraArgs": ["--snapshot-count=9"]}), &Start::Found);
    let arguments = arguments_of(&pod);
    for expect in [
        "--name=db-1",
        "--listen-metrics-urls=http://0.0.0.0:2381",
        "--initial-advertise-peer-urls=https://db-1.db-peers.web.svc:2380",
        "--client-cert-auth=true",
        "--peer-cert-allowed-cn=etcd-member",
        "--initial-cluster-state=new",
        "--initial-cluster-token=u1",
        "--snapshot-count=9",
    ] {
        assert!(arguments.iter().any(|found| found == expect), "{expect}: {arguments:?}");
    }
    let spec = pod.spec.unwrap();
    let container = &spec.containers[0];
    assert_eq!(container.image.as_deref(), Some("gcr.io/etcd-development/etcd:v3.6.5"));
    assert_eq!(container.command.as_deref(), Some(&["/usr/local/bin/etcd".to_owned()][..]));
    let live = container.liveness_probe.as_ref().unwrap();
    assert_eq!(live.http_get.as_ref().unwrap().path.as_deref(), Some("/livez"));
    assert!(live.exec.is_none(), "there is no shell");
    assert_eq!(
        (spec.hostname.as_deref(), spec.subdomain.as_deref()),
        (Some("db-1"), Some("db-peers"))
    );
    assert_eq!(spec.security_context.unwrap().run_as_non_root, Some(true));
    assert!(spec.affinity.unwrap().pod_anti_affinity.is_some());
}

#[test]
fn only_the_founder_may_start_a_cluster() {
    let spec = || json!({"version": "3.6.5"});
    let members = "db-0=https://db-0:2380,db-1=https://db-1:2380";
    for (start, state, initial) in [
        (Start::Found, "new", "db-1=https://db-1.db-peers.web.svc:2380"),
        (Start::Join(members.to_owned()), "existing", members),
        (Start::Resume, "existing", "db-1=https://db-1.db-peers.web.svc:2380"),
    ] {
        let arguments = arguments_of(&made(spec(), &start));
        assert!(arguments.contains(&format!("--initial-cluster-state={state}")), "{start:?}");
        assert!(arguments.contains(&format!("--initial-cluster={initial}")), "{start:?}");
    }
}

#[test]
fn how_a_member_starts_is_not_in_the_digest_and_everything_else_is() {
    let plain = || json!({"version": "3.6.5"});
    let found = digest(&made(plain(), &Start::Found));
    assert_eq!(found, digest(&made(plain(), &Start::Resume)));
    for other in [
        json!({"version": "3.6.6"}),
        json!({"version": "3.6.5", "resources": {"limits": {"cpu": "1"}}}),
        json!({"version": "3.6.5", "quotaBackendBytes": 16_777_216}),
        json!({"version": "3.6.5", "pod": {"labels": {"a": "b"}}}),
        json!({"version": "3.6.5", "pod": {"affinity": {}}}),
        json!({"version": "3.6.5", "tls": {"enabled": false}}),
    ] {
        assert_ne!(found, digest(&made(other.clone(), &Start::Found)), "{other}");
    }
    let same = json!({"version": "3.6.5", "size": 5, "replaceAfter": "9m"});
    assert_eq!(found, digest(&made(same, &Start::Found)), "these concern no running member");
}

#[test]
fn users_labels_do_not_hide_ours() {
    let labels = json!({names::CLUSTER_LABEL: "other", "team": "a"});
    let pod = made(json!({"version": "3.6.5", "pod": {"labels": labels}}), &Start::Resume);
    assert_eq!(pod.labels()[names::CLUSTER_LABEL], "db");
    assert_eq!(pod.labels()["team"], "a");
}

#[test]
fn volumes_go_with_the_cluster_unless_they_should_stay() {
    let goes = volume(&cluster(json!({"version": "3.6.5"})), "db-1");
    assert_eq!(goes.owner_references()[0].uid, "u1");
    let retain = json!({"version": "3.6.5", "storage": {"size": "1Gi", "reclaim": "Retain"}});
    let stays = volume(&cluster(retain), "db-1");
    assert!(stays.owner_references().is_empty());
    assert_eq!(stays.labels()[UID_LABEL], "u1");
}

#[test]
fn evictions_take_one_member_at_a_time() {
    for (size, available) in [(1, 0), (3, 2), (5, 4)] {
        let cluster = cluster(json!({"version": "3.6.5", "size": size}));
        let budget = budget(&cluster, &wanted(&cluster).unwrap());
        let minimum = budget.spec.unwrap().min_available.unwrap();
        assert_eq!(json!(minimum), json!(available));
    }
    let [peers, clients] = services(&cluster(json!({"version": "3.6.5"})));
    assert_eq!(peers.spec.unwrap().publish_not_ready_addresses, Some(true));
    assert_eq!(clients.name_any(), "db");
}

#[test]
fn only_a_pod_that_cannot_start_on_nothing_is_started_again_by_the_kubelet() {
    for (start, expect) in [
        (Start::Found, Some("Never")),
        (Start::Join("db-1=https://db-1".to_owned()), Some("Never")),
        (Start::Resume, None),
    ] {
        let policy = made(json!({"version": "3.6.5"}), &start).spec.unwrap().restart_policy;
        assert_eq!(policy.as_deref(), expect, "{start:?}");
    }
}
