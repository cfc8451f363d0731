//! Joins the snapshots of all providers into one source per name: pure.
//!
//! A name stays with the cluster that has it: of several sources of a name, the one counts that leads where the
//! name was engaged, then the one from the same place ([`Right`]). So who adds a file or a Secret takes nothing
//! from a cluster in use, whatever it is called. Where nothing was engaged yet, the first counts, in the order of
//! the configuration: a name means the same cluster in all replicas that start with the same configuration, and
//! their order in time does not matter.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use model::ClusterName;

use crate::MAX_CLUSTERS;
use crate::provider::{Snapshot, Source};

/// The sources to engage, and the problems with the configuration of clusters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// One source per name, and the place of its provider in the configuration.
    pub(crate) sources: BTreeMap<ClusterName, (usize, Source)>,
    /// Duplicates, excesses, and the providers' own problems.
    pub(crate) problems: Vec<Arc<str>>,
}

/// How much right a source has to its name, the most important first: the fleet does not know another cluster by
/// that name; it leads where the name was engaged; it comes from where that came from.
pub(crate) type Right = (bool, bool, bool);
/// The right of a source whose name is free.
pub(crate) const NO_RIGHT: Right = (false, false, false);

/// Joins the snapshots, in the order of the configuration: `None` is a provider that has not answered. Of several
/// sources of a name, the first of those with most right to it counts.
pub(crate) fn merge<'a>(
    snapshots: impl IntoIterator<Item = &'a Option<Snapshot>>,
    right: impl Fn(&Source) -> Right,
) -> Merged {
    let mut merged = Merged::default();
    let mut chosen: BTreeMap<&ClusterName, (usize, &Source)> = BTreeMap::new();
    let mut others = Vec::new();
    for (place, snapshot) in snapshots.into_iter().enumerate() {
        let Some(snapshot) = snapshot else { continue };
        merged.problems.extend(snapshot.problems.iter().cloned());
        for source in &snapshot.sources {
            let full = chosen.len() >= MAX_CLUSTERS;
            match chosen.entry(&source.name) {
                Entry::Occupied(mut first) if right(source) > right(first.get().1) => {
                    others.push(first.insert((place, source)).1);
                }
                Entry::Occupied(_) => others.push(source),
                Entry::Vacant(_) if full => merged.problems.push(excess(source)),
                Entry::Vacant(free) => {
                    free.insert((place, source));
                }
            }
        }
    }
    let duplicates = others.into_iter().filter_map(|other| duplicate(chosen[&other.name].1, other));
    merged.problems.extend(duplicates);
    let kept = |(name, (place, source)): (&ClusterName, (usize, &Source))| {
        (name.clone(), (place, source.clone()))
    };
    merged.sources = chosen.into_iter().map(kept).collect();
    merged
}

/// The same access in two places is no problem, but two clusters with one name are.
fn duplicate(chosen: &Source, other: &Source) -> Option<Arc<str>> {
    (chosen.fingerprint != other.fingerprint).then(|| {
        format!(
            "{} is left out: the name {} belongs to {}; fix: rename or remove one of the two contexts; the name \
             goes over to this one when the other is gone",
            other.origin, other.name, chosen.origin
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

    fn snapshot(sources: &[(&str, &str)]) -> Option<Snapshot> {
        let source = |(name, content): &(&str, &str)| Source {
            name: name.parse().unwrap(),
            origin: format!("origin of {content}").into(),
            fingerprint: Fingerprint::of([content.as_bytes()]),
            access: Ok(Access::InCluster),
            asked: None,
        };
        Some(Snapshot { sources: sources.iter().map(source).collect(), ..Snapshot::default() })
    }

    #[test]
    fn a_provider_that_has_not_answered_keeps_its_place() {
        let merged = merge(&[None, snapshot(&[("east", "1")])], |_| NO_RIGHT);
        assert_eq!(merged.sources[&"east".parse().unwrap()].0, 1);
    }

    #[test]
    fn the_first_of_a_name_wins_and_the_other_is_named() {
        let snapshots = [snapshot(&[("east", "1"), ("west", "2")]), snapshot(&[("east", "3")])];
        let merged = merge(&snapshots, |_| NO_RIGHT);
        let (_, east) = &merged.sources[&"east".parse().unwrap()];
        assert_eq!(&*east.origin, "origin of 1");
        assert_eq!(merged.sources.len(), 2);
        assert_eq!(
            merged.problems,
            ["origin of 3 is left out: the name east belongs to origin of 1; fix: rename or remove one of the two contexts; the name goes over to this one when the other is gone"
                .into()]
        );
    }

    #[test]
    fn who_has_a_name_keeps_it_whoever_stands_before_and_all_others_are_told_so() {
        let names = [("east", "0"), ("east", "1"), ("east", "2"), ("east", "3")];
        let snapshots = [snapshot(&names[..2]), snapshot(&names[2..])];
        let right = |source: &Source| (true, &*source.origin == "origin of 2", false);
        let merged = merge(&snapshots, right);
        let (place, east) = &merged.sources[&"east".parse().unwrap()];
        assert_eq!((&*east.origin, *place), ("origin of 2", 1));
        assert_eq!(merged.problems.len(), 3);
        for (problem, other) in merged.problems.iter().zip([1, 0, 3]) {
            let text =
                format!("origin of {other} is left out: the name east belongs to origin of 2;");
            assert!(problem.starts_with(&text), "{problem}");
        }
    }

    #[test]
    fn the_same_access_twice_is_no_problem() {
        let merged = merge(&[snapshot(&[("east", "1")]), snapshot(&[("east", "1")])], |_| NO_RIGHT);
        assert_eq!((merged.sources.len(), merged.problems.len()), (1, 0));
    }

    #[test]
    fn clusters_are_bounded() {
        let names: Vec<_> = (0..=MAX_CLUSTERS).map(|n| format!("c{n}")).collect();
        let all: Vec<_> = names.iter().map(|n| (n.as_str(), n.as_str())).collect();
        let merged = merge(&[snapshot(&all)], |_| NO_RIGHT);
        assert_eq!((merged.sources.len(), merged.problems.len()), (MAX_CLUSTERS, 1));
    }
}
