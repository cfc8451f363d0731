//! `leasehold clusters`, with a cluster whose server checks rights.

use std::process::Output;

use apiserver::Server;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Fleet, NAMESPACE, stdout};

/// A server with rights and a namespace.
async fn serve(name: &str) -> Server {
    let server = Server::builder().name(name).rbac(true).start().await.expect("it starts");
    let namespace = json!({"metadata": {"name": "shop"}});
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    let namespaces = Api::<Namespace>::all(server.client());
    namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    server
}

/// A workload cluster, as its administrator reaches it.
struct Target<'a> {
    server: &'a Server,
    /// Its URL as replicas reach it.
    url: String,
    context: &'a str,
    kubeconfig: String,
}

impl<'a> Target<'a> {
    fn of(fleet: &Fleet, context: &'a str, server: &'a Server) -> Self {
        let kubeconfig = fleet.dir.path().join(context);
        std::fs::write(&kubeconfig, server.kubeconfig()).expect("written");
        let kubeconfig = kubeconfig.to_str().expect("UTF-8").to_owned();
        let url = format!("https://localhost.example:{}", server.address().port());
        Self { server, url, context, kubeconfig }
    }

    fn at(&self) -> [&str; 4] {
        ["--context", self.context, "--kubeconfig", &self.kubeconfig]
    }

    /// The arguments of `add` for a token that ends, beside more.
    fn add<'b>(&'b self, more: &[&'b str]) -> Vec<&'b str> {
        [&["add"], &self.at()[..], &["--expires", "1h", "--server", &self.url], more].concat()
    }

    fn users(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.server.client(), NAMESPACE)
    }

    /// The name under which the cluster was added, as the fleet's user there says.
    async fn says(&self) -> Option<String> {
        let user = self.users().get("leasehold-fleet").await.expect("a user");
        user.metadata.annotations?.remove("leasehold.dev/cluster")
    }

