//! Whose a queue is: its owner tag names one incarnation of one object of one cluster. Pure.
//!
//! The cluster is named by its uid, that of the namespace `kube-system`, which stays when its context
//! gets another name. Earlier versions wrote the context's name. Such a mark is ours if it has the uid of
//! our object, which no other object ever has, and is replaced.

use kube::ResourceExt;
use sdk::{ClusterUid, Context, label_value};

use super::api::Queue;

/// The tag that says whose a queue is.
pub(super) const OWNER_TAG: &str = "leasehold.dev/owner";
/// The longest value of a tag, in characters
/// (<https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html>).
pub(super) const MAX_TAG_VALUE: usize = 256;
/// The longest key of a tag, likewise.
pub(super) const MAX_TAG_KEY: usize = 128;

/// What a mark begins with that names its cluster by uid. No name of a cluster has a colon.
const BY_UID: &str = "cluster:";

/// An object that wants a queue.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    /// Which cluster it is in; `None` while the cluster has not told.
    pub cluster_uid: Option<&'a ClusterUid>,
    /// What the fleet calls that cluster now.
    pub cluster_name: &'a str,
    /// The object's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// What an owner tag says to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// It is this object's.
    Ours,
    /// It is this object's, by a mark that should be replaced.
    OursByOldMark,
    /// Nobody's: it has no mark, or that of an earlier incarnation of this object, which is gone. Only a mark that
    /// names its cluster by uid can show that.
    Nobody,
    /// Another's.
    Others,
}

impl<'a> Place<'a> {
    /// The place of this object.
    pub(super) fn of(ctx: &'a Context, queue: &Queue) -> Self {
        Self {
            cluster_uid: ctx.cluster_uid(),
            cluster_name: ctx.cluster().as_str(),
            namespace: queue.namespace().unwrap_or_default(),
            name: queue.name_any(),
            uid: queue.uid().unwrap_or_default(),
        }
    }

    /// The cluster in marks and names.
    pub(super) fn cluster(&self) -> String {
        match self.cluster_uid {
            Some(uid) => format!("{BY_UID}{uid}"),
            None => self.cluster_name.to_owned(),
        }
    }

    /// The value of the owner tag. An object's name that is too long for a tag is shortened and told
    /// apart by its hash.
    pub(super) fn mark(&self) -> String {
        let Self { namespace, name, uid, .. } = self;
        let cluster = self.cluster();
        let whole = format!("{cluster}/{namespace}/{name}/{uid}");
        if whole.len() <= MAX_TAG_VALUE {
            return whole;
        }
        let cluster = if self.cluster_uid.is_some() { cluster } else { label_value(&cluster) };
        format!("{cluster}/{namespace}/{}/{uid}", label_value(name))
    }

    /// Whose a queue with this owner tag is.
    pub(super) fn whose(&self, found: Option<&str>) -> Whose {
        let Some(found) = found.filter(|found| !found.is_empty()) else { return Whose::Nobody };
        let parts: Vec<_> = found.split('/').collect();
        let [cluster, namespace, name, uid] = parts[..] else { return Whose::Others };
        let by_uid = cluster.strip_prefix(BY_UID);
        // Marks that name another cluster by its uid are that one's, even if the rest is alike: clusters
        // that were restored from one backup have the same objects.
        let elsewhere = by_uid.zip(self.cluster_uid).is_some_and(|(by, own)| by != own.as_str());
        let is_name = name == self.name || name == label_value(&self.name);
        if elsewhere || namespace != self.namespace || !is_name {
            return Whose::Others;
        }
        match (uid == self.uid, by_uid, self.cluster_uid) {
            (true, None, Some(_)) => Whose::OursByOldMark,
            (true, _, _) => Whose::Ours,
            (false, Some(_), Some(_)) => Whose::Nobody,
            // The name of a context does not say which cluster it was: other fleets use the same names.
            (false, _, _) => Whose::Others,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An object `u-1` of a cluster of this uid, which is called `east`.
    pub(in super::super) fn place(
        cluster: &'static str,
        namespace: &str,
        name: &str,
    ) -> Place<'static> {
        let cluster_uid = Box::leak(Box::new(cluster.parse().unwrap()));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let (cluster_name, uid) = ("east", "u-1".to_owned());
        Place { cluster_uid: Some(cluster_uid), cluster_name, namespace, name, uid }
    }

    #[test]
    fn whose_a_queue_is() {
        let known = place("c-1", "shop", "orders");
        let unknown = Place { cluster_uid: None, ..known.clone() };
        for (mark, expect, where_unknown) in [
            (None, Whose::Nobody, Whose::Nobody),
            (Some(""), Whose::Nobody, Whose::Nobody),
            (Some("cluster:c-1/shop/orders/u-1"), Whose::Ours, Whose::Ours),
            // Another cluster with the same objects, and the same name in another fleet.
            (Some("cluster:c-2/shop/orders/u-1"), Whose::Others, Whose::Ours),
            (Some("cluster:c-2/shop/orders/u-0"), Whose::Others, Whose::Others),
            // The object before this one.
            (Some("cluster:c-1/shop/orders/u-0"), Whose::Nobody, Whose::Others),
            (Some("cluster:c-1/shop/returns/u-1"), Whose::Others, Whose::Others),
            // Marks of earlier versions, before and after the context got another name.
            (Some("east/shop/orders/u-1"), Whose::OursByOldMark, Whose::Ours),
            (Some("before/shop/orders/u-1"), Whose::OursByOldMark, Whose::Ours),
            (Some("east/shop/orders/u-0"), Whose::Others, Whose::Others),
            (Some("west/shop/orders/u-0"), Whose::Others, Whose::Others),
            (Some("east/a/shop/orders/u-1"), Whose::Others, Whose::Others),
            (Some("me"), Whose::Others, Whose::Others),
        ] {
            assert_eq!(known.whose(mark), expect, "{mark:?}");
            assert_eq!(unknown.whose(mark), where_unknown, "{mark:?}, unknown cluster");
        }
    }

    #[test]
    fn a_mark_fits_into_a_tag_and_is_one_incarnation() {
        assert_eq!(place("c-1", "shop", "orders").mark(), "cluster:c-1/shop/orders/u-1");
        let [one, two] = ["a", "b"].map(|end| {
            let name = format!("{}{end}", "x".repeat(252));
            let place = place("0123456789abcdef0123456789abcdef0123", &"n".repeat(63), &name);
            assert_eq!(place.whose(Some(&place.mark())), Whose::Ours);
            let old = Place { cluster_uid: None, ..place.clone() };
            assert_eq!(place.whose(Some(&old.mark())), Whose::OursByOldMark);
            place.mark()
        });
        assert!(one.len() <= MAX_TAG_VALUE && one != two, "{one}");
    }
}
