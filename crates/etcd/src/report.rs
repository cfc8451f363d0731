//! The status of a cluster in words: phase and conditions. Pure.

use std::time::Duration;

use sdk::condition::{Finding, conditions, whole_seconds};

use crate::api::{EtcdCluster, EtcdClusterStatus, MemberPhase};
use crate::change::Change;
use crate::observed::Observed;
use crate::step::{Step, Waiting, Why};
use crate::upkeep::refusal;
use crate::wanted::Invalid;

/// For so long a majority that is away is a restart and not a loss, as with one member.
const RESTART: Duration = Duration::from_secs(60);

/// What is said while the spec has a mistake.
const UNTOUCHED: &str = "nothing is changed until the spec is corrected";

/// The status of a cluster that was not founded, and whose spec cannot be carried out: nobody looks at it.
pub(crate) fn report_invalid(
    cluster: &EtcdCluster,
    invalid: &Invalid,
    now: jiff::Timestamp,
) -> EtcdClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    let findings = vec![
        Finding {
            type_: "SpecValid",
            holds: false,
            reason: invalid.reason,
            message: invalid.message.clone(),
        },
        Finding {
            type_: "Progressing",
            holds: false,
            reason: invalid.reason,
            message: UNTOUCHED.to_owned(),
        },
        Finding {
            type_: "Available",
            holds: false,
            reason: "NotLookedAt",
            message: "it was not founded".to_owned(),
        },
    ];
    let mut all = conditions(findings, &before.conditions, generation, now);
    let untouched = before.conditions.iter();
    all.extend(untouched.filter(|found| found.type_ == "Degraded").cloned());
    all.sort_by(|one, other| one.type_.cmp(&other.type_));
    EtcdClusterStatus {
        observed_generation: generation,
        phase: Some("Invalid".to_owned()),
        conditions: all,
        ..before
    }
}

/// Completes a refreshed status with what the step is about.
pub(crate) fn report(observed: &Observed<'_>, status: &mut EtcdClusterStatus, step: &Step) {
    let cluster = observed.cluster;
    let before = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let findings = vec![
        available(observed, status, step),
        degraded(observed, status, step),
        progressing(observed, status, step),
        spec_valid(observed, status),
    ];
    status.phase = Some(phase(status, step, &findings[0]).to_owned());
    status.observed_generation = cluster.metadata.generation;
    status.conditions = conditions(findings, before, cluster.metadata.generation, observed.now);
    restart_clock(observed, status, step);
}

/// A member whose Pod is made anew as the spec asks for gets time to start with that.
fn restart_clock(observed: &Observed<'_>, status: &mut EtcdClusterStatus, step: &Step) {
    let Step::DeletePod { member: name, why: Why::Outdated } = step else { return };
    let member = status.members.iter_mut().find(|member| member.name == *name);
    if let Some(since) = member.and_then(|member| member.lost_since.as_mut()) {
        *since = whole_seconds(observed.now);
    }
}

fn phase<'a>(status: &EtcdClusterStatus, step: &'a Step, available: &'a Finding) -> &'a str {
    match step {
        Step::Wait(Waiting { reason, is_stuck: true, .. }) => reason,
        _ if status.cluster_id.is_some() && !available.holds => available.reason,
        Step::Rest => "Running",
        _ => activity(status, step).0,
    }
}

fn available(observed: &Observed<'_>, status: &EtcdClusterStatus, step: &Step) -> Finding {
    let finding = |holds, reason, message| Finding { type_: "Available", holds, reason, message };
    let running: Vec<_> =
        status.members.iter().filter(|member| member.phase == MemberPhase::Running).collect();
    let serving = running.iter().filter(|member| observed.serves(member)).count();
    let says = format!("{serving} of {} members serve", running.len());
    if status.cluster_id.is_none() {
        return finding(false, "Founding", "the first member has not started yet".to_owned());
    }
    if serving > running.len() / 2 {
        return finding(true, "QuorumHealthy", says);
    }
    let is_recent = running.iter().all(|member| {
        let lost = member.lost_since.as_ref().map(|since| observed.now.duration_since(since.0));
        observed.has_volume(member)
            && lost.is_none_or(|lost| Duration::try_from(lost).is_ok_and(|lost| lost < RESTART))
    });
    if is_recent {
        return finding(false, "Restarting", says);
    }
    let message = match step {
        Step::Wait(Waiting { reason: "QuorumLost", message, .. }) => message.clone(),
        _ => format!("{says}, and etcd needs a majority"),
    };
    finding(false, "QuorumLost", message)
}

