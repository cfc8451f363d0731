//! Reviews of tokens, users and rights, where everybody may do everything.

use http::Method;
use leasehold_apiserver::Server;
use serde_json::{Value, json};

use crate::world::World;

const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const AUDIENCE: &str = "https://kubernetes.default.svc";

async fn account(world: &World, name: &str) -> Value {
    world.post(ACCOUNTS, json!({"metadata": {"name": name}})).await.expect(201)
}

async fn token(world: &World, name: &str, spec: Value) -> Value {
    world.post(&format!("{ACCOUNTS}/{name}/token"), json!({"spec": spec})).await.expect(201)
}

async fn reviewed(world: &World, spec: Value) -> Value {
    let review = json!({"spec": spec});
    let answer = world.post(&format!("{AUTHENTICATION}/tokenreviews"), review).await.expect(201);
    answer["status"].clone()
}

#[tokio::test]
async fn a_token_is_issued_and_reviewed() {
    let world = World::with(Server::builder().token("secret")).await;
    let account = account(&world, "b").await;
    let uid = &account["metadata"]["uid"];
    let issued = token(&world, "b", json!({})).await;
    assert_eq!(issued["kind"], "TokenRequest");
    assert_eq!((&issued["metadata"]["name"], &issued["metadata"]["uid"]), (&json!("b"), uid));
    assert_eq!(
        issued["spec"],
        json!({"audiences": [AUDIENCE], "boundObjectRef": null, "expirationSeconds": 3600})
    );
    let owned = &issued["metadata"]["managedFields"][0];
    assert_eq!(owned["fieldsV1"], json!({"f:spec": {"f:expirationSeconds": {}}}));
    assert_eq!(owned["subresource"], "token");
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let (created, expires) = (
        time(&issued["metadata"]["creationTimestamp"]),
        time(&issued["status"]["expirationTimestamp"]),
    );
    assert_eq!(expires.as_second() - created.as_second(), 3600);

    let text = issued["status"]["token"].as_str().unwrap();
    let status = reviewed(&world, json!({"token": text})).await;
    assert_eq!(
        (&status["authenticated"], &status["audiences"]),
        (&json!(true), &json!([AUDIENCE]))
    );
    let user = &status["user"];
    assert_eq!((&user["username"], &user["uid"]), (&json!("system:serviceaccount:default:b"), uid));
    let groups =
        ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(user["groups"], json!(groups));
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    assert!(id.starts_with("JTI="), "{id}");

    let admin = reviewed(&world, json!({"token": "secret"})).await;
    let groups = ["system:masters", "system:authenticated"];
    assert_eq!(admin["user"], json!({"username": "system:admin", "groups": groups}));
}

#[tokio::test]
async fn other_tokens_are_not_authenticated() {
    let world = World::with(Server::builder().token("secret")).await;
    account(&world, "b").await;
    let issued =
        token(&world, "b", json!({"audiences": ["x", "y"], "expirationSeconds": 600})).await;
    let text = issued["status"]["token"].as_str().unwrap();
    let shared = reviewed(&world, json!({"token": text, "audiences": ["y", "z"]})).await;
    assert_eq!((&shared["authenticated"], &shared["audiences"]), (&json!(true), &json!(["y"])));
    let wrong =
        "[invalid bearer token, token audiences [\"x\" \"y\"] is invalid for the target audiences";
    let cases = [
        (json!({"token": "nonsense"}), "invalid bearer token".to_owned()),
        (json!({"token": "secret", "audiences": ["x"]}), "invalid bearer token".to_owned()),
        (json!({"token": text}), format!("{wrong} [\"{AUDIENCE}\"]]")),
        (
            json!({"token": format!("{text}A"), "audiences": ["x"]}),
            "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]".to_owned(),
        ),
    ];
    for (spec, error) in cases {
        assert_eq!(reviewed(&world, spec).await, json!({"user": {}, "error": error}));
    }
    let empty = world.post(&format!("{AUTHENTICATION}/tokenreviews"), json!({"spec": {}})).await;
    assert_eq!(empty.status().2, "token is required for TokenReview in authentication");

    world.delete(&format!("{ACCOUNTS}/b"), json!({})).await.expect(200);
    let gone = reviewed(&world, json!({"token": text, "audiences": ["x"]})).await;
    assert_eq!(gone["error"], "[invalid bearer token, serviceaccounts \"b\" not found]");
    account(&world, "b").await;
    let other = reviewed(&world, json!({"token": text, "audiences": ["x"]})).await;
    let error = other["error"].as_str().unwrap();
    assert!(error.contains("service account UID") && error.contains("does not match claim"));
}

