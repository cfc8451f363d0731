//! The status of a cluster in words: phase, instances and conditions. Pure.

use std::time::Duration;

use jiff::Timestamp;
use operands::spec::Invalid;
use sdk::condition::{Finding, conditions};

use crate::ailment::Ailment;
use crate::api::MySQLCluster;
use crate::observed::{InstanceSeen, Observed};
use crate::status::{InstanceRole, InstanceStatus, MySQLClusterStatus};
use crate::step::{Change, Step, Waiting, Why};
use crate::version::Version;

/// How long an instance may be unwell that starts or joins.
const BEGINNING: Duration = Duration::from_secs(30);

/// What is said of a cluster.
pub(crate) struct Findings {
    available: Finding,
    degraded: Finding,
    progressing: Finding,
    spec_valid: Finding,
    phase: String,
}

fn finding(type_: &'static str, holds: bool, reason: &'static str, message: String) -> Finding {
    Finding { type_, holds, reason, message }
}

fn accepted() -> Finding {
    finding("SpecValid", true, "Accepted", "the spec can be carried out".to_owned())
}

/// The status of a cluster that was not founded, and whose spec cannot be carried out: nobody looks at it.
pub(crate) fn report_invalid(
    cluster: &MySQLCluster,
    invalid: &Invalid,
    now: Timestamp,
) -> MySQLClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    let untouched = "nothing is changed until the spec is corrected".to_owned();
    let message = invalid.message.clone();
    let findings = Findings {
        available: not_looked_at(),
        degraded: finding("Degraded", true, invalid.reason, message.clone()),
        progressing: finding("Progressing", false, invalid.reason, untouched),
        spec_valid: finding("SpecValid", false, invalid.reason, message),
        phase: "Invalid".to_owned(),
    };
    findings.record(cluster, &mut status, now);
    status
}

fn available_as_before(status: &MySQLClusterStatus) -> Finding {
    let known = status.conditions.iter().find(|known| known.type_ == "Available");
    let holds = known.is_some_and(|known| known.status == "True");
    let message = match holds {
        true => "it was when it was last looked at",
        false => "it was not when it was last looked at",
    };
    finding("Available", holds, "NotLookedAt", message.to_owned())
}

fn not_looked_at() -> Finding {
    let message = "nobody looks at it until a person has done what the other conditions say";
    finding("Available", false, "NotLookedAt", message.to_owned())
}

impl Findings {
    /// Nothing can be done before something else is.
    pub(crate) fn halted(waiting: &Waiting, status: &MySQLClusterStatus) -> Self {
        let Waiting { reason, message, is_stuck, .. } = waiting;
        let (available, degraded) = match is_stuck {
            true => (not_looked_at(), finding("Degraded", true, reason, message.clone())),
            false => {
                let well = "nothing is wrong".to_owned();
                (available_as_before(status), finding("Degraded", false, "Healthy", well))
            }
        };
        Self {
            available,
            degraded,
            progressing: finding("Progressing", !is_stuck, reason, message.clone()),
            spec_valid: accepted(),
            phase: (*reason).to_owned(),
        }
    }

    /// Writes it into a status.
    pub(crate) fn record(
        self,
        cluster: &MySQLCluster,
        status: &mut MySQLClusterStatus,
        now: Timestamp,
    ) {
        let generation = cluster.metadata.generation;
        let Self { available, degraded, progressing, spec_valid, phase } = self;
        let findings = vec![available, degraded, progressing, spec_valid];
        status.conditions = conditions(findings, &status.conditions, generation, now);
        status.phase = Some(phase);
        status.observed_generation = generation;
    }
}

/// Completes a status with what was found, and what the step is about.
pub(crate) fn report(
    observed: &Observed,
    cluster: &MySQLCluster,
    refusal: Option<&Invalid>,
    status: &mut MySQLClusterStatus,
    step: &Step,
) {
    status.instances = observed.instances.iter().map(|seen| instance(observed, seen)).collect();
    let wanted = observed.wanted.instances;
    let ready = status.instances.iter().filter(|one| one.is_ready).count();
    status.ready = Some(format!("{ready}/{wanted}"));
    status.primary = observed.memory.primary.clone().filter(|name| takes_writes(observed, name));
    let versions = observed.instances.iter().filter_map(version);
    status.version = versions.min().map(|version| version.to_string()).or(status.version.take());
    let available = available(observed);
    let (reason, message) = activity(observed, step);
    let spec_valid = match refusal {
        Some(refusal) => finding("SpecValid", false, refusal.reason, refusal.message.clone()),
        None => accepted(),
    };
    let phase = match step {
        Step::Wait(Waiting { is_stuck: true, reason, .. }) => reason,
        _ if !available.holds => available.reason,
        Step::Rest => "Running",
        _ => reason,
    };
    let phase = phase.to_owned();
    let is_stuck = matches!(step, Step::Wait(Waiting { is_stuck: true, .. }));
    let is_busy = !is_stuck && *step != Step::Rest;
    let progressing = finding("Progressing", is_busy, reason, message);
    let degraded = degraded(observed, step);
    let findings = Findings { available, degraded, progressing, spec_valid, phase };
    findings.record(cluster, status, observed.now);
}

fn version(seen: &InstanceSeen) -> Option<Version> {
    Version::said(&seen.answer()?.version).ok()
}

