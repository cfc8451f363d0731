//! A hundred clusters of one manager.

use std::time::Duration;

use kube::api::ListParams;
use serde_json::json;

use super::kit::{clusters, controllers, create, is_settled, world};
use crate::controllers::quiet;

#[tokio::test(start_paused = true)]
async fn a_hundred_clusters_rest() {
    const MANY: usize = 1_000;
    let (mut env, servers) = world().await;
    for number in 0..MANY {
        create(&env, &format!("db{number}"), json!({"replicas": 1})).await;
    }
    env.run(controllers());
    env.pass(Duration::from_secs(120)).await;
    let all = clusters(&env).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.iter().filter(|cluster| is_settled(cluster)).count(), MANY);
    assert_eq!(servers.wrong(), [""; 0]);
    let founding = servers.sessions();
    quiet(&env, Duration::from_secs(120)).await;
    let resting = servers.sessions() - founding;
    println!(
        "{MANY} clusters: {founding} connections to found them, {resting} in 2 minutes of rest"
    );
    // A look every minute and up to a quarter more.
    assert!((MANY * 3 / 2..=MANY * 5 / 2).contains(&resting), "one look a minute: {resting}");
}
