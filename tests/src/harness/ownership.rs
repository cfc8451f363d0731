//! Who owned a shard when, as the home's audit log shows it, and whether each write was its
//! owner's. Pure.
//!
//! ```text
//! events ─┬─ ShardMap versions ─▶ Ownership: shard ─▶ assignments (epoch, owner, from..until)
//!         └─ attributed writes ──────────────────────▶ violations
//! ```

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::audit::{Attribution, AuditEvent};
use super::home::{self, Entry};

/// Who owned what when.
#[derive(Debug, Default)]
pub struct Ownership {
    /// By shard, as in `east/tdset/0/1`; each list in order of its epochs.
    pub assignments: BTreeMap<String, Vec<Assignment>>,
    /// Rules that the ShardMaps themselves broke.
    pub violations: Vec<String>,
    /// When home lost its last writes, or all.
    lost: Vec<Timestamp>,
}

/// One owner's time with one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Its epoch.
    pub epoch: u64,
    /// The member.
    pub owner: String,
    /// The earliest moment at which it can have been committed.
    pub from: Timestamp,
    /// The latest moment at which it can have been committed.
    pub committed: Timestamp,
    /// When the owner was first told to drain, if it was.
    pub draining: Option<Timestamp>,
    /// The latest moment at which its end can have been committed; `None` if it did not end.
    pub until: Option<Timestamp>,
}

/// What the comparison of writes with the ownership found.
#[derive(Debug, Default)]
pub struct Report {
    /// Attributed writes, whatever their result.
    pub writes: usize,
    /// Members that wrote.
    pub members: BTreeSet<String>,
    /// Assignments of all shards.
    pub assignments: usize,
    /// Each broken rule, in a sentence.
    pub violations: Vec<String>,
}

/// Compares every attributed write in `clusters` (by name) with the ownership in the log of `home`.
pub fn verify(home: &[AuditEvent], clusters: &[(&str, &[AuditEvent])]) -> Report {
    let ownership = Ownership::from_events(home, &[]);
    let mut report = Report {
        assignments: ownership.assignments.values().map(Vec::len).sum(),
        violations: ownership.violations.clone(),
        ..Report::default()
    };
    for (cluster, events) in clusters {
        for event in *events {
            let Some(attribution) = event.attribution() else { continue };
            report.writes += 1;
            report.violations.extend(ownership.violation(&attribution, cluster, event));
            report.members.insert(attribution.member);
        }
    }
    report
}

impl Ownership {
    /// The ownership that the audit log of the home cluster shows, which `lost` its last writes at these
    /// moments.
    pub fn from_events(events: &[AuditEvent], lost: &[Timestamp]) -> Self {
        let mut versions: Vec<&AuditEvent> =
            events.iter().filter(|e| e.is_of_shard_map()).collect();
        // In the order in which they were committed: each replaces exactly the one before it.
        versions.sort_by_key(|event| {
            let version = event.object()["metadata"]["resourceVersion"].as_str();
            (event.answered, version.and_then(|text| text.parse::<u64>().ok()))
        });
        let mut this = Self { lost: lost.to_vec(), ..Self::default() };
        versions.into_iter().for_each(|event| this.commit(event));
        this
    }

    fn commit(&mut self, event: &AuditEvent) {
        let content = if event.verb == "delete" { &Value::Null } else { event.object() };
        let mut owned = BTreeSet::new();
        for entry in home::entries(content) {
            match entry {
                Ok(Entry { shard, epoch, owner: Some(owner), phase }) => {
                    self.own(event, &shard, epoch, &owner, phase == "Draining");
                    owned.insert(shard);
                }
                Ok(_) => {}
                Err(error) => self.violations.push(format!("{error:#}")),
            }
        }
        // From now on nobody owns a shard to which this version gives no owner.
        for (shard, assignments) in &mut self.assignments {
            if shard.split('/').next() == Some(event.name()) && !owned.contains(shard) {
                end_last(assignments, event.answered);
            }
        }
    }

    fn own(&mut self, event: &AuditEvent, shard: &str, epoch: u64, owner: &str, is_draining: bool) {
        let (from, committed) = (event.received, event.answered);
        let assignments = self.assignments.entry(shard.to_owned()).or_default();
        let is_same = |last: &&mut Assignment| {
            last.epoch == epoch && last.owner == owner && last.until.is_none()
        };
        if let Some(last) = assignments.last_mut().filter(is_same) {
            if is_draining {
                last.draining.get_or_insert(committed);
            }
            return;
        }
        // A restored home names former owners until their Leases have run out. They own nothing any more.
        let has_lost = |since| self.lost.iter().any(|lost| (since..=from).contains(lost));
        let is_former = |former: &Assignment| former.epoch == epoch && former.owner == owner;
        if assignments.iter().any(is_former)
            && assignments.last().is_some_and(|last| has_lost(last.from))
        {
            return;
        }
        if let Some(last) = assignments.last().filter(|last| last.epoch >= epoch) {
            self.violations.push(format!(
                "{shard}: {owner} got it at epoch {epoch} after {} at epoch {}",
                last.owner, last.epoch
            ));
        }
        end_last(assignments, committed);
        let draining = is_draining.then_some(committed);
        let owner = owner.to_owned();
        assignments.push(Assignment { epoch, owner, from, committed, draining, until: None });
    }

    /// Why a write in `cluster` was not its owner's, if it was not; a sentence.
    pub fn violation(&self, by: &Attribution, cluster: &str, event: &AuditEvent) -> Option<String> {
        let Attribution { member, shard, epoch, key } = by;
        let allowed = match shard.split('/').next() == Some(cluster) {
            true => self.allows(member, shard, *epoch, event.received, event.answered),
            false => Err("that shard belongs to another cluster".to_owned()),
        };
        let reason = allowed.err()?;
        let line = event.line();
        Some(format!(
            "{line} in {cluster} by {member} for {shard} at epoch {epoch} (key {key}): {reason}"
        ))
    }

    /// Whether `member` owned `shard` at `epoch` all the time from `from` to `until`.
    ///
    /// # Errors
    /// Why it did not.
    pub fn allows(
        &self,
        member: &str,
        shard: &str,
        epoch: u64,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<(), String> {
        let assignments = self.assignments.get(shard).map_or(&[][..], Vec::as_slice);
        let Some(assignment) = assignments.iter().find(|a| a.epoch == epoch) else {
            return Err("nobody owned it at that epoch".to_owned());
        };
        if assignment.owner != member {
            return Err(format!("{} owned it at that epoch", assignment.owner));
        }
        if from < assignment.from {
            return Err(format!("it began at {from}, before the ownership: {}", assignment.from));
        }
        match assignment.until {
            Some(end) if until > end => {
                Err(format!("it ended at {until}, after the ownership: {end}"))
            }
            _ => Ok(()),
        }
    }
}

fn end_last(assignments: &mut [Assignment], at: Timestamp) {
    if let Some(last) = assignments.last_mut() {
        last.until.get_or_insert(at);
    }
}

#[cfg(test)]
#[path = "ownership_tests.rs"]
mod tests;
