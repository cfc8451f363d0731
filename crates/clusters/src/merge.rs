//! Joins the snapshots of all providers into one source per name: pure.
//!
//! The first source of a name wins, in the order of the configuration, so that a name means the same
//! cluster in all replicas with the same configuration. Their order in time does not matter.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use model::ClusterName;

use crate::MAX_CLUSTERS;
use crate::provider::{Snapshot, Source};

/// The sources to engage, and the problems with the configuration of clusters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// One source per name.
    pub(crate) sources: BTreeMap<ClusterName, Source>,
    /// The place of each in the configuration: that of its provider.
    pub(crate) places: BTreeMap<ClusterName, usize>,
    /// Duplicates, excesses, and the providers' own problems.
    pub(crate) problems: Vec<Arc<str>>,
}

/// Joins the snapshots, in the order of the configuration.
pub(crate) fn merge<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Merged {
    let mut merged = Merged::default();
    for (number, snapshot) in snapshots.into_iter().enumerate() {
        merged.problems.extend(snapshot.problems.iter().cloned());
        for source in &snapshot.sources {
            let full = merged.sources.len() >= MAX_CLUSTERS;
            match merged.sources.entry(source.name.clone()) {
                Entry::Occupied(first) => merged.problems.extend(duplicate(first.get(), source)),
                Entry::Vacant(_) if full => merged.problems.push(excess(source)),
                Entry::Vacant(place) => {
                    place.insert(source.clone());
                    merged.places.insert(source.name.clone(), number);
                }
            }
        }
    }
    merged
}

/// The same access in two places is no problem, but two clusters with one name are.
fn duplicate(first: &Source, second: &Source) -> Option<Arc<str>> {
    (first.fingerprint != second.fingerprint).then(|| {
        format!(
            "{} is left out: the name {} belongs to {}; fix: rename one of the contexts",
            second.origin, second.name, first.origin
        )
        .into()
    })
}

fn excess(source: &Source) -> Arc<str> {
    format!(
        "{} is left out: {MAX_CLUSTERS} clusters are engaged already; fix: spread the clusters over \
         several managers",
        source.origin
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{Access, Fingerprint};

    fn snapshot(sources: &[(&str, &str)]) -> Snapshot {
        let source = |(name, content): &(&str, &str)| Source {
            name: name.parse().unwrap(),
            origin: format!("origin of {content}").into(),
            fingerprint: Fingerprint::of([content.as_bytes()]),
            access: Ok(Access::InCluster),
        };
        Snapshot { sources: sources.iter().map(source).collect(), problems: Vec::new() }
    }

    #[test]
    fn the_first_of_a_name_wins_and_the_other_is_named() {
        let merged =
            merge(&[snapshot(&[("east", "1"), ("west", "2")]), snapshot(&[("east", "3")])]);
        let east = &merged.sources[&"east".parse().unwrap()];
        assert_eq!(&*east.origin, "origin of 1");
        assert_eq!(merged.sources.len(), 2);
        assert_eq!(
            merged.problems,
            ["origin of 3 is left out: the name east belongs to origin of 1; fix: rename one of the contexts"
                .into()]
        );
    }

    #[test]
    fn the_same_access_twice_is_no_problem() {
        let merged = merge(&[snapshot(&[("east", "1")]), snapshot(&[("east", "1")])]);
        assert_eq!((merged.sources.len(), merged.problems.len()), (1, 0));
    }

    #[test]
    fn clusters_are_bounded() {
        let names: Vec<_> = (0..=MAX_CLUSTERS).map(|n| format!("c{n}")).collect();
        let all: Vec<_> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
        let merged = merge(&[snapshot(&all)]);
        assert_eq!((merged.sources.len(), merged.problems.len()), (MAX_CLUSTERS, 1));
    }
}
