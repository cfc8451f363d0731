//! One trace leads from a watch event through queue and reconcile to the API calls: a whole manager
//! over embedded API servers exports its spans to a real OTLP collector over gRPC.
//!
//! The manager has its own thread and single-threaded runtime, so that every task stays on that
//! thread and reports to that thread's subscriber, not to the process's.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use apiserver::Server;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use leasehold::Manager;
use leasehold::config::{ClusterSources, Config, ControllerSettings, DirectorySource, Home, Risk};
use opentelemetry_proto::tonic::trace::v1::Span;
use telemetry::{LogConfig, OtlpConfig};
use tests::collector::Collector;
use tests::install;
use tokio_util::sync::CancellationToken;

/// Reached only if the trace never arrives.
const DEADLINE: Duration = Duration::from_secs(60);

/// The spans of one trace, each the parent of the next.
const CHAIN: [&str; 4] = ["watch.event", "queue", "reconcile", "api"];

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_watch_event_to_the_api_call() {
    let mut collector = Collector::start().await;
    let (home, east) = (server("home").await, server("east").await);
    install::crds(&home.client(), leasehold::crds::home_crds()).await;
    install::namespace(&home.client(), "leasehold-system").await;
    install::crds(&east.client(), leasehold::crds::workload_crds()).await;
    install::namespace(&east.client(), "temp").await;
    let folder = tempfile::tempdir().unwrap();
    let shutdown = CancellationToken::new();
    let config = config(folder.path(), &home, &east);
    let manager = start(config, collector.endpoint().to_owned(), shutdown.clone());

    create_tdset(&east).await;
    let trace = tokio::time::timeout(DEADLINE, linked(&mut collector)).await;
    let trace = trace.expect("no trace links watch.event, queue, reconcile and api");
    shutdown.cancel();
    tokio::task::spawn_blocking(move || manager.join()).await.unwrap().unwrap();

    let reconcile = &trace[2];
    for (field, value) in [("cluster", "east"), ("controller", "tdset")] {
        assert_eq!(attribute(reconcile, field), Some(value.to_owned()), "{reconcile:?}");
    }
    for field in ["key", "shard", "epoch", "reconcile_id"] {
        assert!(attribute(reconcile, field).is_some(), "{field} in {reconcile:?}");
    }
    assert!(attribute(&trace[3], "method").is_some(), "{:?}", trace[3]);
}

async fn server(name: &str) -> Server {
    let server = Server::builder().name(name).bind("127.0.0.1:0").workloads(true);
    server.start().await.expect("an embedded server starts on a free port")
}

fn config(folder: &Path, home: &Server, east: &Server) -> Config {
    let clusters = folder.join("clusters");
    std::fs::create_dir(&clusters).expect("a new folder is empty");
    let path = folder.join("home.yaml");
    std::fs::write(&path, home.kubeconfig()).expect("the folder is ours");
    std::fs::write(clusters.join("east.yaml"), east.kubeconfig()).expect("the folder is ours");
    let home = Home::Kubeconfig { path, context: None, allow: [Risk::Loopback].into() };
    let mut folder = DirectorySource::new(clusters);
    folder.allow.insert(Risk::Loopback);
    let sources = ClusterSources { directories: vec![folder], ..ClusterSources::default() };
    let tdset = ("tdset".parse().expect("a name"), ControllerSettings::default());
    Config { controllers: Some([tdset].into()), ..Config::new(home, "replica-0", sources) }
}

/// Runs a manager whose spans go to `endpoint`, until `shutdown`.
fn start(config: Config, endpoint: String, shutdown: CancellationToken) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let otlp = OtlpConfig { endpoint, sample_ratio: 1.0, instance: "replica-0".to_owned() };
        let built = telemetry::build(&LogConfig::default(), Some(&otlp), std::io::sink);
        let (dispatch, guard) = built.expect("a usable configuration");
        let _subscribed = tracing::dispatcher::set_default(&dispatch);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let manager = Manager::new(config).builtin_controllers().run(shutdown);
        runtime.expect("a runtime starts").block_on(manager).expect("the manager runs");
        drop(guard);
    })
}

async fn create_tdset(east: &Server) {
    let example = controllers::get("tdset").expect("it is built in").example;
    let object: DynamicObject = serde_saphyr::from_str(example).expect("the example is YAML");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("schedule.rs", "v1", "TDSet"));
    let api = Api::<DynamicObject>::namespaced_with(east.client(), "temp", &kind);
    api.create(&PostParams::default(), &object).await.expect("the example is accepted");
}

/// Collects spans until four of them are linked as in [`CHAIN`], of a controller that is `tdset`.
async fn linked(collector: &mut Collector) -> Vec<Span> {
    let mut spans: BTreeMap<Vec<u8>, Span> = BTreeMap::new();
    loop {
        spans.extend(collector.next().await.into_iter().map(|span| (span.span_id.clone(), span)));
        let ends = spans.values().filter(|span| span.name == "api");
        let chains = ends.filter_map(|span| chain(&spans, span));
        let mut of_tdset =
            chains.filter(|chain| attribute(&chain[2], "controller").as_deref() == Some("tdset"));
        if let Some(found) = of_tdset.next() {
            return found;
        }
    }
}

/// The spans that lead to this one, if they are those of [`CHAIN`] and of one trace.
fn chain(spans: &BTreeMap<Vec<u8>, Span>, end: &Span) -> Option<Vec<Span>> {
    let mut found = vec![end.clone()];
    for name in CHAIN.iter().rev().skip(1) {
        let child = found.last()?;
        let parent = spans.get(&child.parent_span_id)?;
        if parent.name != *name || parent.trace_id != child.trace_id {
            return None;
        }
        found.push(parent.clone());
    }
    found.reverse();
    Some(found)
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let value = span.attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?;
    match value.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}
