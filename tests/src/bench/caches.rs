//! What it costs to list and cache objects: a process that watches a full namespace, compared with
//! one that watches a namespace with a single object.

use std::time::Duration;

use anyhow::Result;

use super::Plan;
use super::figures::{Figure, Target, Unit};
use super::peer::Peer;
use super::running::{Running, Task};
use super::testbed::{FULL, SINGLE, Testbed};

/// For how long after everything is cached CPU time counts: what a list leaves to be packed or collected is done by
/// then. Not until a process is quiet: when that is, depends on what else the machine does.
const AFTERMATH: Duration = Duration::from_secs(10);
/// How much more of memory may grow than of the heap.
const RESIDENT_BY_HEAP: Target = Target::Bound(1.3);

/// What a process needs that is idle.
struct Reading {
    cpu_micros: f64,
    resident: f64,
    heap: f64,
    cache: Option<f64>,
}

/// Pods of 8 KB.
pub async fn pods(testbed: &Testbed<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let growth = [Target::Share(0.05, Peer::ControllerRuntime)];
    let cpu = [Target::Share(0.3, Peer::ControllerRuntime)];
    measure(testbed, plan, "Pod", "pods", [&growth, &[Target::Bound(1200.0)], &cpu]).await
}

/// Custom resources of 2.3 KB.
pub async fn customs(testbed: &Testbed<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let targets: [&[Target]; 3] = [&[], &[Target::Bound(500.0)], &[]];
    measure(testbed, plan, "custom resource", "customs", targets).await
}

async fn measure(
    testbed: &Testbed<'_>,
    plan: Plan,
    what: &str,
    mode: &str,
    [of_growth, of_heap, of_cpu]: [&[Target]; 3],
) -> Result<Vec<Figure>> {
    let mut growth = Figure::new(format!("RSS growth per cached {what}"), Unit::Bytes, of_growth);
    let mut heap = Figure::new(format!("heap per cached {what}"), Unit::Bytes, of_heap);
    let name = format!("heap per cached {what}, by the cache's own count");
    let mut cache = Figure::new(name, Unit::Bytes, of_heap);
    let name = format!("RSS growth by growth of the heap, {what}s");
    let mut by_heap = Figure::new(name, Unit::Times, &[RESIDENT_BY_HEAP]);
    let mut cpu = Figure::new(format!("CPU to list and cache a {what}"), Unit::Micros, of_cpu);
    for peer in plan.turns(&Peer::CONTROLLERS) {
        let single = read(testbed, peer, mode, SINGLE, 1).await?;
        let full = read(testbed, peer, mode, FULL, testbed.objects).await?;
        let each = |full: f64, single: f64| (full - single) / (testbed.objects - 1) as f64;
        growth.add(peer, each(full.resident, single.resident));
        by_heap.add(peer, (full.resident - single.resident) / (full.heap - single.heap));
        heap.add(peer, each(full.heap, single.heap));
        if let (Some(full), Some(single)) = (full.cache, single.cache) {
            cache.add(peer, each(full, single));
        }
        cpu.add(peer, each(full.cpu_micros, single.cpu_micros));
    }
    Ok(vec![growth, heap, by_heap, cache, cpu])
}

async fn read(
    testbed: &Testbed<'_>,
    peer: Peer,
    mode: &str,
    namespace: &str,
    objects: usize,
) -> Result<Reading> {
    let task = Task { mode, namespace, objects, workers: 1, kubeconfig: None };
    let mut running = Running::cached(testbed, peer, task).await?;
    tokio::time::sleep(AFTERMATH).await;
    let cpu = running.usage()?.cpu;
    running.quiet().await?;
    // The heap last, because a peer collects garbage before it reports the heap.
    let usage = running.usage()?;
    let (heap, cache) = running.heap().await?;
    running.end().await?;
    Ok(Reading {
        cpu_micros: cpu.as_secs_f64() * 1e6,
        resident: usage.resident_bytes as f64,
        heap: heap as f64,
        cache: cache.map(|bytes| bytes as f64),
    })
}
