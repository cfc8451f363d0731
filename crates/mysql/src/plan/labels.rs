//! Role labels, by which the Services find the instances. Pure.
//!
//! The label of an old primary goes before the new one is opened, if the server lets it. Labels are for
//! clients' comfort; that nobody writes to the wrong instance rests on the instances.

use super::*;
use crate::observed::InstanceSeen;
use crate::role::Role;

impl Observed {
    /// Takes the primary's label from whoever is not primary.
    pub(super) fn unlabel(&self, primary: &str) -> Option<Step> {
        let has_it = |seen: &&InstanceSeen| {
            let pod = seen.pod.as_ref().filter(|pod| !pod.keeps_label);
            pod.is_some_and(|pod| pod.role == Some(Role::Primary))
        };
        let mut others = self.instances.iter().filter(|seen| seen.name != primary);
        let old = others.find(has_it)?;
        Some(Step::Label { instance: old.name.clone(), role: None })
    }

    /// Labels the open primary, and the replicas.
    pub(super) fn label(&self, primary: &str) -> Option<Step> {
        // Clients wait for the primary, so it comes first.
        let first = self.instances.iter().filter(|seen| seen.name == primary);
        let rest = self.instances.iter().filter(|seen| seen.name != primary);
        first.chain(rest).find_map(|seen| {
            let pod = seen.pod.as_ref().filter(|pod| !pod.is_deleting && !pod.keeps_label)?;
            let role = match seen.name == primary {
                true => Some(Role::Primary),
                false => self.role(seen, pod.role),
            };
            let instance = seen.name.clone();
            (pod.role != role).then_some(Step::Label { instance, role })
        })
    }

    /// A member that follows is a replica; of one that does not answer nothing new is known.
    fn role(&self, seen: &InstanceSeen, known: Option<Role>) -> Option<Role> {
        let Some(look) = seen.answer() else { return known };
        let is_member = self.member(&seen.name).is_some_and(|member| member.uuid == look.uuid);
        (is_member && look.following.is_some()).then_some(Role::Replica)
    }
}
