//! What clusters cost in metrics: few series each, on the replica that holds their shards and nowhere
//! else.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The most series with one cluster's name, over all families.
const MOST: usize = 100;

/// The labels that the Prometheus operator gives each target. A series that has one of them loses it to the target.
const OF_TARGETS: [&str; 7] =
    ["namespace", "pod", "container", "service", "endpoint", "job", "instance"];

/// A replica that runs the controller `tdset`, and a visitor of its metrics.
struct Scraped {
    replica: Replica,
    admin: Client,
}

impl Scraped {
    fn start(
        identity: &str,
        home: &Home,
        clusters: &ClusterSources,
        with: impl FnOnce(&mut Config),
    ) -> Self {
        // A port that was free a moment ago.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut config = config(identity, home, clusters);
        config.admin = Some(address.into());
        config.controllers = Some([("tdset".parse().unwrap(), Default::default())].into());
        with(&mut config);
        let replica = Replica::run(Manager::new(config).builtin_controllers());
        let admin = kube::Config::new(format!("http://{address}").parse().unwrap());
        Self { replica, admin: Client::try_from(admin).unwrap() }
    }

    /// What it answers; nothing while it does not.
    async fn text(&self) -> String {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        self.admin.request_text(request).await.unwrap_or_default()
    }

    /// The series as text, without comments and values; none while it does not answer.
    async fn series(&self) -> BTreeSet<String> {
        let text = self.text().await;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
    }

    /// The names of all families.
    async fn names(&self) -> BTreeSet<String> {
        let names = self.text().await;
        let names =
            names.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        names.map(str::to_owned).collect()
    }

    /// Those with this value of whatever label.
    async fn of(&self, value: &str) -> BTreeSet<String> {
        let mut series = self.series().await;
        series.retain(|series| series.contains(&format!("=\"{value}\"")));
        series
    }
}

/// Workload clusters with the CRD of TDSets and some of them, one of which is refused again and again.
async fn clusters(names: &[&str]) -> Vec<Server> {
    let mut servers = Vec::new();
    for name in names {
        let server = server(name).await;
        install::crds(&server.client(), leasehold::crds::workload_crds()).await;
        install::namespace(&server.client(), "temp").await;
        let example = controllers::get("tdset").unwrap().example;
        let broken = example.replace("name: tdset-hello-world", "name: other").replace("8000", "0");
        for manifest in [example, &broken] {
            let _ = ::install::manifest(&server.client(), manifest).await;
        }
        servers.push(server);
    }
    servers
}

