//! A crash at every write, to the API server and to MySQL, ends in the same cluster.

use std::time::Duration;

use apiserver::faults::Fault;
use serde_json::json;

use super::kit::{change, check, clusters, commit, controllers, create, primary, settled, world};
use crate::controllers::crash::{Fate, at_every_write};

#[tokio::test(start_paused = true)]
async fn a_crash_at_every_write_ends_in_the_same_cluster_and_loses_nothing() {
    let writes = at_every_write(async |crash| {
        let (mut env, servers) = world().await;
        create(&env, "db", json!({"replicas": 2})).await;
        crash.watch(&env);
        let orders = crash.clone();
        servers.set_faults(move |query| match orders.fate(query) {
            Fate::Done => Fault::None,
            Fate::Unheard => Fault::DropAnswer,
            Fate::Unsent => Fault::Drop,
        });
        crash
            .survived(&mut env, controllers, async |env| {
                settled(env, "db").await;
                commit(env, &servers).await;
                change(env, json!({"primary": "db-1"})).await;
                env.until_object(&clusters(env), "db", |one| primary(one) == "db-1").await;
                settled(env, "db").await;
                commit(env, &servers).await;
            })
            .await;
        env.pass(Duration::from_secs(60)).await;
        let cluster = settled(&env, "db").await;
        check(&servers, &cluster);
    })
    .await;
    println!("{writes} writes");
}
