//! Which maps the coordinator itself wrote last, in its present time in office.
//!
//! A write may be under way for any time: of a coordinator that was in office before, or an own one that got no answer.
//! It replaces exactly the version from which it was computed (S4), so it is void as soon as the map has a later version
//! that this coordinator wrote itself. Until then a shard in that map may get any owner. So it counts as hidden when all
//! shards of a group of scope `Fleet` must go to one member ([`super::draft`]). While home refuses all writes of a map,
//! such shards get no next owner, and the coordinator says so.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use model::{ClusterName, Moment};

use crate::api::ObjectVersion;
use crate::outbox::InFlight;
use crate::record::{Object, Write, WriteOutcome};

/// The maps that the coordinator wrote last. It has an entry for each cluster of which it ever wrote a map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// The versions that its writes made in this office.
    made: Arc<BTreeMap<ClusterName, ObjectVersion>>,
    /// The maps of which a write has no known end. Also one of an office before.
    open: Arc<BTreeSet<ClusterName>>,
    /// Whether somebody else was in office before.
    is_successor: bool,
}

impl Written {
    /// A new time in office begins.
    pub(crate) fn begin_office(&mut self) {
        self.made = Arc::default();
    }

    /// Somebody else was in office.
    pub(crate) fn succeed(&mut self) {
        self.is_successor = true;
    }

    /// A write of a map ended. `since` is when the present office began, if there is one.
    pub(crate) fn ended(
        &mut self,
        cluster: &ClusterName,
        InFlight { write, sent }: &InFlight,
        outcome: &WriteOutcome,
        since: Option<Moment>,
    ) {
        match (outcome, write) {
            (WriteOutcome::Failed, Write::Create(_) | Write::Replace(_)) => {
                Arc::make_mut(&mut self.open).insert(cluster.clone());
            }
            (WriteOutcome::Done(Some(made)), Write::Create(before) | Write::Replace(before))
                if is_new(made, before) && since.is_some_and(|since| *sent >= since) =>
            {
                let version = made.version().clone();
                Arc::make_mut(&mut self.made).insert(cluster.clone(), version);
                if self.open.contains(cluster) {
                    Arc::make_mut(&mut self.open).remove(cluster);
                }
            }
            // A deletion gives no shard to anybody, and none of these makes a write void that is under way.
            _ => {}
        }
    }

    /// Whether a write of a map has no known end, and none since has succeeded.
    pub(super) fn is_open(&self, cluster: &ClusterName) -> bool {
        self.open.contains(cluster)
    }

    /// Whether no write can be under way that would still replace this version of a map, or create it if there is none.
    pub(super) fn is_settled(
        &self,
        cluster: &ClusterName,
        version: Option<&ObjectVersion>,
    ) -> bool {
        let is_own = || version.is_some() && self.made.get(cluster) == version;
        !self.is_open(cluster) && (!self.is_successor || is_own())
    }
}

impl Hash for Written {
    /// Hashes nothing: only groups of scope `Fleet` depend on it, and the model has none.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Whether a write made a new version: home ignores one that changes nothing.
fn is_new(made: &Object, before: &Object) -> bool {
    made.version() != before.version()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::MapRecord;

    fn at(s: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(s))
    }

    fn east(resource: u64) -> Object {
        let map = MapRecord::new("east".parse().unwrap());
        Object::Map(MapRecord { version: ObjectVersion::numbered(resource), ..map })
    }

    #[test]
    fn a_map_is_settled_at_the_version_that_an_own_write_of_this_office_made() {
        let cluster: ClusterName = "east".parse().unwrap();
        let settled = |written: &Written, resource: u64| {
            written.is_settled(&cluster, Some(&ObjectVersion::numbered(resource)))
        };
        let mut written = Written::default();
        assert!(settled(&written, 4), "nobody was there before");
        assert!(written.is_settled(&cluster, None));
        let end = |written: &mut Written, from: u64, sent: u64, outcome: WriteOutcome| {
            let write = InFlight { write: Write::Replace(east(from)), sent: at(sent) };
            written.ended(&cluster, &write, &outcome, Some(at(10)));
        };
        let done = |to| WriteOutcome::Done(Some(east(to)));
        written.succeed();
        assert!(!settled(&written, 4) && !written.is_settled(&cluster, None));
        end(&mut written, 4, 9, done(5));
        assert!(!settled(&written, 5), "it was sent in the office before");
        end(&mut written, 5, 10, done(5));
        assert!(!settled(&written, 5), "it changed nothing");
        end(&mut written, 5, 10, done(6));
        assert!(settled(&written, 6) && !settled(&written, 7), "7 is of somebody else");
        end(&mut written, 6, 11, WriteOutcome::Conflict(Some(east(7))));
        assert!(!settled(&written, 7));
        end(&mut written, 7, 12, WriteOutcome::Failed);
        end(&mut written, 7, 13, WriteOutcome::Conflict(Some(east(7))));
        assert!(!settled(&written, 7));
        end(&mut written, 7, 14, done(8));
        assert!(settled(&written, 8));
        written.begin_office();
        assert!(!settled(&written, 8));
    }

    /// Also of the only coordinator ever.
    #[test]
    fn a_write_without_an_answer_may_be_under_way() {
        let cluster: ClusterName = "east".parse().unwrap();
        let mut written = Written::default();
        let write = InFlight { write: Write::Replace(east(4)), sent: at(1) };
        written.ended(&cluster, &write, &WriteOutcome::Failed, Some(at(0)));
        written.begin_office();
        assert!(!written.is_settled(&cluster, Some(&ObjectVersion::numbered(4))));
        written.ended(&cluster, &write, &WriteOutcome::Done(Some(east(5))), Some(at(0)));
        assert!(written.is_settled(&cluster, Some(&ObjectVersion::numbered(5))));
    }
}
