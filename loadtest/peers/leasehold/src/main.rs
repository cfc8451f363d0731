//! The small controller of `cargo xtask bench` on Leasehold: the whole manager, as a user runs it,
//! with the workload cluster as its home. Mode `bare` is a loop that only sends the same patches,
//! over the connection that the manager would use; mode `queue` is the work queue alone.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Parser;
use clusters::Access;
use clusters::connect::{Connector, Role};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::config::Kubeconfig;
use leasehold::clock::SystemClock;
use leasehold::config::{ClusterSources, Config, Home, KubeconfigSource, Risk};
use leasehold::{Departure, Manager};
use model::ObjectKey;
use peer::bare;
use peer::bench::{self, Bench};
use peer::lines::{Line, Request, Requests, say};
use peer::{Args, Mode, Tally, clock};
use prometheus::Registry;
use sdk::{Action, Context, Controller, ControllerSpec, ReconcileError, Reconciler, predicate};
use tokio_util::sync::CancellationToken;

mod idle;
mod work_queue;

/// The name of the controller.
const NAME: &str = "bench";

/// Reconciles in one of the modes that reconcile.
struct Reconcile {
    mode: Mode,
    tally: Arc<Tally>,
}

impl Reconciler for Reconcile {
    type Kind = Bench;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let trigger = self.tally.trigger();
        let Some(bench) = ctx.get::<Bench>(key.namespace.as_deref(), &key.name)? else {
            return Ok(Action::Done);
        };
        match self.mode {
            Mode::Latency => {
                if let Some(value) = bench.spec.touched {
                    say(Line::Started { value, unix_nanos: clock::unix_nanos() });
                }
            }
            Mode::Patch if bench.trigger() != trigger && trigger != 0 => {
                ctx.patch_status(&*bench, bench::status(trigger)).await?;
                self.tally.record(&key.name, trigger);
            }
            Mode::Rate => {
                if let Some(value) = bench.spec.touched.filter(|value| *value > bench.trigger()) {
                    ctx.patch_status(&*bench, bench::status(value)).await?;
                }
            }
            Mode::Noop => self.tally.record(&key.name, trigger),
            _ => {}
        }
        Ok(Action::Done)
    }
}

fn controller(args: &Args) -> ControllerSpec {
    match args.mode {
        Mode::Pods => idle::caching::<Pod>(&args.namespace),
        Mode::Customs => idle::caching::<Bench>(&args.namespace),
        Mode::Kinds => idle::twenty_kinds(&args.namespace),
        _ => reconciling(args),
    }
}

fn reconciling(args: &Args) -> ControllerSpec {
    let tally = Arc::new(Tally::new(args.objects));
    let (counted, namespace, objects) = (Arc::clone(&tally), args.namespace.clone(), args.objects);
    Controller::for_kind::<Bench>(NAME)
        .namespace(&args.namespace)
        .predicate(predicate::generation_changed())
        .watches::<ConfigMap>(move |map, _| {
            let number = map.data.as_ref().and_then(|data| data.get("number"));
            let Some(number) = number.and_then(|number| number.parse().ok()) else {
                return Vec::new();
            };
            counted.begin(number);
            (0..objects).map(|index| (Some(namespace.clone()), bench::name(index))).collect()
        })
        .workers(args.workers)
        .reconciler(Reconcile { mode: args.mode, tally })
}

fn main() -> Result<()> {
    let args = Args::parse();
    // It has threads and runtimes of its own.
    if args.mode == Mode::Queue { work_queue::measure() } else { run(&args) }
}

#[tokio::main]
async fn run(args: &Args) -> Result<()> {
    if args.mode == Mode::Bare {
        return bare(args).await;
    }
    let mut requests = Requests::listen();
    let home = Home::Kubeconfig {
        path: args.home.clone().unwrap_or_else(|| args.kubeconfig.clone()),
        context: None,
        allow: [Risk::Loopback].into(),
    };
    let (path, allow) = (args.kubeconfig.clone(), [Risk::Loopback].into());
    let source = KubeconfigSource { path, allow, ..KubeconfigSource::default() };
    let clusters = ClusterSources { kubeconfigs: vec![source], ..ClusterSources::default() };
    let config = Config::new(home, NAME, clusters);
    let _telemetry = telemetry::init(&config.log, config.otlp.as_ref())?;
    let manager = Manager::new(config).controller(controller(args));
    let metrics = manager.metrics();
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(manager.run(shutdown.clone()));
    while let Some(request) = requests.next().await? {
        match request {
            Request::Count => {
                say(Line::Counted { objects: sum(&metrics, "leasehold_cache_objects") });
            }
            Request::Heap => {
                let cache_bytes = Some(sum(&metrics, "leasehold_cache_bytes"));
                say(Line::Heap { bytes: heap(&metrics), cache_bytes });
            }
            Request::Trigger(_) => {}
        }
    }
    shutdown.cancel();
    match run.await.context("the manager panicked")?? {
        Departure::HandedOver => Ok(()),
        Departure::Abandoned => anyhow::bail!("left without handing over"),
    }
}

/// Sends only the patches.
async fn bare(args: &Args) -> Result<()> {
    let mut requests = Requests::listen();
    let kubeconfig = Arc::new(Kubeconfig::read_from(&args.kubeconfig)?);
    let context = kubeconfig.current_context.clone().context("no current context")?;
    let access = Access::own(kubeconfig, &context);
    let connector = Connector::new(Role::Workload, Arc::new(SystemClock));
    let client = connector.client(NAME, &access).await?;
    while let Some(request) = requests.next().await? {
        match request {
            Request::Count => say(Line::Counted { objects: 0 }),
            Request::Heap => {
                say(Line::Heap { bytes: heap(&telemetry::registry()), cache_bytes: None });
            }
            Request::Trigger(trigger) => bare::patch_all(&client, args, trigger).await?,
        }
    }
    Ok(())
}

/// Bytes that the allocator counts.
fn heap(metrics: &Registry) -> usize {
    sum(metrics, "leasehold_allocator_allocated_bytes")
}

/// A gauge, summed over its series.
fn sum(metrics: &Registry, name: &str) -> usize {
    let families = metrics.gather();
    let family = families.iter().filter(|family| family.name() == name);
    let values = family.flat_map(|family| family.get_metric()).map(|m| m.get_gauge().get_value());
    values.sum::<f64>() as usize
}
