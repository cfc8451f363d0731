//! Reading the caches of one controller in one cluster: what [`crate::Context`] and mappings see.

use std::sync::Arc;

use crate::cache::{DecodeError, Entry, NoIndex, Store};
use crate::object::{Kind, Object};
use crate::selector::Selector;

/// A kind was asked for that the controller does not watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read {0} from the cache: the controller neither reconciles, owns nor watches it")]
pub struct NotWatched(Kind);

/// The stores of every kind one controller watches in one cluster.
#[derive(Debug, Default)]
pub struct CacheView {
    stores: Vec<(Kind, Store)>,
}

impl CacheView {
    pub(crate) fn new(stores: Vec<(Kind, Store)>) -> Self {
        Self { stores }
    }

    /// The stores that hold a kind; several if it is watched with several selectors.
    fn of<K: Object>(&self) -> Result<impl Iterator<Item = &Store>, NotWatched> {
        let kind = Kind::of::<K>();
        if !self.stores.iter().any(|(found, _)| *found == kind) {
            return Err(NotWatched(kind));
        }
        Ok(self.stores.iter().filter(move |(found, _)| *found == kind).map(|(_, store)| store))
    }

    pub(crate) fn get<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<Entry>>, NotWatched> {
        Ok(self.of::<K>()?.find_map(|store| store.get(namespace, name)))
    }

    /// One object, decoded now or before.
    pub(crate) fn get_decoded<K: Object>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Result<Option<Arc<K>>, DecodeError>, NotWatched> {
        let found = self.of::<K>()?.map(|store| store.get_decoded(namespace, name));
        Ok(found.filter_map(Result::transpose).next().transpose())
    }

    pub(crate) fn list<K: Object>(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Arc<Entry>>, NotWatched> {
        let stores = self.of::<K>()?;
        Ok(merge(stores.map(|store| store.list(namespace, selector))))
    }

    pub(crate) fn owned_by<K: Object>(&self, uid: &str) -> Result<Vec<Arc<Entry>>, NotWatched> {
        Ok(merge(self.of::<K>()?.map(|store| store.owned_by(uid))))
    }

    pub(crate) fn indexed<K: Object>(
        &self,
        index: &str,
        value: &str,
    ) -> Result<Result<Vec<Arc<Entry>>, NoIndex>, NotWatched> {
        let lists = self.of::<K>()?.map(|store| store.indexed(index, value));
        Ok(lists.collect::<Result<Vec<_>, _>>().map(|lists| merge(lists.into_iter())))
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

/// What a mapping may look at: the cached objects of every kind its controller watches, in the
/// cluster the mapped object lives in.
///
/// A kind may not have been listed yet when a mapping runs. That loses nothing: each primary object
/// is reconciled when it appears.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    view: &'a CacheView,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(view: &'a CacheView) -> Self {
        Self { view }
    }

    /// One cached object; `None` too if its kind is not watched or it does not fit the type.
    pub fn get<K: Object>(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.view.get_decoded(namespace, name).ok()?.inspect_err(unfit).ok()?
    }

    /// Cached objects of a namespace (`None`: of all) that a selector selects, ordered by namespace
    /// and name. Those that do not fit the type are left out, with a warning in the log.
    pub fn list<K: Object>(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<K>> {
        match self.view.list::<K>(namespace, selector) {
            Ok(entries) => decoded(&entries),
            Err(error) => refused(&error),
        }
    }

    /// Cached objects that have a value in an index, ordered by namespace and name. Those that do
    /// not fit the type are left out, with a warning in the log.
    pub fn indexed<K: Object>(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        match self.view.indexed::<K>(index, value) {
            Ok(Ok(entries)) => decoded(&entries),
            Ok(Err(error)) => refused(&error),
            Err(error) => refused(&error),
        }
    }
}

fn refused<K>(error: &dyn std::error::Error) -> Vec<Arc<K>> {
    tracing::warn!(%error, "a mapping looked at what its controller has not declared");
    Vec::new()
}

fn decoded<K: Object>(entries: &[Arc<Entry>]) -> Vec<Arc<K>> {
    let decoded = entries.iter().map(|entry| entry.decode().map(Arc::new));
    decoded.filter_map(|object| object.inspect_err(unfit).ok()).collect()
}

fn unfit(error: &DecodeError) {
    tracing::warn!(error = model::error::chain(error), "an object does not fit its type");
}
