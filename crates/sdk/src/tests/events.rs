//! Events: from a reconcile and from outside of one, repeated, and too many.

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use model::testing::PausedClock;

use super::world::{holding, maps};
use crate::{Action, Event, EventRecorder};
use engine::testing::{Asked, Server, config_map, server};

const EVENTS: &str = "POST /apis/events.k8s.io/v1/namespaces/ns/events";

fn metadata(name: &str) -> ObjectMeta {
    let [name, namespace] = [name, "ns"].map(|text| Some(text.to_owned()));
    ObjectMeta { name, namespace, ..ObjectMeta::default() }
}

/// The next Event that is made.
async fn made(server: &mut Server) -> Asked {
    let asked = server.asked().await;
    assert!(asked.line.starts_with(EVENTS), "{}", asked.line);
    asked
}

#[tokio::test(start_paused = true)]
async fn one_from_outside_of_a_reconcile_says_who_and_what_it_is_about() {
    let (client, mut server) = server();
    let name = "x".repeat(200);
    let events = EventRecorder::new(client, PausedClock::new(), "example.com/backup", &name);
    let map = ConfigMap { metadata: metadata("a"), ..ConfigMap::default() };
    let secret = Secret { metadata: metadata("b"), ..Secret::default() };
    let publish = |events: EventRecorder, map: ConfigMap, secret: Option<Secret>| {
        tokio::spawn(async move {
            let event = Event::warning(&map, "NotBackedUp", "BackUp", "no room");
            events
                .publish(match &secret {
                    Some(secret) => event.related(secret),
                    None => event,
                })
                .await;
        })
    };
    let published = publish(events.clone(), map.clone(), Some(secret.clone()));
    let first = made(&mut server).await;
    assert_eq!(first.body["type"], "Warning");
    assert_eq!(first.body["regarding"]["name"], "a");
    assert_eq!(first.body["related"]["kind"], "Secret");
    assert_eq!(first.body["related"]["name"], "b");
    assert_eq!(first.body["reportingController"], "example.com/backup");
    assert_eq!(first.body["reportingInstance"].as_str().map(str::len), Some(128));
    let body = first.body.clone();
    first.answer(201, &body);
    published.await.unwrap();
    // Without what it is related to it is another Event; of the same, it is a repeat.
    let published = publish(events.clone(), map.clone(), None);
    made(&mut server).await.answer(201, &body);
    published.await.unwrap();
    let published = publish(events, map, Some(secret));
    let repeat = server.asked().await;
    assert!(repeat.line.starts_with("PATCH "), "{}", repeat.line);
    repeat.answer(200, &body);
    published.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_talks_too_much_about_an_object_is_held_back() {
    let spec = maps(|ctx, key| {
        async move {
            if let Some(map) = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? {
                for number in 0..40 {
                    let note = format!("line {number}");
                    ctx.publish(Event::normal(&*map, "Noted", "Note", note)).await;
                }
            }
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server) = holding(vec![spec], 3);
    let list = server.asked().await.list(5, &[config_map("a", 1)]);
    for _ in 0..25 {
        let asked = made(&mut server).await;
        let body = asked.body.clone();
        asked.answer(201, &body);
    }
    server.quiet(Duration::from_secs(1)).await;
    assert_eq!(world.journal().len(), 2, "the reconcile is over");
    // About another object there is more to say.
    list.event("ADDED", &config_map("b", 6));
    assert_eq!(made(&mut server).await.body["regarding"]["name"], "b");
}
