//! The beginning of a cluster: instance 0 becomes its primary, alone. Pure.
//!
//! Keeps rule 2: the memory says who is primary before that one is opened. A memory that was lost looks
//! like a new cluster, so nothing is founded next to data that the first instance may not have.

use super::*;
use crate::memory::Member;
use crate::observed::InstanceSeen;

impl Observed {
    pub(super) fn found(&self) -> Step {
        let Some((first, others)) = self.instances.split_first() else {
            return Waiting::step("Founding", "no instance is wanted");
        };
        let Some(look) = first.answer() else {
            let why = first.look.as_ref().err().map_or("", |silence| &silence.why);
            return Waiting::step("Founding", format!("{} starts: {why}", first.name));
        };
        let holds_data = |seen: &&InstanceSeen| {
            seen.answer().is_some_and(|look| !look.received.is_empty() || look.is_writable)
        };
        if let Some(holder) = others.iter().find(holds_data) {
            return self.lost_memory(&holder.name);
        }
        let is_old = !look.received.is_empty() || look.is_writable || look.following.is_some();
        let silent = others.iter().find(|seen| seen.answer().is_none() && seen.volume.is_some());
        match silent {
            // It may have more than the first.
            Some(silent) if is_old => {
                let text = format!("{} has data, and {} does not answer", first.name, silent.name);
                return Waiting::step("Founding", text);
            }
            _ if is_old && !self.wanted.is_restored => return self.lost_memory(&first.name),
            _ => {}
        }
        let mut memory = self.memory.clone();
        memory.term += 1;
        memory.acks = 0;
        memory.primary = Some(first.name.clone());
        memory.members = vec![Member { name: first.name.clone(), uuid: look.uuid.clone() }];
        Step::remember(memory, Change::Found)
    }

    fn lost_memory(&self, holder: &str) -> Step {
        Waiting::stuck(
            "StatusLost",
            format!(
                "{holder} has data, and the status does not say who is primary: the controller opens \
                 nobody; see which instance has all transactions (SELECT @@gtid_executed), write it \
                 into status.replication with its server_uuid as primary and only member, and acks 0"
            ),
        )
    }
}