fn degraded(observed: &Observed<'_>, status: &EtcdClusterStatus, step: &Step) -> Finding {
    let finding = |holds, reason, message| Finding { type_: "Degraded", holds, reason, message };
    if let Step::Wait(Waiting { reason, message, is_stuck: true }) = step {
        return finding(true, reason, message.clone());
    }
    if let Some(alarm) = observed.etcd.alarms.iter().find(|alarm| alarm.alarm == "NOSPACE") {
        let message = format!(
            "member {:x} is full, and etcd refuses writes: compact old revisions (etcdctl compact), or \
             raise spec.quotaBackendBytes; the controller then defragments and ends the alarm",
            alarm.member
        );
        return finding(true, "NoSpace", message);
    }
    let lost = status
        .members
        .iter()
        .find(|member| member.phase == MemberPhase::Running && !observed.serves(member));
    match (lost, status.cluster_id.is_some()) {
        (Some(member), true) => {
            let since = member.lost_since.as_ref().map(|since| since.0.to_string());
            let message =
                format!("{} does not serve since {}", member.name, since.unwrap_or_default());
            finding(true, "MemberUnhealthy", message)
        }
        _ => finding(false, "Healthy", "no member is lost".to_owned()),
    }
}

fn progressing(observed: &Observed<'_>, status: &EtcdClusterStatus, step: &Step) -> Finding {
    let finding = |holds, reason, message| Finding { type_: "Progressing", holds, reason, message };
    match step {
        Step::Wait(Waiting { reason, message, is_stuck: true }) => {
            finding(false, reason, message.clone())
        }
        Step::Rest if let Some(invalid) = observed.invalid => {
            finding(false, invalid.reason, UNTOUCHED.to_owned())
        }
        Step::Rest => {
            let message = format!("{} members run as the spec says", observed.wanted.size);
            finding(false, "Settled", message)
        }
        _ => {
            let (reason, message) = activity(status, step);
            finding(true, reason, message)
        }
    }
}

fn spec_valid(observed: &Observed<'_>, status: &EtcdClusterStatus) -> Finding {
    let finding = |holds, reason, message| Finding { type_: "SpecValid", holds, reason, message };
    if let Some(invalid) = observed.invalid {
        return finding(false, invalid.reason, invalid.message.clone());
    }
    match refusal(observed, status) {
        Some(refusal) => finding(false, refusal.reason(), refusal.to_string()),
        None => finding(true, "Accepted", "the spec can be carried out".to_owned()),
    }
}

/// What happens, as a word and a sentence.
fn activity(status: &EtcdClusterStatus, step: &Step) -> (&'static str, String) {
    let size = || {
        let leaves = status.members.iter().any(|member| member.phase == MemberPhase::Leaving);
        if leaves { "Shrinking" } else { "Growing" }
    };
    match step {
        _ if status.cluster_id.is_none() => {
            let message = match step {
                Step::Wait(Waiting { message, .. }) => message.clone(),
                _ => "the first member is prepared".to_owned(),
            };
            let restores = matches!(step, Step::Wait(Waiting { reason: "Restoring", .. }));
            (if restores { "Restoring" } else { "Founding" }, message)
        }
        Step::Wait(Waiting { reason, message, .. }) => (reason, message.clone()),
        Step::DeletePod { member, why: Why::Outdated } => {
            ("RollingOut", format!("{member} is restarted as the spec says"))
        }
        Step::MoveLeader { from, to, .. } => {
            ("RollingOut", format!("{to} takes over the lead from {from}"))
        }
        Step::Record(Change::Target(version)) => {
            ("RollingOut", format!("members are brought to {version}"))
        }
        Step::Defragment(member) => ("Defragmenting", format!("{member} gives unused space back")),
        Step::Disarm { id, .. } => ("Defragmenting", format!("the alarm of member {id:x} ends")),
        Step::CreatePod { member, .. } => ("Starting", format!("the Pod of {member} is created")),
        Step::DeletePod { member, .. } => ("Shrinking", format!("the Pod of {member} is deleted")),
        Step::Record(Change::Leave(member)) | Step::Remove { member, .. } => {
            ("Shrinking", format!("{member} leaves"))
        }
        Step::Add { member, .. } | Step::Promote { member, .. } => {
            ("Growing", format!("{member} joins"))
        }
        _ => (size(), "members change".to_owned()),
    }
}
