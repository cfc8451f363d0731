//! What a ShardMap says of its cluster ([`crate::identity`]): for which one it stands, and which clusters had which
//! names by which people still pause them. In annotations, because these stay with the definitions of every release.
//!
//! And which version it replaced: an API server makes no new version of an object that is written as it is, but a
//! coordinator needs one (`coordinator::written`).

use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, ClusterUid};

use crate::api::ObjectVersion;

/// The uid of the cluster.
const UID: &str = "leasehold.dev/cluster-uid";
/// The former names of clusters, each after the uid of the cluster: `uid/name`, with commas between them.
const FORMER: &str = "leasehold.dev/former-names";
/// The version that was replaced.
const REPLACED: &str = "leasehold.dev/replaced-version";

/// Reads the cluster for which it stands. A text that is no uid counts as none: it is written anew.
pub(crate) fn uid(annotations: Option<&BTreeMap<String, String>>) -> Option<ClusterUid> {
    annotations?.get(UID)?.parse().ok()
}

/// Reads the former names of clusters.
pub(crate) fn former(
    annotations: Option<&BTreeMap<String, String>>,
) -> BTreeSet<(ClusterUid, ClusterName)> {
    let text = annotations.and_then(|annotations| annotations.get(FORMER));
    let parse = |text: &str| {
        let (uid, name) = text.split_once('/')?;
        Some((uid.parse().ok()?, name.parse().ok()?))
    };
    text.into_iter().flat_map(|text| text.split(',')).filter_map(parse).collect()
}

/// The annotations that say it, in a map that replaces that version.
pub(crate) fn annotations(
    uid: Option<&ClusterUid>,
    former: &BTreeSet<(ClusterUid, ClusterName)>,
    version: &ObjectVersion,
) -> Option<BTreeMap<String, String>> {
    let uid = uid.map(|uid| (UID.to_owned(), uid.to_string()));
    let former: Vec<_> = former.iter().map(|(uid, name)| format!("{uid}/{name}")).collect();
    let former = (!former.is_empty()).then(|| (FORMER.to_owned(), former.join(",")));
    let replaced = Some(version.resource.clone()).filter(|version| !version.is_empty());
    let replaced = replaced.map(|version| (REPLACED.to_owned(), version));
    let all: BTreeMap<_, _> = uid.into_iter().chain(former).chain(replaced).collect();
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_read_back_and_garbage_counts_as_none() {
        let first = ObjectVersion::default();
        assert_eq!(annotations(None, &BTreeSet::new(), &first), None);
        let u1: ClusterUid = "u1".parse().unwrap();
        let name = |uid: &str, name: &str| (uid.parse().unwrap(), name.parse().unwrap());
        let names = BTreeSet::from([name("u1", "old"), name("u1", "older"), name("u2", "old")]);
        let read = annotations(Some(&u1), &names, &first);
        assert_eq!((uid(read.as_ref()), former(read.as_ref())), (Some(u1), names));
        let garbage = [(UID, "no uid!"), (FORMER, "NO NAME,,old,u1/,u1/NO")];
        let garbage = garbage.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        assert_eq!((uid(Some(&garbage)), former(Some(&garbage))), (None, BTreeSet::new()));
    }

    #[test]
    fn a_map_that_is_written_as_it_is_differs_from_what_it_replaces() {
        let replacing = |resource: &str| {
            let version = ObjectVersion { uid: "u".into(), resource: resource.to_owned() };
            annotations(None, &BTreeSet::new(), &version)
        };
        assert_ne!(replacing("7"), replacing("8"));
        assert_ne!(replacing("7"), None);
    }
}
