//! What a reconcile costs, and how many there are a second.

use anyhow::Result;

use super::Plan;
use super::figures::{Figure, Target, Unit};
use super::peer::Peer;
use super::running::{Running, Task};
use super::testbed::Testbed;

/// Workers for reconciles that patch.
const PATCHERS: usize = 10;
/// Workers for empty reconciles.
const WORKERS: [usize; 3] = [1, 4, 16];
/// How often one process reconciles everything where that is quick.
const REPEATS: usize = 5;

/// CPU time of a reconcile that patches a status.
pub async fn patches(testbed: &Testbed<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let targets = [
        Target::Share(0.3, Peer::ControllerRuntime),
        Target::Share(0.7, Peer::KubeRs),
        Target::Share(1.2, Peer::Bare),
    ];
    let mut figure =
        Figure::new("CPU per status-patch reconcile, 10 workers", Unit::Micros, &targets);
    for peer in plan.turns(&Peer::ALL) {
        let task = Task::full("patch", testbed, PATCHERS);
        let mut running = Running::settled(testbed, peer, task).await?;
        let before = running.usage()?.cpu;
        running.reconcile_all(testbed).await?;
        // The watch events that the patches cause are part of the cost.
        running.quiet().await?;
        let used = running.usage()?.cpu.saturating_sub(before);
        running.end().await?;
        figure.add(peer, used.as_secs_f64() * 1e6 / testbed.objects as f64);
    }
    Ok(vec![figure])
}

/// Reconciles a second, if each only reads its object.
pub async fn noops(testbed: &Testbed<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for workers in WORKERS {
        let targets = [Target::Lead(1.0, Peer::ControllerRuntime), Target::Lead(1.0, Peer::KubeRs)];
        let plural = if workers == 1 { "worker" } else { "workers" };
        let name = format!("no-op reconciles, {workers} {plural}");
        let mut figure = Figure::new(name, Unit::PerSecond, &targets);
        for peer in plan.turns(&Peer::CONTROLLERS) {
            let task = Task::full("noop", testbed, workers);
            let mut running = Running::settled(testbed, peer, task).await?;
            for _ in 0..REPEATS {
                let seconds = running.reconcile_all(testbed).await?;
                figure.add(peer, testbed.objects as f64 / seconds);
            }
            running.end().await?;
        }
        figures.push(figure);
    }
    Ok(figures)
}
