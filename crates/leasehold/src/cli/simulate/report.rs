//! The result of a simulation, as text and as JSON.

use std::fmt;

use serde::Serialize;

use super::scenario::Change;

/// The figures of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Standing {
    /// How many members.
    pub members: usize,
    /// How many clusters.
    pub clusters: usize,
    /// How many shards there are.
    pub shards: usize,
    /// How many of them have no owner: nobody works on their objects.
    pub unowned: usize,
    /// The load of the busiest member over the mean.
    pub max_over_mean: f64,
    /// How many copies of a group's caches members hold together: at least one for each cluster.
    pub caches: usize,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    /// Changes of owner.
    pub moves: u32,
    /// Those neither from a leaving member nor to a new one: they relieve a member with more than the
    /// bound.
    pub excess: u32,
    /// Shards that were split in halves.
    pub splits: u32,
    /// Halves that were merged.
    pub merges: u32,
}

/// A simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// The fleet's title.
    pub fleet: String,
    /// The seed of random choices.
    pub seed: u64,
    /// How many members left.
    pub leave: u16,
    /// How many members joined.
    pub join: u16,
    /// How many FleetPolicies people wrote.
    pub policies: usize,
    /// The fleet before.
    pub before: Standing,
    /// The fleet after.
    pub after: Standing,
    /// What happened in between.
    #[serde(flatten)]
    pub counts: Counts,
    /// The time to the last decision, in simulated seconds: five for each round of decisions, and drains
    /// that end at once.
    pub settled_after_seconds: u64,
    /// What the coordinator finds wrong after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl Counts {
    /// What happened after `earlier` was counted.
    #[must_use]
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            moves: self.moves - earlier.moves,
            excess: self.excess - earlier.excess,
            splits: self.splits - earlier.splits,
            merges: self.merges - earlier.merges,
        }
    }
}

impl Report {
    /// A fleet to which nothing has happened yet.
    pub(crate) fn new(fleet: String, change: Change, seed: u64, before: Standing) -> Self {
        let (leave, join) = match change {
            Change::Nothing => (0, 0),
            Change::Leave(members) => (members, 0),
            Change::Join(members) => (0, members),
        };
        Self {
            fleet,
            seed,
            leave,
            join,
            policies: 0,
            before,
            after: before,
            counts: Counts::default(),
            settled_after_seconds: 0,
            problems: Vec::new(),
        }
    }

    /// What happened, in words.
    fn event(&self) -> String {
        let (members, many) = match (self.leave, self.join) {
            (0, 0) => (None, false),
            (leave, 0) => (Some(("leave", leave)), leave > 1),
            (_, join) => (Some(("join", join)), join > 1),
        };
        let members = members.map(|(verb, count)| match many {
            true => format!("{count} members {verb}"),
            false => format!("{count} member {verb}s"),
        });
        let policies = match self.policies {
            0 => None,
            1 => Some("people write 1 FleetPolicy".to_owned()),
            count => Some(format!("people write {count} FleetPolicies")),
        };
        match (members, policies) {
            (None, None) => "none (--leave N, --join N or --policy FILE makes one)".to_owned(),
            (Some(one), None) | (None, Some(one)) => one,
            (Some(members), Some(policies)) => format!("{members}, and {policies}"),
        }
    }

    /// The newcomers' share by number: the most shards that they get if all weigh the same.
    fn part_of_newcomers(&self) -> usize {
        let join = usize::from(self.join);
        (self.before.shards * join).div_ceil(self.before.members + join)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after, counts, .. } = self;
        writeln!(f, "fleet: {}\nevent: {}\n", self.fleet, self.event())?;
        writeln!(f, "{:<18}{:>8}{:>8}", "", "BEFORE", "AFTER")?;
        for (name, before, after) in [
            ("members", before.members, after.members),
            ("clusters", before.clusters, after.clusters),
            ("shards", before.shards, after.shards),
            ("  without an owner", before.unowned, after.unowned),
            ("cache copies", before.caches, after.caches),
        ] {
            writeln!(f, "{name:<18}{before:>8}{after:>8}")?;
        }
        let ratio = (before.max_over_mean, after.max_over_mean);
        writeln!(f, "{:<18}{:>8.3}{:>8.3}\n", "max/mean load", ratio.0, ratio.1)?;
        let Counts { moves, excess, splits, merges } = counts;
        writeln!(f, "{:<28}{moves:>4}", "moves")?;
        if self.leave > 0 {
            writeln!(f, "{:<28}{:>4}", "  of members that left", moves - excess)?;
        }
        if self.join > 0 {
            let (got, part) = (moves - excess, self.part_of_newcomers());
            writeln!(f, "{:<28}{got:>4}  (their part by number: {part})", "  to newcomers")?;
        }
        writeln!(f, "{:<28}{excess:>4}", "  to relieve the overloaded")?;
        writeln!(f, "{:<28}{splits:>4}", "splits")?;
        writeln!(f, "{:<28}{merges:>4}", "merges")?;
        writeln!(f, "{:<28}{:>4}", "seconds until settled", self.settled_after_seconds)
    }
}
