//! What a fleet does in its clusters, and whether two fleets would do the same. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The controller that stands for all.
const EVERYTHING: &str = "*";
/// What follows the name of a controller that selects objects: by what it selects them.
const SELECTS: char = '[';
/// The most controllers that a refusal names.
const MAX_NAMED: usize = 5;

/// Controllers, each with its namespaces; none stands for all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Claim(BTreeMap<String, BTreeSet<String>>);

impl Claim {
    /// Every controller in every namespace.
    pub(super) fn everything() -> Self {
        Self([(EVERYTHING.to_owned(), BTreeSet::new())].into())
    }

    /// Whether there is no controller.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The controllers that both have in a common namespace, for people. Those of one name that select by
    /// something else do not meet, because people divide objects so; one that selects nothing meets them all.
    pub(super) fn meets(&self, other: &Self) -> Option<String> {
        let is_met = |(name, namespaces): &(&String, &BTreeSet<String>)| {
            let is_all = other.0.contains_key(EVERYTHING) || name.as_str() == EVERYTHING;
            (is_all && !other.is_empty()) || other.has_like(name, namespaces)
        };
        let met: Vec<_> = self.0.iter().filter(is_met).map(|(name, _)| name.as_str()).collect();
        let named = met.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
        match met.len().checked_sub(MAX_NAMED) {
            _ if met.is_empty() => None,
            None | Some(0) => Some(named),
            Some(more) => Some(format!("{named} and {more} more controllers")),
        }
    }

    /// Whether it has a controller that may see the objects of that one.
    fn has_like(&self, name: &str, namespaces: &BTreeSet<String>) -> bool {
        let is_common = |others: &BTreeSet<String>| {
            namespaces.is_empty() || others.is_empty() || !namespaces.is_disjoint(others)
        };
        if self.0.get(name).is_some_and(is_common) {
            return true;
        }
        if let Some((whole, _)) = name.split_once(SELECTS) {
            return self.0.get(whole).is_some_and(is_common);
        }
        let part = format!("{name}{SELECTS}");
        let parts = self.0.range(part.clone()..);
        let mut parts = parts.take_while(|(other, _)| other.starts_with(part.as_str()));
        parts.any(|(_, others)| is_common(others))
    }

    /// Whether it says all that `other` says.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let says = |(name, namespaces): (&String, &BTreeSet<String>)| {
            let own = self.0.get(name);
            own.is_some_and(|own| {
                own.is_empty() || (!namespaces.is_empty() && own.is_superset(namespaces))
            })
        };
        self.0.contains_key(EVERYTHING) || other.0.iter().all(says)
    }

    /// What both say.
    pub(super) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (name, namespaces) in &other.0 {
            match both.0.get_mut(name) {
                Some(own) if own.is_empty() || namespaces.is_empty() => own.clear(),
                Some(own) => own.extend(namespaces.iter().cloned()),
                None => drop(both.0.insert(name.clone(), namespaces.clone())),
            }
        }
        both
    }
}

impl FromIterator<(String, BTreeSet<String>)> for Claim {
    /// Controllers, each with its namespaces; none stands for all.
    fn from_iter<I: IntoIterator<Item = (String, BTreeSet<String>)>>(controllers: I) -> Self {
        Self(controllers.into_iter().collect())
    }
}
