//! A list that is cloned for nothing: a member builds and compares its Member at every step.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A list of an object, shared between its copies.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Vec<T>", into = "Vec<T>", bound(serialize = "T: Clone + Serialize"))]
pub struct Shared<T>(Arc<[T]>);

impl<T> Shared<T> {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a Shared<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(list: Vec<T>) -> Self {
        Self(list.into())
    }
}

impl<T: Clone> From<Shared<T>> for Vec<T> {
    fn from(list: Shared<T>) -> Self {
        list.to_vec()
    }
}

impl<T> FromIterator<T> for Shared<T> {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> Self {
        Self(list.into_iter().collect())
    }
}
