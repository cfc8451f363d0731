//! Planned changes of the primary. Pure.
//!
//! Keeps rule 1 by leaving it to `choosing`: all that is decided here is whether it is time, and that is
//! when somebody is so close behind the primary that closing it costs a moment.

use super::*;
use crate::observed::InstanceSeen;
use crate::server::Look;

impl Observed {
    /// Deposes a primary that works, because another one should be it.
    pub(super) fn hand_over(&self, primary: &str, look: &Look) -> Option<Step> {
        let why = if self.is_leaving(primary) {
            "it is one too many"
        } else if self.is_called_for(primary) {
            "another one is asked for"
        } else {
            return None;
        };
        let is_easy = self.has_heir(primary) && self.is_served(primary, look);
        is_easy.then(|| self.depose(primary, Change::HandOver(why.to_owned())))
    }

    fn is_called_for(&self, primary: &str) -> bool {
        let called = self.wanted.primary.as_deref().filter(|called| *called != primary);
        // It comes up with the new template first, or the two wishes would contradict each other.
        let is_it = |seen: &InstanceSeen, called| seen.name == called && !self.is_outdated(seen);
        called.is_some_and(|called| self.heirs(primary).any(|seen| is_it(seen, called)))
    }

    /// Whether a member can take over from a working primary in a moment.
    pub(super) fn has_heir(&self, primary: &str) -> bool {
        self.heirs(primary).next().is_some()
    }

    /// Whether the primary gets the acknowledgements that it waits for: it can be closed then.
    pub(super) fn is_served(&self, primary: &str, look: &Look) -> bool {
        self.ackers(primary) >= look.waits_for
    }

    fn heirs<'a>(&'a self, primary: &'a str) -> impl Iterator<Item = &'a InstanceSeen> {
        self.instances.iter().filter(move |seen| {
            seen.name != primary && !self.is_leaving(&seen.name) && self.is_in_sync(primary, seen)
        })
    }

    /// Whether a member lacks nothing.
    pub(super) fn is_in_sync(&self, primary: &str, seen: &InstanceSeen) -> bool {
        let is_ready = seen.pod.as_ref().is_some_and(|pod| pod.is_ready);
        let look = self.own_look(&seen.name);
        is_ready
            && seen.stays()
            && look.is_some_and(|look| {
                look.is_connected_to(primary) && look.acknowledges && self.is_caught_up(look)
            })
    }
}
