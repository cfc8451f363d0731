//! Measures the engine's two hot structures: what a cached object costs, and how fast the queue is.
//!
//! `cargo run --release -p engine --example measure`
//!
//! Objects are synthetic, of the sizes seen in practice: a Pod of 6.5 KB with as much again in
//! `managedFields`, and a custom resource of 2 KB.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use engine::Selector;
use engine::cache::{Store, StoreWriter};
use engine::queue::core::{Limits, Outcome, Priority, Queue};
use k8s_openapi::api::core::v1::Pod;
use model::{Epoch, Moment, ObjectKey, Range, ShardId};
use serde_json::{Value, json};
use tracing::Span;

const PODS: usize = 10_000;
const CUSTOM: usize = 50_000;
const KEYS: usize = 1_000_000;

fn main() {
    match env::args().nth(1).as_deref() {
        Some("pods") => {
            let store = cache("Pods", PODS, pod);
            decode(&store);
        }
        Some("custom") => drop(cache("custom resources", CUSTOM, custom)),
        Some("queue") => queue(),
        // Each in a process of its own: what one frees would hide what the next takes.
        _ => ["pods", "custom", "queue"].into_iter().for_each(in_own_process),
    }
}

fn in_own_process(what: &str) {
    let program = env::current_exe().expect("this program has a path");
    let status = Command::new(program).arg(what).status().expect("this program starts again");
    assert!(status.success(), "measuring {what} failed");
}

/// Memory of this process that is resident, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok());
    kib.unwrap_or_default() * 1024
}

fn cache(what: &str, count: usize, object: impl Fn(usize) -> Value) -> Store {
    let texts: Vec<String> = (0..count).map(|index| object(index).to_string()).collect();
    let wire: usize = texts.iter().map(String::len).sum();
    let before = resident();
    let mut writer = StoreWriter::default();
    let started = Instant::now();
    for text in &texts {
        match writer.parse(text) {
            Ok(entry) => drop(writer.upsert(&entry)),
            Err(error) => panic!("a synthetic object: {error}"),
        }
    }
    let ingest = started.elapsed();
    let grown = resident().saturating_sub(before);
    let store = writer.store();
    println!("{what}: {count}, {} B each on the wire", wire / count);
    println!("  cache        {:>9} B each by its own count", store.bytes() / count);
    println!("  resident     {:>9} B each", grown / count);
    println!("  ingest       {:>9.0} objects/s", per_second(count, ingest));

    let selector: Selector = "app=app-7".parse().unwrap_or_default();
    let started = Instant::now();
    let found = black_box(store.list(None, &selector)).len();
    println!("  select       {:>9.2} ms for {found} of {count}", millis(started.elapsed()));

    store
}

fn decode(pods: &Store) {
    let sample = pods.list(None, &Selector::all());
    let started = Instant::now();
    let decoded = sample.iter().filter(|entry| entry.decode::<Pod>().is_ok()).count();
    assert_eq!(decoded, sample.len(), "the synthetic Pods are Pods");
    let each = started.elapsed().as_secs_f64() * 1e6 / decoded as f64;
    println!("  decode       {each:>9.1} us each, as a Pod");
}

