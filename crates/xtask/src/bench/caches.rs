//! What it costs to list objects and to have them in the cache: a process that watches a full
//! namespace beside one that watches a namespace with a single object.

use anyhow::Result;

use super::Plan;
use super::arena::{Arena, FULL, SINGLE};
use super::peer::{Peer, Running, Task};
use super::table::{Figure, Target, Unit};

/// A process at rest.
struct Reading {
    cpu_micros: f64,
    resident: f64,
    heap: f64,
    cache: Option<f64>,
}

/// Pods of 8 KB.
///
/// # Errors
/// If a peer fails.
pub async fn pods(arena: &Arena<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let growth = [Target::Share(0.125, Peer::ControllerRuntime)];
    let cpu = [Target::Share(0.5, Peer::ControllerRuntime)];
    measure(arena, plan, "Pod", "pods", [&growth, &[Target::Bound(1200.0)], &cpu]).await
}

/// Custom resources of 2.3 KB.
///
/// # Errors
/// If a peer fails.
pub async fn customs(arena: &Arena<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let targets: [&[Target]; 3] = [&[], &[Target::Bound(500.0)], &[]];
    measure(arena, plan, "custom resource", "customs", targets).await
}

async fn measure(
    arena: &Arena<'_>,
    plan: Plan,
    what: &str,
    mode: &str,
    [of_growth, of_heap, of_cpu]: [&[Target]; 3],
) -> Result<Vec<Figure>> {
    let mut growth = Figure::new(format!("RSS growth per cached {what}"), Unit::Bytes, of_growth);
    let mut heap = Figure::new(format!("heap per cached {what}"), Unit::Bytes, of_heap);
    let name = format!("heap per cached {what}, by the cache's own count");
    let mut cache = Figure::new(name, Unit::Bytes, of_heap);
    let mut cpu = Figure::new(format!("CPU to list and cache a {what}"), Unit::Micros, of_cpu);
    for peer in plan.turns(&Peer::CONTROLLERS) {
        let single = read(arena, peer, mode, SINGLE, 1).await?;
        let full = read(arena, peer, mode, FULL, arena.objects).await?;
        let each = |full: f64, single: f64| (full - single) / (arena.objects - 1) as f64;
        growth.add(peer, each(full.resident, single.resident));
        heap.add(peer, each(full.heap, single.heap));
        if let (Some(full), Some(single)) = (full.cache, single.cache) {
            cache.add(peer, each(full, single));
        }
        cpu.add(peer, each(full.cpu_micros, single.cpu_micros));
    }
    Ok(vec![growth, heap, cache, cpu])
}

async fn read(
    arena: &Arena<'_>,
    peer: Peer,
    mode: &str,
    namespace: &str,
    objects: usize,
) -> Result<Reading> {
    let task = Task { mode, namespace, objects, workers: 1, kubeconfig: None };
    let mut running = Running::settled(arena, peer, task).await?;
    // The heap last: to tell it, garbage is collected.
    let (cpu, resident) = (running.cpu()?, running.resident()?);
    let (heap, cache) = running.heap().await?;
    running.end().await?;
    Ok(Reading {
        cpu_micros: cpu.as_secs_f64() * 1e6,
        resident: resident as f64,
        heap: heap as f64,
        cache: cache.map(|bytes| bytes as f64),
    })
}
