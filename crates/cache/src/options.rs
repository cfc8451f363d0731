//! What the store of a kind keeps: which parts of an object, and which indexes. Declared before the
//! store starts; it cannot change afterwards.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::Kind;
use serde::de::DeserializeOwned;

use super::json::{Problem, decoded};
use super::owners::OwnedObject;

/// Members deeper than this are kept without asking the transform.
pub(super) const MAX_TRANSFORM_DEPTH: usize = 16;
/// The most indexes of one kind.
const MAX_INDEXES: usize = 64;
/// Values of one object in one index; what is beyond is left out.
const MAX_VALUES: usize = 256;

/// Says whether the member of an object at a path is dropped before the object is stored.
///
/// A path is the names from the top, with `*` for any element of an array, as in `["spec",
/// "containers", "*", "env"]`. What is below a dropped member is not asked about, nor is what makes
/// an object what it is: `apiVersion`, `kind` and, in `metadata`, what its header is read from.
#[derive(Clone)]
pub struct Transform(Arc<Rule>, Arc<AtomicBool>);

type Rule = dyn Fn(&[String]) -> bool + Send + Sync;

impl Transform {
    /// Drops the members for which `drops` holds.
    pub fn new(drops: impl Fn(&[String]) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(drops), Arc::default())
    }

    /// Drops everything but the metadata.
    pub fn all_but_metadata() -> Self {
        Self::new(|path| path.first().is_some_and(|first| first != "metadata"))
    }

    /// Drops what both drop.
    fn and(self, other: Self) -> Self {
        Self::new(move |path| self.drops(path) && other.drops(path))
    }

    pub(super) fn drops(&self, path: &[String]) -> bool {
        // The rule is the user's: what it panics about is kept.
        catch_unwind(AssertUnwindSafe(|| (self.0)(path))).unwrap_or_else(|_| {
            // A defect of the program, which every object may bring to light: once is enough.
            if !self.1.swap(true, Ordering::Relaxed) {
                tracing::error!(?path, "a transform panicked; the member is kept");
            }
            false
        })
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}

/// An object that an index does not have, or not with all its values. Of a hostile cluster it may be every
/// one, so who has a clock decides how many of them a log is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unindexed {
    /// The index.
    pub index: Arc<str>,
    /// What happened: one of a few texts.
    pub what: &'static str,
    /// Why, if that is known.
    pub why: Option<String>,
}

const UNFIT: &str = "an object that does not fit its type is not indexed";
const PANICKED: &str = "an index function panicked; the object is not indexed";
const TOO_MANY: &str = "an object has too many index values";

/// The name of [`Index::owners`].
pub const OWNERS: &str = "leasehold.dev/owners";

type Values = dyn Fn(&[u8]) -> Result<Vec<String>, Problem> + Send + Sync;

/// An index of a kind: a name, and a function that gives an object's values in it.
///
/// The function sees the object as it came, before anything is dropped. It must depend on nothing
/// else.
#[derive(Clone)]
pub struct Index {
    pub(super) name: Arc<str>,
    values: Arc<Values>,
}

impl Index {
    /// An index over objects decoded as `K`, which may be a part of the object: the smaller, the
    /// quicker. One that does not fit `K` has no values.
    pub fn new<K: DeserializeOwned>(
        name: &str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let values = move |json: &[u8]| decoded(json).map(|object| values(&object));
        Self { name: name.into(), values: Arc::new(values) }
    }

    /// An index called [`OWNERS`] over the uids of all owners that an object names: the built-in one
    /// knows only those that control it.
    pub fn owners() -> Self {
        Self::new(OWNERS, |object: &OwnedObject| object.owner_uids().map(str::to_owned).collect())
    }

    /// The values of an object; notes why it has none, or not all.
    pub(super) fn values(&self, json: &[u8], notes: &mut Vec<Unindexed>) -> Vec<String> {
        let mut note = |what, why| {
            // One for each index of an object is enough, for whoever does not read them.
            if notes.len() < MAX_INDEXES {
                notes.push(Unindexed { index: Arc::clone(&self.name), what, why });
            }
        };
        // The function is the user's: a panic in it must not end the informer.
        let mut values = match catch_unwind(AssertUnwindSafe(|| (self.values)(json))) {
            Ok(Ok(values)) => values,
            Ok(Err(error)) => {
                note(UNFIT, Some(model::error::chain(&error)));
                Vec::new()
            }
            Err(_) => {
                note(PANICKED, None);
                Vec::new()
            }
        };
        if values.len() > MAX_VALUES {
            note(TOO_MANY, Some(format!("{} values, of which {MAX_VALUES} count", values.len())));
            values.truncate(MAX_VALUES);
        }
        values
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.name).finish()
    }
}

