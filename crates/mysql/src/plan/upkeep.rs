//! Pods that are not what the spec asks for. Pure.
//!
//! The StatefulSet makes a Pod anew only when it is deleted here: the replicas' first, one at a time and
//! only while nobody is missing, so that the primary finds as many acknowledgements as it waits for as
//! soon as that is possible; then another becomes primary, and the last is a replica like the others.

use std::time::Duration;

use super::*;
use crate::observed::InstanceSeen;

/// How long a Pod that does not serve keeps an old template: it may be starting.
const PATIENCE: Duration = Duration::from_secs(60);

impl Observed {
    /// Makes a Pod anew that does not come up and is outdated: what is wrong with it may be what the spec
    /// now corrects.
    pub(super) fn revive(&self) -> Option<Step> {
        let is_hopeless = |seen: &&InstanceSeen| {
            let is_idle =
                seen.answer().is_none() && seen.pod.as_ref().is_some_and(|pod| !pod.is_ready);
            let unwell = self.unwell(&seen.name);
            is_idle && self.is_outdated(seen) && unwell.is_some_and(|(_, lasts)| lasts >= PATIENCE)
        };
        let seen = self.instances.iter().find(is_hopeless)?;
        self.newer_than_wanted().is_none().then_some(())?;
        Some(Step::DeletePod { instance: seen.name.clone(), why: Why::Outdated })
    }

    /// Brings Pods to the template that is asked for.
    pub(super) fn upgrade(&self, primary: &str) -> Option<Step> {
        let wanted = self.instances.iter().take(self.wanted.instances).rev();
        let next =
            wanted.filter(|seen| self.is_outdated(seen)).min_by_key(|s| s.name == primary)?;
        if let Some(version) = self.newer_than_wanted() {
            let text = format!(
                "{version} runs, and data that it wrote cannot be read by an older one: ask for \
                 {version} or newer"
            );
            return Some(Waiting::stuck("DowngradeRefused", text));
        }
        let others = self.instances.iter().take(self.wanted.instances);
        let mut others = others.filter(|seen| seen.name != primary);
        if let Some(behind) = others.clone().find(|seen| !self.is_in_sync(primary, seen)) {
            let text = format!("{} waits for {} to catch up", next.name, behind.name);
            return Some(Waiting::step("Upgrading", text));
        }
        if next.name == primary && others.next().is_some() {
            let why = "it will be restarted".to_owned();
            return Some(self.depose(primary, Change::HandOver(why)));
        }
        Some(Step::DeletePod { instance: next.name.clone(), why: Why::Outdated })
    }

    pub(super) fn is_outdated(&self, seen: &InstanceSeen) -> bool {
        let pod = seen.pod.as_ref();
        seen.stays() && pod.is_some_and(|pod| pod.template != self.wanted.template)
    }

    /// A version that runs and is newer than the one asked for.
    fn newer_than_wanted(&self) -> Option<&str> {
        let wanted = numbers(self.wanted.version.as_deref()?)?;
        let running = self.instances.iter().filter_map(|seen| Some(&seen.answer()?.version[..]));
        running.filter(|version| numbers(version).is_some_and(|found| found > wanted)).max()
    }
}

/// The numbers of a version: `8.4.3-debug` has 8, 4 and 3.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let text = version.split(|sign: char| !sign.is_ascii_digit() && sign != '.').next()?;
    let mut parts = text.split('.').map(str::parse);
    let mut next = || parts.next()?.ok();
    Some([next()?, next()?, next()?])
}
