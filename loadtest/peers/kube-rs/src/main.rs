//! The small controller of `cargo xtask bench` on kube-rs's `Controller`. Mode `bare` is a loop
//! that only sends the same patches, over `kube-client`'s own connections.

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use cap::Cap;
use clap::Parser;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use kube_runtime::controller::{Action, Config};
use kube_runtime::reflector::{ObjectRef, store};
use kube_runtime::{Controller, WatchStreamExt as _, predicates, watcher};
use peer::bare;
use peer::bench::{self, Bench};
use peer::lines::{Line, Request, Requests, say};
use peer::{Args, Mode, Tally, clock};

mod idle;

/// Counts allocations, so that it can report its heap.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// How many objects are cached.
type Count = Box<dyn Fn() -> usize>;

struct Reconcile {
    mode: Mode,
    tally: Arc<Tally>,
    api: Api<Bench>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let mut requests = Requests::listen();
    let client = args.client().await?;
    let count: Count = match args.mode {
        Mode::Bare => Box::new(|| 0),
        Mode::Queue => anyhow::bail!("kube-rs has no queue by itself"),
        Mode::Pods => idle::caching::<Pod>(&client, &args.namespace),
        Mode::Customs => idle::caching::<Bench>(&client, &args.namespace),
        Mode::Kinds => idle::twenty_kinds(&client, &args.namespace),
        Mode::Patch | Mode::Noop | Mode::Latency | Mode::Rate => controller(&client, &args),
    };
    while let Some(request) = requests.next().await? {
        match request {
            Request::Count => say(Line::Counted { objects: count() }),
            Request::Heap => say(Line::Heap { bytes: ALLOCATOR.allocated(), cache_bytes: None }),
            Request::Trigger(trigger) => bare::patch_all(&client, &args, trigger).await?,
        }
    }
    Ok(())
}

fn controller(client: &Client, args: &Args) -> Count {
    let api = Api::<Bench>::namespaced(client.clone(), &args.namespace);
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &args.namespace);
    let (reader, writer) = store();
    let tally = Arc::new(Tally::new(args.objects));
    let reconcile = Reconcile { mode: args.mode, tally: Arc::clone(&tally), api: api.clone() };
    let (namespace, objects, cached) = (args.namespace.clone(), args.objects, reader.clone());
    let stream = watcher(api, watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(predicates::generation, Default::default());
    let workers = u16::try_from(args.workers).unwrap_or(u16::MAX);
    let run = Controller::for_stream(stream, reader)
        .with_config(Config::default().concurrency(workers))
        .watches(maps, watcher::Config::default(), move |map| {
            let number = map.data.as_ref().and_then(|data| data.get("number"));
            let number = number.and_then(|number| number.parse().ok());
            number.iter().for_each(|number| tally.begin(*number));
            let (namespace, count) = (namespace.clone(), number.map_or(0, |_| objects));
            (0..count).map(move |index| ObjectRef::new(&bench::name(index)).within(&namespace))
        })
        .run(
            self::reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(reconcile),
        )
        .for_each(|outcome| async {
            if let Err(error) = outcome {
                eprintln!("{error}");
            }
        });
    tokio::spawn(run);
    Box::new(move || cached.len())
}

async fn reconcile(bench: Arc<Bench>, this: Arc<Reconcile>) -> kube::Result<Action> {
    let trigger = this.tally.trigger();
    let name = bench.metadata.name.as_deref().unwrap_or_default();
    match this.mode {
        Mode::Latency => {
            if let Some(value) = bench.spec.touched {
                say(Line::Started { value, unix_nanos: clock::unix_nanos() });
            }
        }
        Mode::Patch if bench.trigger() != trigger && trigger != 0 => {
            let patch = Patch::Merge(bench::patch(trigger));
            this.api.patch_status(name, &PatchParams::default(), &patch).await?;
            this.tally.record(name, trigger);
        }
        Mode::Rate => {
            if let Some(value) = bench.spec.touched.filter(|value| *value > bench.trigger()) {
                let patch = Patch::Merge(bench::patch(value));
                this.api.patch_status(name, &PatchParams::default(), &patch).await?;
            }
        }
        Mode::Noop => this.tally.record(name, trigger),
        _ => {}
    }
    Ok(Action::await_change())
}