#[tokio::test]
async fn a_token_expires() {
    let now = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(1_000_000));
    let clock = now.clone();
    let clock = std::sync::Arc::new(move || {
        jiff::Timestamp::from_second(clock.load(std::sync::atomic::Ordering::SeqCst)).unwrap()
    });
    let world = World::with(Server::builder().clock(clock)).await;
    account(&world, "b").await;
    let issued = token(&world, "b", json!({})).await;
    let spec = json!({"token": issued["status"]["token"]});
    now.fetch_add(3660, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(reviewed(&world, spec.clone()).await["authenticated"], true);
    now.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let expired = reviewed(&world, spec).await;
    assert_eq!(expired["error"], "[invalid bearer token, service account token has expired]");
}

#[tokio::test]
async fn a_token_is_bound_to_an_object() {
    let world = World::new().await;
    account(&world, "b").await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, account: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "serviceAccountName": account, "nodeName": "n",
                "containers": [{"name": "c", "image": "i"}],
            },
        })
    };
    world.post(pods, pod("p", "b")).await.expect(201);
    world.post(pods, pod("other", "c")).await.expect(201);
    let bound = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name});
    let issued = token(&world, "b", json!({"boundObjectRef": bound("p")})).await;
    let spec = json!({"token": issued["status"]["token"]});
    let extra = reviewed(&world, spec.clone()).await["user"]["extra"].clone();
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n"]));
    world.delete(&format!("{pods}/p"), json!({"gracePeriodSeconds": 0})).await.expect(200);
    let gone = reviewed(&world, spec).await;
    assert_eq!(gone["error"], "[invalid bearer token, service account token has been invalidated]");

    let ask = async |reference: Value| {
        let request = json!({"spec": {"boundObjectRef": reference}});
        world.post(&format!("{ACCOUNTS}/b/token"), request).await.status()
    };
    let (code, _, message) = ask(bound("other")).await;
    let differs = "cannot bind token for serviceaccount \"b\" to pod running with different serviceaccount name.";
    assert_eq!((code, message.as_str()), (400, differs));
    assert_eq!(ask(bound("p")).await.2, "pods \"p\" not found");
    let thing = json!({"apiVersion": "v1", "kind": "Thing", "name": "x"});
    assert_eq!(ask(thing).await.2, "cannot bind token to object of type /v1, Kind=Thing");
    world.post(pods, pod("p", "b")).await.expect(201);
    let mut reference = bound("p");
    reference["uid"] = json!("u");
    let (code, _, message) = ask(reference).await;
    assert_eq!(code, 409);
    assert!(message.starts_with("Operation cannot be fulfilled on Pod \"p\": the UID in"));
}

