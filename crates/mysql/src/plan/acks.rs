//! How many acknowledgements a commit waits for. Pure.
//!
//! Keeps rule 3: the memory never says more than the primary waits for, and says more only when so many
//! members have the commits that were acknowledged by fewer.

use super::*;
use crate::memory::Memory;
use crate::server::Look;

impl Observed {
    /// The primary waits for as many as are remembered, whatever happened to it.
    pub(super) fn enforce(&self, primary: &str, look: &Look) -> Option<Step> {
        let acks = self.memory.acks;
        (look.waits_for < acks && !planted!(self, LowerServerFirst))
            .then(|| Step::tell(primary, Order::WaitFor(acks)))
    }

    /// Raises or lowers the count of acknowledgements.
    pub(super) fn tune_acks(&self, primary: &str, look: &Look) -> Option<Step> {
        let (has, wanted) = (self.memory.acks, self.wanted_acks(primary, look));
        let wait_for = |count| Some(Step::tell(primary, Order::WaitFor(count)));
        if wanted < has {
            if planted!(self, LowerServerFirst) && look.waits_for > wanted {
                return wait_for(wanted);
            }
            return Some(self.remember_acks(wanted));
        }
        if look.waits_for != wanted && (wanted == has || !planted!(self, RaiseBeforeServer)) {
            return wait_for(wanted);
        }
        if wanted == has {
            return None;
        }
        let is_rash = planted!(self, RaiseWithoutBarrier);
        if is_rash || self.holds(primary, &self.memory.members, wanted) {
            return Some(self.remember_acks(wanted));
        }
        let text = format!("{wanted} members have to receive what {primary} committed before");
        Some(Waiting::moment("Raising", text))
    }

    /// How many acknowledgements there should be: as many as are asked for, once so many can be given.
    fn wanted_acks(&self, primary: &str, look: &Look) -> u32 {
        let has = self.memory.acks;
        let asked = self.wanted.acks;
        if asked <= has {
            return if self.is_alone(primary) { 0 } else { asked };
        }
        let members = self.others(primary).count();
        let possible = members.min(self.ackers(primary).min(look.followers) as usize);
        asked.min(u32::try_from(possible).unwrap_or(u32::MAX)).max(has)
    }

    /// Whether the other one of two is lost for so long that the primary goes on without it.
    fn is_alone(&self, primary: &str) -> bool {
        let mut others = self.instances.iter().filter(|seen| seen.name != primary);
        let is_lost = |name: &str| {
            let unwell = self.unwell(name);
            unwell.is_some_and(|(_, lasts)| lasts >= self.wanted.alone_after)
        };
        self.continues_alone() && others.all(|seen| is_lost(&seen.name))
    }

    fn remember_acks(&self, acks: u32) -> Step {
        let memory = Memory { acks, ..self.memory.clone() };
        Step::remember(memory, Change::Acks(self.memory.acks, acks))
    }
}
