//! What members need once all are there and healthy: the Pods that the spec asks for, and space. Pure.

use std::time::Duration;

use crate::api::{EtcdClusterStatus, MemberStatus};
use crate::calls::Look;
use crate::change::Change;
use crate::members::Members;
use crate::names;
use crate::observed::Observed;
use crate::step::{Step, Why};
use crate::version::Unreachable;

/// etcd's own quota, where it does not say which it has.
const QUOTA: i64 = 2 << 30;
/// With an alarm of a full database, so much unused space is worth a defragmentation, in percent.
const UNUSED_IN_NEED: i64 = 10;
/// With such an alarm, the shortest time between two defragmentations.
const PAUSE_IN_NEED: Duration = Duration::from_secs(60);

/// Why the version that the spec asks for is refused, if it is.
pub(crate) fn refusal(observed: &Observed<'_>, status: &EtcdClusterStatus) -> Option<Unreachable> {
    let (lowest, highest) = Observed::versions(status)?;
    observed.wanted.version.follows(lowest, highest).err()
}

/// Accepts the version that the spec asks for. One that is of no later minor version than those that run
/// is accepted at any time, because it may correct one that does not start; a later one when all members
/// are healthy.
pub(crate) fn accept(members: &Members<'_>, all_are_healthy: bool) -> Option<Step> {
    let Members { observed, status } = members;
    let wanted = observed.wanted.version;
    let is_known = status.target_version.as_deref() == Some(&*wanted.to_string());
    if observed.invalid.is_some() {
        return None;
    }
    if is_known || status.cluster_id.is_none() || refusal(observed, status).is_some() {
        return None;
    }
    let rises = Observed::versions(status)
        .is_none_or(|(_, highest)| (wanted.major, wanted.minor) > (highest.major, highest.minor));
    let may = all_are_healthy || !rises;
    may.then(|| Step::Record(Change::Target(wanted.to_string())))
}

/// Brings members one by one to what the spec asks for: the leader last, after another leads.
pub(crate) fn roll(members: &Members<'_>) -> Option<Step> {
    if let Some(step) = accept(members, true) {
        return Some(step);
    }
    let outdated = members.running().filter(|member| members.is_outdated(&member.name)).collect();
    let member = turn(members, outdated)?;
    Some(
        step_down(members, member)
            .unwrap_or_else(|| Step::DeletePod { member: member.name.clone(), why: Why::Outdated }),
    )
}

/// Gives unused space back, and ends the alarm of a full database once it is not full.
pub(crate) fn space(members: &Members<'_>) -> Option<Step> {
    let observed = members.observed;
    let full = observed.etcd.alarms.iter().find(|alarm| alarm.alarm == "NOSPACE");
    let settings = &observed.cluster.spec.defragment;
    let since = members.status.defragmented_at.as_ref();
    let is_due = since.is_none_or(|since| {
        let passed = observed.now.duration_since(since.0);
        let usual = observed.wanted.defragment_interval;
        let pause = if full.is_some() { usual.min(PAUSE_IN_NEED) } else { usual };
        passed.unsigned_abs() >= pause || passed.is_negative()
    });
    let is_worth = |member: &&MemberStatus| {
        let Some(look) = observed.etcd.looks.get(&member.name) else { return false };
        let percent = i64::from(settings.unused_percent);
        let usual = unused_percent(look) >= percent && unused(look) >= settings.unused_bytes;
        settings.enabled && (usual || (full.is_some() && unused_percent(look) >= UNUSED_IN_NEED))
    };
    let worth: Vec<_> = members.running().filter(is_worth).collect();
    if let (Some(member), true) = (turn(members, worth.clone()), is_due) {
        let then = || Step::Defragment(member.name.clone());
        return Some(step_down(members, member).unwrap_or_else(then));
    }
    let full = full.filter(|_| worth.is_empty())?;
    let quota = |look: &Look| if look.quota > 0 { look.quota } else { quota(observed) };
    let looks = &observed.etcd.looks;
    let has_room = looks.values().all(|look| look.db_size < quota(look));
    let asked_all = members.running().all(|member| looks.contains_key(&member.name));
    let via = members.via("").filter(|_| has_room && asked_all)?;
    Some(Step::Disarm { via, id: full.member })
}

/// Whether one look shows that all members should be asked.
pub(crate) fn is_conspicuous(observed: &Observed<'_>, look: &Look) -> bool {
    let settings = &observed.cluster.spec.defragment;
    let is_fragmented = unused_percent(look) >= i64::from(settings.unused_percent)
        && unused(look) >= settings.unused_bytes;
    !look.errors.is_empty() || look.leader == 0 || (settings.enabled && is_fragmented)
}

fn quota(observed: &Observed<'_>) -> i64 {
    observed.cluster.spec.quota_backend_bytes.unwrap_or(QUOTA)
}

fn unused(look: &Look) -> i64 {
    look.db_size.saturating_sub(look.in_use).max(0)
}

fn unused_percent(look: &Look) -> i64 {
    if look.db_size <= 0 { 0 } else { unused(look).saturating_mul(100) / look.db_size }
}

/// Whose turn it is: members in order of their numbers, the leader last.
fn turn<'a>(members: &Members<'a>, of: Vec<&'a MemberStatus>) -> Option<&'a MemberStatus> {
    let cluster = members.observed.cluster;
    of.into_iter().min_by_key(|member| (member.is_leader, names::number(cluster, &member.name)))
}

/// Lets another lead, if this member leads and there is another.
fn step_down(members: &Members<'_>, member: &MemberStatus) -> Option<Step> {
    let to = members.via(&member.name).filter(|_| member.is_leader)?;
    let id = members.observed.listed(&to)?.id;
    Some(Step::MoveLeader { from: member.name.clone(), to, id })
}
