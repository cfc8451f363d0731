//! A hundred clusters of one manager, or another number: `LEASEHOLD_MYSQL_CLUSTERS=1000 cargo test --workspace
//! --test it -- mysql::many --nocapture`.

use std::time::Duration;

use kube::api::ListParams;
use serde_json::json;

use super::kit::{clusters, controllers, create, is_settled, world};
use crate::controllers::quiet;

#[tokio::test(start_paused = true)]
async fn many_clusters_rest() {
    let many = std::env::var("LEASEHOLD_MYSQL_CLUSTERS").map_or(100, |many| many.parse().unwrap());
    let (mut env, servers) = world().await;
    for number in 0..many {
        create(&env, &format!("db{number}"), json!({"replicas": 1})).await;
    }
    env.run(controllers());
    env.pass(Duration::from_secs(120)).await;
    let all = clusters(&env).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.iter().filter(|cluster| is_settled(cluster)).count(), many);
    assert_eq!(servers.wrong(), [""; 0]);
    let founding = servers.sessions();
    quiet(&env, Duration::from_secs(120)).await;
    let resting = servers.sessions() - founding;
    println!(
        "{many} clusters: {founding} connections to found them, {resting} in 2 minutes of rest"
    );
    // A look every minute and up to a quarter more.
    assert!((many * 3 / 2..=many * 5 / 2).contains(&resting), "one look a minute: {resting}");
}
