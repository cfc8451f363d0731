//! Which clusters a member has configured and reaches: how it says so, and how that is read. Pure.
//!
//! A fleet has up to ten thousand clusters and a hundred members, so a Member does not name all. It says
//! how its clusters differ from those that have a ShardMap, which all members see: usually not at all. It
//! also says how many they are, and a digest of their names. Whoever reads it applies the difference to
//! the ShardMaps that *it* sees and compares count and digest. If they agree, it knows the member's
//! clusters exactly, whatever the two have seen meanwhile. If they do not, it knows only what the lists
//! name, and the member will soon say it anew.
//!
//! # Invariants
//! - What the lists name is true by itself, also while count and digest do not agree: the member has
//!   configured what it adds and has not configured what it lacks.
//! - A report is rewritten only when it has become wrong. When a cluster comes or goes everywhere, each
//!   member writes once.
//! - A member that could not read a source of clusters yet says so, and what the names of its clusters begin with: then
//!   it is not known that it does not have such a cluster.
//! - A member of the previous release reports nothing: see `coordinator::reach` for how it counts.
//!
//! The digest protects from mistakes, not from members that lie: who may write Members may do more than that.

use std::collections::BTreeSet;

use model::{ClusterName, single};

use crate::api::{ConfiguredClusters, MAX_OPEN, Shared, that_fit};
use crate::tally::Tally;
use crate::world::World;

/// Whether a name is in a set, from now on.
fn set(names: &mut BTreeSet<ClusterName>, name: &ClusterName, is_in: bool) {
    if !is_in {
        names.remove(name);
    } else if !names.contains(name) {
        names.insert(name.clone());
    }
}

/// The clusters that have a ShardMap. The one that stands for the fleet is none.
pub(crate) fn mapped(world: &World) -> impl Iterator<Item = &ClusterName> {
    world.maps().keys().filter(|cluster| cluster.as_str() != single::FLEET)
}

/// What a reader knows about the clusters of a member that said this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    /// Exactly these.
    Only(BTreeSet<&'a ClusterName>),
    /// Exactly those that have a ShardMap, but these; and further ones.
    But {
        /// Those that it does not have.
        lacks: BTreeSet<&'a ClusterName>,
        /// Those that it has besides.
        adds: BTreeSet<&'a ClusterName>,
    },
    /// Only what the lists say: the reader and the member see different ShardMaps, or the difference is
    /// too long for a Member.
    InPart {
        /// Those that it does not have.
        lacks: BTreeSet<&'a ClusterName>,
        /// Those that it has.
        adds: BTreeSet<&'a ClusterName>,
    },
}

/// Reads what a member said, by the ShardMaps of `world`.
pub(crate) fn read<'a>(said: &'a ConfiguredClusters, world: &World) -> Known<'a> {
    let only: BTreeSet<&ClusterName> = said.only.iter().collect();
    if Tally::of(only.iter().copied()).is_of(said) {
        return Known::Only(only);
    }
    let lacks: BTreeSet<&ClusterName> = said.lacks.iter().collect();
    let adds: BTreeSet<&ClusterName> = said.adds.iter().chain(only).collect();
    let has_map = |name: &&&ClusterName| world.maps().contains_key(**name);
    let tally = lacks.iter().filter(has_map).fold(world.mapped(), |tally, name| tally.minus(name));
    let tally =
        adds.iter().filter(|name| !has_map(name)).fold(tally, |tally, name| tally.plus(name));
    match said.only.is_empty() && tally.is_of(said) {
        true => Known::But { lacks, adds },
        false => Known::InPart { lacks, adds },
    }
}

/// The same word with all clusters of the member named, however many they are: so it stays true whatever ShardMaps come
/// and go. `None` if they are not known exactly.
pub fn spelled_out(said: &ConfiguredClusters, world: &World) -> Option<ConfiguredClusters> {
    let all: BTreeSet<&ClusterName> = match read(said, world) {
        Known::Only(names) => names,
        Known::But { lacks, adds } => {
            mapped(world).filter(|name| !lacks.contains(name)).chain(adds).collect()
        }
        Known::InPart { .. } => return None,
    };
    let (lacks, adds) = (Shared::default(), Shared::default());
    let only = all.into_iter().cloned().collect();
    Some(ConfiguredClusters { lacks, adds, only, ..said.clone() })
}

