//! How soon a change is reconciled, when there is nothing else to do; and what connections that
//! takes.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::Plan;
use super::arena::{Arena, FULL};
use super::peer::{Line, Peer, Running, Task};
use super::table::{Figure, Target, Unit, quantile};
use crate::real::link::Link;
use crate::real::wait;

/// Changes, one after the other.
const CHANGES: usize = 500;
/// "Not behind": what is closer than this is the noise of a machine that is not idle itself.
const LEVEL: f64 = 1.1;
/// Connections to one cluster.
const MAX_CONNECTIONS: f64 = 2.0;

/// From the sending of a change to the begin of the reconcile.
///
/// # Errors
/// If a peer fails.
pub async fn latency(arena: &Arena<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let targets = [Peer::ControllerRuntime, Peer::KubeRs].map(|p| Target::Share(LEVEL, p));
    let mut figures = [50, 99].map(|percent| {
        let name = format!("from a change to its reconcile, idle, p{percent}");
        (percent, Figure::new(name, Unit::Millis, &targets))
    });
    for peer in plan.turns(&Peer::CONTROLLERS) {
        let task = Task {
            mode: "latency",
            namespace: FULL,
            objects: arena.objects,
            workers: 10,
            kubeconfig: None,
        };
        let mut running = Running::settled(arena, peer, task).await?;
        let mut took = Vec::with_capacity(CHANGES);
        for change in 0..CHANGES {
            took.push(one(arena, &mut running, change % arena.objects).await?);
        }
        running.end().await?;
        for (percent, figure) in &mut figures {
            let value = quantile(&took, f64::from(*percent) / 100.0);
            value.into_iter().for_each(|value| figure.add(peer, value));
        }
    }
    Ok(figures.map(|(_, figure)| figure).into())
}

/// Milliseconds.
async fn one(arena: &Arena<'_>, running: &mut Running, index: usize) -> Result<f64> {
    let number = arena.next_number();
    let sent = wait::now();
    arena.touch(index, number).await?;
    let began = |line| match line {
        Line::Started { value, unix_nanos } if value == number => Some(unix_nanos),
        _ => None,
    };
    let began = running.heard("started", began).await?;
    Ok((i128::from(began) - sent.as_nanosecond()) as f64 / 1e6)
}

/// Connections to the API server while twenty kinds are watched.
///
/// # Errors
/// If a peer fails.
pub async fn connections(arena: &Arena<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let mut figure = Figure::new(
        "connections to one cluster, 20 watched kinds",
        Unit::Count,
        &[Target::Bound(MAX_CONNECTIONS)],
    );
    // By a way of its own, so that connections of a home are not counted: Leases would go to another
    // cluster where the fleet is large.
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, arena.plane.port()));
    let link = Link::to(server).await?;
    let kubeconfig = through(arena, &link)?;
    for peer in plan.turns(&Peer::CONTROLLERS) {
        let kubeconfig = Some(&*kubeconfig);
        let task = Task { mode: "kinds", namespace: FULL, objects: 1, workers: 1, kubeconfig };
        let running = Running::settled(arena, peer, task).await?;
        figure.add(peer, running.connections(link.address().port())? as f64);
        running.end().await?;
    }
    Ok(vec![figure])
}

/// The server's kubeconfig, but by way of the link.
fn through(arena: &Arena<'_>, link: &Link) -> Result<PathBuf> {
    let text = fs::read_to_string(&arena.plane.kubeconfig)?;
    let (from, to) = (format!(":{}", arena.plane.port()), format!(":{}", link.address().port()));
    ensure!(text.matches(&from).count() == 1, "the kubeconfig names its server once");
    let path = arena.scene.dir().join("through-link.kubeconfig");
    fs::write(&path, text.replace(&from, &to))?;
    Ok(path)
}
