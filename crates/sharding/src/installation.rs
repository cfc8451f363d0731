//! Which installation a namespace of the home cluster belongs to: replicas that share one configuration.
//!
//! Members of one namespace share their work, so replicas with another configuration, of a second release
//! or on somebody's laptop, must not be among them. The name of the installation says who belongs together.
//! An annotation of the coordinator's Lease holds it: every coordinator writes that object by
//! compare-and-swap before it coordinates, and the Lease stays when all replicas are gone.
//!
//! # Invariants
//! - A coordinator writes the name of its installation into a Lease that has none, and never into one that
//!   has another.
//! - A member whose installation is not that of the Lease stays `Joining`: it gets no shards and does not
//!   stand for election. One that owns shards already, because two installations began at once or somebody
//!   edited the Lease, gives them up as one that leaves does.
//! - Replicas of releases that name no installation take part as before. When one of them coordinates, the
//!   Lease has no name for as long as that lasts.

use std::collections::BTreeMap;

use model::error::foreign;

use crate::lease::COORDINATOR;
use crate::world::World;

/// The annotation.
const ANNOTATION: &str = "leasehold.dev/installation";
/// The longest name of an installation: that of a label.
pub(crate) const MAX_CHARS: usize = 63;

/// Reads it. A text that is no name stands for another installation than everybody's, until people repair it.
pub(crate) fn read(annotations: Option<&BTreeMap<String, String>>) -> Option<String> {
    let text = annotations?.get(ANNOTATION).filter(|text| !text.is_empty())?;
    Some(text.chars().take(MAX_CHARS + 1).collect())
}

/// The annotation that says it.
pub(crate) fn annotation(installation: Option<&str>) -> Option<(String, String)> {
    installation.map(|name| (ANNOTATION.to_owned(), name.to_owned()))
}

/// The installation to which the namespace belongs, if it is not `mine`.
pub(crate) fn other<'a>(world: &'a World, mine: &str) -> Option<&'a str> {
    let lease = &world.leases().get(COORDINATOR)?.record;
    lease.installation.as_deref().filter(|installation| *installation != mine)
}

/// Why a member of `mine` cannot take part, and what to do about it; `None` if it can.
pub(crate) fn refusal(world: &World, mine: &str, namespace: &str) -> Option<String> {
    let other = foreign(other(world, mine)?);
    Some(format!(
        "namespace {namespace} of the home cluster belongs to the installation {other:?}, and this replica is of {mine:?}, so it takes no part; set `installation: {other}` if it has the same configuration as those replicas, else give it a namespace of its own; if that installation is gone for good: kubectl delete --namespace {namespace} lease {COORDINATOR}"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::Moment;

    use super::*;
    use crate::lease::LeaseRecord;
    use crate::record::Object;

    fn world(installation: Option<&str>) -> World {
        let mut world = World::default();
        let me = "m-1".parse().unwrap();
        let record = LeaseRecord::new(COORDINATOR.into(), &me, Duration::from_secs(8));
        let annotations = annotation(installation).into_iter().collect();
        let lease = LeaseRecord { installation: read(Some(&annotations)), ..record };
        world.apply(Object::Lease(lease), Moment::default());
        world
    }

    #[test]
    fn a_namespace_is_of_one_installation_and_says_of_which() {
        assert_eq!(refusal(&World::default(), "a", "ns"), None);
        assert_eq!(refusal(&world(None), "a", "ns"), None);
        assert_eq!(refusal(&world(Some("a")), "a", "ns"), None);
        let text = refusal(&world(Some("b")), "a", "ns").unwrap();
        assert!(text.starts_with("namespace ns of the home cluster belongs to the installation \"b\", and this replica is of \"a\""), "{text}");
        assert!(
            text.ends_with("kubectl delete --namespace ns lease leasehold-coordinator"),
            "{text}"
        );
    }

    #[test]
    fn a_name_that_is_none_is_bounded_and_shown_without_what_steers_a_terminal() {
        let long = world(Some(&format!("\u{1b}[2J{}", "x".repeat(10_000))));
        let text = refusal(&long, "a", "ns").unwrap();
        assert!(text.len() < 600 && !text.contains('\u{1b}'), "{text}");
        assert_eq!(refusal(&world(Some("")), "a", "ns"), None);
    }

    #[test]
    fn who_takes_or_gives_back_the_lease_keeps_the_name() {
        let kept = world(Some("b")).leases()[COORDINATOR].record.clone();
        let taken = kept.taken_by(&"m-2".parse().unwrap(), Duration::from_secs(8));
        assert_eq!(
            (taken.installation, kept.released().installation),
            (kept.installation.clone(), kept.installation)
        );
    }
}
