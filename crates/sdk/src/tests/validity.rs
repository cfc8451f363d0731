//! Series of a controller's own: where it runs, and for as long as its shard is held.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};

use super::world::{MAPS, World, run};
use crate::{Action, Controller, Validity};
use engine::testing::config_map;

const SEEN: &str = r#"maps_seen{cluster="east"}"#;

/// How many keys were seen whose shards are held.
#[derive(Clone)]
struct Seen {
    keys: Arc<Mutex<Vec<Validity>>>,
    family: IntGaugeVec,
}

impl Seen {
    fn new() -> Self {
        let family = IntGaugeVec::new(Opts::new("maps_seen", "How many."), &["cluster"]).unwrap();
        Self { keys: Arc::default(), family }
    }
}

impl Collector for Seen {
    fn desc(&self) -> Vec<&Desc> {
        self.family.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.family.reset();
        for validity in self.keys.lock().unwrap().iter().filter(|validity| validity.lasts()) {
            self.family.with_label_values(&[validity.cluster_label()]).inc();
        }
        self.family.collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_series_of_a_controllers_own_lasts_as_long_as_the_shard_is_held() {
    let seen = Seen::new();
    let keys = Arc::clone(&seen.keys);
    let controller = Controller::for_kind::<ConfigMap>("maps").collector(seen);
    let world = World::start(vec![controller.reconciler(run(move |ctx, _| {
        keys.lock().unwrap().push(ctx.validity());
        std::future::ready(Ok(Action::Done)).boxed()
    }))]);
    assert_eq!(world.metric(SEEN), "absent");
    let mut server = world.engage("east", 1);
    world.hold_active("east", 3);
    let _list = server.expect(MAPS).await.list(5, &[config_map("a", 1), config_map("b", 1)]);
    world.wait_entries(4).await;
    assert_eq!(world.metric(SEEN), "2");
    // It is about to go to another replica.
    world.drain("east", 3, Duration::from_secs(30));
    assert_eq!(world.metric(SEEN), "absent");
    world.wait_acknowledged("east/g/0/1@3").await;
    // What was seen at an earlier epoch is not shown at a later one: others may have changed it meanwhile.
    world.hold_active("east", 5);
    assert_eq!(world.metric(SEEN), "absent");
    world.stop().await;
}
