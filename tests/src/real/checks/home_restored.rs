//! Home is restored from a backup, and then emptied, under a fleet that runs and a load that goes on. The
//! shards are served again soon after home's return, no epoch comes back, and no change is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use marks::STALE_AFTER;
use model::Range;
use serde_json::json;

use crate::harness::control_plane::ControlPlane;
use crate::harness::home::{self, Entry};
use crate::harness::load::{self, Load, LoadTarget};
use crate::harness::manager::{self, Manager};
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{Scene, kubectl};

/// Two controller groups in one cluster.
const SHARDS: usize = 2;
const SETS: usize = 12;
/// The time between two changes.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a fleet may take: many Leases, on a slow machine.
const DEADLINE: Duration = Duration::from_secs(120);
/// The same for a fleet that begins in an emptied home. It is another fleet than the one before, whose mark in
/// the cluster must become stale.
const ANEW_DEADLINE: Duration = STALE_AFTER.saturating_add(DEADLINE);

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let (mut home, east) =
        tokio::try_join!(ControlPlane::local(scene, "home"), ControlPlane::local(scene, "east"))?;
    home::install(&home.kubectl).await?;
    home::install_crds(&east.kubectl).await?;
    east.kubectl.apply(&load::manifests(SETS, "example.test/web:1")).await?;
    let mut managers = Vec::new();
    for identity in ["replica-0", "replica-1", "replica-2"] {
        managers.push(Manager::start(scene, identity, &home, &[&east], &json!({}))?);
    }
    manager::settled(&home.client, SHARDS, &mut managers).await?;
    let load = Load::start(vec![LoadTarget::new(&east, SETS, false)], PAUSE);
    println!("three replicas share {SHARDS} shards under load after {watch}");

    let backup = scene.dir().join("backup");
    home.back_up(&backup).await?;
    managers.push(Manager::start(scene, "replica-3", &home, &[&east], &json!({}))?);
    let mut lost = Vec::new();
    // Twice an owner dies, so that the backup does not know the last owners.
    for _ in 0..2 {
        let victim = busy(&home, &managers).await?;
        managers.remove(victim).kill();
        manager::settled(&home.client, SHARDS, &mut managers).await?;
        lost = home::shards(&home.client).await?;
    }
    println!("a backup is made, and {} shards moved since, after {watch}", lost.len());

    home.restore(&backup).await?;
    let restored = served_anew(&home, &east, &lost, &mut managers, DEADLINE).await?;
    println!("home was restored; all shards had new owners and were served after {restored}");

    let lost = home::shards(&home.client).await?;
    empty(&mut home).await?;
    let emptied = served_anew(&home, &east, &lost, &mut managers, DEADLINE).await?;
    println!("home was emptied; all shards had new owners and were served after {emptied}");

    let lost = home::shards(&home.client).await?;
    managers.iter_mut().for_each(Manager::kill);
    empty(&mut home).await?;
    managers = vec![Manager::start(scene, "replica-4", &home, &[&east], &json!({}))?];
    served_anew(&home, &east, &lost, &mut managers, ANEW_DEADLINE).await?;
    println!("home was emptied while nobody ran; a new replica serves after {watch}");

    let expected = load.settle(DEADLINE).await?;
    println!("all {} changes have taken effect after {watch}", expected.changes);
    Ok(())
}

/// Home comes back without anything but our definitions.
async fn empty(home: &mut ControlPlane) -> Result<()> {
    home.empty().await?;
    home::install(&home.kubectl).await
}

/// A replica that owns a shard.
async fn busy(home: &ControlPlane, managers: &[Manager]) -> Result<usize> {
    let entries = home::shards(&home.client).await?;
    let mut owners = entries.iter().filter_map(|entry| entry.owner.as_deref());
    let owner = owners.next().context("nobody owns a shard")?;
    manager::position(managers, owner)
}

/// How long after now every shard has an owner at an epoch above all `before`, and objects are reconciled.
async fn served_anew(
    home: &ControlPlane,
    east: &ControlPlane,
    before: &[Entry],
    managers: &mut [Manager],
    deadline: Duration,
) -> Result<Stopwatch> {
    let watch = Stopwatch::start();
    let before: BTreeMap<_, _> = before.iter().map(|entry| (&entry.shard, entry.epoch)).collect();
    ensure!(before.len() == SHARDS, "not all shards were there before: {before:?}");
    let is_new = |entry: &Entry| {
        let is_ours = |owner: &String| managers.iter().any(|manager| manager.is(owner));
        let epoch = before.get(&entry.shard).copied().unwrap_or_default();
        entry.phase == "Owned" && entry.epoch > epoch && entry.owner.as_ref().is_some_and(is_ours)
    };
    wait::until(deadline, "every shard to be owned at a new epoch", async || {
        // Its definitions may not be served yet.
        let Ok(entries) = home::shards(&home.client).await else { return Ok(None) };
        Ok((entries.len() == SHARDS && entries.iter().all(is_new)).then_some(()))
    })
    .await?;
    managers.iter_mut().try_for_each(Manager::check_alive)?;
    let last = load::observed(&east.client, &[Range::WHOLE]).await?;
    wait::until(deadline, "objects to be reconciled again", async || {
        Ok((load::observed(&east.client, &[Range::WHOLE]).await? > last).then_some(()))
    })
    .await?;
    ensure!(kubectl::is_ready(&home.client).await, "home is not ready any more");
    Ok(watch)
}
