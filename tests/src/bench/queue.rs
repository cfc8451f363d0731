//! The work queues alone.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Plan;
use super::figures::{Figure, Target, Unit};
use super::peer::{Line, Peer, parse};
use crate::harness::process;
use crate::harness::tools::Tools;

/// How many keys a second one thread adds and another takes and finishes, compared with the queue
/// of controllers on controller-runtime, which has priorities like ours, and with client-go's,
/// which does not. The core of ours, without its clock, metrics and waiting, has a line of its own.
pub fn queues(tools: &Tools, plan: Plan) -> Result<Vec<Figure>> {
    let lead = |times| Target::Lead(times, Peer::ControllerRuntime);
    let row = |what, targets: &[Target]| Figure::new(what, Unit::PerSecond, targets);
    let mut figure = row("queue add + get + done", &[lead(5.0)]);
    let mut plain = row("queue, peer's without priorities", &[lead(2.0)]);
    let mut core = row("queue, the core alone", &[]);
    for peer in plan.turns(&[Peer::Leasehold, Peer::ControllerRuntime]) {
        let (per_second, plain_per_second) = measure(&peer.program(tools), &["--mode", "queue"])?;
        figure.add(peer, per_second);
        plain.add(peer, plain_per_second.unwrap_or(per_second));
    }
    for _ in 0..plan.rounds {
        core.add(Peer::Leasehold, measure(&tools.queue_speed(), &["--only", "pass"])?.0);
    }
    Ok(vec![figure, plain, core])
}

fn measure(program: &Path, arguments: &[&str]) -> Result<(f64, Option<f64>)> {
    let said = process::run(Command::new(program).args(arguments))?;
    let lines = said.lines().map(parse).collect::<Result<Vec<_>>>()?;
    let found = lines.into_iter().find_map(|line| match line {
        Line::Queue { per_second, plain_per_second } => Some((per_second, plain_per_second)),
        _ => None,
    });
    found.with_context(|| format!("{} did not report a speed", program.display()))
}