#[tokio::test]
async fn token_requests_that_make_no_sense_are_refused() {
    let world = World::new().await;
    account(&world, "b").await;
    let path = format!("{ACCOUNTS}/b/token");
    let cases = [
        (
            &path,
            json!({"spec": {"expirationSeconds": 599}}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        ),
        (
            &path,
            json!({"metadata": {"name": "c"}}),
            422,
            "TokenRequest.authentication.k8s.io \"b\" is invalid: metadata.name: Invalid value: \"c\": must match the service account name if specified",
        ),
        (
            &path,
            json!({"metadata": {"namespace": "c"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            &path,
            json!({"kind": "Pod", "apiVersion": "v1"}),
            400,
            "Pod in version \"v1\" cannot be handled as a TokenRequest: converting (v1.Pod) to (authentication.TokenRequest): unknown conversion",
        ),
        (
            &format!("{ACCOUNTS}/nobody/token"),
            json!({}),
            404,
            "serviceaccounts \"nobody\" not found",
        ),
        (
            &"/api/v1/namespaces/none/serviceaccounts/b/token".to_owned(),
            json!({}),
            404,
            "namespaces \"none\" not found",
        ),
    ];
    for (path, body, code, message) in cases {
        let (found, _, text) = world.post(path, body).await.status();
        assert_eq!((found, text.as_str()), (code, message));
    }
    assert_eq!(world.get(&path).await.status().0, 405);
    assert_eq!(world.post(&format!("{ACCOUNTS}/b/status"), json!({})).await.status().0, 404);
}

#[tokio::test]
async fn reviews_can_only_be_created() {
    let world = World::new().await;
    let tokens = format!("{AUTHENTICATION}/tokenreviews");
    let local = format!("{AUTHORIZATION}/localsubjectaccessreviews");
    let cases = [
        (Method::GET, tokens.clone(), 405),
        (Method::DELETE, tokens.clone(), 405),
        (Method::GET, format!("{tokens}/x"), 404),
        (Method::POST, format!("{AUTHENTICATION}/namespaces/default/tokenreviews"), 404),
        (Method::POST, local.clone(), 404),
        (Method::GET, local, 404),
    ];
    for (method, path, code) in cases {
        let request = http::Request::builder().method(method).uri(&path);
        let answer = world.send(request.body(http_body_util::Full::default()).unwrap()).await;
        assert_eq!(answer.status().0, code, "{path}");
    }
    let strict = format!("{tokens}?fieldValidation=Strict");
    let (code, _, message) =
        world.post(&strict, json!({"spec": {"token": "a", "y": 1}})).await.status();
    assert_eq!(code, 400);
    assert!(message.ends_with("strict decoding error: unknown field \"spec.y\""), "{message}");
}

#[tokio::test]
async fn everybody_may_do_everything() {
    let world = World::new().await;
    let who = async |user: &str| {
        let path = format!("{AUTHENTICATION}/selfsubjectreviews");
        let answer = world.acting(user, Method::POST, &path, json!({})).await.expect(201);
        answer["status"]["userInfo"].clone()
    };
    assert_eq!(who("jane").await, json!({"username": "jane", "groups": ["system:authenticated"]}));
    let own =
        world.post(&format!("{AUTHENTICATION}/selfsubjectreviews"), json!({})).await.expect(201);
    assert_eq!(own["status"]["userInfo"]["username"], "system:admin");

    let path = format!("{AUTHORIZATION}/subjectaccessreviews");
    let spec = json!({"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}});
    let review = world.post(&path, json!({"spec": spec})).await.expect(201);
    assert_eq!((&review["spec"], &review["status"]), (&spec, &json!({"allowed": true})));
    let refused = world.post(&path, json!({"spec": {}})).await;
    let (code, reason, message) = refused.status();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(
        message.starts_with(".authorization.k8s.io \"\" is invalid: [spec: Invalid value: null: ")
    );

    let path = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
    let refused = world.post(&path, json!({"spec": {}})).await.status();
    assert_eq!((refused.0, refused.2.as_str()), (400, "no namespace on request"));
    let rules = json!({"spec": {"namespace": "default"}});
    let rules = world.acting("jane", Method::POST, &path, rules).await.expect(201);
    let expected = json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    });
    assert_eq!(rules["status"], expected);
}

#[tokio::test]
async fn discovery_lists_what_can_be_asked() {
    let world = World::new().await;
    let listed = world.get(AUTHORIZATION).await.expect(200);
    let local = &listed["resources"][0];
    assert_eq!(
        *local,
        json!({
            "name": "localsubjectaccessreviews", "singularName": "localsubjectaccessreview",
            "namespaced": true, "kind": "LocalSubjectAccessReview", "verbs": ["create"],
        })
    );
    let core = world.get("/api/v1").await.expect(200);
    let find = |name: &str| {
        let all = core["resources"].as_array().unwrap();
        all.iter().find(|r| r["name"] == name).unwrap().clone()
    };
    assert_eq!(
        find("serviceaccounts/token"),
        json!({
            "name": "serviceaccounts/token", "singularName": "", "namespaced": true,
            "group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest",
            "verbs": ["create"],
        })
    );
    assert_eq!(find("pods/eviction")["group"], "policy");
    let document = world.get("/openapi/v3/apis/authentication.k8s.io/v1").await.expect(200);
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(
        paths,
        [
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            "/apis/authentication.k8s.io/v1/tokenreviews"
        ]
    );
}