/// A member that has configured so few clusters names them: that is always exact, and people can read it.
const FEW: usize = 32;

/// What a member says, kept as long as it is true.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    said: Option<ConfiguredClusters>,
    own: Tally,
    /// The clusters that have a ShardMap and are not configured, and the other way round.
    lacks: BTreeSet<ClusterName>,
    adds: BTreeSet<ClusterName>,
    /// The revision of the world in which it was last found true.
    revision: Option<u64>,
    too_different: bool,
    /// What the names of further clusters may begin with, of sources that could not be read yet.
    open: Shared<String>,
}

impl Report {
    /// The configured clusters changed.
    pub(crate) fn configured(&mut self, own: &BTreeSet<ClusterName>, world: &World) {
        self.own = Tally::of(own);
        self.lacks = mapped(world).filter(|name| !own.contains(*name)).cloned().collect();
        let has_map = |name: &&ClusterName| world.maps().contains_key(*name);
        self.adds = own.iter().filter(|name| !has_map(name)).cloned().collect();
        self.revision = None;
    }

    /// What the names of further clusters may begin with that may be configured.
    pub(crate) fn may_lack(&mut self, open: BTreeSet<String>) {
        let is_any = open.len() > MAX_OPEN;
        self.open = if is_any { vec![String::new()].into() } else { open.into_iter().collect() };
    }

    /// ShardMaps came, went or changed.
    pub(crate) fn maps_changed(
        &mut self,
        changed: &BTreeSet<ClusterName>,
        own: &BTreeSet<ClusterName>,
        world: &World,
    ) {
        for name in changed.iter().filter(|name| name.as_str() != single::FLEET) {
            let (has_map, is_own) = (world.maps().contains_key(name), own.contains(name));
            set(&mut self.lacks, name, has_map && !is_own);
            set(&mut self.adds, name, is_own && !has_map);
        }
    }

    /// Brings it up to date: with the ShardMaps whose changes it was told, and with the clusters that the member fails to
    /// reach, the most important first.
    pub(crate) fn follow(
        &mut self,
        own: &BTreeSet<ClusterName>,
        world: &World,
        fails: &[&ClusterName],
    ) {
        if self.revision != Some(world.revision()) {
            self.revision = Some(world.revision());
            let is_true = |said: &ConfiguredClusters| {
                self.own.is_of(said) && !matches!(read(said, world), Known::InPart { .. })
            };
            if !self.said.as_ref().is_some_and(is_true) {
                self.renew(own);
            }
        }
        if let Some(said) = &mut self.said {
            said.fails = that_fit(fails.iter().copied());
            let count = u32::try_from(fails.len()).unwrap_or(u32::MAX);
            said.failing = if fails.len() > said.fails.len() { count } else { 0 };
        }
    }

    fn renew(&mut self, own: &BTreeSet<ClusterName>) {
        let Self { lacks, adds, .. } = self;
        let mut said = ConfiguredClusters {
            count: own.len().try_into().unwrap_or(u32::MAX),
            digest: self.own.digest(),
            lacks: that_fit(lacks.iter()),
            adds: that_fit(adds.iter()),
            ..ConfiguredClusters::default()
        };
        let fits = said.lacks.len() == lacks.len() && said.adds.len() == adds.len();
        let all = that_fit(own.iter());
        let fits_all = all.len() == own.len();
        if fits_all && (!fits || own.len() <= FEW) {
            (said.lacks, said.adds, said.only) = (Shared::default(), Shared::default(), all);
        }
        self.too_different = !fits && !fits_all;
        self.said = Some(said);
    }

    /// What the member says now; nothing before it knows its clusters.
    pub(crate) fn said(&self) -> Option<ConfiguredClusters> {
        Some(ConfiguredClusters { open: self.open.clone(), ..self.said.clone()? })
    }

    /// Whether its clusters differ from the fleet's by more than it can say.
    pub(crate) fn is_too_different(&self) -> bool {
        self.too_different
    }
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
