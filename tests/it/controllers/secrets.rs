//! Secrets beside ConfigMaps, for configmonitor and restart-pods: one restart for each change, and no value
//! anywhere else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apiserver::faults::Request;
use cache::{DecodedCache, StoreOptions, StoreWriter};
use controllers::ConfigMonitor;
use controllers::restartpods::annotation::{Noted, RESTART_PODS, record};
use controllers::restarts::content::Content;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::discovery::ApiResource;
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use sdk::ControllerSpec;
use serde_json::{Value, json};

use super::crash::at_every_write;
use super::{events, generation, quiet};

const NAMESPACE: &str = "default";
const SECRET: &str = "database";
const VALUE: &str = "hunter2";

fn built(name: &str) -> Vec<ControllerSpec> {
    (controllers::get(name).unwrap().build)(2, &json!({"watchSecrets": true}))
}

/// The objects of both controllers: a Secret as `kubectl apply` leaves it, with a Deployment that uses it.
fn manifests(annotations: &Value) -> Vec<Value> {
    let mut all = json!({"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"pin\":\"{VALUE}\"}}")});
    all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
    let labels = json!({"app": "web"});
    vec![
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"pin": VALUE},
            "metadata": {"name": SECRET, "namespace": NAMESPACE, "annotations": all},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": SECRET}}]}]},
            }},
        }),
    ]
}

fn monitor() -> Value {
    json!({
        "apiVersion": "magalix.com/v1", "kind": "ConfigMonitor",
        "metadata": {"name": "m", "namespace": NAMESPACE},
        "spec": {"secret": SECRET, "podSelector": {"app": "web"}},
    })
}

async fn world(manifests: &[Value]) -> TestEnv {
    let env = TestEnv::builder().at("2026-11-21T10:00:00Z").crds(controllers::crds()).start().await;
    for manifest in manifests {
        env.apply(&manifest.to_string()).await;
    }
    let deployments: Api<Deployment> = env.api(NAMESPACE);
    env.until_object(&deployments, "web", |found| {
        found.status.as_ref().is_some_and(|status| status.ready_replicas == Some(1))
    })
    .await;
    env
}

/// A world of one of the controllers, which has seen the Secret.
async fn seen(name: &str) -> TestEnv {
    let mut env = match name {
        "configmonitor" => world(&[manifests(&json!({})), vec![monitor()]].concat()).await,
        _ => world(&manifests(&json!({RESTART_PODS: "app=web"}))).await,
    };
    env.run(built(name));
    restarts(&env, name, 0).await;
    env
}

fn secrets(env: &TestEnv) -> Api<Secret> {
    env.api(NAMESPACE)
}

async fn merge(env: &TestEnv, patch: Value) {
    super::merge(&secrets(env), SECRET, patch).await;
}

/// Waits until so many restarts are made and none is under way.
async fn restarts(env: &TestEnv, name: &str, expect: i64) {
    let rests = |record: &controllers::restarts::Record| {
        record.hash.is_some()
            && record.restarts == expect
            && record.pending.is_none()
            && record.changed_at.is_none()
    };
    if name == "configmonitor" {
        let monitors: Api<ConfigMonitor> = env.api(NAMESPACE);
        env.until_object(&monitors, "m", |monitor| {
            monitor.status.as_ref().is_some_and(|status| rests(&status.record))
        })
        .await;
    } else {
        env.until_object(&secrets(env), SECRET, |secret| rests(&record(&secret.metadata).record))
            .await;
    }
}

/// Every object of these kinds but the Secret itself, as text.
async fn written(env: &TestEnv) -> String {
    let mut text = String::new();
    for (group, version, kind, plural) in [
        ("magalix.com", "v1", "ConfigMonitor", "configmonitors"),
        ("apps", "v1", "Deployment", "deployments"),
        ("apps", "v1", "ReplicaSet", "replicasets"),
        ("", "v1", "Pod", "pods"),
        ("events.k8s.io", "v1", "Event", "events"),
    ] {
        let api_version = [group, version].into_iter().filter(|part| !part.is_empty());
        let kind = ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: api_version.collect::<Vec<_>>().join("/"),
            kind: kind.into(),
            plural: plural.into(),
        };
        let objects = Api::<DynamicObject>::all_with(env.client(), &kind);
        let found = objects.list(&ListParams::default()).await.unwrap().items;
        text += &serde_json::to_string(&found).unwrap();
    }
    text
}

