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
//! - A name that comes under a holder who had written ours, or with one who did not take the Lease, is an edit:
//!   nobody who saw ours heeds it, and the next renewal of a coordinator undoes it (`node::office`). A namespace goes
//!   over to another installation when the Lease is deleted while nobody holds it.
//! - A member whose installation is not that of the Lease stays `Joining`: it gets no shards and does not
//!   coordinate. One that owns shards already, because two installations began at once, says that it leaves,
//!   so that a coordinator of the other installation drains it.
//! - Replicas of releases that name no installation take part as before. When one of them coordinates, the
//!   Lease has no name for as long as that lasts.

use std::collections::BTreeMap;

/// The annotation.
const ANNOTATION: &str = "leasehold.dev/installation";
/// The longest name of an installation: that of a label.
const MAX_CHARS: usize = 63;

/// Reads it. A text that is no name stands for another installation than everybody's, until people repair it.
pub(crate) fn read(annotations: Option<&BTreeMap<String, String>>) -> Option<String> {
    let text = annotations?.get(ANNOTATION).filter(|text| !text.is_empty())?;
    Some(text.chars().take(MAX_CHARS + 1).collect())
}

/// The annotation that says it.
pub(crate) fn annotation(installation: Option<&str>) -> Option<(String, String)> {
    installation.map(|name| (ANNOTATION.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_back_and_what_is_too_long_is_nobodys() {
        let back = |name: &str| read(Some(&annotation(Some(name)).into_iter().collect()));
        assert_eq!(back("prod").as_deref(), Some("prod"));
        assert_eq!((back(""), read(None)), (None, None));
        let longest = "x".repeat(MAX_CHARS);
        assert_ne!(back(&format!("{longest}y")), Some(longest));
        assert_eq!(back(&"x".repeat(100_000)).unwrap().len(), MAX_CHARS + 1);
    }
}
