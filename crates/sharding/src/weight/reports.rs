//! What members report about shards, within bounds.

use std::collections::{BTreeMap, HashMap, HashSet};

use model::{ClusterName, MemberId, ShardId};

use super::{BASE, MAX_OVER_MEDIAN, MAX_POINTS, OwnedShard, POINTS_PER_MS, Told};
use crate::api::{ClusterLoad, LoadSum, MemberSpec, ShardLoad};

/// What a member reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reported<'a> {
    pub(crate) shards: &'a [ShardLoad],
    pub(crate) clusters: &'a [ClusterLoad],
    pub(crate) rest: Option<LoadSum>,
}

/// The reported loads of shards, by the indices of these.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Those reported by the owners of the shards.
    by_owner: Vec<Option<Told>>,
    /// Those reported by others: the highest of each shard.
    by_others: HashMap<usize, Told>,
}

/// What one member tells, unbounded.
#[derive(Debug, Default)]
struct Tale {
    /// Of its own shards.
    own: Vec<(usize, Told)>,
    /// Of other shards, as far as they exist.
    others: Vec<(usize, Told)>,
    /// The sum of what it tells of its own shards, and of others.
    own_sum: u64,
    others_sum: u64,
}

impl<'a> Reported<'a> {
    pub(crate) fn by(spec: &'a MemberSpec) -> Self {
        Self { shards: &spec.loads, clusters: &spec.cluster_loads, rest: spec.rest_load }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty() && self.clusters.is_empty()
    }
}

