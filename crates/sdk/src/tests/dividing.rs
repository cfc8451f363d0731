//! Servers that send only the wanted part of a kind, and servers that cannot.

use model::{Hold, Range, uid_hash};
use serde_json::{Value, json};

use super::ranges::{LOW, all, held, hostile, low, names, part, reconciled, set, watch};
use super::world::{MAPS, holding_shard, idle, maps, settle};
use engine::testing::Asked;

/// Answers a list of a part as a server that knows parts does.
fn divided(asked: Asked, version: u64, items: &[Value]) {
    let query = asked.request.uri.query().unwrap().to_owned();
    let pairs = form_urlencoded::parse(query.as_bytes());
    let selector = pairs.into_owned().find(|(key, _)| key == "shardSelector").unwrap().1;
    let metadata =
        json!({"resourceVersion": version.to_string(), "shardInfo": {"selector": selector}});
    asked.answer(200, &json!({"metadata": metadata, "items": items}));
}

fn of_half(request: &str, list: &str) -> String {
    format!("{request}&{}", list.split('&').next_back().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_divides_is_asked_to() {
    let (low_names, high_names) = names(20);
    let (world, mut server) = holding_shard(vec![maps(idle)], LOW, 1);
    divided(server.expect(&low("configmaps")).await, 5, &all(&low_names, 3));
    let watched = of_half(&watch("configmaps", 5), &low("configmaps"));
    let live = server.expect(&watched).await.watch();
    // It is trusted to leave out, not to leave in.
    live.event("ADDED", &hostile(&high_names[0], 6));
    settle().await;
    assert_eq!(held(&world, "ConfigMap"), format!("0/2 server {}", low_names.len()));
    let mode = r#"leasehold_shard_mode{cluster="east",kind="ConfigMap",mode="server"}"#;
    assert_eq!(world.metric(mode), "1");
    live.expired();
    let listed = of_half(MAPS, &low("configmaps"));
    let list = server.expect(&listed).await.list(8, &all(&low_names, 3));
    settle().await;
    // More is wanted than is sent.
    world.hold_shards(&[("east/g/2/4", Some((1, Hold::Active)))]);
    let more = part("configmaps", "0000000000000000", "c000000000000000");
    let gained = server.expect(&of_half(MAPS, &more)).await;
    list.hung_up().await;
    let both = [all(&low_names, 3), all(&high_names, 3)].concat();
    let _all = gained.list(9, &both);
    settle().await;
    let quarter: Range = "2/4".parse().unwrap();
    let expect = low_names.len()
        + high_names.iter().filter(|n| quarter.contains(uid_hash(&format!("uid-{n}")))).count();
    assert_eq!(held(&world, "ConfigMap"), format!("0/2,2/4 server {expect}"));
    assert_eq!(reconciled(&world).len(), expect);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_the_question_is_not_asked_again() {
    let (world, mut server) = holding_shard(vec![maps(idle)], LOW, 1);
    server.expect(&low("configmaps")).await.refuse(400, "BadRequest");
    // Nor need the next list be paged.
    let _list = server.expect(MAPS).await.list(5, &all(&names(20).0, 3));
    settle().await;
    assert_eq!(reconciled(&world), set(&names(20).0));
    world.stop().await;
}
