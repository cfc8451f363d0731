//! What a ShardMap says of its cluster ([`crate::identity`]): for which one it stands, and by which former names people
//! still pause it. In annotations, because these stay with the definitions of every release.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, ClusterUid};

/// The uid of the cluster.
const UID: &str = "leasehold.dev/cluster-uid";
/// Its former names, with commas between them.
const FORMER: &str = "leasehold.dev/former-names";

/// Reads the cluster for which it stands. A text that is no uid counts as none: it is written anew.
pub(crate) fn uid(annotations: Option<&BTreeMap<String, String>>) -> Option<ClusterUid> {
    annotations?.get(UID)?.parse().ok()
}

/// Reads its former names.
pub(crate) fn former(annotations: Option<&BTreeMap<String, String>>) -> BTreeSet<ClusterName> {
    let text = annotations.and_then(|annotations| annotations.get(FORMER));
    text.into_iter().flat_map(|text| text.split(',')).filter_map(|name| name.parse().ok()).collect()
}

/// The annotations that say it.
pub(crate) fn annotations(
    uid: Option<&ClusterUid>,
    former: &BTreeSet<ClusterName>,
) -> Option<BTreeMap<String, String>> {
    let uid = uid.map(|uid| (UID.to_owned(), uid.to_string()));
    let former: Vec<&str> = former.iter().map(ClusterName::as_str).collect();
    let former = (!former.is_empty()).then(|| (FORMER.to_owned(), former.join(",")));
    let all: BTreeMap<_, _> = uid.into_iter().chain(former).collect();
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_read_back_and_garbage_counts_as_none() {
        assert_eq!(annotations(None, &BTreeSet::new()), None);
        let u1: ClusterUid = "u1".parse().unwrap();
        let names: BTreeSet<ClusterName> = ["old", "older"].map(|n| n.parse().unwrap()).into();
        let read = annotations(Some(&u1), &names);
        assert_eq!((uid(read.as_ref()), former(read.as_ref())), (Some(u1), names));
        let garbage = [(UID, "no uid!"), (FORMER, "NO NAME,,")];
        let garbage = garbage.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        assert_eq!((uid(Some(&garbage)), former(Some(&garbage))), (None, BTreeSet::new()));
    }
}
