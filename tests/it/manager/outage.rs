//! A Lease that cannot be renewed: the replica fences itself, joins again and goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::faults::Fault;

use super::*;

/// How often somebody begins to watch ConfigMaps, which is how a replica lists them too. This test watches nothing.
fn count_watches(server: &Server) -> Arc<AtomicUsize> {
    let watches = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&watches);
    server.set_faults(Some(Arc::new(move |request| {
        let is_watch = request.verb == "watch" && request.resource == "configmaps";
        counted.fetch_add(usize::from(is_watch), Ordering::Relaxed);
        Fault::None
    })));
    watches
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_gets_its_shards_back_lists_nothing_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let east = server("east").await;
    let sources = sources(dir.path(), &[&east]);
    let watches = count_watches(&east);
    let replica = Replica::start("only", &home, &sources);
    want(&east.client(), "one").await;
    until("the first value is copied", async || converged(&east.client(), "one").await).await;
    let home_client = home_server.client();
    let owner = async || fleet(&home_client).await.shards.first()?.owner.clone();
    let was = owner().await.unwrap();
    let before = watches.load(Ordering::Relaxed);
    assert!(before > 0);

    let lease = format!("leasehold-member-{was}");
    home_server.set_faults(Some(Arc::new(move |request| match request.verb {
        "update" if request.name == lease => Fault::Drop,
        _ => Fault::None,
    })));
    until("it has joined again", async || fleet(&home_client).await.members.len() == 2).await;
    home_server.set_faults(None);
    until("another incarnation has the shard", async || {
        owner().await.is_some_and(|owner| owner != was)
    })
    .await;
    want(&east.client(), "two").await;
    until("the second value is copied", async || converged(&east.client(), "two").await).await;
    assert_eq!(watches.load(Ordering::Relaxed), before);
    assert_eq!(replica.leave().await, Departure::HandedOver);
}
