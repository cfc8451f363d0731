//! Reading the caches of one controller in one cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cache::{DecodeError, Entry, NoIndex, Store};
use model::{ClusterName, Kind, Object, Selector};

/// A kind was asked for that the controller does not watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read {0} from the cache: the controller neither reconciles, owns nor watches it")]
pub struct NotWatched(pub Kind);

/// The caches of one controller in each cluster that it has shards of here.
pub trait FleetCaches: Send + Sync {
    /// The clusters, in order of their names.
    fn clusters(&self) -> Vec<ClusterName>;

    /// The caches in one of them.
    fn caches(&self, cluster: &ClusterName) -> Option<Arc<CacheView>>;
}

/// What a mapping across clusters may look at.
#[derive(Clone, Copy)]
pub struct FleetView<'a> {
    cluster: &'a ClusterName,
    caches: &'a dyn FleetCaches,
}

/// The stores of every kind one controller watches in one cluster.
#[derive(Debug, Default)]
pub struct CacheView {
    stores: Vec<(Kind, Store)>,
}

impl CacheView {
    /// A view of these stores.
    pub fn new(stores: Vec<(Kind, Store)>) -> Self {
        Self { stores }
    }

    /// The stores that hold a kind; several if it is watched with several selectors.
    fn of(&self, kind: &Kind) -> Result<impl Iterator<Item = &Store>, NotWatched> {
        if !self.stores.iter().any(|(found, _)| found == kind) {
            return Err(NotWatched(kind.clone()));
        }
        Ok(self.stores.iter().filter(move |(found, _)| found == kind).map(|(_, store)| store))
    }

    /// One object.
    ///
    /// # Errors
    /// If the controller does not watch the kind.
    pub fn get(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<Entry>>, NotWatched> {
        Ok(self.of(kind)?.find_map(|store| store.get(namespace, name)))
    }

    /// One object, decoded now or before.
    ///
    /// # Errors
    /// If the controller does not watch the kind, or the object does not fit the type.
    pub fn get_decoded<K: Object>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Result<Option<Arc<K>>, DecodeError>, NotWatched> {
        let found = self.of(kind)?.map(|store| store.get_decoded(namespace, name));
        Ok(found.filter_map(Result::transpose).next().transpose())
    }

    /// Objects of a namespace (`None`: of all) that a selector selects, ordered by namespace and name.
    ///
    /// # Errors
    /// If the controller does not watch the kind.
    pub fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Arc<Entry>>, NotWatched> {
        let stores = self.of(kind)?;
        Ok(merge(stores.map(|store| store.list(namespace, selector))))
    }

    /// Objects whose controlling owner has this uid, ordered by namespace and name.
    ///
    /// # Errors
    /// If the controller does not watch the kind.
    pub fn owned_by(&self, kind: &Kind, uid: &str) -> Result<Vec<Arc<Entry>>, NotWatched> {
        Ok(merge(self.of(kind)?.map(|store| store.owned_by(uid))))
    }

    /// Objects that have a value in an index, ordered by namespace and name.
    ///
    /// # Errors
    /// If the controller does not watch the kind, or no such index was declared.
    pub fn indexed(
        &self,
        kind: &Kind,
        index: &str,
        value: &str,
    ) -> Result<Result<Vec<Arc<Entry>>, NoIndex>, NotWatched> {
        let lists = self.of(kind)?.map(|store| store.indexed(index, value));
        Ok(lists.collect::<Result<Vec<_>, _>>().map(|lists| merge(lists.into_iter())))
    }
}

impl<'a> FleetView<'a> {
    /// A view for an object of `cluster`.
    pub fn new(cluster: &'a ClusterName, caches: &'a dyn FleetCaches) -> Self {
        Self { cluster, caches }
    }

    /// The cluster that the mapped object lives in.
    pub fn cluster(&self) -> &'a ClusterName {
        self.cluster
    }

    /// The clusters that the controller has shards of here, in order of their names.
    pub fn clusters(&self) -> Vec<ClusterName> {
        self.caches.clusters()
    }

    /// The controller's caches in a cluster; `None` if it has no shard of it here.
    pub fn caches(&self, cluster: &ClusterName) -> Option<Arc<CacheView>> {
        self.caches.caches(cluster)
    }
}

impl fmt::Debug for FleetView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetView").field("cluster", self.cluster).finish_non_exhaustive()
    }
}

impl FleetCaches for BTreeMap<ClusterName, Arc<CacheView>> {
    fn clusters(&self) -> Vec<ClusterName> {
        self.keys().cloned().collect()
    }

    fn caches(&self, cluster: &ClusterName) -> Option<Arc<CacheView>> {
        self.get(cluster).cloned()
    }
}

/// Joins the answers of several stores; an object in two of them appears once.
fn merge(lists: impl Iterator<Item = Vec<Arc<Entry>>>) -> Vec<Arc<Entry>> {
    let mut lists = lists.collect::<Vec<_>>();
    if lists.len() == 1 {
        return lists.pop().unwrap_or_default();
    }
    let mut all: Vec<_> = lists.into_iter().flatten().collect();
    all.sort_by(|a, b| a.header.key.cmp(&b.header.key));
    all.dedup_by(|a, b| a.header.key == b.header.key);
    all
}
