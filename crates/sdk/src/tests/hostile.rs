//! A cluster whose objects are wrong, or change without end, is no trouble for others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};

use super::world::{World, idle, run, settle};
use crate::Controller;
use engine::testing::config_map;

fn secret(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string()}})
}

#[tokio::test(start_paused = true)]
async fn others_run_between_two_events_of_a_mapping() {
    const EVENTS: usize = 100;
    let turns = Arc::new(AtomicUsize::new(0));
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (of_others, noted) = (Arc::clone(&turns), Arc::clone(&seen));
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .watches::<Secret>(move |_, _| {
            noted.lock().unwrap().push(of_others.load(Ordering::Relaxed));
            Vec::new()
        })
        .reconciler(run(idle));
    let world = World::start(vec![spec]);
    let mut server = world.engage("east", 1);
    world.hold_active("east", 1);
    let _maps = server.asked().await.list(5, &[config_map("a", 1)]);
    let secrets = server.asked().await.list(5, &[]);
    world.wait_entries(2).await;
    for number in 0..EVENTS {
        secrets.event("ADDED", &secret(&format!("s{number}"), 10 + number as u64));
    }
    for turn in 0..100 * EVENTS {
        turns.store(turn, Ordering::Relaxed);
        tokio::task::yield_now().await;
        if seen.lock().unwrap().len() == EVENTS {
            break;
        }
    }
    let mut seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), EVENTS);
    seen.dedup();
    assert!(seen.len() > EVENTS / 2, "between {EVENTS} events others had {} turns", seen.len());
    world.stop().await;
}
