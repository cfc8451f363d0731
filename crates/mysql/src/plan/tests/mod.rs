//! What is decided in single situations. That nothing is lost in any is shown in `model`.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::api::WhenAlone;
use crate::gtid::GtidSet;
use crate::kept::Kept;
use crate::memory::{Member, Memory};
use crate::observed::{InstanceSeen, PodSeen, VolumeSeen, Wanted};
use crate::role::Role;
use crate::server::{Following, Look, Receives, Silence};

/// The uuid of an instance.
fn uuid(ordinal: usize) -> String {
    format!("00000000-0000-0000-0000-00000000000{ordinal}")
}

fn set(text: &str) -> GtidSet {
    text.replace('A', &uuid(0)).replace('B', &uuid(1)).parse().unwrap()
}

fn name(ordinal: usize) -> String {
    format!("db-{ordinal}")
}

fn look(ordinal: usize, executed: &str) -> Look {
    let executed = set(executed);
    let received = executed.clone();
    let version = "8.4.3".to_owned();
    Look { uuid: uuid(ordinal), version, executed, received, ..Look::default() }
}

fn following(source: usize) -> Option<Following> {
    let source = name(source);
    Some(Following { source, receives: Receives::Connected, applies: true, trouble: None })
}

/// A cluster at rest: instance 0 is primary, the others acknowledge.
fn cluster(instances: usize) -> Observed {
    let acks = u32::from(instances > 1);
    let seen = |ordinal: usize| {
        let mut look = look(ordinal, "A:1-9");
        if ordinal == 0 {
            look.is_writable = true;
            (look.waits_for, look.followers) = (acks, u32::try_from(instances).unwrap() - 1);
        } else {
            (look.following, look.acknowledges) = (following(0), true);
        }
        let role = Some(if ordinal == 0 { Role::Primary } else { Role::Replica });
        let pod = PodSeen { is_ready: true, is_running: true, role, ..PodSeen::default() };
        InstanceSeen {
            name: name(ordinal),
            pod: Some(pod),
            volume: Some(VolumeSeen::default()),
            look: Ok(look),
            unwell: None,
        }
    };
    let member = |ordinal| Member { name: name(ordinal), uuid: uuid(ordinal) };
    Observed {
        wanted: Wanted {
            instances,
            acks,
            failover_after: Duration::from_secs(5),
            alone_after: Duration::from_secs(20),
            ..Wanted::default()
        },
        memory: Memory {
            reign: 1,
            term: 1,
            primary: Some(name(0)),
            acks,
            members: (0..instances).map(member).collect(),
            ..Memory::default()
        },
        instances: (0..instances).map(seen).collect(),
        has_begun: false,
        earlier: None,
        last: None,
        now: Timestamp::UNIX_EPOCH,
        bug: None,
    }
}

fn change(observed: &mut Observed, ordinal: usize, change: impl FnOnce(&mut Look)) {
    change(observed.instances[ordinal].look.as_mut().unwrap());
}

/// No Pod and no answer.
fn lose(observed: &mut Observed, ordinal: usize) {
    observed.instances[ordinal].look = Err("no answer".into());
    observed.instances[ordinal].pod = None;
}

/// What a manager decides that saw the same for so many seconds.
fn after(seconds: i64, observed: &Observed) -> Step {
    let mut kept = Kept::default();
    kept.begin(observed.memory.reign);
    let mut observed = observed.clone();
    kept.round(&mut observed);
    observed.now = Timestamp::from_second(seconds).unwrap();
    kept.round(&mut observed);
    decide(&observed)
}

fn waits(step: &Step) -> Option<(&'static str, bool)> {
    match step {
        Step::Wait(waiting) => Some((waiting.reason, waiting.is_stuck)),
        _ => None,
    }
}

/// The change of the memory, if it is one.
fn changed(step: &Step) -> Option<&Change> {
    match step {
        Step::Remember { change, .. } => Some(change),
        _ => None,
    }
}

mod primaries;
mod replicas;
