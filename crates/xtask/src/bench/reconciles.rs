//! What a reconcile costs, and how many there are in a second.

use anyhow::Result;

use super::Plan;
use super::arena::{Arena, FULL};
use super::peer::{Peer, Running, Task};
use super::table::{Figure, Target, Unit};

/// Workers of the reconciles that patch.
const PATCHERS: usize = 10;
/// Workers of those that do nothing.
const WORKERS: [usize; 3] = [1, 4, 16];
/// How often everything is reconciled by one process, where that takes no time to speak of.
const REPEATS: usize = 5;

/// CPU time of a reconcile that patches a status.
///
/// # Errors
/// If a peer fails.
pub async fn patches(arena: &Arena<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let targets = [
        Target::Share(0.3, Peer::ControllerRuntime),
        Target::Share(0.7, Peer::KubeRs),
        Target::Share(1.2, Peer::Bare),
    ];
    let mut figure =
        Figure::new("CPU per status-patch reconcile, 10 workers", Unit::Micros, &targets);
    for peer in plan.turns(&Peer::ALL) {
        let task = Task {
            mode: "patch",
            namespace: FULL,
            objects: arena.objects,
            workers: PATCHERS,
            kubeconfig: None,
        };
        let mut running = Running::settled(arena, peer, task).await?;
        let before = running.cpu()?;
        running.reconcile_all(arena).await?;
        // What the answers to the patches cost in the watch belongs to it.
        running.quiet().await?;
        let used = running.cpu()?.saturating_sub(before);
        running.end().await?;
        figure.add(peer, used.as_secs_f64() * 1e6 / arena.objects as f64);
    }
    Ok(vec![figure])
}

/// Reconciles a second where a reconcile only reads its object.
///
/// # Errors
/// If a peer fails.
pub async fn noops(arena: &Arena<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for workers in WORKERS {
        let targets = [Target::Lead(1.0, Peer::ControllerRuntime), Target::Lead(1.0, Peer::KubeRs)];
        let plural = if workers == 1 { "worker" } else { "workers" };
        let name = format!("no-op reconciles, {workers} {plural}");
        let mut figure = Figure::new(name, Unit::PerSecond, &targets);
        for peer in plan.turns(&Peer::CONTROLLERS) {
            let task = Task {
                mode: "noop",
                namespace: FULL,
                objects: arena.objects,
                workers,
                kubeconfig: None,
            };
            let mut running = Running::settled(arena, peer, task).await?;
            for _ in 0..REPEATS {
                let seconds = running.reconcile_all(arena).await?;
                figure.add(peer, arena.objects as f64 / seconds);
            }
            running.end().await?;
        }
        figures.push(figure);
    }
    Ok(figures)
}