    /// Takes the name away, as if an earlier release had made the user.
    async fn forget(&self) {
        let patch = json!({"metadata": {"annotations": {"leasehold.dev/cluster": null}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.users().patch("leasehold-fleet", &params, &patch).await.expect("patched");
    }

    /// How many objects were written there.
    fn writes(&self) -> usize {
        self.server.history().len()
    }
}

async fn clusters(fleet: &Fleet, args: &[&str]) -> Output {
    fleet.leasehold(&[&["clusters"], args, &["--home-kubeconfig"]].concat()).await
}

/// What the command says when it fails.
async fn refused(fleet: &Fleet, args: &[&str]) -> String {
    let output = clusters(fleet, args).await;
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A ServiceAccount of the target, as its server sees the tokens in the Secret of the home cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_added_rotated_listed_and_removed() {
    let fleet = Fleet::start(1, 0).await;
    let server = serve("east").await;
    let target = Target::of(&fleet, "east", &server);
    let clusters = async |args: &[&str]| clusters(&fleet, args).await;
    let at = target.at();

    // No replica reaches a server by a loopback address.
    let local = refused(&fleet, &[&["add"], &at[..]].concat()).await;
    assert!(local.contains("give its URL with --server"), "{local}");
    let history = target.server.history();
    assert!(history.iter().all(|write| write.resource != "serviceaccounts"));

    let rights = target.add(&["--controllers", "tdset", "--namespaces", "shop"]);
    let added = clusters(&rights).await;
    // Its members have no Secrets in their configuration.
    let warned = String::from_utf8_lossy(&added.stderr).into_owned() + &stdout(&added);
    assert!(warned.contains("no replica has taken it up; fix: replicas need clusters.secrets"));
    assert!(warned.contains("east: added, as Secret leasehold-system/cluster-east"), "{warned}");
    let first = secret(&fleet, "east").await.expect("a Secret");
    assert_eq!(first["clusters"][0]["cluster"]["server"], target.url.as_str());
    let list = stdout(&clusters(&["list"]).await);
    assert!(list.contains("east") && list.contains(&target.url), "{list}");

    // The token is that of the user, whose rights end with the namespace.
    for (namespace, expect) in [(Some("shop"), true), (Some("default"), false), (None, false)] {
        let allowed = may_list_tdsets(target.server, &first, namespace).await;
        assert_eq!(allowed, expect, "{namespace:?}");
    }

    // Rights are those of the last add.
    let fewer = target.add(&["--controllers", "blogpost", "--namespaces", "shop"]);
    stdout(&clusters(&fewer).await);
    assert!(!may_list_tdsets(target.server, &first, Some("shop")).await);
    stdout(&clusters(&rights).await);
    assert!(may_list_tdsets(target.server, &first, Some("shop")).await);

    let rotated = stdout(&clusters(&[&["rotate"], &at[..], &["--expires", "1h"]].concat()).await);
    assert!(rotated.contains("east: rotated"), "{rotated}");
    let second = secret(&fleet, "east").await.expect("a Secret");
    assert_ne!(first["users"], second["users"]);
    assert_eq!(first["clusters"], second["clusters"], "the server stays");

    let unknown = refused(&fleet, &["remove", "west"]).await;
    assert!(unknown.contains("no cluster west was added; there are: east"), "{unknown}");
    // It may be a cluster of another source.
    let prefixed = refused(&fleet, &["remove", "prod.east"]).await;
    assert!(prefixed.contains("no cluster prod.east was added; there are: east"), "{prefixed}");
    assert!(secret(&fleet, "east").await.is_some());
    let other = Fleet::start(1, 0).await;
    let foreign = refused(&other, &rights).await;
    assert!(foreign.contains("leasehold-system/leasehold-fleet there is of another fleet"));
    let there = [&["remove", "east"], &at[..]].concat();
    let removed = stdout(&clusters(&there).await);
    assert!(removed.contains("east: removed from the fleet"), "{removed}");
    assert!(removed.contains("east: the fleet's user there is gone"), "{removed}");
    let again = stdout(&clusters(&there).await);
    assert!(again.contains("east: the fleet's user there is gone"), "{again}");
    assert!(secret(&fleet, "east").await.is_none());
    assert!(!may_list_tdsets(target.server, &second, Some("shop")).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_and_its_name_belong_together() {
    let fleet = Fleet::start(0, 0).await;
    let (east, west) = (serve("east").await, serve("west").await);
    let [east, west] = [("east", &east), ("west", &west)].map(|(n, s)| Target::of(&fleet, n, s));
    let rights = ["--controllers", "tdset", "--namespaces", "shop"];
    for target in [&east, &west] {
        let added = stdout(&clusters(&fleet, &target.add(&rights)).await);
        assert!(added.contains("not in use: no replica lives"), "{added}");
    }
    // A user that an earlier release made does not say the name: then its tokens do.
    for is_said in [true, false] {
        if !is_said {
            east.forget().await;
            west.forget().await;
        }
        let before = (east.writes(), west.writes());
        // A colleague's kubeconfig may call the cluster otherwise, and a word may be wrong.
        let other = refused(&fleet, &east.add(&["--name", "other"])).await;
        assert!(
            other
                .contains("the cluster of context east is east in this fleet; fix: give that name"),
            "{other}"
        );
        for line in [
            [&["remove", "east"], &west.at()[..]].concat(),
            [&["rotate", "--name", "east"], &west.at()[..]].concat(),
            west.add(&["--name", "east"]),
        ] {
            let wrong = refused(&fleet, &line).await;
            assert!(wrong.contains("the cluster of context west is west in this fleet"), "{wrong}");
        }
        assert_eq!((east.writes(), west.writes()), before);
        for (target, name) in [(&east, "east"), (&west, "west")] {
            let kubeconfig = secret(&fleet, name).await.expect("a Secret");
            assert!(may_list_tdsets(target.server, &kubeconfig, Some("shop")).await, "{name}");
        }
    }
    // From now on it says the name.
    stdout(&clusters(&fleet, &[&["rotate"], &east.at()[..], &["--expires", "1h"]].concat()).await);
    assert_eq!(east.says().await.as_deref(), Some("east"));

    let secrets = Api::<Secret>::namespaced(fleet.server.client(), NAMESPACE);
    secrets.delete("cluster-west", &DeleteParams::default()).await.expect("deleted");
    let unknown = refused(&fleet, &[&["rotate", "--name", "east"], &west.at()[..]].concat()).await;
    assert!(unknown.contains("so nothing shows that this is east; fix: "), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_home_cluster_leaves_its_fleet_and_the_others_stay() {
    let fleet = Fleet::start(0, 0).await;
    let home = Target::of(&fleet, "home", &fleet.server);
    let server = serve("east").await;
    let east = Target::of(&fleet, "east", &server);
    for target in [&home, &east] {
        stdout(&clusters(&fleet, &target.add(&[])).await);
    }
    let removed = [&["remove", "home"], &home.at()[..]].concat();
    let removed = stdout(&clusters(&fleet, &removed).await);
    assert!(removed.contains("home: the fleet's user there is gone"), "{removed}");
    assert!(secret(&fleet, "home").await.is_none());
    assert!(secret(&fleet, "east").await.is_some());
}

/// The kubeconfig in the Secret of a cluster.
async fn secret(fleet: &Fleet, cluster: &str) -> Option<Value> {
    let secrets = Api::<Secret>::namespaced(fleet.server.client(), NAMESPACE);
    let found = secrets.get_opt(&format!("cluster-{cluster}")).await.expect("an answer")?;
    let data = found.data.expect("data");
    Some(serde_json::from_slice(&data["kubeconfig"].0).expect("JSON"))
}

/// Whether the user of a kubeconfig may list TDSets in a namespace, or in all of them.
async fn may_list_tdsets(target: &Server, kubeconfig: &Value, namespace: Option<&str>) -> bool {
    let mut kubeconfig = kubeconfig.clone();
    kubeconfig["clusters"][0]["cluster"]["server"] = target.url().into();
    let kubeconfig = serde_json::from_value(kubeconfig).expect("a kubeconfig");
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let client = kube::Client::try_from(config.expect("a configuration")).expect("a client");
    let path = namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let path = format!("/apis/schedule.rs/v1{path}/tdsets");
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    client.request_text(request).await.is_ok()
}
