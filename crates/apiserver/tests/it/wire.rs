//! The network: TLS, tokens, HTTP versions, compression, discovery, faults, shutdown.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use leasehold_apiserver::faults::{Fault, Hook};
use leasehold_apiserver::status::ApiError;
use leasehold_apiserver::{Server, merge_kubeconfigs};
use serde_json::json;

use crate::world::{CONFIGMAPS, World, configmap};

async fn client(server: &Server) -> Client {
    client_of(&server.kubeconfig(), server.name()).await
}

pub async fn client_of(kubeconfig: &str, context: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions { context: Some(context.into()), ..Default::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn lives(client: Client) {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let object: ConfigMap = serde_json::from_value(configmap("a", "1")).unwrap();
    let created = api.create(&PostParams::default(), &object).await.unwrap();
    let from = created.metadata.resource_version.clone().unwrap();
    let mut events = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
    let mut next = created.clone();
    next.data = Some(BTreeMap::from([("key".into(), "2".into())]));
    api.replace("a", &PostParams::default(), &next).await.unwrap();
    let stale = api.replace("a", &PostParams::default(), &next).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.code == 409));
    let WatchEvent::Modified(seen) = events.next().await.unwrap().unwrap() else {
        panic!("the update is seen")
    };
    assert_eq!(seen.data.unwrap()["key"], "2");
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"mine": "3"}});
    let applied = api.patch("a", &PatchParams::apply("me"), &Patch::Apply(patch)).await.unwrap();
    assert_eq!(applied.data.unwrap().len(), 2);
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn an_ordinary_client_works_over_tls() {
    let world = World::new().await;
    lives(client(&world.server).await).await;
}

#[tokio::test]
async fn an_ordinary_client_works_in_process() {
    let world = World::new().await;
    lives(world.server.client()).await;
}

#[tokio::test]
async fn only_the_right_token_gets_in() {
    let world = World::with(Server::builder().token("secret").name("east")).await;
    let wrong = world.server.kubeconfig().replace("secret", "guess");
    let api: Api<ConfigMap> = Api::default_namespaced(client_of(&wrong, "east").await);
    let refused = api.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(s) if s.code == 401 && s.reason == "Unauthorized"),
        "{refused:?}"
    );
    lives(client(&world.server).await).await;
}

#[tokio::test]
async fn one_kubeconfig_reaches_many_servers() {
    let east = World::with(Server::builder().name("east")).await;
    let west = World::with(Server::builder().name("west")).await;
    west.post(CONFIGMAPS, configmap("here", "1")).await.expect(201);
    let merged = merge_kubeconfigs(&[&east.server, &west.server]);
    for (context, expected) in [("east", 0), ("west", 1)] {
        let api: Api<ConfigMap> = Api::default_namespaced(client_of(&merged, context).await);
        assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), expected);
    }
}

#[tokio::test]
async fn large_lists_are_compressed_on_request() {
    let world = World::new().await;
    for at in 0..3 {
        let object = configmap(&format!("c{at}"), &"x".repeat(100_000));
        world.post(CONFIGMAPS, object).await.expect(201);
    }
    let ask = |encoding: &'static str| {
        http::Request::get(CONFIGMAPS)
            .header("accept-encoding", encoding)
            .body(http_body_util::Full::default())
            .unwrap()
    };
    let packed = world.send(ask("gzip")).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert!(packed.raw.len() < 10_000);
    let plain = world.send(ask("identity")).await;
    assert!(plain.headers.get("content-encoding").is_none());
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed.raw[..]), &mut unpacked)
        .unwrap();
    assert_eq!(unpacked, plain.raw);
    let over_tls: Api<ConfigMap> = Api::default_namespaced(client(&world.server).await);
    assert_eq!(over_tls.list(&ListParams::default()).await.unwrap().items.len(), 3);
}

#[tokio::test]
async fn a_body_has_a_limit() {
    let world = World::new().await;
    let huge = world.post(CONFIGMAPS, configmap("a", &"x".repeat(4 << 20))).await;
    assert_eq!(huge.status().1, "RequestEntityTooLarge");
}

#[tokio::test]
async fn discovery_has_both_forms() {
    let world = World::new().await;
    let groups = world.get("/apis").await.expect(200);
    assert_eq!(groups["kind"], "APIGroupList");
    let core = world.get("/api/v1").await.expect(200);
    let kinds: Vec<_> =
        core["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert!(
        kinds.contains(&"pods")
            && kinds.contains(&"pods/status")
            && kinds.contains(&"namespaces/finalize")
    );
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let all = world.get_as("/apis", accept).await;
    let etag = all.headers["etag"].clone();
    assert_eq!(all.json()["items"][0]["metadata"]["name"], "apps");
    let request = http::Request::get("/apis")
        .header("accept", accept)
        .header("if-none-match", etag)
        .body(http_body_util::Full::default())
        .unwrap();
    let unchanged = world.send(request).await;
    assert_eq!((unchanged.code, unchanged.raw.len()), (304, 0));
    assert_eq!(world.server.client().apiserver_version().await.unwrap().major, "1");
    for probe in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(world.get(probe).await.text(), "ok");
    }
}

#[tokio::test]
async fn openapi_says_that_fields_are_validated() {
    let world = World::new().await;
    let index = world.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = world.get(&url).await.expect(200);
    let patch =
        &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    let names: Vec<_> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"fieldValidation"));
}

#[tokio::test]
async fn faults_strike_where_the_hook_says() {
    let hook: Hook = Arc::new(|request| match (request.verb, request.name.as_str()) {
        ("get", "busy") => Fault::Error(
            ApiError::new(leasehold_apiserver::status::Reason::TooManyRequests, "slow down")
                .retry_after(2),
        ),
        ("get", "dropped") => Fault::Drop,
        ("create", _) if request.user_agent == "unlucky" => Fault::DropAnswer,
        ("list", _) => Fault::Expire,
        _ => Fault::None,
    });
    let world = World::with(Server::builder().faults(hook)).await;
    let busy = world.get(&format!("{CONFIGMAPS}/busy")).await;
    assert_eq!((busy.code, busy.headers["retry-after"].to_str().unwrap()), (429, "2"));
    let api: Api<ConfigMap> = Api::default_namespaced(client(&world.server).await);
    assert!(api.get("dropped").await.is_err());
    assert_eq!(world.get(CONFIGMAPS).await.status().1, "Expired");
    world.server.set_faults(None);
    world.get(CONFIGMAPS).await.expect(200);
    let lost: Hook =
        Arc::new(|request| if request.verb == "create" { Fault::DropAnswer } else { Fault::None });
    world.server.set_faults(Some(lost));
    let object: ConfigMap = serde_json::from_value(configmap("a", "1")).unwrap();
    assert!(api.create(&PostParams::default(), &object).await.is_err());
    assert!(api.get_opt("a").await.unwrap().is_some(), "the write still took effect");
}

#[tokio::test]
async fn shutdown_ends_watches_and_closes_the_port() {
    let world = World::new().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client(&world.server).await);
    let mut events = api.watch(&WatchParams::default(), "1").await.unwrap().boxed();
    let address = world.server.address();
    world.server.shutdown().await;
    let last = events.next().await;
    assert!(last.is_none_or(|event| event.is_err()), "no event after the end");
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
