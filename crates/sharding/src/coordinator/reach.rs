//! Which clusters each member could serve, from what the Members say ([`crate::reach`]).
//!
//! The coordinator knows its own clusters. It knows those of another member exactly if that one has the
//! same, as the digests tell, or once it sees the same ShardMaps. Until then it knows what the lists name:
//! the member keeps what it has, gets nothing else, and may have configured anything, so that no map goes
//! because of it.
//!
//! A member that fails to reach more clusters than a Member can name may fail to reach any of those that it does
//! not name: it gets their shards only where nobody is known to reach them.
//!
//! A member with a source of clusters that it could not read yet may have any further cluster configured whose name
//! begins as those of that source: it gets nothing of them, and no map goes because of it.
//!
//! A member of an earlier release reports nothing. It counts as it did in that release: as if it had
//! configured what the coordinator has. One that is still joining has not read its configuration, so
//! nothing is known about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{ClusterName, MemberId, single};

use super::View;
use crate::api::{MemberSpec, MemberState};
use crate::planner::{Fit, Reach};
use crate::reach::{self, Known};
use crate::tally::Tally;
use crate::world::World;

type Fits = BTreeMap<ClusterName, Fit>;

/// Reads what members say about their clusters.
pub(super) struct Reports<'a> {
    me: &'a MemberId,
    tally: Tally,
    world: &'a World,
    /// The clusters that have no map and should have one: members have them configured.
    new: BTreeSet<&'a ClusterName>,
    /// How the coordinator, and whoever has the same clusters, stands with those that it lacks.
    like_me: Arc<Fits>,
}

impl<'a> Reports<'a> {
    pub(super) fn of(view: &View<'a>) -> Self {
        let (world, mine) = (view.world, view.clusters);
        // One of another installation may not know yet that it takes no part.
        let ours = world.members().get(view.me).and_then(|me| me.spec.installation.as_deref());
        let is_ours = |its: Option<&str>| ours.zip(its).is_none_or(|(ours, its)| ours == its);
        let active = world.members().values().filter(|m| m.spec.state == MemberState::Active);
        let active = active.filter(|member| is_ours(member.spec.installation.as_deref()));
        let said = active.filter_map(|member| member.spec.clusters.as_ref());
        let named = said.flat_map(|said| said.adds.iter().chain(&said.only));
        let is_new = |name: &&ClusterName| {
            !world.maps().contains_key(*name) && name.as_str() != single::FLEET
        };
        let new: BTreeSet<&ClusterName> = mine.iter().chain(named).filter(is_new).collect();
        let foreign = reach::mapped(world).chain(new.iter().copied());
        let lacked = foreign.filter(|name| !mine.contains(*name));
        let like_me = lacked.map(|name| (name.clone(), Fit::Lacks)).collect();
        Self { me: view.me, tally: Tally::of(mine), world, new, like_me: Arc::new(like_me) }
    }

    /// The clusters that have no map and should have one.
    pub(super) fn new_clusters(&self) -> impl Iterator<Item = &'a ClusterName> + '_ {
        self.new.iter().copied()
    }

    /// Which clusters a member could serve.
    pub(super) fn reach(&self, id: &MemberId, spec: &MemberSpec) -> Reach {
        let Some(said) = &spec.clusters else {
            let joins = spec.state == MemberState::Joining && id != self.me;
            return if joins { reach_of(Fit::Unknown, Fits::new()) } else { self.like_me() };
        };
        let mut reach = if id == self.me || self.tally.is_of(said) {
            self.like_me()
        } else {
            self.told(&reach::read(said, self.world))
        };
        if said.unnamed().is_some() {
            // It fails to reach further clusters, nobody knows which.
            doubt_served(&mut reach);
        }
        if !said.open.is_empty() {
            self.doubt_lacked(&mut reach, &said.open);
        }
        for name in &said.fails {
            if reach.of(name) > Fit::Fails || reach.of(name) == Fit::Unknown {
                Arc::make_mut(&mut reach.named).insert(name.clone(), Fit::Fails);
            }
        }
        reach
    }

    fn like_me(&self) -> Reach {
        Reach { otherwise: Fit::Serves, named: Arc::clone(&self.like_me) }
    }

    /// Doubts whether a member does not have the clusters whose names begin so.
    fn doubt_lacked(&self, reach: &mut Reach, beginnings: &[String]) {
        let begins = |name: &ClusterName| {
            beginnings.iter().any(|beginning| name.as_str().starts_with(beginning))
        };
        let all = reach::mapped(self.world).chain(self.new.iter().copied());
        let lacked = all.filter(|name| reach.of(name) == Fit::Lacks && begins(name));
        let doubted: Vec<_> = lacked.map(|name| (name.clone(), Fit::Unknown)).collect();
        Arc::make_mut(&mut reach.named).extend(doubted);
    }

    fn told(&self, known: &Known<'_>) -> Reach {
        let all = |names: &BTreeSet<&ClusterName>, fit: Fit| -> Fits {
            names.iter().map(|&name| (name.clone(), fit)).collect()
        };
        match known {
            Known::Only(names) => reach_of(Fit::Lacks, all(names, Fit::Serves)),
            Known::But { lacks, adds } => {
                let mut named = all(lacks, Fit::Lacks);
                let others = self.new.iter().filter(|name| !adds.contains(*name));
                named.extend(others.map(|&name| (name.clone(), Fit::Lacks)));
                reach_of(Fit::Serves, named)
            }
            Known::InPart { lacks, adds } => {
                let mut named = all(lacks, Fit::Lacks);
                named.extend(all(adds, Fit::Serves));
                reach_of(Fit::Unknown, named)
            }
        }
    }
}

/// Work in no cluster can be done by each member, whatever its clusters.
fn reach_of(otherwise: Fit, mut named: Fits) -> Reach {
    if otherwise != Fit::Serves {
        named.insert(single::fleet_cluster(), Fit::Serves);
    }
    Reach { otherwise, named: Arc::new(named) }
}

/// Doubts whether a member reaches the clusters that it has configured.
fn doubt_served(reach: &mut Reach) {
    let doubted = |fit: Fit| if fit == Fit::Serves { Fit::Doubtful } else { fit };
    let named = reach.named.iter().map(|(name, fit)| (name.clone(), doubted(*fit))).collect();
    *reach = reach_of(doubted(reach.otherwise), named);
}