impl Reports {
    pub(super) fn of(
        shards: &[OwnedShard<'_>],
        reported: &BTreeMap<&MemberId, Reported<'_>>,
    ) -> Self {
        // A table of the clusters is much smaller than one of all shards, which are in the order of their ids.
        let mut end = 0;
        let clusters: HashMap<&ClusterName, (usize, &[OwnedShard<'_>])> = shards
            .chunk_by(|one, next| one.shard.cluster == next.shard.cluster)
            .map(|its| {
                end += its.len();
                (&its[0].shard.cluster, (end - its.len(), its))
            })
            .collect();
        let index = |shard: &ShardId| {
            let (first, its) = clusters.get(&shard.cluster)?;
            Some(first + its.binary_search_by(|owned| owned.shard.cmp(shard)).ok()?)
        };
        let mut owned: HashMap<&MemberId, Vec<usize>> = HashMap::new();
        for (i, OwnedShard { owner, .. }) in shards.iter().enumerate() {
            if let Some(owner) = owner {
                owned.entry(owner).or_default().push(i);
            }
        }
        let tale = |(&member, by): (&&MemberId, &Reported<'_>)| {
            let its = owned.get(member).map_or(&[][..], Vec::as_slice);
            Tale::of(by, shards, its, |load| {
                let shard = index(&load.shard)?;
                Some((shard, shards[shard].owner == Some(member)))
            })
        };
        let tales: Vec<Tale> = reported.iter().map(tale).collect();
        // The load of the median member among those that have shards, by their own reports.
        let told: BTreeMap<&MemberId, u64> =
            reported.keys().copied().zip(tales.iter().map(|tale| tale.own_sum)).collect();
        let load = |(member, its): (&&MemberId, &Vec<usize>)| {
            its.len() as u64 * u64::from(BASE) + told.get(*member).copied().unwrap_or_default()
        };
        let mut loads: Vec<u64> = owned.iter().map(load).collect();
        loads.sort_unstable();
        let median = loads.get(loads.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        let most = median.saturating_mul(MAX_OVER_MEDIAN).max(u64::from(BASE));
        let mut reports = Self { by_owner: vec![None; shards.len()], by_others: HashMap::new() };
        for tale in tales {
            reports.take(tale, most);
        }
        reports
    }

    /// Takes over what a member tells, scaled down so that neither sum is above `most`.
    fn take(&mut self, tale: Tale, most: u64) {
        let bounded = |Told { load, heaviest, waiting }: Told, sum: u64| {
            let bound = |load: u64| load * most.min(sum) / sum.max(1);
            Told { load: bound(load), heaviest: bound(heaviest), waiting: bound(waiting) }
        };
        for (shard, told) in tale.own {
            self.by_owner[shard] = Some(bounded(told, tale.own_sum));
        }
        for (shard, told) in tale.others {
            let told = bounded(told, tale.others_sum);
            let known = self.by_others.entry(shard).or_default();
            if known.now() < told.now() {
                *known = told;
            }
        }
    }

    /// What the owner of the shard reports.
    pub(super) fn by_owner(&self, shard: usize) -> Option<Told> {
        self.by_owner[shard]
    }

    /// The highest load that other members report.
    pub(super) fn by_others(&self, shard: usize) -> Option<Told> {
        self.by_others.get(&shard).copied()
    }
}

impl Tale {
    /// What a member tells of single shards, of which `find` says the index and whether they are its own. Those
    /// of its own shards, `its`, which it reports only in sum share that in equal parts, and each part may be of
    /// one object.
    fn of(
        by: &Reported<'_>,
        shards: &[OwnedShard<'_>],
        its: &[usize],
        find: impl Fn(&ShardLoad) -> Option<(usize, bool)>,
    ) -> Self {
        let mut tale = Self::default();
        for load in by.shards {
            let told = Told::of(load);
            match find(load) {
                Some((shard, true)) => tale.own.push((shard, told)),
                Some((shard, false)) => tale.others.push((shard, told)),
                None => tale.others_sum += told.now(),
            }
        }
        if !by.clusters.is_empty() {
            tale.spread(by, shards, its);
        }
        tale.own_sum += tale.own.iter().map(|(_, told)| told.now()).sum::<u64>();
        tale.others_sum += tale.others.iter().map(|(_, told)| told.now()).sum::<u64>();
        tale
    }

    fn spread(&mut self, by: &Reported<'_>, shards: &[OwnedShard<'_>], its: &[usize]) {
        let named: HashSet<usize> = self.own.iter().map(|(shard, _)| *shard).collect();
        let unnamed = its.iter().copied().filter(|shard| !named.contains(shard));
        let unnamed: Vec<(usize, &ShardId)> = unnamed.map(|i| (i, &shards[i].shard)).collect();
        self.own.extend(parts(by, &unnamed).into_iter().map(|(shard, part)| {
            let load = points(part.busy.into(), part.events, part.cached);
            (shard, Told { load, heaviest: load, waiting: 0 })
        }));
    }
}

/// The loads that a member says of these shards of its own. What it says in sum is shared by those that it does not name.
pub fn loads_of(member: &MemberSpec, own: &[&ShardId]) -> Vec<ShardLoad> {
    let known: HashMap<&ShardId, &ShardLoad> =
        member.loads.iter().map(|load| (&load.shard, load)).collect();
    let unnamed = own.iter().filter(|shard| !known.contains_key(**shard));
    let unnamed: Vec<(&ShardId, &ShardId)> = unnamed.map(|&shard| (shard, shard)).collect();
    let load = |(shard, part): (&ShardId, LoadSum)| {
        let (shard, LoadSum { busy, events, cached }) = (shard.clone(), part);
        ShardLoad { shard, busy, heaviest: None, events, cached, waiting: 0 }
    };
    let parts = parts(&Reported::by(member), &unnamed).into_iter().map(load);
    own.iter().filter_map(|shard| known.get(*shard).copied().cloned()).chain(parts).collect()
}

/// Equal parts of the sums that a member tells, for those of its shards that it does not name.
fn parts<T: Copy>(by: &Reported<'_>, unnamed: &[(T, &ShardId)]) -> Vec<(T, LoadSum)> {
    let sums: HashMap<&ClusterName, LoadSum> =
        by.clusters.iter().map(|ClusterLoad { cluster, sum }| (cluster, *sum)).collect();
    // Those without a sum of their cluster share the rest.
    let named = |shard: &ShardId| sums.get_key_value(&shard.cluster);
    let mut counts: HashMap<Option<&ClusterName>, u32> = HashMap::new();
    for (_, shard) in unnamed {
        *counts.entry(named(shard).map(|(name, _)| *name)).or_default() += 1;
    }
    let part = |&(shard, id): &(T, &ShardId)| {
        let (name, sum) = named(id).map(|(name, sum)| (*name, *sum)).unzip();
        let (sum, count) = (sum.or(by.rest)?, counts[&name]);
        let (events, cached) = (sum.events / u64::from(count), sum.cached / u64::from(count));
        Some((shard, LoadSum { busy: sum.busy / count, events, cached }))
    };
    unnamed.iter().filter_map(part).collect()
}

impl Told {
    /// What a member reports. A load of which it does not know the heaviest object may be of one.
    fn of(load: &ShardLoad) -> Self {
        let all = points(load.busy.into(), load.events, load.cached);
        let heaviest = load.heaviest.map_or(all, |heaviest| u64::from(heaviest) * POINTS_PER_MS);
        let waiting = points(load.waiting.into(), 0, 0);
        Self { load: all, heaviest: heaviest.min(all), waiting }
    }
}

/// A load as one number: a point is a tenth of a millisecond of work per second, or one event per second, or
/// a cached mebibyte. Takes milliseconds of work per second, events per 1,000 seconds and cached KiB.
fn points(busy: u64, events: u64, cached: u64) -> u64 {
    let busy = busy.saturating_mul(POINTS_PER_MS);
    busy.saturating_add(events / 1000).saturating_add(cached / 1024).min(MAX_POINTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_in_sum_is_shared_by_the_other_shards() {
        let (a, b): (MemberId, MemberId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let load = |shard: &str, busy| ShardLoad {
            shard: shard.parse().unwrap(),
            busy,
            heaviest: None,
            events: 0,
            cached: 0,
            waiting: 0,
        };
        let sum = |cluster: &str, busy| ClusterLoad {
            cluster: cluster.parse().unwrap(),
            sum: LoadSum { busy, events: 0, cached: 0 },
        };
        let own = |shard: &str, owner| OwnedShard {
            shard: shard.parse().unwrap(),
            owner: Some(owner),
            can_report: true,
        };
        let own_shards = ["c0/g/0/1", "c0/h/0/1", "c0/i/0/1", "c2/g/0/1", "c3/g/0/1"];
        let mut shards = own_shards.map(|shard| own(shard, &a)).to_vec();
        shards.push(own("c4/g/0/1", &b));
        let rest = Some(LoadSum { busy: 14, events: 0, cached: 0 });
        let singles = [load("c0/g/0/1", 900)];
        // It holds no shard of the second cluster any more.
        let sums = [sum("c0", 60), sum("c1", 80)];
        let by = BTreeMap::from([
            (&a, Reported { shards: &singles, clusters: &sums, rest }),
            (&b, Reported { shards: &[], clusters: &[], rest: None }),
        ]);
        // The median load is that of b, with its one shard.
        let reports = Reports::of(&shards, &by);
        let of_a = [9_000, 300, 300, 70, 70].map(|load| load * 1_600 / 9_740);
        let told = |shard| reports.by_owner(shard).map(|told: Told| told.load);
        assert_eq!([0, 1, 2, 3, 4, 5].map(told), [of_a.map(Some).as_slice(), &[None]].concat()[..]);
    }
}
