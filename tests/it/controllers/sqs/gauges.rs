//! How many messages queues have, as series.

use std::sync::Arc;
use std::time::Duration;

use kube::api::DeleteParams;
use prometheus::core::Collector;
use sdk::ControllerSpec;
use serde_json::json;

use super::world::{A_WHILE, make, patch, queues, ready, world};

/// The series that a controller exports itself, as text.
fn series(collector: &dyn Collector) -> Vec<String> {
    // A registry leaves out families without series.
    let mut families = collector.collect();
    families.retain(|family| !family.get_metric().is_empty());
    let text = prometheus::TextEncoder::new().encode_to_string(&families).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut lines: Vec<_> = lines.map(str::to_owned).collect();
    // A registry sorts the series of a family, too.
    lines.sort();
    lines
}

fn collector(spec: &ControllerSpec) -> Arc<dyn Collector> {
    Arc::clone(&spec.collectors[0])
}

fn expected(messages: [u64; 3]) -> [String; 3] {
    let line = |state, number| {
        let labels = "cluster=\"east\",queue=\"orders\",queue_namespace=\"default\"";
        format!("leasehold_sqs_queue_messages{{{labels},state=\"{state}\"}} {number}")
    };
    let [visible, in_flight, delayed] = messages;
    [line("delayed", delayed), line("in_flight", in_flight), line("visible", visible)]
}

#[tokio::test(start_paused = true)]
async fn a_queue_shows_its_messages_as_series_until_it_goes() {
    let (mut env, aws) = world().await;
    let spec = aws.controller();
    let gauges = collector(&spec);
    env.run([spec]);
    assert_eq!(series(&*gauges), [""; 0]);
    make(&env, "orders", json!({})).await;
    ready(&env, "orders").await;
    env.pass(Duration::from_secs(1)).await;
    assert_eq!(series(&*gauges), expected([0, 0, 0]));
    aws.sqs(|sqs| sqs.messages.insert("default-orders".to_owned(), 7));
    env.pass(A_WHILE).await;
    assert_eq!(series(&*gauges), expected([7, 0, 0]));

    // Another replica shows at once what was recorded last, without a look.
    env.pass(Duration::from_secs(1_800)).await;
    env.stop().await;
    let since = aws.now();
    let spec = aws.controller();
    let gauges = collector(&spec);
    env.run([spec]);
    env.pass(Duration::from_secs(1)).await;
    assert_eq!(series(&*gauges), expected([7, 0, 0]));
    assert_eq!(aws.requests(since), []);

    // Nothing is known of one that is not looked at.
    patch(&env, "orders", json!({"spec": {"management": "Pause"}})).await;
    env.pass(Duration::from_secs(1)).await;
    assert_eq!(series(&*gauges), [""; 0]);
    patch(&env, "orders", json!({"spec": {"management": "Manage"}})).await;
    env.pass(A_WHILE).await;
    assert_eq!(series(&*gauges), expected([7, 0, 0]));
    queues(&env).delete("orders", &DeleteParams::default()).await.unwrap();
    env.until_gone(&queues(&env), "orders").await;
    env.pass(Duration::from_secs(1)).await;
    assert_eq!(series(&*gauges), [""; 0]);
}
