//! Sharing of equal parts: namespaces, label sets, owners and index values repeat in many objects.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use super::header::{Owner, Uid};

/// Parts kept before those that no object uses any more are looked for. Afterwards, at each
/// doubling: so at most twice the parts in use are kept, or this many.
const SWEEP_MIN: usize = 256;
/// Bytes of new parts after which they are looked for too, beside as many again as were in use: a few parts
/// may be large.
const SWEEP_BYTES: usize = 64 << 10;
/// The two counts in front of what an `Arc` points to.
pub(super) const ARC_COUNTS: usize = 2 * size_of::<usize>();

/// Shares equal parts of the objects of one store.
#[derive(Debug, Default)]
pub(super) struct Interner {
    texts: Shared<str>,
    owners: Shared<Owner>,
}

#[derive(Debug)]
struct Shared<T: ?Sized> {
    parts: HashSet<Arc<T>>,
    /// Bytes of the parts.
    bytes: usize,
    /// The number of parts, and their bytes, at which those out of use are looked for.
    sweep_at: (usize, usize),
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { parts: HashSet::new(), bytes: 0, sweep_at: (SWEEP_MIN, SWEEP_BYTES) }
    }
}

impl<T: ?Sized + Hash + Eq> Shared<T>
where
    Arc<T>: Borrow<T>,
{
    fn share(
        &mut self,
        part: &T,
        own: impl FnOnce() -> Arc<T>,
        bytes: impl Fn(&T) -> usize,
    ) -> Arc<T> {
        if let Some(shared) = self.parts.get(part) {
            return Arc::clone(shared);
        }
        if self.parts.len() >= self.sweep_at.0 || self.bytes >= self.sweep_at.1 {
            self.parts.retain(|part| Arc::strong_count(part) > 1);
            self.parts.shrink_to(self.parts.len() * 2);
            self.bytes = self.parts.iter().map(|part| bytes(part)).sum();
            self.sweep_at = (SWEEP_MIN.max(self.parts.len() * 2), self.bytes * 2 + SWEEP_BYTES);
        }
        let shared = own();
        self.bytes += bytes(&shared);
        self.parts.insert(Arc::clone(&shared));
        shared
    }

    /// Bytes of the parts and the table that finds them.
    fn bytes(&self) -> usize {
        // The standard table: seven of eight buckets are filled, each with one byte of control.
        let buckets = match self.parts.capacity() {
            0 => return self.bytes,
            few @ 1..8 => few + 1,
            many => many / 7 * 8,
        };
        self.bytes + buckets * (size_of::<Arc<T>>() + 1)
    }
}

impl Interner {
    /// The shared copy of a text.
    pub(super) fn share(&mut self, text: &str) -> Arc<str> {
        self.texts.share(text, || Arc::from(text), |text| ARC_COUNTS + text.len())
    }

    /// The shared copy of an owner.
    pub(super) fn owner(
        &mut self,
        api_version: &str,
        kind: &str,
        name: &str,
        uid: &str,
    ) -> Arc<Owner> {
        let owner = Owner {
            api_version: self.share(api_version),
            kind: self.share(kind),
            name: name.into(),
            uid: Uid::new(uid),
        };
        let bytes = |owner: &Owner| {
            ARC_COUNTS + size_of::<Owner>() + owner.name.len() + owner.uid.heap_bytes()
        };
        self.owners.share(&owner, || Arc::new(owner.clone()), bytes)
    }

    /// Bytes of everything shared.
    pub(super) fn bytes(&self) -> usize {
        self.texts.bytes() + self.owners.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_are_one() {
        let mut interner = Interner::default();
        assert!(Arc::ptr_eq(&interner.share("a"), &interner.share("a")));
        let owner = |interner: &mut Interner, uid| interner.owner("v1", "X", "x", uid);
        let (one, same) = (owner(&mut interner, "u"), owner(&mut interner, "u"));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &owner(&mut interner, "other")));
    }

    #[test]
    fn parts_out_of_use_go() {
        let mut interner = Interner::default();
        let held = interner.share("held");
        for round in 0..10 * SWEEP_MIN {
            interner.share(&format!("text {round}"));
            interner.owner("v1", "X", "x", &format!("uid {round}"));
        }
        assert!(interner.texts.parts.len() <= SWEEP_MIN);
        assert!(interner.owners.parts.len() <= SWEEP_MIN);
        assert!(Arc::ptr_eq(&held, &interner.share("held")));
    }
}