async fn deployed(server: &Server) -> bool {
    use k8s_openapi::api::apps::v1::Deployment;
    let api: Api<Deployment> = Api::namespaced(server.client(), "temp");
    !api.list(&Default::default()).await.unwrap().items.is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_costs_few_series_on_its_owner_and_none_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let servers = clusters(&["east", "west"]).await;
    let sources = sources(dir.path(), &servers.iter().collect::<Vec<_>>());
    let first = Scraped::start("first", &home, &sources, |_| {});
    for server in &servers {
        until("TDSets are reconciled", async || deployed(server).await).await;
    }
    for name in ["east", "west"] {
        let mut found = BTreeSet::new();
        until("the cluster is measured", async || {
            found = first.of(name).await;
            found.iter().any(|series| series.contains("leasehold_cluster_reconcile_seconds_count"))
        })
        .await;
        assert!(found.len() <= MOST, "{} series of {name}: {found:#?}", found.len());
    }
    documented(&first).await;

    let second = Scraped::start("second", &home, &sources, |_| {});
    let home_client = home_server.client();
    until("each owns a cluster's shard", async || {
        owners(&home_client).await == BTreeMap::from([("first".into(), 1), ("second".into(), 1)])
    })
    .await;
    for name in ["east", "west"] {
        until("one replica has series of the cluster, and the other none", async || {
            let counts = [first.of(name).await.len(), second.of(name).await.len()];
            counts.iter().filter(|count| **count > 0).count() == 1
        })
        .await;
    }
    for Scraped { replica, .. } in [first, second] {
        assert_eq!(replica.leave().await, Departure::HandedOver);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_are_watched_and_have_no_objects_cost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (_home_server, home) = home(dir.path()).await;
    let servers = clusters(&["east"]).await;
    let sources = sources(dir.path(), &servers.iter().collect::<Vec<_>>());
    let controllers = ["tdset", "configmonitor", "memcached", "restart-pods", "etcd", "mysql"];
    let only = Scraped::start("only", &home, &sources, |config| {
        let all = controllers.map(|name| (name.parse().unwrap(), Default::default()));
        config.controllers = Some(all.into());
    });
    until("TDSets are reconciled", async || deployed(&servers[0]).await).await;
    let mut found = BTreeSet::new();
    until("the cluster is measured, and all is listed", async || {
        found = only.of("east").await;
        let ready = only.series().await.contains("leasehold_ready");
        ready && found.iter().any(|it| it.contains("leasehold_cluster_reconcile_seconds_count"))
    })
    .await;
    let of_kind = |series: &&String| series.starts_with("leasehold_cache_objects");
    let kinds = found.iter().filter(of_kind).count();
    assert!((1..=4).contains(&kinds), "{found:#?}");
    assert!(found.len() <= MOST, "{} series: {found:#?}", found.len());
    assert_eq!(only.replica.leave().await, Departure::HandedOver);
}

/// A replica at work says what the table of series promises, and nothing of its own beside.
async fn documented(replica: &Scraped) {
    let table = fs::read_to_string(xtask::root().join("dashboards/README.md")).unwrap();
    let own = replica.names().await;
    let own = own.iter().filter(|name| name.starts_with("leasehold_"));
    let missing: Vec<_> = own.filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in the table of dashboards/README.md: {missing:?}");
    let labelled = replica.series().await;
    let taken = |series: &&String| {
        let of = |label: &str| [format!("{{{label}="), format!(",{label}=")];
        OF_TARGETS.iter().flat_map(|label| of(label)).any(|label| series.contains(&label))
    };
    assert_eq!(labelled.iter().find(taken), None, "its target has that label");
    // What is renewed is written for the first time some while after what is created.
    let said = [
        "leasehold_ready 1",
        "leasehold_lease_duration_seconds 3",
        "leasehold_build_info{",
        r#"leasehold_home_requests_total{code="2xx",verb="PUT"} "#,
        r#"leasehold_cluster_reconciles_total{cluster="east",result="requeue_after"} "#,
        r#"rest_client_response_size_bytes_count{host="clusters",verb="POST"} "#,
    ];
    for begin in said {
        until(&format!("a series says {begin}"), async || {
            replica.text().await.lines().any(|line| line.starts_with(begin))
        })
        .await;
    }
}

#[test]
fn no_series_has_a_label_that_its_target_has() {
    let table = fs::read_to_string(xtask::root().join("dashboards/README.md")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `leasehold_"));
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 30);
    for row in rows {
        let labels = row.split(" | ").nth(2).unwrap();
        let mut words = labels.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        assert!(!words.any(|word| OF_TARGETS.contains(&word)), "{row}");
    }
}

/// The families whose series have this value of whatever label.
fn families<'s>(series: &'s BTreeSet<String>, value: &str) -> BTreeSet<&'s str> {
    let with = series.iter().filter(|series| series.contains(&format!("=\"{value}\"")));
    with.filter_map(|series| series.split('{').next()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_past_the_cap_share_the_series_of_one_in_every_family() {
    let dir = tempfile::tempdir().unwrap();
    let (_home_server, home) = home(dir.path()).await;
    let names = ["east", "north", "west"];
    let servers = clusters(&names).await;
    let sources = sources(dir.path(), &servers.iter().collect::<Vec<_>>());
    let only = Scraped::start("only", &home, &sources, |config| config.cluster_labels = 1);
    for server in &servers {
        until("TDSets are reconciled", async || deployed(server).await).await;
    }
    until("one cluster has series of its own, and the others the same together", async || {
        let series = only.series().await;
        let named: Vec<_> =
            names.iter().map(|name| families(&series, name)).filter(|of| !of.is_empty()).collect();
        assert!(named.len() <= 1, "more than one of its own: {named:#?}");
        named.first().is_some_and(|named| {
            let reconciles = "leasehold_cluster_reconcile_seconds_count";
            named.contains(reconciles) && *named == families(&series, "other")
        })
    })
    .await;
    let shards = only.of("other").await;
    let shards = shards.iter().filter(|series| series.starts_with("leasehold_shard_owner"));
    assert_eq!(
        shards.count(),
        1,
        "the two clusters have one shard each, which are counted together"
    );
    assert_eq!(only.replica.leave().await, Departure::HandedOver);
}
