//! How many connections a cluster costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::Server;
use clusters::Access;
use clusters::connect::{Connector, Role};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::config::Kubeconfig;
use leasehold::clock::SystemClock;
use tokio::net::{TcpListener, TcpStream};

/// A client whose connections to a server are counted.
struct Way {
    access: Access,
    accepted: Arc<AtomicUsize>,
}

async fn way(server: &Server) -> Way {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let context = kubeconfig.current_context.clone().unwrap();
    for named in &mut kubeconfig.clusters {
        named.cluster.as_mut().unwrap().server = Some(format!("https://127.0.0.1:{port}"));
    }
    let accepted = Arc::new(AtomicUsize::new(0));
    let (address, count) = (server.address(), Arc::clone(&accepted));
    tokio::spawn(async move {
        while let Ok((mut inward, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut outward = TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inward, &mut outward).await;
            });
        }
    });
    Way {
        access: Access::Kubeconfig { kubeconfig: Arc::new(kubeconfig), context: context.into() },
        accepted,
    }
}

/// How many connections this many watches, and as many concurrent lists, need.
async fn connections(server: &Server, role: Role, watches: usize) -> usize {
    let Way { access, accepted } = way(server).await;
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
    accepted.load(Ordering::Relaxed)
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
