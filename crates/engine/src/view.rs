//! Reading the caches of one controller in one cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use cache::{DecodeError, Entry, NoIndex, Store};
use listwatch::Form;
use model::{AnyObject, Clock, ClusterName, Kind, Object, Selector};

use informer::{Absence, InformerState, LogLine, LogLines};

/// The requested kind is not in the cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWatched {
    /// The controller does not watch the kind.
    #[error("read {0} from the cache: the controller neither reconciles, owns nor watches it")]
    Kind(Kind),
    /// The controller watches only the metadata of the kind's objects.
    #[error(
        "read {0} from the cache: the controller watches only its metadata, read it as \
         PartialObjectMeta"
    )]
    Whole(Kind),
}

/// What a reader requests: a kind, and how much of its objects.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    kind: &'a Kind,
    form: Form,
}

impl<'a> Wanted<'a> {
    /// What a reader of this type needs of a kind.
    pub fn by<K: AnyObject>(kind: &'a Kind) -> Self {
        Self { kind, form: Form::of::<K>() }
    }

    /// The metadata of a kind's objects.
    pub fn metadata(kind: &'a Kind) -> Self {
        Self { kind, form: Form::Metadata }
    }
}

/// Whole objects.
impl<'a> From<&'a Kind> for Wanted<'a> {
    fn from(kind: &'a Kind) -> Self {
        Self { kind, form: Form::Whole }
    }
}

/// The caches of one controller in each cluster of which it has shards here.
pub trait FleetCaches: Send + Sync {
    /// The clusters, in order of their names.
    fn clusters(&self) -> Vec<ClusterName>;

    /// The caches in one of them.
    fn caches(&self, cluster: &ClusterName) -> Option<Arc<CacheView>>;
}

/// What a mapping across clusters may read.
#[derive(Clone, Copy)]
pub struct FleetView<'a> {
    cluster: &'a ClusterName,
    caches: &'a dyn FleetCaches,
}

/// The stores of every kind one controller watches in one cluster.
#[derive(Debug, Default)]
pub struct CacheView {
    sources: Vec<Cached>,
    /// How often a log says what trouble the controller has with the cluster's objects.
    log_lines: Mutex<LogLines>,
    /// Without one, a log is told everything.
    clock: Option<Arc<dyn Clock>>,
}

/// One source of a controller.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) kind: Kind,
    form: Form,
    pub(crate) optional: bool,
    store: Store,
    /// Who fills the store.
    pub(crate) informer: Option<Arc<InformerState>>,
}

impl Cached {
    /// Whether objects of a namespace can be in it.
    fn may_hold(&self, namespace: Option<&str>) -> bool {
        let only = self.informer.as_ref().and_then(|one| one.target.scope.namespace.as_deref());
        only.is_none() || namespace.is_none() || only == namespace
    }

    /// Why the cluster lacks the kind, if it is known to.
    pub(crate) fn absence(&self) -> Option<Absence> {
        self.informer.as_ref()?.absence()
    }

    /// Whether it holds everything that it should, and follows its changes.
    pub(crate) fn is_available(&self) -> bool {
        self.informer.as_ref().is_none_or(|informer| informer.is_available())
    }
}

impl CacheView {
    /// A view of these stores, of whole objects.
    pub fn new(stores: Vec<(Kind, Store)>) -> Self {
        let cached = |(kind, store)| Cached {
            kind,
            form: Form::Whole,
            optional: false,
            store,
            informer: None,
        };
        Self { sources: stores.into_iter().map(cached).collect(), ..Self::default() }
    }

    /// A view of what these informers hold, one for each source; with each, whether the source is
    /// optional.
    pub(crate) fn of_informers<'a>(
        informers: impl Iterator<Item = (&'a Arc<InformerState>, bool)>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let mut all: Vec<Cached> = Vec::new();
        for (informer, optional) in informers {
            // Two sources of one kind and scope share an informer, whose store is read once.
            let shares = |other: &&mut Cached| {
                other.informer.as_ref().is_some_and(|other| Arc::ptr_eq(other, informer))
            };
            if let Some(known) = all.iter_mut().find(shares) {
                known.optional &= optional;
                continue;
            }
            all.push(Cached {
                kind: informer.target.kind.clone(),
                form: informer.target.form,
                optional,
                store: informer.store.clone(),
                informer: Some(Arc::clone(informer)),
            });
        }
        Self { sources: all, clock: Some(Arc::clone(clock)), ..Self::default() }
    }

