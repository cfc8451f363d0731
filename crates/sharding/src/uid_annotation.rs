//! How a ShardMap says for which cluster it stands ([`crate::identity`]): an annotation, because it stays
//! with the definitions of every release.

use std::collections::BTreeMap;

use model::ClusterUid;

/// The annotation.
const ANNOTATION: &str = "leasehold.dev/cluster-uid";

/// Reads it. A text that is no uid counts as none: it is written anew.
pub(crate) fn read(annotations: Option<&BTreeMap<String, String>>) -> Option<ClusterUid> {
    annotations?.get(ANNOTATION)?.parse().ok()
}

/// The annotations that say it.
pub(crate) fn annotations(uid: Option<&ClusterUid>) -> Option<BTreeMap<String, String>> {
    uid.map(|uid| BTreeMap::from([(ANNOTATION.to_owned(), uid.to_string())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_back_and_garbage_counts_as_none() {
        let uid: ClusterUid = "u1".parse().unwrap();
        assert_eq!(read(annotations(Some(&uid)).as_ref()), Some(uid));
        assert_eq!(annotations(None), None);
        let garbage = BTreeMap::from([(ANNOTATION.to_owned(), "no uid!".to_owned())]);
        assert_eq!(read(Some(&garbage)), None);
    }
}
