//! Workloads whose rollout is refused, takes long to begin, or cannot be asked for. The stories are listed with the other
//! trouble.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use apiserver::faults::Request;

use super::trouble::{bare_world, restarts_of, selected, told, uids, workload};
use super::*;

/// A Deployment without Pods that uses the ConfigMap.
async fn user(env: &TestEnv, name: &str) {
    let labels = json!({"app": name});
    let read = json!([{"configMapRef": {"name": CONFIG_MAP}}]);
    let deployment = json!({
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i", "envFrom": read}]},
        }},
    });
    let deployment = serde_json::from_value(deployment).unwrap();
    deployments(env).create(&PostParams::default(), &deployment).await.unwrap();
}

/// Counts the rollouts that the manager begins, of each workload, and does with them as this says.
fn rollouts_of(
    env: &TestEnv,
    fault: impl Fn(&Request) -> Fault + Send + Sync + 'static,
) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let begun = Arc::new(Mutex::new(BTreeMap::new()));
    let counted = Arc::clone(&begun);
    env.set_faults(move |request| {
        if !request.user_agent.starts_with("leasehold/") {
            return Fault::None;
        }
        if (request.verb, &*request.resource) == ("patch", "deployments") {
            *counted.lock().unwrap().entry(request.name.clone()).or_default() += 1;
        }
        fault(request)
    });
    begun
}

/// One after another, requests for so many would take longer than a reconcile may.
pub(super) async fn distant() {
    let env = bare_world(json!({"podSelector": null, "debounceSeconds": 0})).await;
    for number in 0..300 {
        user(&env, &format!("w-{number}")).await;
    }
    let begun = rollouts_of(&env, |_| Fault::Delay(Duration::from_millis(150)));
    edit(&env, "b").await;
    let (_, words) = told(&env, "RolledOut").await;
    assert!(words.contains("and 290 more"), "{words}");
    let begun = begun.lock().unwrap();
    assert!(begun.len() == 300 && begun.values().all(|count| *count == 1), "{begun:?}");
}

/// As where the rights are those of an earlier version.
pub(super) async fn unlisted() {
    let env = bare_world(json!({"podSelector": null, "debounceSeconds": 0})).await;
    user(&env, "w").await;
    rollouts_of(&env, |request| match (request.verb, &*request.resource) {
        ("list", "rollouts") => Fault::Error(ApiError::new(Reason::Forbidden, "not yours")),
        _ => Fault::None,
    });
    edit(&env, "b").await;
    let (status, words) = told(&env, "Rejected").await;
    assert_eq!((&*status, &*words), ("False", "not yours"));
    quiet(&env, Duration::from_secs(600)).await;
    env.end_faults();
    told(&env, "RolledOut").await;
    restarts_of(&env, 1).await;
}

/// As by a webhook, and by a GitOps tool: what was begun is not begun with each try of the other.
pub(super) async fn beside_reverted() {
    let env = bare_world(json!({"podSelector": null, "debounceSeconds": 0})).await;
    for name in ["free", "locked"] {
        user(&env, name).await;
    }
    let begun = rollouts_of(&env, |request| match (request.verb, &*request.name) {
        ("patch", "locked") => Fault::Error(ApiError::new(Reason::Invalid, "not on a Friday")),
        _ => Fault::None,
    });
    edit(&env, "b").await;
    assert_eq!(told(&env, "Rejected").await.1, "not on a Friday");
    let none = json!({format!("configmonitor.leasehold.dev/{MONITOR}"): null});
    let template = json!({"metadata": {"annotations": none}});
    merge(&deployments(&env), "free", json!({"spec": {"template": template}})).await;
    env.pass(Duration::from_secs(1_800)).await;
    {
        let begun = begun.lock().unwrap();
        assert!(begun["free"] == 1 && begun["locked"] > 3, "{begun:?}");
    }
    env.end_faults();
    env.pass(Duration::from_secs(1_000)).await;
    told(&env, "Reverted").await;
    assert_eq!(deployments(&env).get("locked").await.unwrap().metadata.generation, Some(2));
}

pub(super) async fn beside_evicted() {
    let env = bare_world(json!({"debounceSeconds": 0, "evictBarePods": true})).await;
    workload::<Deployment>(&env, json!({})).await;
    let bare = bare_pod(&env).await;
    selected(&env, 3).await;
    rollouts_of(&env, |request| match (request.verb, &*request.resource) {
        ("patch", "deployments") => Fault::Error(ApiError::new(Reason::Invalid, "not on a Friday")),
        _ => Fault::None,
    });
    edit(&env, "b").await;
    env.until("the Pod to go", async || (!uids(&env).await.contains(&bare)).then_some(())).await;
    assert_eq!(told(&env, "Rejected").await.1, "not on a Friday");
    env.end_faults();
    env.pass(Duration::from_secs(1_000)).await;
    told(&env, "RolledOut").await;
    restarts_of(&env, 1).await;
}
