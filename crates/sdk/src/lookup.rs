//! What a mapping may read.

use std::sync::Arc;

use cache::{DecodeError, Entry, LocalKey};
use engine::{CacheView, Wanted};
use model::{Kind, Object, Selector};

/// An object: its namespace, if its kind has them, and name.
pub type Name = (Option<String>, String);

/// What a mapping may read: the cached objects of every kind that its controller watches, in the cluster
/// of the mapped object.
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

    pub(crate) fn view(&self) -> &'a CacheView {
        self.view
    }

    /// One cached object; also `None` if its kind is not watched or it does not fit the type.
    pub fn get<K: Object>(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.view
            .get_decoded(&Kind::of::<K>(), namespace, name)
            .ok()?
            .inspect_err(self.unfit())
            .ok()?
    }

    /// Cached objects of a namespace (`None`: of all) that a selector selects, ordered by namespace
    /// and name. Those that do not fit the type are left out, with a warning in the log.
    pub fn list<K: Object>(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<K>> {
        match self.view.list(Wanted::by::<K>(&Kind::of::<K>()), namespace, selector) {
            Ok(entries) => self.decoded(&entries),
            Err(error) => refused(&error),
        }
    }

    /// The names of cached objects of a namespace (`None`: of all) that a selector selects, ordered by namespace and
    /// name. They are read from the headers in the cache: nothing is decoded.
    pub fn names<K: Object>(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Name> {
        match self.view.list(Wanted::metadata(&Kind::of::<K>()), namespace, selector) {
            Ok(entries) => entries.iter().map(|entry| name(&entry.header.key)).collect(),
            Err(error) => refused(&error),
        }
    }

    /// Cached objects that have a value in an index, ordered by namespace and name. Those that do
    /// not fit the type are left out, with a warning in the log.
    pub fn indexed<K: Object>(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        match self.view.indexed(Wanted::by::<K>(&Kind::of::<K>()), index, value) {
            Ok(Ok(entries)) => self.decoded(&entries),
            Ok(Err(error)) => refused(&error),
            Err(error) => refused(&error),
        }
    }

    fn decoded<K: Object>(&self, entries: &[Arc<Entry>]) -> Vec<Arc<K>> {
        let decoded = entries.iter().map(|entry| entry.decode().map(Arc::new));
        decoded.filter_map(|object| object.inspect_err(self.unfit()).ok()).collect()
    }

    /// Says that an object does not fit its type.
    pub(crate) fn unfit(&self) -> impl Fn(&DecodeError) {
        const UNFIT: &str = "an object does not fit its type";
        |error| {
            let error = model::error::chain(error);
            match self.view.log_line(UNFIT) {
                Some(line) => tracing::warn!(error, more = line.more, "{UNFIT}"),
                None => tracing::debug!(error, "{UNFIT}"),
            }
        }
    }
}

pub(crate) fn refused<T>(error: &dyn std::error::Error) -> Vec<T> {
    tracing::warn!(%error, "a mapping looked at what its controller has not declared");
    Vec::new()
}

fn name(LocalKey { namespace, name }: &LocalKey) -> Name {
    (namespace.as_deref().map(str::to_owned), name.to_string())
}
