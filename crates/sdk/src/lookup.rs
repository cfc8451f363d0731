//! What a mapping may read.

use std::error::Error;
use std::sync::Arc;

use cache::{DecodeError, Entry, LocalKey};
use engine::{CacheView, LogLine, Wanted};
use model::{AnyObject, Kind, Object, Selector};

use crate::bulk::{self, BulkError};

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
    /// and name. Those that do not fit the type are left out, with a warning in the log, and so are those that would
    /// take more than [`crate::Context::list`] reads.
    pub fn list<K: Object>(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Arc<K>> {
        let kind = Kind::of::<K>();
        match self.view.list(Wanted::by::<K>(&kind), namespace, selector) {
            Ok(entries) => self.decoded(&kind, &entries).map(Arc::new).collect(),
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

    /// Cached objects that have a value in an index, ordered by namespace and name. Some are left out as by
    /// [`Self::list`].
    pub fn indexed<K: Object>(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let kind = Kind::of::<K>();
        let entries = self.with_value(Wanted::by::<K>(&kind), index, value);
        self.decoded(&kind, &entries).map(Arc::new).collect()
    }

    /// The names of the cached objects that have a value in an index, ordered by namespace and name. Nothing is decoded.
    pub fn indexed_names<K: Object>(&self, index: &str, value: &str) -> Vec<Name> {
        let entries = self.with_value(Wanted::metadata(&Kind::of::<K>()), index, value);
        entries.iter().map(|entry| name(&entry.header.key)).collect()
    }

    fn with_value(&self, wanted: Wanted<'_>, index: &str, value: &str) -> Vec<Arc<Entry>> {
        match self.view.indexed(wanted, index, value) {
            Ok(Ok(entries)) => entries,
            Ok(Err(error)) => refused(&error),
            Err(error) => refused(&error),
        }
    }

    /// Those of the objects that can be had; the log says which are left out.
    pub(crate) fn decoded<T: AnyObject>(
        &self,
        kind: &Kind,
        entries: &[Arc<Entry>],
    ) -> impl Iterator<Item = T> {
        bulk::objects(self.view, kind, entries).filter_map(move |object| match object {
            Ok(object) => Some(object),
            Err(BulkError::Unfit(error)) => {
                self.unfit()(&error);
                None
            }
            Err(error) => {
                self.warn("a mapping reads a part of a list only", &error);
                None
            }
        })
    }

    /// Says that an object does not fit its type.
    pub(crate) fn unfit(&self) -> impl Fn(&DecodeError) {
        move |error| self.warn("an object does not fit its type", error)
    }

    fn warn(&self, text: &'static str, error: &(dyn Error + 'static)) {
        warn(self.view.log_line(text), text, error);
    }
}

/// Warns of an error of which there may be one for each object: at most now and then. `line` says whether it is time.
pub(crate) fn warn(line: Option<LogLine>, text: &'static str, error: &(dyn Error + 'static)) {
    let error = model::error::chain(error);
    match line {
        Some(line) => tracing::warn!(error, more = line.more, "{text}"),
        None => tracing::debug!(error, "{text}"),
    }
}

pub(crate) fn refused<T>(error: &dyn Error) -> Vec<T> {
    tracing::warn!(%error, "a mapping looked at what its controller has not declared");
    Vec::new()
}

pub(crate) fn name(LocalKey { namespace, name }: &LocalKey) -> Name {
    (namespace.as_deref().map(str::to_owned), name.to_string())
}

#[cfg(test)]
mod tests {
    use cache::StoreWriter;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;

    use super::*;

    /// A ConfigMap has no such field, so that the test itself takes little.
    #[test]
    fn a_mapping_reads_a_part_of_what_would_take_gigabytes() {
        let mut writer = StoreWriter::default();
        let spec = vec!["{}"; 16_000].join(",");
        for number in 0..85 {
            let metadata = format!(r#"{{"name":"m-{number}","uid":"u","resourceVersion":"1"}}"#);
            let text = format!(r#"{{"metadata":{metadata},"spec":[{spec}]}}"#);
            let entry = writer.parse(&text).unwrap();
            writer.upsert(&entry);
        }
        let kind = Kind::of::<ConfigMap>();
        let view = CacheView::new(vec![(kind.clone(), writer.store())]);
        let (lookup, all) = (Lookup::new(&view), Selector::all());
        assert!((1..10).contains(&lookup.list::<ConfigMap>(None, &all).len()));
        let whole = lookup.list_dynamic::<DynamicObject>(&kind, None, &all);
        assert!((1..40).contains(&whole.len()));
        assert_eq!(lookup.names::<ConfigMap>(None, &all).len(), 85);
    }
}
