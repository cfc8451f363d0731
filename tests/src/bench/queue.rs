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
/// which does not.
///
/// # Errors
/// If a program fails.
pub fn queues(tools: &Tools, plan: Plan) -> Result<Vec<Figure>> {
    let row = |what, times| {
        Figure::new(what, Unit::PerSecond, &[Target::Lead(times, Peer::ControllerRuntime)])
    };
    let mut figure = row("queue add + get + done", 5.0);
    let mut plain = row("queue, peer's without priorities", 1.0);
    for peer in plan.turns(&[Peer::Leasehold, Peer::ControllerRuntime]) {
        let (program, arguments) = match peer {
            Peer::Leasehold => (tools.queue_speed(), ["--only", "pass"]),
            _ => (peer.program(tools), ["--mode", "queue"]),
        };
        let (per_second, plain_per_second) = measure(&program, &arguments)?;
        figure.add(peer, per_second);
        plain.add(peer, plain_per_second.unwrap_or(per_second));
    }
    Ok(vec![figure, plain])
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
