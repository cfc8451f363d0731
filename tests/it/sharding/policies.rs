//! What people have paused stays so, however many policies somebody writes beside it.

use sharding::api::{FleetPolicy, Phase};

use super::*;

/// More policies than are read.
const MANY: usize = 1_000;

#[tokio::test(start_paused = true)]
async fn more_policies_than_are_read_end_no_pause() {
    let home = Home::start(&["east", "west"]).await;
    let policies = Api::<FleetPolicy>::namespaced(home.server.client(), NAMESPACE);
    let write = async |name: &str, spec: serde_json::Value| {
        let policy = FleetPolicy::new(name, serde_json::from_value(spec).unwrap());
        policies.create(&PostParams::default(), &policy).await.unwrap();
    };
    let of = |cluster: &str| json!({"clusters": [cluster]});
    write("z", json!({"pause": true, "shards": of("east")})).await;
    for number in 0..MANY {
        write(&format!("a-{number:04}"), json!({"busy": 1, "shards": of("west")})).await;
    }
    let _replica = home.replica(0);
    tokio::time::sleep(Duration::from_secs(20)).await;
    policies.delete("a-0000", &DeleteParams::default()).await.unwrap();
    let is_owned = async |cluster: &str| {
        let maps = home.maps().await.into_iter();
        let mut its = maps.filter(|map| map.metadata.name.as_deref() == Some(cluster));
        its.any(|map| map.spec.shards.iter().any(|shard| shard.phase != Phase::Unowned))
    };
    poll_until(async || is_owned("west").await).await;
    assert!(!is_owned("east").await, "it is paused");
}
