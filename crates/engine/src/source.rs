//! A source: one kind that a controller watches, and what the events of its objects mean.

use std::fmt;
use std::sync::Arc;

use cache::Entry;
use listwatch::{Form, Scope};
use model::{Kind, ObjectKey, Range};
use queue::Priority;

use crate::view::{CacheView, FleetView};
use extent::RangeScope;

/// Says whether a change from one state of an object to another counts.
pub type Predicate = Arc<dyn Fn(Option<&Entry>, Option<&Entry>) -> bool + Send + Sync>;
/// Names the primary objects that an object of another kind concerns, by namespace and name.
pub type Mapping = Arc<dyn Fn(&Entry, &CacheView) -> Vec<(Option<String>, String)> + Send + Sync>;
/// Names the objects of the primary kind, in any cluster, that an object concerns. They need not exist.
pub type FleetMapping = Arc<dyn Fn(&Entry, &FleetView<'_>) -> Vec<ObjectKey> + Send + Sync>;

/// One watched kind of a controller and what its events mean.
#[derive(Clone)]
pub struct Source {
    /// The kind.
    pub kind: Kind,
    /// How much of its objects.
    pub form: Form,
    /// Which of its objects.
    pub scope: Scope,
    /// How its events become keys.
    pub role: Role,
    /// Which changes count: those for which all hold.
    pub predicates: Vec<Predicate>,
    /// The priority of the keys that its changes add.
    pub priority: Priority,
    /// Whether the controller runs without the kind in a cluster that lacks it, or does not allow us to
    /// watch it.
    pub optional: bool,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, scope, .. } = self;
        f.debug_struct("Source").field("kind", kind).field("scope", scope).finish_non_exhaustive()
    }
}

/// How events of a source become keys of the primary kind.
#[derive(Clone)]
pub enum Role {
    /// The object is the key.
    Primary,
    /// The controlling owner is the key, if it is of this kind.
    Owned {
        /// The primary kind.
        owner: Kind,
    },
    /// Every owner of this kind is a key, whether it controls the object or not.
    Dependent {
        /// The primary kind.
        owner: Kind,
    },
    /// A function names the keys.
    Mapped(Mapping),
    /// A function names the keys, in any cluster. Only for controllers of scope
    /// [`model::GroupScope::Fleet`].
    Across(FleetMapping),
}

impl Role {
    /// Which objects of its kind a member needs that holds a range. A mapping may lead from any object
    /// to any key, and reconciles look other objects up, so it needs all. So do objects with several
    /// owners, which may be in different ranges: before an object is decoded, only its controlling owner
    /// is known.
    pub(crate) fn range_scope(&self, range: Range) -> RangeScope {
        match self {
            Self::Primary => RangeScope::Own(range),
            Self::Owned { .. } => RangeScope::Owner(range),
            Self::Dependent { .. } | Self::Mapped(_) | Self::Across(_) => RangeScope::Whole,
        }
    }
}
