//! What ails the instances, as far as one round can tell. Pure; since when is kept between rounds.

use crate::ailment::Ailment;
use crate::observed::Observed;
use crate::server::Receives;

impl Observed {
    /// What ails this instance now.
    pub(crate) fn ailment(&self, name: &str) -> Option<Ailment> {
        let Some(seen) = self.seen(name) else { return Some(Ailment::Gone) };
        let Some(look) = seen.answer() else {
            return Some(seen.pod.as_ref().map_or(Ailment::Gone, |_| Ailment::Silent));
        };
        if self.member(name).is_some_and(|member| member.uuid != look.uuid) {
            return Some(Ailment::VolumeLost);
        }
        if self.is_cut_off(name) {
            return Some(Ailment::CutOff);
        }
        let primary = self.memory.primary.as_deref().filter(|primary| *primary != name);
        if look.is_broken() || primary.is_some_and(|primary| !look.is_connected_to(primary)) {
            return Some(Ailment::Troubled);
        }
        let is_ready = seen.pod.as_ref().is_some_and(|pod| pod.is_ready);
        (!is_ready).then_some(Ailment::NotReady)
    }

    fn is_cut_off(&self, name: &str) -> bool {
        let following = self.instances.iter().filter_map(|seen| seen.answer()?.following.as_ref());
        let mut attempts = following.filter(|following| following.source == name).peekable();
        self.memory.primary.as_deref() == Some(name)
            && attempts.peek().is_some()
            && attempts.all(|following| following.receives == Receives::Connecting)
    }
}
