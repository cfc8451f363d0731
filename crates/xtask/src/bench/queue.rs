//! The work queues by themselves.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::Plan;
use super::peer::{Line, Peer, parse};
use super::table::{Figure, Target, Unit};
use crate::real::process;
use crate::real::tools::Tools;

/// Keys that one thread adds and another takes and finishes, in a second.
///
/// # Errors
/// If a program fails.
pub fn queues(tools: &Tools, plan: Plan) -> Result<Vec<Figure>> {
    let target = Target::Lead(5.0, Peer::ControllerRuntime);
    let mut figure = Figure::new("queue add + get + done", Unit::PerSecond, &[target]);
    for peer in plan.turns(&[Peer::Leasehold, Peer::ControllerRuntime]) {
        let (program, arguments) = match peer {
            Peer::Leasehold => (tools.queue_speed(), ["--only", "pass"]),
            _ => (peer.program(tools), ["--mode", "queue"]),
        };
        figure.add(peer, measure(&program, &arguments)?);
    }
    Ok(vec![figure])
}

fn measure(program: &Path, arguments: &[&str]) -> Result<f64> {
    let said = process::run(Command::new(program).args(arguments))?;
    let lines = said.lines().map(parse).collect::<Result<Vec<_>>>()?;
    let found = lines.into_iter().find_map(|line| match line {
        Line::Queue { per_second } => Some(per_second),
        _ => None,
    });
    found.with_context(|| format!("{} told no speed", program.display()))
}
