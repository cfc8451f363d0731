//! Users and their rights, over the network and by impersonation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use http::Method;
use http_body_util::BodyExt;
use kube::Client;
use leasehold_apiserver::{Builder, Server};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::wire::client_of;
use crate::world::{CONFIGMAPS, World, configmap};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ROBOT: &str = "system:serviceaccount:default:robot";

fn server() -> Builder {
    Server::builder().token("secret").name("east").rbac(true)
}

/// A token of the ServiceAccount `robot`.
async fn robot(world: &World) -> String {
    world.post(ACCOUNTS, json!({"metadata": {"name": "robot"}})).await.expect(201);
    let issued = world.post(&format!("{ACCOUNTS}/robot/token"), json!({})).await.expect(201);
    issued["status"]["token"].as_str().unwrap().to_owned()
}

/// A client with another token than the administrator's.
async fn holder(world: &World, token: &str) -> Client {
    client_of(&world.server.kubeconfig().replace("secret", token), "east").await
}

/// Code and message of an answer over the network.
async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, Value) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(kube::client::Body::from(Vec::new())).unwrap();
    let (parts, body) = client.send(request).await.unwrap().into_parts();
    let raw = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), serde_json::from_slice(&raw).unwrap_or_default())
}

/// Lets the robot read ConfigMaps of the default namespace.
async fn grant(world: &World) {
    let rules = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]);
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    world.post(&format!("{RBAC}/namespaces/default/roles"), role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "robots"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    });
    world.post(&format!("{RBAC}/namespaces/default/rolebindings"), binding).await.expect(201);
}

#[tokio::test]
async fn a_token_may_do_what_its_roles_say() {
    let world = World::with(server()).await;
    let client = holder(&world, &robot(&world).await).await;
    let (code, refused) = ask(&client, Method::GET, CONFIGMAPS, &[]).await;
    assert_eq!(code, 403);
    let message = format!(
        "configmaps is forbidden: User \"{ROBOT}\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Forbidden", "details": {"kind": "configmaps"}, "code": 403,
    });
    assert_eq!(refused, expected);
    let (_, refused) = ask(&client, Method::GET, "/apis/schedule.rs/v1/tdsets", &[]).await;
    let message = format!(
        "tdsets.schedule.rs is forbidden: User \"{ROBOT}\" cannot list resource \"tdsets\" in API group \"schedule.rs\" at the cluster scope"
    );
    assert_eq!(refused["message"], message);
    let (_, refused) = ask(&client, Method::GET, "/metrics", &[]).await;
    assert_eq!(
        refused["message"],
        format!("forbidden: User \"{ROBOT}\" cannot get path \"/metrics\"")
    );
    assert_eq!(ask(&client, Method::GET, "/apis", &[]).await.0, 200, "discovery is for everybody");

    grant(&world).await;
    assert_eq!(ask(&client, Method::GET, CONFIGMAPS, &[]).await.0, 200);
    assert_eq!(ask(&client, Method::DELETE, CONFIGMAPS, &[]).await.0, 403);
    assert_eq!(ask(&client, Method::GET, "/api/v1/configmaps", &[]).await.0, 403);
    let binding = format!("{RBAC}/namespaces/default/rolebindings/robots");
    world.delete(&binding, json!({})).await.expect(200);
    assert_eq!(ask(&client, Method::GET, CONFIGMAPS, &[]).await.0, 403, "rights end at once");

    let admin = holder(&world, "secret").await;
    assert_eq!(ask(&admin, Method::GET, "/api/v1/configmaps", &[]).await.0, 200);
}

#[tokio::test]
async fn tokens_that_are_not_valid_are_unauthorized() {
    let world = World::with(server()).await;
    let token = robot(&world).await;
    let client = holder(&world, &token).await;
    assert_eq!(ask(&client, Method::GET, "/api", &[]).await.0, 200);
    let changed = holder(&world, &format!("{token}AA")).await;
    let (code, status) = ask(&changed, Method::GET, "/api", &[]).await;
    assert_eq!((code, &status["message"]), (401, &json!("Unauthorized")));
    world.delete(&format!("{ACCOUNTS}/robot"), json!({})).await.expect(200);
    assert_eq!(ask(&client, Method::GET, "/api", &[]).await.0, 401, "its account is gone");
    assert_eq!(ask(&client, Method::GET, "/livez", &[]).await.0, 200, "probes need no token");
    // Whom nobody knows must not act as somebody.
    let act = [("impersonate-user", "jane")];
    assert_eq!(ask(&client, Method::GET, "/livez", &act).await.0, 403);
}

#[tokio::test]
async fn without_roles_every_valid_token_may_do_everything() {
    let world = World::with(Server::builder().token("secret").name("east")).await;
    let client = holder(&world, &robot(&world).await).await;
    assert_eq!(ask(&client, Method::GET, "/api/v1/secrets", &[]).await.0, 200);
    let roles = world.get(&format!("{RBAC}/clusterroles")).await.expect(200);
    assert_eq!(roles["items"], json!([]), "nobody needs any");
}

