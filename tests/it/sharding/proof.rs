//! Members whose containers end, and what their Pods show of it.

use k8s_openapi::api::core::v1::Pod;

use super::*;

/// Names an instance of the container of a Pod, as a process does of its own.
fn container(pod_uid: &str, token: &str) -> MemberContainer {
    MemberContainer {
        pod_uid: pod_uid.to_owned(),
        name: "leasehold".to_owned(),
        boot_id: "boot".to_owned(),
        token: token.to_owned(),
        lock_id: Some(pod_uid.to_owned()),
    }
}

/// The Pods of a home cluster, without anything that runs them.
struct Pods(Api<Pod>);

impl Pods {
    fn of(home: &Home) -> Self {
        Self(Api::namespaced(home.server.client(), NAMESPACE))
    }

    /// Makes a Pod, and returns its uid.
    async fn create(&self, name: &str) -> String {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "leasehold", "image": "leasehold"}]},
        }));
        let pod = self.0.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
        pod.metadata.uid.unwrap()
    }

    /// What a kubelet writes of a container that has ended.
    async fn terminated(&self, name: &str, token: &str) {
        let message = format!("leasehold member {token}\n");
        let terminated = json!({"exitCode": 137, "reason": "Error", "message": message});
        self.set(name, json!({"terminated": terminated})).await;
    }

    async fn set(&self, name: &str, state: serde_json::Value) {
        let container = json!({
            "name": "leasehold", "image": "leasehold", "imageID": "", "ready": false,
            "restartCount": 0, "state": state,
        });
        let patch = Patch::Merge(json!({"status": {"containerStatuses": [container]}}));
        self.0.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Three members in Pods, which share six clusters.
async fn fleet() -> (Home, Pods, Vec<(String, Replica)>) {
    let home = Home::start(&SIX).await;
    let pods = Pods::of(&home);
    let mut replicas = Vec::new();
    for number in 0..3 {
        let uid = pods.create(&format!("replica-{number}")).await;
        let container = container(&uid, &format!("t{number}"));
        let identity = format!("replica-{number}");
        replicas.push((uid, home.replica_in(&identity, number, Some(container))));
    }
    let all: Vec<_> = replicas.iter().map(|(_, replica)| replica).collect();
    until_active(&all, &[2, 2, 2]).await;
    (home, pods, replicas)
}

/// Whoever it is: the coordinator at first, then its successor.
#[tokio::test(start_paused = true)]
async fn a_container_that_has_ended_is_not_waited_for() {
    let (home, pods, mut replicas) = fleet().await;
    for left in [2, 1] {
        let coordinates =
            |(_, replica): &(String, Replica)| replica.sharding.status().is_coordinator;
        let position = replicas.iter().position(coordinates).unwrap();
        let (_, dead) = replicas.remove(position);
        let name = dead.sharding.status().member.as_str()[..9].to_owned();
        dead.crash(&home.active).await;
        let crashed = home.now();
        pods.terminated(&name, &format!("t{}", &name[8..])).await;
        let all: Vec<_> = replicas.iter().map(|(_, replica)| replica).collect();
        until_active(&all, &vec![6 / left; left]).await;
        let gap = home.now() - crashed;
        assert!(gap < Duration::from_millis(500), "taken over after {gap:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_process_of_a_container_takes_over_without_any_word() {
    let (home, _, mut replicas) = fleet().await;
    let (uid, dead) = replicas.remove(2);
    dead.crash(&home.active).await;
    let crashed = home.now();
    let next = home.replica_in("replica-2", 9, Some(container(&uid, "next")));
    until_active(&[&replicas[0].1, &replicas[1].1, &next], &[2, 2, 2]).await;
    let gap = home.now() - crashed;
    assert!(gap < Duration::from_secs(2), "taken over after {gap:?}");
}

/// Neither a Pod that is gone, nor a container that nobody can find, is proof.
#[tokio::test(start_paused = true)]
async fn in_doubt_the_lease_decides() {
    let (home, pods, mut replicas) = fleet().await;
    let silence = LeaseTimings::default().silence() - LeaseTimings::default().renew_interval;
    for (left, word) in [(2, "lost"), (1, "deleted")] {
        let (_, dead) = replicas.remove(left);
        let name = format!("replica-{left}");
        dead.crash(&home.active).await;
        let crashed = home.now();
        match word {
            "lost" => {
                let message = format!("leasehold member t{left}\n");
                let reason = "ContainerStatusUnknown";
                let state = json!({"exitCode": 137, "reason": reason, "message": message});
                pods.set(&name, json!({"terminated": state})).await;
            }
            _ => drop(pods.0.delete(&name, &DeleteParams::default().grace_period(0)).await),
        }
        let all: Vec<_> = replicas.iter().map(|(_, replica)| replica).collect();
        until_active(&all, &vec![6 / left; left]).await;
        let gap = home.now() - crashed;
        assert!(gap > silence, "{word}: taken over after {gap:?}");
    }
}
