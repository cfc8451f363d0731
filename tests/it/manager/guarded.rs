//! Metrics and debug views over TLS, for those whom the home cluster allows.

use std::net::SocketAddr;

use apiserver::Server;
use http_body_util::BodyExt;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client};
use leasehold::config::{
    AdminServer, AdminSettings, AdminTls, Authorization, ClusterSources, Config,
};
use leasehold::{Departure, Manager};
use tokio_util::sync::CancellationToken;

use super::{NAMESPACE, copy, until};

/// A ServiceAccount that may read `/metrics`, and one that may not.
const ACCOUNTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: leasehold-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: leasehold-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-reader}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: leasehold-system}]
";

/// Who asks: with a token, and without trust in a certificate.
fn visitor(address: SocketAddr, token: Option<String>) -> Client {
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info.token = token.map(Into::into);
    Client::try_from(config).unwrap()
}

/// The status and the text of an answer.
async fn get(client: &Client, path: &str) -> Option<(u16, String)> {
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    let answer = client.send(request).await.ok()?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

async fn token_of(home: &Server, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(home.client(), NAMESPACE);
    let request = TokenRequest::default();
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
    answer.unwrap().status.unwrap().token.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_for_those_whom_the_home_cluster_allows() {
    let dir = tempfile::tempdir().unwrap();
    let home = Server::builder().name("home").bind("127.0.0.1:0").rbac(true).start().await.unwrap();
    let home_config = super::home_at(dir.path(), &home).await;
    ::install::manifest(&home.client(), ACCOUNTS).await.unwrap();

    // A port that was free a moment ago.
    let bind = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = AdminSettings { bind, probes: None, tls: Some(AdminTls::SelfSigned) };
    let mut config = Config::new(home_config, "only", ClusterSources::default());
    config.admin = Some(AdminServer { settings, authorization: Authorization::Home });
    let stop = CancellationToken::new();
    let run = tokio::spawn(Manager::new(config).controller(copy()).run(stop.clone()));

    let prometheus = visitor(bind, Some(token_of(&home, "prometheus").await));
    until("it is ready", async || {
        get(&prometheus, "/readyz").await.is_some_and(|(status, _)| status == 200)
    })
    .await;
    let (status, text) = get(&prometheus, "/metrics").await.unwrap();
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("leasehold_"), "{text}");
    let stranger = visitor(bind, Some(token_of(&home, "stranger").await));
    let liar = visitor(bind, Some("e30.e30.AAAA".to_owned()));
    let nobody = visitor(bind, None);
    for (who, path, expect) in [
        (&prometheus, "/debug/shards", 403),
        (&prometheus, "/", 403),
        (&stranger, "/metrics", 403),
        (&liar, "/metrics", 401),
        (&nobody, "/metrics", 401),
        (&nobody, "/debug/clusters", 401),
        (&nobody, "/readyz", 200),
    ] {
        let (status, text) = get(who, path).await.unwrap();
        assert_eq!(status, expect, "{path}: {text}");
    }

    stop.cancel();
    assert_eq!(run.await.unwrap().unwrap(), Departure::HandedOver);
}
