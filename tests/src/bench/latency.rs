//! How soon an idle peer reconciles a change, and how many connections it has.

use std::fs;

use anyhow::Result;
use serde_json::Value;

use super::Plan;
use super::figures::{Figure, Target, Unit};
use super::peer::{Line, Peer};
use super::running::{Running, Task};
use super::testbed::{FULL, Testbed};
use crate::harness::quantiles::quantile;
use crate::harness::wait;
use crate::proxy::Proxy;

/// How many changes are made, one after the other.
const CHANGES: usize = 500;
/// Ratios up to this count as equal: the machine itself is not quite idle.
const EQUAL: f64 = 1.1;
/// Connections to one cluster.
const MAX_CONNECTIONS: f64 = 2.0;

/// The time from sending a change to the start of its reconcile.
pub async fn latency(testbed: &Testbed<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let targets = [Peer::ControllerRuntime, Peer::KubeRs].map(|p| Target::Share(EQUAL, p));
    let mut figures = [50, 99].map(|percent| {
        let name = format!("from a change to its reconcile, idle, p{percent}");
        (percent, Figure::new(name, Unit::Millis, &targets))
    });
    for peer in plan.turns(&Peer::CONTROLLERS) {
        let task = Task::full("latency", testbed, 10);
        let mut running = Running::settled(testbed, peer, task).await?;
        let mut took = Vec::with_capacity(CHANGES);
        for change in 0..CHANGES {
            took.push(one(testbed, &mut running, change % testbed.objects).await?);
        }
        running.end().await?;
        for (percent, figure) in &mut figures {
            let value = quantile(&took, f64::from(*percent) / 100.0);
            value.into_iter().for_each(|value| figure.add(peer, value));
        }
    }
    Ok(figures.map(|(_, figure)| figure).into())
}

/// The latency of one change in milliseconds.
async fn one(testbed: &Testbed<'_>, running: &mut Running, index: usize) -> Result<f64> {
    let number = testbed.next_number();
    let sent = wait::now();
    testbed.touch(index, number).await?;
    let began = |line| match line {
        Line::Started { value, unix_nanos } if value == number => Some(unix_nanos),
        _ => None,
    };
    let began = running.heard("started", began).await?;
    Ok((i128::from(began) - sent.as_nanosecond()) as f64 / 1e6)
}

/// Connections to the API server while twenty kinds are watched.
pub async fn connections(testbed: &Testbed<'_>, plan: Plan) -> Result<Vec<Figure>> {
    let mut figure = Figure::new(
        "connections to one cluster, 20 watched kinds",
        Unit::Count,
        &[Target::Bound(MAX_CONNECTIONS)],
    );
    // Through a proxy, so that connections to the home are not counted: in a large fleet that is
    // another cluster.
    let mut kubeconfig: Value =
        serde_saphyr::from_str(&fs::read_to_string(&testbed.plane.kubeconfig)?)?;
    let proxy = Proxy::of_kubeconfig(&mut kubeconfig).await?;
    let path = testbed.scene.dir().join("through-proxy.kubeconfig");
    fs::write(&path, kubeconfig.to_string())?;
    for peer in plan.turns(&Peer::CONTROLLERS) {
        let kubeconfig = Some(&*path);
        let task = Task { mode: "kinds", namespace: FULL, objects: 1, workers: 1, kubeconfig };
        let running = Running::settled(testbed, peer, task).await?;
        figure.add(peer, running.connections(proxy.address().port())? as f64);
        running.end().await?;
    }
    Ok(vec![figure])
}
