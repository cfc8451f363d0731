//! What a watch of the FleetPolicies knows of them, by what home lists and by what it refuses to list. Pure.
//!
//! Home without the kind, or without the right to read it, has no policies: then nothing is paused. But who once read
//! a policy goes on with it until home shows others, also when home is read anew.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Moment;

use crate::policy::PolicyRecord;
use crate::refusals::Refusals;

/// The pause before home is asked again that has no policies to list.
const PAUSE: Duration = Duration::from_secs(60);

/// What one watch knows.
#[derive(Debug)]
pub struct PolicyList {
    /// Those that were read, also by the watch before; `None` before the first list.
    known: Option<BTreeMap<String, PolicyRecord>>,
    /// Whether this watch has listed them.
    is_listed: bool,
    refusals: Refusals,
}

/// What follows from a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nothing yet: it may be about to pass.
    Doubted,
    /// What was read holds, and people must know.
    Holds,
    /// There are none.
    Believed {
        /// Whether that is news.
        is_news: bool,
        /// The pause before home is asked again.
        pause: Duration,
    },
}

impl PolicyList {
    /// A watch that begins. `before` is what the watch before it knew.
    pub fn after(before: Option<Vec<PolicyRecord>>) -> Self {
        Self { known: before.map(named), is_listed: false, refusals: Refusals::default() }
    }

    /// Home lists them. Returns whether that is news.
    pub fn listed(&mut self, policies: Vec<PolicyRecord>) -> bool {
        let listed = Some(named(policies));
        let is_first = !std::mem::replace(&mut self.is_listed, true);
        let is_news = is_first || self.known != listed;
        self.known = listed;
        is_news
    }

    /// One was written. Returns whether that is news.
    pub(crate) fn applied(&mut self, policy: PolicyRecord) -> bool {
        let known = self.known.get_or_insert_default();
        known.insert(policy.name.clone(), policy.clone()) != Some(policy)
    }

    /// One was deleted. Returns whether that is news.
    pub(crate) fn deleted(&mut self, name: &str) -> bool {
        self.known.as_mut().is_some_and(|known| known.remove(name).is_some())
    }

    /// Home says that there is no such kind, or no right to read it.
    pub fn refused(&mut self, now: Moment) -> Refused {
        let is_believed = self.refusals.refused(now);
        let is_news = self.known.is_none();
        match &self.known {
            None if !is_believed => return Refused::Doubted,
            Some(known) if !known.is_empty() => return Refused::Holds,
            _ => {}
        }
        self.known.get_or_insert_default();
        Refused::Believed { is_news, pause: self.refusals.pause(now, PAUSE) }
    }

    /// Home does not refuse.
    pub fn answered(&mut self) {
        self.refusals.end();
    }

    /// Those that are known.
    pub fn records(&self) -> Vec<PolicyRecord> {
        self.known.iter().flat_map(|known| known.values().cloned()).collect()
    }
}

fn named(policies: Vec<PolicyRecord>) -> BTreeMap<String, PolicyRecord> {
    policies.into_iter().map(|policy| (policy.name.clone(), policy)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::FleetPolicySpec;

    fn at(s: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(s))
    }

    fn pause(name: &str) -> PolicyRecord {
        let spec = FleetPolicySpec { pause: Some(true), ..FleetPolicySpec::default() };
        PolicyRecord::new(name, spec)
    }

    #[test]
    fn home_without_policies_has_none_once_it_has_said_so_for_a_while() {
        let mut list = PolicyList::after(None);
        assert_eq!(list.refused(at(0)), Refused::Doubted);
        list.answered();
        assert_eq!(list.refused(at(10)), Refused::Doubted);
        assert_eq!(list.refused(at(24)), Refused::Doubted);
        let soon = Duration::from_secs(5);
        assert_eq!(list.refused(at(25)), Refused::Believed { is_news: true, pause: soon });
        assert_eq!(list.refused(at(30)), Refused::Believed { is_news: false, pause: soon });
        assert_eq!(list.refused(at(80)), Refused::Believed { is_news: false, pause: PAUSE });
        assert!(list.listed(Vec::new()), "the first list is news in any case");
    }

    /// Who loses the right to read a pause must not begin to work, nor may who reads home anew meanwhile.
    #[test]
    fn what_was_read_holds_while_home_refuses_to_list_it() {
        let mut list = PolicyList::after(None);
        assert!(list.listed(vec![pause("p")]));
        assert!(!list.listed(vec![pause("p")]));
        for second in [0, 100, 1_000] {
            assert_eq!(list.refused(at(second)), Refused::Holds);
        }
        let mut next = PolicyList::after(Some(list.records()));
        assert_eq!(next.refused(at(1_001)), Refused::Holds);
        assert_eq!(next.records(), [pause("p")]);
        assert!(next.listed(vec![pause("p")]), "home shows it again");
        assert!(next.applied(pause("q")) && !next.applied(pause("q")));
        assert!(next.deleted("q") && !next.deleted("q"));
    }
}
