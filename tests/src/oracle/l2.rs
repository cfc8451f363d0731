//! L2: the last change of every object is reconciled or retried, through 410, relist, disconnect
//! and handover; deletions during a gap are noticed.
//!
//! At the end, long after the last change: each copy equals its source; a deleted source with a
//! finalizer is gone; sources that asked for a reconcile every few seconds still get it; each TDSet
//! has the Deployment that its spec asks for; and a member that had an object in its cache when it
//! was deleted has reconciled it since.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Violation;
use super::reading::{Reading, Run, items, text};
use crate::world::edits::EVERY_S;
use crate::world::history::{Edit, Event};
use crate::world::mirror::{COPY, EVERY, OF, ROLE, SOURCE, copy_of};
use crate::world::plan::SECOND_US;
use crate::world::process::cluster_name;

/// How much time the longest reconcile, a retry and round trips may add to an interval.
const RECONCILE_SLACK_US: u64 = 8 * SECOND_US;
/// How long after a deletion it may be reconciled.
const DELETION_SLACK_US: u64 = 10 * SECOND_US;

pub(super) fn check(reading: &Reading<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for cluster in reading.outcome.plan.setup.workloads() {
        let objects = |kind| reading.outcome.objects.get(&(cluster, kind)).into_iter().flatten();
        let maps: BTreeMap<_, _> = objects("configmap").map(|map| (name(map), map)).collect();
        for source in maps.values().filter(|map| label(map, ROLE) == SOURCE) {
            found.extend(uncopied(source, maps.get(copy_of(name(source)).as_str()).copied()));
            found.extend(neglected(reading, cluster, source));
        }
        let orphans = maps.values().filter(|map| label(map, ROLE) == COPY);
        let orphans = orphans.filter(|copy| {
            let owner = text(&items(&copy["metadata"]["ownerReferences"])[0]["name"]);
            !maps.contains_key(owner)
        });
        let seen = orphans.filter_map(|copy| unseen_deletion(reading, cluster, copy));
        found.extend(seen);
        let deployments: BTreeMap<_, _> = objects("deployment").map(|d| (name(d), d)).collect();
        for set in objects("tdset").filter(|set| !is_at_work(reading, cluster, name(set))) {
            found.extend(unscheduled(set, deployments.get(name(set)).copied()));
        }
    }
    let at_us = reading.outcome.plan.setup.end_us;
    found.into_iter().map(|text| Violation { rule: "L2", at_us, text }).collect()
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    text(&object["metadata"]["labels"][key])
}

fn uncopied(source: &Value, copy: Option<&Value>) -> Option<String> {
    let name = name(source);
    if !source["metadata"]["deletionTimestamp"].is_null() {
        return Some(format!("{name} is deleted and keeps its finalizer"));
    }
    let Some(copy) = copy else { return Some(format!("{name} has no copy")) };
    let of = text(&copy["metadata"]["annotations"][OF]);
    let same = copy["data"] == source["data"] && of == text(&source["metadata"]["uid"]);
    (!same).then(|| format!("{name} has {} and its copy {}", source["data"], copy["data"]))
}

/// A source that asked for a reconcile at an interval and did not get it.
fn neglected(reading: &Reading<'_>, cluster: usize, source: &Value) -> Option<String> {
    source["metadata"]["annotations"][EVERY].as_str()?;
    let end = reading.outcome.plan.setup.end_us;
    let since = end - EVERY_S * SECOND_US - RECONCILE_SLACK_US;
    let ran = runs_of(reading, cluster, "mirror", name(source)).any(|run| run.until_us >= since);
    (!ran).then(|| format!("{} was not reconciled since {since}", name(source)))
}

/// An owner that had an object in its cache, still holds the shard, and did not reconcile the
/// object after it was deleted.
fn unseen_deletion(reading: &Reading<'_>, cluster: usize, copy: &Value) -> Option<String> {
    let source = text(&items(&copy["metadata"]["ownerReferences"])[0]["name"]);
    let deleted_us =
        reading.outcome.records.iter().rev().find_map(|record| match &record.event {
            Event::Edited(Edit { cluster: at, verb: "delete", name, .. })
                if *at == cluster && name == source =>
            {
                Some(record.at_us)
            }
            _ => None,
        })?;
    let last = runs_of(reading, cluster, "mirror", source).last()?;
    let end = reading.outcome.plan.setup.end_us;
    let same_owner = owns_at_end(reading, cluster, last);
    let same_informer = !configured_since(reading, last);
    let late = last.from_us < deleted_us && deleted_us + DELETION_SLACK_US < end;
    (late && same_owner && same_informer)
        .then(|| format!("{source} was deleted at {deleted_us} and not reconciled since"))
}

/// Whether a TDSet is being reconciled as the run ends, and has not been for long: its shard has
/// moved to a member whose wall clock shows another hour.
fn is_at_work(reading: &Reading<'_>, cluster: usize, set: &str) -> bool {
    let end = reading.outcome.plan.setup.end_us;
    let mut runs = runs_of(reading, cluster, "tdset", set);
    runs.any(|run| run.until_us >= end && run.from_us + RECONCILE_SLACK_US > end)
}

fn runs_of<'a>(
    reading: &'a Reading<'_>,
    cluster: usize,
    controller: &'a str,
    object: &'a str,
) -> impl Iterator<Item = &'a Run<'a>> {
    let cluster = cluster_name(cluster);
    reading.runs.iter().filter(move |run| {
        let of = run.dispatch;
        of.key.cluster == cluster && &*of.key.name == object && of.controller.as_str() == controller
    })
}

/// Whether the shard of a run still belongs to its member, at its epoch.
fn owns_at_end(reading: &Reading<'_>, cluster: usize, run: &Run<'_>) -> bool {
    let cluster = cluster_name(cluster);
    let maps = reading.outcome.objects.get(&(0, "shardmap")).into_iter().flatten();
    let map = maps.filter(|map| name(map) == cluster.as_str());
    let mut shards = map.flat_map(|map| items(&map["spec"]["shards"]));
    shards.any(|entry| {
        let shard = format!("{cluster}/{}", text(&entry["shard"]));
        shard == run.dispatch.shard.to_string()
            && text(&entry["owner"]) == run.dispatch.member.as_str()
            && entry["epoch"].as_u64() == Some(run.dispatch.epoch.0)
    })
}

/// Whether the configuration of a run's process changed after it began, which restarts informers.
fn configured_since(reading: &Reading<'_>, run: &Run<'_>) -> bool {
    reading.outcome.records.iter().any(|record| {
        let theirs = matches!(&record.event, Event::Configured(p, _) if *p == run.process);
        theirs && record.at_us >= run.from_us
    })
}

/// A TDSet without the Deployment that its spec asks for.
fn unscheduled(set: &Value, deployment: Option<&Value>) -> Option<String> {
    let name = name(set);
    if set["status"]["observedGeneration"] != set["metadata"]["generation"] {
        return Some(format!("the status of {name} has not observed its last spec"));
    }
    let image =
        |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let deployment = deployment.map(|found| (image(found), &found["spec"]["replicas"]));
    let wanted = (set["spec"]["container"]["image"].clone(), &set["status"]["desiredReplicas"]);
    (deployment.as_ref() != Some(&wanted))
        .then(|| format!("{name} wants {wanted:?} and has {deployment:?}"))
}