fn takes_writes(observed: &Observed, name: &str) -> bool {
    observed.own_look(name).is_some_and(|look| look.is_writable)
}

fn instance(observed: &Observed, seen: &InstanceSeen) -> InstanceStatus {
    let is_primary = observed.memory.primary.as_ref() == Some(&seen.name);
    let look = seen.answer();
    let role = match look {
        Some(_) if is_primary && takes_writes(observed, &seen.name) => InstanceRole::Primary,
        Some(look) if look.following.is_some() => InstanceRole::Replica,
        _ => InstanceRole::None,
    };
    let is_ready = seen.pod.as_ref().is_some_and(|pod| pod.is_ready && !pod.is_deleting);
    let trouble = match look {
        Some(look) => look.following.as_ref().and_then(|following| following.trouble.clone()),
        None => seen.look.as_ref().err().map(|silence| silence.why.clone()),
    };
    InstanceStatus {
        name: seen.name.clone(),
        role,
        is_ready,
        is_member: observed.member(&seen.name).is_some(),
        version: version(seen).map(|version| version.to_string()),
        trouble: trouble.filter(|_| !is_ready),
    }
}

fn available(observed: &Observed) -> Finding {
    let finding = |holds, reason, message: String| finding("Available", holds, reason, message);
    let memory = &observed.memory;
    let Some(primary) = &memory.primary else {
        return match memory.term {
            0 => finding(false, "Founding", "the first instance has not started yet".to_owned()),
            _ => finding(false, "NoPrimary", "a primary is being chosen".to_owned()),
        };
    };
    let Some(look) = observed.own_look(primary) else {
        return finding(false, "PrimaryDown", format!("{primary} does not answer"));
    };
    if !look.is_writable {
        return finding(false, "Opening", format!("{primary} becomes primary"));
    }
    if look.followers < look.waits_for {
        let message = format!(
            "{primary} waits for acknowledgements of {}, and {} of its replicas are connected",
            look.waits_for, look.followers
        );
        return finding(false, "WritesWait", message);
    }
    finding(true, "Serving", format!("{primary} takes writes"))
}

fn degraded(observed: &Observed, step: &Step) -> Finding {
    let finding = |holds, reason, message| finding("Degraded", holds, reason, message);
    if let Step::Wait(Waiting { reason, message, is_stuck: true, .. }) = step {
        return finding(true, reason, message.clone());
    }
    match observed.instances.iter().find_map(|seen| lost(observed, seen)) {
        Some((name, ailment)) => {
            finding(true, "InstanceUnhealthy", format!("{name}: {}", says(ailment)))
        }
        None => finding(false, "Healthy", "no instance is lost".to_owned()),
    }
}

/// What ails an instance, if that is more than a beginning: one that starts, joins or becomes primary is
/// unwell for a moment.
fn lost<'a>(observed: &Observed, seen: &'a InstanceSeen) -> Option<(&'a str, Ailment)> {
    let (ailment, lasts) = observed.unwell(&seen.name)?;
    let is_known = observed.member(&seen.name).is_some();
    (lasts >= BEGINNING || (is_known && ailment.is_down())).then_some((&seen.name, ailment))
}

fn says(ailment: Ailment) -> &'static str {
    match ailment {
        Ailment::Gone => "it has no Pod",
        Ailment::Silent => "it does not answer",
        Ailment::VolumeLost => "its volume is another one",
        Ailment::NotReady => "its Pod is not ready",
        Ailment::CutOff => "its replicas do not reach it",
        Ailment::Troubled => "its replication ended with an error",
    }
}

/// What happens, as a word and a sentence.
fn activity(observed: &Observed, step: &Step) -> (&'static str, String) {
    match step {
        Step::Rest => {
            ("Settled", format!("{} instances run as the spec says", observed.wanted.instances))
        }
        Step::Wait(Waiting { reason, message, .. }) => (reason, message.clone()),
        Step::Remember { change, .. } => changing(change),
        Step::Tell { instance, order } => ("Replicating", format!("{instance} is told: {order:?}")),
        Step::Label { instance, .. } => {
            ("Replicating", format!("the Services learn what {instance} is"))
        }
        Step::DeletePod { instance, why: Why::Outdated } => {
            ("RollingOut", format!("the Pod of {instance} is made anew, as the spec says"))
        }
        Step::DeletePod { instance, why: Why::MakesRoom } => (
            "Cloning",
            format!("{instance} is started again, as a clone of it waits for its commits"),
        ),
        Step::DeletePod { instance, why: Why::Deposed } => {
            ("Replicating", format!("{instance} was primary, and is started again"))
        }
    }
}

fn changing(change: &Change) -> (&'static str, String) {
    match change {
        Change::Begin => ("Looking", "a replica of the controller took over".to_owned()),
        Change::Found => ("Founding", "the first instance becomes primary".to_owned()),
        Change::Depose(why) | Change::HandOver(why) => {
            ("SwitchingOver", format!("another instance takes over: {why}"))
        }
        Change::Elect(name) => ("SwitchingOver", format!("{name} becomes primary")),
        Change::Join(name) => ("Growing", format!("{name} may acknowledge commits")),
        Change::Leave(name) => ("Replicating", format!("{name} is no member any more")),
        Change::Acks(from, to) => {
            ("Replicating", format!("commits wait for {to} acknowledgements instead of {from}"))
        }
    }
}