#[tokio::test]
async fn the_administrator_acts_as_others_and_others_need_the_right() {
    let world = World::with(server()).await;
    let admin = holder(&world, "secret").await;
    let client = holder(&world, &robot(&world).await).await;
    let nodes = "/api/v1/nodes";
    let (code, status) = ask(&admin, Method::GET, nodes, &[("impersonate-user", "jane")]).await;
    let refused = "nodes is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope";
    assert_eq!((code, status["message"].as_str()), (403, Some(refused)));
    let masters = [("impersonate-user", "jane"), ("impersonate-group", "system:masters")];
    assert_eq!(ask(&admin, Method::GET, nodes, &masters).await.0, 200);
    let (code, status) = ask(&client, Method::GET, nodes, &masters).await;
    let refused = format!(
        "users \"jane\" is forbidden: User \"{ROBOT}\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
    assert_eq!((code, status["message"].as_str()), (403, Some(refused.as_str())));
    let group = [("impersonate-group", "g")];
    assert_eq!(ask(&admin, Method::GET, nodes, &group).await.0, 400);
}

#[tokio::test]
async fn reviews_answer_by_the_roles() {
    let world = World::with(server()).await;
    robot(&world).await;
    grant(&world).await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let asked = async |user: &str, attributes: Value| {
        let review = json!({"spec": {"user": user, "resourceAttributes": attributes}});
        world.post(path, review).await.expect(201)["status"].clone()
    };
    let get = json!({"verb": "get", "resource": "configmaps", "namespace": "default", "name": "a"});
    let reason = "RBAC: allowed by RoleBinding \"robots/default\" of Role \"reader\" to ServiceAccount \"robot/default\"";
    assert_eq!(asked(ROBOT, get.clone()).await, json!({"allowed": true, "reason": reason}));
    assert_eq!(asked("jane", get.clone()).await, json!({"allowed": false}));
    let elsewhere = json!({"verb": "get", "resource": "configmaps", "namespace": "kube-system"});
    assert_eq!(asked(ROBOT, elsewhere).await, json!({"allowed": false}));

    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({"spec": {"resourceAttributes": get}});
    let answer = world.acting(ROBOT, Method::POST, own, review.clone()).await.expect(201);
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(world.post(own, review).await.expect(201)["status"], json!({"allowed": true}));
    let rules = json!({"spec": {"namespace": "default"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = world.acting(ROBOT, Method::POST, path, rules).await.expect(201);
    let granted = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]});
    assert!(rules["status"]["resourceRules"].as_array().unwrap().contains(&granted), "{rules}");
    let local = "/apis/authorization.k8s.io/v1/namespaces/none/localsubjectaccessreviews";
    let review = json!({"spec": {"user": "jane", "nonResourceAttributes": {"path": "/"}}});
    assert_eq!(world.acting(ROBOT, Method::POST, local, review.clone()).await.status().0, 403);
    assert_eq!(world.post(local, review).await.status().0, 422);
}

#[tokio::test]
async fn names_and_subresources_are_part_of_a_right() {
    let world = World::with(server()).await;
    world.post(CONFIGMAPS, configmap("mine", "1")).await.expect(201);
    world.post(CONFIGMAPS, configmap("other", "1")).await.expect(201);
    let rules = json!([
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]},
        {"verbs": ["get"], "apiGroups": ["*"], "resources": ["*/scale"]},
    ]);
    let role = json!({"metadata": {"name": "narrow"}, "rules": rules});
    world.post(&format!("{RBAC}/clusterroles"), role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "narrow"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "narrow"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    world.post(&format!("{RBAC}/clusterrolebindings"), binding).await.expect(201);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let cases = [
        (format!("{CONFIGMAPS}/mine"), 200),
        (format!("{CONFIGMAPS}/other"), 403),
        (CONFIGMAPS.to_owned(), 403),
        (format!("{deployments}/web/scale"), 404),
        (format!("{deployments}/web"), 403),
    ];
    for (path, code) in cases {
        let answer = world.acting("jane", Method::GET, &path, Value::Null).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
    }
}

/// Otherwise HTTP/2 resets the stream, and some clients do not see the answer.
#[tokio::test]
async fn a_refused_request_is_read_to_its_end() {
    let world = World::with(server()).await;
    let read = Arc::new(AtomicUsize::new(0));
    let count = read.clone();
    let parts = futures::stream::iter(0..3).map(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from_static(b"x")))
    });
    let request = http::Request::post(CONFIGMAPS).header("impersonate-user", "jane");
    let request = request.body(http_body_util::StreamBody::new(parts)).unwrap();
    let response = world.server.service().oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), read.load(Ordering::SeqCst)), (403, 3));
}