    /// The next line of a log with this text, of which there may be one for each change of an object; none
    /// if there were many lately, so that only those who look for details see it.
    pub fn log_line(&self, text: &'static str) -> Option<LogLine> {
        let Some(clock) = &self.clock else { return Some(LogLine { more: None }) };
        let mut lines = self.log_lines.lock().expect("no holder of this lock panics");
        lines.next(text, clock.now())
    }

    pub(crate) fn sources(&self) -> &[Cached] {
        &self.sources
    }

    /// The cluster, if informers fill the stores.
    pub fn cluster(&self) -> Option<&ClusterName> {
        let informer = self.sources.iter().find_map(|source| source.informer.as_ref())?;
        Some(&informer.target.cluster)
    }

    /// The kinds in it.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.sources.iter().map(|source| &source.kind)
    }

    /// The sources of a kind; several if it is watched with several selectors or in several
    /// namespaces.
    fn of(&self, wanted: Wanted<'_>) -> Result<impl Iterator<Item = &Cached>, NotWatched> {
        let Wanted { kind, form } = wanted;
        let serves = move |source: &&Cached| source.kind == *kind && source.form <= form;
        if !self.sources.iter().any(|source| serves(&source)) {
            let known = self.kinds().any(|found| found == kind);
            let reason = if known { NotWatched::Whole } else { NotWatched::Kind };
            return Err(reason(kind.clone()));
        }
        Ok(self.sources.iter().filter(serves))
    }

    /// Whether the cluster has the kind and allows the controller to watch all that it wants of it, as
    /// far as is known. If an optional source is not available, its objects are absent, or as they were
    /// when it last was.
    ///
    /// # Errors
    /// If the controller does not watch the kind.
    pub fn is_available<'a>(&self, wanted: impl Into<Wanted<'a>>) -> Result<bool, NotWatched> {
        Ok(self.of(wanted.into())?.all(Cached::is_available))
    }

    /// One object.
    ///
    /// # Errors
    /// If the controller does not watch the kind.
    pub fn get<'a>(
        &self,
        wanted: impl Into<Wanted<'a>>,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<Entry>>, NotWatched> {
        let mut found = self.of(wanted.into())?.filter(|source| source.may_hold(namespace));
        Ok(found.find_map(|source| source.store.get(namespace, name)))
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
        let found = self.of(Wanted::by::<K>(kind))?.filter(|source| source.may_hold(namespace));
        let found = found.map(|source| source.store.get_decoded(namespace, name));
        Ok(found.filter_map(Result::transpose).next().transpose())
    }

    /// Objects of a namespace (`None`: of all) that a selector selects, ordered by namespace and name.
    ///
    /// # Errors
    /// If the controller does not watch the kind.
    pub fn list<'a>(
        &self,
        wanted: impl Into<Wanted<'a>>,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Arc<Entry>>, NotWatched> {
        let found = self.of(wanted.into())?.filter(|source| source.may_hold(namespace));
        Ok(merge(found.map(|source| source.store.list(namespace, selector))))
    }

    /// Objects whose controlling owner has this uid, ordered by namespace and name.
    ///
    /// # Errors
    /// If the controller does not watch the kind.
    pub fn owned_by<'a>(
        &self,
        wanted: impl Into<Wanted<'a>>,
        uid: &str,
    ) -> Result<Vec<Arc<Entry>>, NotWatched> {
        Ok(merge(self.of(wanted.into())?.map(|source| source.store.owned_by(uid))))
    }

    /// Objects that have a value in an index, ordered by namespace and name.
    ///
    /// # Errors
    /// If the controller does not watch the kind, or no such index was declared.
    pub fn indexed<'a>(
        &self,
        wanted: impl Into<Wanted<'a>>,
        index: &str,
        value: &str,
    ) -> Result<Result<Vec<Arc<Entry>>, NoIndex>, NotWatched> {
        let lists = self.of(wanted.into())?.map(|source| source.store.indexed(index, value));
        // An index may be declared for the metadata alone, or for whole objects alone.
        let (found, missing): (Vec<_>, Vec<_>) = lists.partition(Result::is_ok);
        Ok(match missing.into_iter().find_map(Result::err).filter(|_| found.is_empty()) {
            Some(missing) => Err(missing),
            None => Ok(merge(found.into_iter().flatten())),
        })
    }
}

impl<'a> FleetView<'a> {
    /// A view for an object of `cluster`.
    pub fn new(cluster: &'a ClusterName, caches: &'a dyn FleetCaches) -> Self {
        Self { cluster, caches }
    }

    /// The cluster of the mapped object.
    pub fn cluster(&self) -> &'a ClusterName {
        self.cluster
    }

    /// The clusters of which the controller has shards here, in order of their names.
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
