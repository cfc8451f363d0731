//! Two fleets with one cluster: the second refuses it, names the first and goes on elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::marks::{Claim, Marker, STALE_AFTER};
use apiserver::faults::Fault;
use apiserver::status::{ApiError, Reason};
use clusters::{ClusterStatus, Clusters, KubeconfigFile, Probing, Registry, State, Trust};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use model::{FleetId, Living, ManualClock, ObjectKey};
use sdk::{Action, Context, ReconcileError, Reconciler};
use tokio::sync::watch;

use super::*;

const PREFIX: &str = "fleet.leasehold.dev/";

/// Counts its reconciles in a cluster, and copies as [`Copy`] does.
#[derive(Clone, Default)]
struct Counting {
    cluster: &'static str,
    count: Arc<AtomicUsize>,
    copy: Arc<Copy>,
}

impl Reconciler for Counting {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if key.cluster.as_str() == self.cluster {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.copy.reconcile(ctx, key).await
    }
}

/// A fleet with a home of its own and a folder of kubeconfigs.
struct OneFleet {
    dir: tempfile::TempDir,
    server: Server,
    home: Home,
    counting: Counting,
}

impl OneFleet {
    async fn new(servers: &[(&str, &Server)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (server, home) = home(dir.path()).await;
        fs::create_dir(dir.path().join("clusters")).unwrap();
        for (name, server) in servers {
            fs::write(dir.path().join("clusters").join(name), server.kubeconfig()).unwrap();
        }
        let counting = Counting { cluster: "east", ..Counting::default() };
        Self { dir, server, home, counting }
    }

    fn start(&self, controller: &str) -> Replica {
        let source = DirectorySource {
            allow: [Risk::Loopback].into(),
            ..DirectorySource::new(self.dir.path().join("clusters"))
        };
        let sources = ClusterSources { directories: vec![source], ..Default::default() };
        let spec = Controller::for_kind::<ConfigMap>(controller).reconciler(self.counting.clone());
        Replica::start_with("only", &self.home, &sources, |manager| manager.controller(spec))
    }

    fn reconciles(&self) -> usize {
        self.counting.count.load(Ordering::Relaxed)
    }

    /// As its marks call it.
    async fn id(&self) -> String {
        let namespaces: Api<Namespace> = Api::all(self.server.client());
        namespaces.get(NAMESPACE).await.unwrap().metadata.uid.unwrap()
    }

    /// Why `east` is down, if its member says that it is.
    async fn down(&self) -> Option<String> {
        let members = fleet(&self.server.client()).await.members;
        let mut down = members.into_iter().flat_map(|member| member.down_clusters);
        down.find(|down| down.cluster.as_str() == "east").map(|down| down.reason)
    }
}

/// The fleets with a mark in a cluster, each with its text.
async fn marks(server: &Server) -> BTreeMap<String, String> {
    let leases: Api<Lease> = Api::namespaced(server.client(), "kube-public");
    let lease = leases.get_opt("leasehold-fleets").await.unwrap();
    let annotations = lease.and_then(|lease| lease.metadata.annotations).unwrap_or_default();
    let marks = annotations.into_iter();
    marks.filter_map(|(key, text)| Some((key.strip_prefix(PREFIX)?.to_owned(), text))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_fleet_refuses_a_cluster_and_takes_it_when_people_take_the_firsts_mark_away() {
    let (east, west) = (server("east").await, server("west").await);
    let first = OneFleet::new(&[("east", &east)]).await;
    let second = OneFleet::new(&[("east", &east), ("west", &west)]).await;
    let of_first = first.start("copy");
    want(&east.client(), "one").await;
    until("the first fleet works", async || converged(&east.client(), "one").await).await;

    let of_second = second.start("copy");
    want(&west.client(), "one").await;
    until("the second fleet works elsewhere", async || converged(&west.client(), "one").await)
        .await;
    until("the second fleet says why not here", async || second.down().await.is_some()).await;
    let reason = second.down().await.unwrap();
    let (one, two) = (first.id().await, second.id().await);
    let command =
        format!("kubectl --namespace kube-public annotate lease leasehold-fleets {PREFIX}{one}-");
    for text in [&*one, &*two, "with copy", "Lease kube-public/leasehold-fleets", &command] {
        assert!(reason.contains(text), "{text}: {reason}");
    }
    want(&east.client(), "two").await;
    until("the first fleet goes on", async || converged(&east.client(), "two").await).await;
    assert_eq!(second.reconciles(), 0);
    assert_eq!(first.down().await, None);

    fs::remove_file(first.dir.path().join("clusters").join("east")).unwrap();
    until("the first fleet has let go", async || {
        fleet(&first.server.client()).await.shards.is_empty()
    })
    .await;
    let before = first.reconciles();
    // A member that loses a cluster does not know which others still work there: its fleet's mark stays.
    assert_eq!(marks(&east).await.into_keys().collect::<Vec<_>>(), [one.as_str()]);
    assert_eq!(second.reconciles(), 0);
    // What the reason says to do.
    let leases: Api<Lease> = Api::namespaced(east.client(), "kube-public");
    let gone = json!({"metadata": {"annotations": {format!("{PREFIX}{one}"): null}}});
    let params = PatchParams::default();
    leases.patch("leasehold-fleets", &params, &Patch::Merge(gone)).await.unwrap();
    until("the mark is the second fleet's", async || {
        marks(&east).await.into_keys().collect::<Vec<_>>() == [two.clone()]
    })
    .await;
    want(&east.client(), "three").await;
    until("the second fleet works here", async || converged(&east.client(), "three").await).await;
    assert_eq!(first.reconciles(), before);
    assert!(second.reconciles() > 0);
    for replica in [of_first, of_second] {
        assert_eq!(replica.leave().await, Departure::HandedOver);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_fleets_that_begin_at_once_one_is_refused() {
    let east = server("east").await;
    let fleets = [OneFleet::new(&[("east", &east)]).await, OneFleet::new(&[("east", &east)]).await];
    let replicas = fleets.each_ref().map(|fleet| fleet.start("copy"));
    want(&east.client(), "one").await;
    until("somebody works", async || converged(&east.client(), "one").await).await;
    until("somebody is refused", async || {
        fleets[0].down().await.is_some() || fleets[1].down().await.is_some()
    })
    .await;
    let worked = fleets.each_ref().map(|fleet| fleet.reconciles() > 0);
    assert_ne!(worked[0], worked[1], "both worked, or nobody");
    assert_eq!(marks(&east).await.len(), 1);
    for replica in replicas {
        replica.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleets_with_different_controllers_work_side_by_side() {
    let east = server("east").await;
    let fleets = [OneFleet::new(&[("east", &east)]).await, OneFleet::new(&[("east", &east)]).await];
    let replicas = [fleets[0].start("copy"), fleets[1].start("other")];
    want(&east.client(), "one").await;
    until("both work", async || fleets.iter().all(|fleet| fleet.reconciles() > 0)).await;
    let marks = marks(&east).await;
    assert!(marks[&fleets[0].id().await].contains("\"copy\""), "{marks:?}");
    assert!(marks[&fleets[1].id().await].contains("\"other\""), "{marks:?}");
    for replica in replicas {
        replica.leave().await;
    }
}

/// The registry of a member, without the rest of it.
struct Member {
    clusters: Clusters,
    metrics: prometheus::Registry,
    fleet: watch::Sender<Option<FleetId>>,
    clock: Arc<ManualClock>,
    _stop: tokio_util::sync::DropGuard,
}

impl Member {
    async fn start(dir: &Path, fleet: &str, server: &Server) -> Self {
        let path = dir.join("kubeconfig");
        fs::write(&path, server.kubeconfig()).unwrap();
        let provider = KubeconfigFile::new(path, None).trusted(Trust::own()).provider();
        let clock = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let (stop, metrics) = (CancellationToken::new(), prometheus::Registry::new());
        let (sender, fleet) = watch::channel(Some(fleet.parse().unwrap()));
        let claim: Claim = [("copy".to_owned(), [].into())].into_iter().collect();
        let [installation, namespace, by] = ["i", "n", "b"].map(str::to_owned);
        let living = watch::channel(Arc::new(Living::these([by.clone()].into()))).1;
        let marker = Some(Marker { fleet, installation, namespace, by, claim, living });
        let (providers, disputed) = (vec![provider], watch::channel(Arc::default()).1);
        let of = (&metrics, Arc::default());
        let spawned = Registry::spawn(
            providers,
            Probing::On,
            marker,
            disputed,
            stop.clone(),
            of,
            clock.clone(),
        );
        let mut clusters = spawned.unwrap();
        clusters.ready().await.unwrap();
        Self { clusters, metrics, fleet: sender, clock, _stop: stop.drop_guard() }
    }

    fn status(&self) -> ClusterStatus {
        self.clusters.status().clusters[0].clone()
    }

    fn is_engaged(&self) -> bool {
        self.status().state == State::Engaged
    }

    /// The value of the series that says whether the cluster is refused, if there is one.
    fn refused(&self) -> Option<f64> {
        let families = self.metrics.gather();
        let family = families.iter().find(|f| f.name() == "leasehold_cluster_refused")?;
        family.get_metric().first().map(|metric| metric.get_gauge().get_value())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rights_a_cluster_is_worked_on_and_says_what_to_grant() {
    let dir = tempfile::tempdir().unwrap();
    let east = server("east").await;
    for denied in ["get", "create"] {
        east.set_faults(Some(Arc::new(move |request| {
            match request.resource == "leases" && request.verb == denied {
                true => Fault::Error(ApiError::new(Reason::Forbidden, "leases are not for you")),
                false => Fault::None,
            }
        })));
        let member = Member::start(dir.path(), "f1", &east).await;
        until("it is engaged", async || member.is_engaged()).await;
        let unmarked = member.status().unmarked.unwrap();
        for text in [denied, "leases are not for you", "; fix: give its user", "kube-public"] {
            assert!(unmarked.contains(text), "{text}: {unmarked}");
        }
        assert_eq!(member.refused(), None);
    }
    // One that does not answer such a request at all is worked on too.
    east.set_faults(Some(Arc::new(|request| match &*request.resource {
        "leases" => Fault::Drop,
        _ => Fault::None,
    })));
    let member = Member::start(dir.path(), "f1", &east).await;
    until("it is engaged", async || member.is_engaged()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mark_of_a_fleet_that_has_ended_is_taken_over_when_it_is_stale() {
    let dir = tempfile::tempdir().unwrap();
    let east = server("east").await;
    let first = Member::start(dir.path(), "f1", &east).await;
    until("the first mark", async || marks(&east).await.contains_key("f1")).await;
    drop(first);
    let second = Member::start(dir.path(), "f2", &east).await;
    until("it is refused", async || second.refused() == Some(1.0)).await;
    assert!(second.status().reason.unwrap().contains("f1"), "{:?}", second.status());
    // It counts from its first look, on its own clock.
    second.clock.advance(STALE_AFTER - Duration::from_secs(1));
    let looks = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&looks);
    east.set_faults(Some(Arc::new(move |request| {
        counted.fetch_add(usize::from(request.resource == "leases"), Ordering::Relaxed);
        Fault::None
    })));
    // When the second look begins, what the first one found has been taken in.
    until("looks", async || looks.load(Ordering::Relaxed) >= 2).await;
    assert!(!second.is_engaged());
    second.clock.advance(Duration::from_secs(1));
    until("it is engaged", async || second.is_engaged()).await;
    assert_eq!(second.refused(), None);
    assert_eq!(marks(&east).await.into_keys().collect::<Vec<_>>(), ["f2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_fleet_share_a_mark_and_replace_it_when_their_home_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let east = server("east").await;
    let members = [
        Member::start(dir.path(), "f1", &east).await,
        Member::start(dir.path(), "f1", &east).await,
    ];
    until("both are engaged", async || members.iter().all(Member::is_engaged)).await;
    let text = marks(&east).await["f1"].clone();
    assert!(text.contains("\"beat\":0"), "written more than once: {text}");
    // Home was emptied and filled again.
    for member in &members {
        member.fleet.send_replace(Some("f2".parse().unwrap()));
    }
    until("the mark is of the new home", async || {
        marks(&east).await.into_keys().collect::<Vec<_>>() == ["f2"]
    })
    .await;
    assert!(members.iter().all(Member::is_engaged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_worked_on_is_let_go_when_another_fleet_has_taken_it() {
    let dir = tempfile::tempdir().unwrap();
    let east = server("east").await;
    let member = Member::start(dir.path(), "f1", &east).await;
    until("the first mark", async || marks(&east).await.contains_key("f1")).await;
    until("it is engaged", async || member.is_engaged()).await;
    let leases: Api<Lease> = Api::namespaced(east.client(), "kube-public");
    let [ours, theirs] = ["f1", "f9"].map(|fleet| format!("{PREFIX}{fleet}"));
    let body = json!({"metadata": {"annotations": {ours: null, theirs: "of a later release"}}});
    let (params, body) = (PatchParams::default(), Patch::Merge(&body));
    leases.patch("leasehold-fleets", &params, &body).await.unwrap();
    // Another id of ours makes it look at once.
    member.fleet.send_replace(Some("f2".parse().unwrap()));
    until("it is refused", async || member.refused() == Some(1.0)).await;
    assert!(!member.is_engaged());
    assert!(member.status().reason.unwrap().contains("f9"), "{:?}", member.status());
    assert_eq!(marks(&east).await.into_keys().collect::<Vec<_>>(), ["f9"]);
}