#[tokio::test(start_paused = true)]
async fn a_secret_restarts_once_for_each_change_and_its_value_is_nowhere() {
    for name in ["configmonitor", "restart-pods"] {
        let env = seen(name).await;
        let before = generation(&env, "web").await;
        for (change, value) in [(1, "0001"), (2, "0002")] {
            merge(&env, json!({"stringData": {"pin": value}})).await;
            restarts(&env, name, change).await;
            merge(&env, json!({"metadata": {"labels": {"touched": value}}})).await;
            env.pass(Duration::from_secs(60)).await;
            assert_eq!(generation(&env, "web").await, before + change, "{name}");
        }
        // Also one of the same content is another Secret, and may be of somebody else.
        let found = secrets(&env).get(SECRET).await.unwrap();
        let text = written(&env).await;
        let plain = ConfigMap { binary_data: found.data.clone(), ..ConfigMap::default() };
        assert!(text.contains(&found.digest()), "{name}: the digest is there, keyed: {text}");
        let uid = found.metadata.uid.clone().unwrap();
        let hidden = [VALUE.to_owned(), "MDAwMg==".to_owned(), plain.digest(), uid];
        for hidden in hidden {
            assert!(!text.contains(&hidden), "{name} shows {hidden}: {text}");
        }
        quiet(&env, Duration::from_secs(600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_created_anew_has_changed() {
    let env = seen("configmonitor").await;
    secrets(&env).delete(SECRET, &DeleteParams::default()).await.unwrap();
    let monitors: Api<ConfigMonitor> = env.api(NAMESPACE);
    told(&env, &monitors, "SecretMissing").await;
    env.apply(&manifests(&json!({}))[0].to_string()).await;
    restarts(&env, "configmonitor", 1).await;
}

/// The record of restart-pods went with it.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_created_anew_is_the_first_one_to_restart_pods() {
    let env = seen("restart-pods").await;
    let before = generation(&env, "web").await;
    secrets(&env).delete(SECRET, &DeleteParams::default()).await.unwrap();
    env.until_gone(&secrets(&env), SECRET).await;
    env.apply(&manifests(&json!({RESTART_PODS: "app=web"}))[0].to_string()).await;
    restarts(&env, "restart-pods", 0).await;
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(generation(&env, "web").await, before);
    // From then on each change counts.
    merge(&env, json!({"stringData": {"pin": "0001"}})).await;
    restarts(&env, "restart-pods", 1).await;
}

async fn told(env: &TestEnv, monitors: &Api<ConfigMonitor>, reason: &str) {
    env.until_object(monitors, "m", |monitor| {
        let conditions = monitor.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.type_ == "Ready" && found.reason == reason)
    })
    .await;
}

/// Counts requests of reconciles that concern Secrets.
fn asked_for_secrets(env: &TestEnv) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    env.set_faults(move |request: &Request| {
        if request.resource == "secrets" && request.user_agent.starts_with("leasehold/") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Fault::None
    });
    asked
}

/// Refuses to give Secrets, to whom it may concern.
fn refuse_secrets(env: &TestEnv) {
    env.set_faults(move |request: &Request| {
        let reads = matches!(request.verb, "get" | "list" | "watch");
        match request.resource == "secrets" && reads {
            true => Fault::Error(ApiError::new(Reason::Forbidden, "no rights")),
            false => Fault::None,
        }
    });
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_for_secrets_unless_the_administrator_says_so() {
    let objects = [manifests(&json!({RESTART_PODS: "app=web"})), vec![monitor()]].concat();
    let mut env = world(&objects).await;
    let asked = asked_for_secrets(&env);
    let specs = [controllers::build("configmonitor", 2), controllers::build("restart-pods", 2)];
    let specs = specs.concat();
    let mut watched = specs.iter().flat_map(|spec| &spec.sources);
    assert!(watched.all(|source| &*source.kind.kind != "Secret"));
    env.run(specs);
    let monitors: Api<ConfigMonitor> = env.api(NAMESPACE);
    told(&env, &monitors, "SecretsNotWatched").await;
    let before = generation(&env, "web").await;
    merge(&env, json!({"stringData": {"pin": "0001"}})).await;
    quiet(&env, Duration::from_secs(600)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(generation(&env, "web").await, before);
    let found = secrets(&env).get(SECRET).await.unwrap();
    assert_eq!(record(&found.metadata), Noted::default());
}

#[tokio::test(start_paused = true)]
async fn without_the_right_monitors_of_secrets_say_so_and_those_of_config_maps_go_on() {
    let mut env = world(&[manifests(&json!({})), vec![monitor()]].concat()).await;
    refuse_secrets(&env);
    env.apply(controllers::get("configmonitor").unwrap().example).await;
    env.run(built("configmonitor"));
    let monitors: Api<ConfigMonitor> = env.api(NAMESPACE);
    told(&env, &monitors, "SecretsNotWatched").await;
    let example = "flakapp-config-monitor";
    env.until_object(&monitors, example, |monitor| {
        monitor.status.as_ref().is_some_and(|status| status.record.hash.is_some())
    })
    .await;
    env.end_faults();
    restarts(&env, "configmonitor", 0).await;
    merge(&env, json!({"stringData": {"pin": "0001"}})).await;
    restarts(&env, "configmonitor", 1).await;
}

#[tokio::test(start_paused = true)]
async fn events_name_no_uid_of_a_secret() {
    let env = seen("restart-pods").await;
    merge(&env, json!({"stringData": {"pin": "0001"}})).await;
    restarts(&env, "restart-pods", 1).await;
    let of_secrets = |event: &k8s_openapi::api::events::v1::Event| {
        event.regarding.as_ref().is_some_and(|about| about.kind.as_deref() == Some("Secret"))
    };
    let found: Vec<_> = events(&env, NAMESPACE).await.into_iter().filter(of_secrets).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    let about = found[0].regarding.as_ref().unwrap();
    assert_eq!((about.name.as_deref(), about.uid.as_deref()), (Some(SECRET), None));
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_still_restarts_once() {
    for name in ["configmonitor", "restart-pods"] {
        let writes = at_every_write(async |crash| {
            let mut env = seen(name).await;
            let before = generation(&env, "web").await;
            env.stop().await;
            merge(&env, json!({"stringData": {"pin": "0001"}})).await;
            crash.watch(&env);
            let settled = async |env: &TestEnv| restarts(env, name, 1).await;
            crash.survived(&mut env, || built(name), settled).await;
            env.pass(Duration::from_secs(60)).await;
            restarts(&env, name, 1).await;
            assert_eq!(generation(&env, "web").await, before + 1);
        })
        .await;
        assert!(writes >= 5, "seen, decided, restarted, begun, done: {writes}");
    }
}

/// What a controller's cache of a kind keeps.
fn options(name: &str, kind: &str) -> StoreOptions {
    let mut specs = built(name).into_iter();
    let options = specs.find_map(|mut spec| {
        let key = spec.options.keys().find(|(found, _)| &*found.kind == kind).cloned()?;
        // As the engine does for a watch of metadata alone.
        let is_partial = matches!(kind, "ConfigMap" | "Pod" | "Secret");
        let options = spec.options.remove(&key)?;
        Some(if is_partial { options.metadata_only() } else { options })
    });
    options.unwrap()
}

/// What these controllers cache of an object, as text.
fn cached(name: &str, kind: &str, object: &Value) -> String {
    let options = options(name, kind);
    let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
    let entry = writer.parse(&object.to_string()).unwrap();
    entry.decode_dynamic::<Value>().unwrap().to_string()
}

/// The annotation of `kubectl apply` has all values of a Secret.
#[test]
fn caches_have_no_value_of_a_secret() {
    for name in ["configmonitor", "restart-pods"] {
        let mut secret = manifests(&json!({RESTART_PODS: "app=web"})).remove(0);
        secret["metadata"]["uid"] = "u".into();
        secret["metadata"]["resourceVersion"] = "1".into();
        secret["data"] = json!({"pin": "aHVudGVyMg=="});
        let text = cached(name, "Secret", &secret);
        assert_eq!(text.contains(RESTART_PODS), name == "restart-pods", "{text}");
        assert!(!text.contains(VALUE) && !text.contains("aHVudGVyMg"), "{name}: {text}");
    }
}

/// An object of about the size that its kind has in clusters, without managedFields.
fn usual(kind: &str, number: usize) -> Value {
    let mut rng = fastrand::Rng::with_seed(number as u64);
    let mut text = |count: usize| (0..count).map(|_| rng.char('a'..='p')).collect::<String>();
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": text(400)});
    let metadata = json!({
        "name": format!("object-{number}"), "namespace": format!("team-{}", number % 20), "uid": text(32),
        "resourceVersion": number.to_string(), "labels": {"app": format!("app-{}", number % 50)},
        "annotations": annotations,
    });
    let container = |words: String| {
        json!({"name": "main", "image": words, "command": ["run", "--with", "arguments"],
            "envFrom": [{"configMapRef": {"name": format!("object-{number}")}}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 10}})
    };
    match kind {
        "ConfigMap" => json!({"metadata": metadata, "data": {"config": text(3_000)}}),
        "Pod" => {
            json!({"metadata": metadata, "spec": {"containers": [container(text(60)), container(text(60))]},
            "status": {"phase": "Running", "podIP": format!("10.0.0.{}", number % 256), "conditions": text(1_500)}})
        }
        _ => {
            json!({"metadata": metadata, "spec": {"template": {"spec": {"containers": [container(text(60))]}}},
            "status": {"replicas": 1, "conditions": text(600)}})
        }
    }
}

/// Prints the bytes that a cache takes for each object, whole and as these controllers keep it.
#[test]
fn caches_are_small() {
    const OBJECTS: usize = 2_000;
    let bytes = |options: StoreOptions, kind: &str| {
        let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
        for number in 0..OBJECTS {
            let entry = writer.parse(&usual(kind, number).to_string()).unwrap();
            writer.upsert(&entry);
        }
        writer.store().bytes() / OBJECTS
    };
    for (name, kind, least) in [
        ("configmonitor", "ConfigMap", 4),
        ("configmonitor", "Pod", 2),
        ("restart-pods", "ConfigMap", 4),
        ("restart-pods", "Deployment", 2),
    ] {
        let (whole, kept) =
            (bytes(StoreOptions::default(), kind), bytes(options(name, kind), kind));
        println!("{name}: {kind}: {whole} bytes each if whole, {kept} as it is kept");
        assert!(kept * least <= whole, "{name}: {kind}: {kept} of {whole} bytes");
    }
}
