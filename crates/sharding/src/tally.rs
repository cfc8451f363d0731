//! A set of clusters as two numbers: how many, and the sum of one well mixed 64-bit hash for each name. Pure.

use model::{ClusterName, uid_hash};

use crate::api::ConfiguredClusters;
use crate::planner::mix;

/// How many clusters there are, and the digest of their names. Names are added and taken away in any
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    count: i64,
    sum: u64,
}

impl Tally {
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a ClusterName>) -> Self {
        names.into_iter().fold(Self::default(), Self::plus)
    }

    pub(crate) fn plus(self, name: &ClusterName) -> Self {
        Self { count: self.count + 1, sum: self.sum.wrapping_add(hash(name)) }
    }

    pub(crate) fn minus(self, name: &ClusterName) -> Self {
        Self { count: self.count - 1, sum: self.sum.wrapping_sub(hash(name)) }
    }

    /// Whether a member says of its clusters that they tally so.
    pub(crate) fn is_of(self, said: &ConfiguredClusters) -> bool {
        self.count == i64::from(said.count) && self.digest() == said.digest
    }

    pub(crate) fn digest(self) -> String {
        format!("{:016x}", self.sum)
    }
}

fn hash(name: &ClusterName) -> u64 {
    mix(uid_hash(name.as_str()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn name(n: usize) -> ClusterName {
        format!("cluster-{n}").parse().unwrap()
    }

    #[test]
    fn digests_of_similar_sets_differ() {
        let mut seen = BTreeSet::new();
        for n in 0..2_000 {
            let names: Vec<_> =
                (0..40).filter(|&m| m != n % 40).chain([n + 100]).map(name).collect();
            assert!(seen.insert(Tally::of(&names).digest()));
        }
        assert_eq!(Tally::default().digest(), "0000000000000000");
        assert_ne!(uid_hash("cluster-1"), hash(&name(1)));
    }
}
