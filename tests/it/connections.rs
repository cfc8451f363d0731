//! How many connections a cluster costs.

use std::sync::Arc;

use apiserver::Server;
use clusters::Access;
use clusters::connect::{Connector, Role};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::config::Kubeconfig;
use leasehold::clock::SystemClock;
use tests::proxy::Proxy;

/// How many connections this many watches, and as many concurrent lists, need.
async fn connections(server: &Server, role: Role, watches: usize) -> usize {
    let mut kubeconfig = serde_saphyr::from_str(&server.kubeconfig()).unwrap();
    let proxy = Proxy::of_kubeconfig(&mut kubeconfig).await.unwrap();
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
    let context = kubeconfig.current_context.clone().unwrap();
    let access = Access::own(Arc::new(kubeconfig), &context);
    let client =
        Connector::new(role, Arc::new(SystemClock)).client("a test", &access).await.unwrap();
    let api: Api<ConfigMap> = Api::all(client);
    // The first request alone, because a connection can be shared only once it is open.
    let mut open = vec![api.watch(&WatchParams::default(), "0").await.unwrap()];
    for _ in 1..watches {
        open.push(api.watch(&WatchParams::default(), "0").await.unwrap());
    }
    let lists = join_all((0..8).map(|_| async { api.list(&ListParams::default()).await }));
    lists.await.into_iter().for_each(|list| drop(list.unwrap()));
    drop(open);
    proxy.connections()
}

#[tokio::test]
async fn watches_of_a_workload_cluster_share_connections_up_to_their_stream_limit() {
    let server = Server::builder().start().await.unwrap();
    assert_eq!(connections(&server, Role::Workload, 20).await, 1);
    assert_eq!(connections(&server, Role::Workload, 70).await, 2);
    let apart = connections(&server, Role::Home, 20).await;
    assert!(apart > 20, "requests to home have connections of their own: {apart}");
    server.shutdown().await;
}