fn queue() {
    let cluster: model::ClusterName = "east".parse().expect("a name");
    let shard = ShardId {
        cluster: cluster.clone(),
        group: "g".parse().expect("a name"),
        range: Range::WHOLE,
    };
    let mut queue = Queue::new(Limits { per_cluster: 64, total: 64, keys: KEYS });
    queue.warm(&shard, Epoch(1), ());
    queue.open(&shard, Epoch(1), Moment::default());
    let keys: Vec<_> = (0..KEYS)
        .map(|index| ObjectKey::new(cluster.clone(), Some("ns"), &format!("object-{index}")))
        .collect();
    let (now, span, before) = (Moment::default(), Span::none(), resident());

    let started = Instant::now();
    for key in &keys {
        queue.add(key, None, Priority::Initial, &span, now);
    }
    let added = started.elapsed();
    let grown = resident().saturating_sub(before);
    let started = Instant::now();
    for key in &keys {
        queue.add(key, None, Priority::Initial, &span, now);
    }
    let merged = started.elapsed();
    let started = Instant::now();
    while let Some(popped) = queue.pop(now) {
        queue.finish(&popped.key, Outcome::Done, now);
    }
    let drained = started.elapsed();
    println!("queue: {KEYS} keys");
    println!("  resident     {:>9} B a key", grown / KEYS);
    println!("  add          {:>9.0} keys/s", per_second(KEYS, added));
    println!("  add again    {:>9.0} keys/s", per_second(KEYS, merged));
    println!("  pop, finish  {:>9.0} keys/s", per_second(KEYS, drained));
}

fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

fn metadata(index: usize, managed: usize) -> Value {
    let fields: Vec<_> = (0..managed)
        .map(|field| {
            json!({"manager": "kubelet", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
            "fieldsV1": {"f:status": {"f:conditions": {format!("k:{{\"type\":\"Type-{field}\"}}"):
                {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}}}}}})
        })
        .collect();
    json!({
        "name": format!("object-{index}-5d8f7c9b4-{:05x}", index * 7919 % 0xfffff),
        "namespace": format!("team-{}", index % 40),
        "uid": format!("{:08x}-0000-4000-8000-{:012x}", index * 2_654_435_761 % 0xffff_ffff, index),
        "resourceVersion": (1_000_000 + index).to_string(),
        "generation": 1 + index % 5,
        "labels": {"app": format!("app-{}", index % 100), "pod-template-hash": "5d8f7c9b4",
            "tier": (["front", "back"][index % 2])},
        "annotations": {"checksum/config": format!("{:064x}", index * 31)},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
            "name": format!("app-{}", index % 100), "uid": format!("owner-{:024x}", index % 100)}],
        "managedFields": fields,
    })
}

fn pod(index: usize) -> Value {
    let containers: Vec<_> = (0..2)
        .map(|container| {
            let env: Vec<_> = (0..18)
                .map(|env| json!({"name": format!("SETTING_{env}"), "value": format!("{:016x}", index * env)}))
                .collect();
            json!({"name": format!("c{container}"), "image": format!("registry.example/app:{}", index % 9),
                "env": env, "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
                "livenessProbe": {"httpGet": {"path": "/livez", "port": 8080}, "periodSeconds": 10},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/app", "readOnly": true}]})
        })
        .collect();
    let conditions: Vec<_> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .into();
    let statuses: Vec<_> = (0..12)
        .map(|n| json!({"name": format!("c{n}"), "image": "registry.example/app", "ready": true,
            "restartCount": index % 3, "imageID": format!("registry.example/app@sha256:{:064x}", index * n)}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(index, 30),
        "spec": {"containers": containers, "nodeName": format!("node-{}", index % 200),
            "volumes": [{"name": "config", "configMap": {"name": "config"}}]},
        "status": {"phase": "Running", "podIP": format!("10.0.{}.{}", index / 250 % 250, index % 250),
            "conditions": conditions, "containerStatuses": statuses}})
}

fn custom(index: usize) -> Value {
    let windows: Vec<_> = (0..12)
        .map(|hour| json!({"startTime": hour * 2, "endTime": hour * 2 + 2, "replica": index % 7 + hour}))
        .collect();
    json!({"apiVersion": "schedule.rs/v1", "kind": "TDSet", "metadata": metadata(index, 2),
        "spec": {"container": {"image": "registry.example/app", "port": 8000},
            "schedulingConfig": windows, "defaultReplica": 3},
        "status": {"observedGeneration": 1, "replicas": index % 7, "conditions": [
            {"type": "Ready", "status": "True", "reason": "Scaled", "message": "as wanted",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}