/// What the store of a kind keeps. By default whole objects, and no index but the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    pub(super) transform: Option<Transform>,
    pub(super) indexes: Vec<Index>,
}

impl StoreOptions {
    /// Strips objects before they are stored.
    #[must_use]
    pub fn transform(mut self, transform: Transform) -> Self {
        self.transform = Some(transform);
        self
    }

    /// Adds an index; one of the same name is replaced.
    ///
    /// # Panics
    /// If there are more than 64, which only a mistake in the program can cause.
    #[must_use]
    pub fn index(mut self, index: Index) -> Self {
        self.indexes.retain(|other| other.name != index.name);
        self.indexes.push(index);
        assert!(self.indexes.len() <= MAX_INDEXES, "a kind has at most {MAX_INDEXES} indexes");
        self
    }

    /// Strips objects of everything but their metadata, and of what is dropped of that already.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        let metadata = Transform::all_but_metadata();
        self.transform = Some(match self.transform {
            None => metadata,
            Some(present) => {
                Transform::new(move |path| metadata.drops(path) || present.drops(path))
            }
        });
        self
    }

    /// Serves two users of one store: drops only what both drop, and has the indexes of both.
    fn join(self, other: Self) -> Self {
        let transform = match (self.transform, other.transform) {
            (Some(one), Some(two)) => Some(one.and(two)),
            _ => None,
        };
        other.indexes.into_iter().fold(Self { transform, ..self }, Self::index)
    }
}

/// The options of every kind, joined from what each controller declares.
#[derive(Clone, Debug, Default)]
pub struct OptionsByKind(BTreeMap<Kind, StoreOptions>);

impl OptionsByKind {
    /// Adds what one user of a kind declares; who declares nothing wants whole objects.
    pub fn declare(&mut self, kind: &Kind, options: StoreOptions) {
        let joined = match self.0.remove(kind) {
            Some(present) => present.join(options),
            None => options,
        };
        self.0.insert(kind.clone(), joined);
    }

    /// The options of a kind; the default ones if nobody declared any.
    pub fn of(&self, kind: &Kind) -> StoreOptions {
        self.0.get(kind).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};

    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('/').map(str::to_owned).collect()
    }

    #[test]
    fn users_of_one_store_get_what_each_needs() {
        let (pods, maps) = (Kind::of::<Pod>(), Kind::of::<ConfigMap>());
        let status = || Transform::new(|path| path[0] == "status");
        let index = |name| Index::new::<Pod>(name, |_| Vec::new());
        let mut options = OptionsByKind::default();
        options.declare(
            &pods,
            StoreOptions::default().transform(Transform::all_but_metadata()).index(index("a")),
        );
        options.declare(&pods, StoreOptions::default().transform(status()).index(index("b")));
        options.declare(&maps, StoreOptions::default().transform(Transform::all_but_metadata()));
        let joined = options.of(&pods);
        let transform = joined.transform.unwrap();
        assert!(transform.drops(&path("status")) && !transform.drops(&path("spec")));
        assert_eq!(joined.indexes.iter().map(|index| &*index.name).collect::<Vec<_>>(), ["a", "b"]);
        options.declare(&maps, StoreOptions::default());
        assert!(options.of(&maps).transform.is_none(), "somebody wants whole objects");
        let annotations = Transform::new(|path| path == ["metadata", "annotations"]);
        let less =
            StoreOptions::default().transform(annotations).metadata_only().transform.unwrap();
        assert!(less.drops(&path("spec")) && less.drops(&path("metadata/annotations")));
        assert!(!less.drops(&path("metadata")) && !less.drops(&path("metadata/finalizers")));
    }

    #[test]
    fn functions_that_fail_do_no_harm() {
        let transform = Transform::new(|path| path[7] == "out of bounds");
        assert!(!transform.drops(&path("spec")));
        let panics = Index::new::<serde_json::Value>("panics", |_| panic!("on purpose"));
        let mut notes = Vec::new();
        assert!(panics.values(b"{}", &mut notes).is_empty());
        let unfit = Index::new::<u8>("unfit", |_| vec!["x".into()]);
        assert!(unfit.values(b"{}", &mut notes).is_empty());
        let many = Index::new::<u8>("many", |_| vec!["x".into(); 1000]);
        assert_eq!(many.values(b"7", &mut notes).len(), MAX_VALUES);
        let noted: Vec<_> = notes.iter().map(|note| (&*note.index, note.what)).collect();
        assert_eq!(noted, [("panics", PANICKED), ("unfit", UNFIT), ("many", TOO_MANY)]);
        for _ in 0..1000 {
            unfit.values(b"{}", &mut notes);
        }
        assert_eq!(notes.len(), MAX_INDEXES);
    }
}
