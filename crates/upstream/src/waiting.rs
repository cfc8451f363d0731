//! Who waits for a turn, and whose turn it is: two queues, each first come first served, which take
//! turns. So thousands of writes cannot hold up a list, and a restart of all watches cannot hold up
//! writes. Of reconciles for several clusters, the turn is that of the cluster with the fewest requests under way:
//! one that takes all places gives them to others as they ask.

use std::collections::BTreeMap;

use model::ClusterName;

/// Requests that may wait in one queue of one cluster. Beyond it they are refused.
const MAX_WAITING: usize = 16_384;

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// An informer. It waits as long as it takes, also while the breaker is open.
    Informer,
    /// A reconcile. It is refused instead of waiting for long.
    Reconcile,
}

/// Tells waiters apart; the smaller, the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(u64);

/// Both queues. `W` is what wakes a waiter.
#[derive(Debug)]
pub(crate) struct WaitQueues<W> {
    informers: BTreeMap<WaiterId, W>,
    /// By the cluster that they are for, where there are several.
    reconciles: BTreeMap<Option<ClusterName>, ForCluster<W>>,
    /// Whose turn it is where both wait.
    turn: Caller,
    next: u64,
}

/// The reconciles for one cluster.
#[derive(Debug)]
struct ForCluster<W> {
    waiting: BTreeMap<WaiterId, W>,
    /// Their requests that have had their turn and have not ended.
    under_way: usize,
}

impl<W> WaitQueues<W> {
    pub(crate) fn new() -> Self {
        Self {
            informers: BTreeMap::new(),
            reconciles: BTreeMap::new(),
            turn: Caller::Informer,
            next: 0,
        }
    }

    /// Joins a queue at its end; `None` if it is full.
    pub(crate) fn join(
        &mut self,
        (caller, cluster): (Caller, &Option<ClusterName>),
        waiter: W,
    ) -> Option<WaiterId> {
        let id = WaiterId(self.next);
        let members = match caller {
            Caller::Informer => self.informers.len(),
            Caller::Reconcile => self.len() - self.informers.len(),
        };
        if members >= MAX_WAITING {
            return None;
        }
        let queue = match caller {
            Caller::Informer => &mut self.informers,
            Caller::Reconcile => {
                let none = || ForCluster { waiting: BTreeMap::new(), under_way: 0 };
                &mut self.reconciles.entry(cluster.clone()).or_insert_with(none).waiting
            }
        };
        queue.insert(id, waiter);
        self.next += 1;
        Some(id)
    }

    /// Whose turn it is.
    pub(crate) fn first(&self) -> Option<(WaiterId, &W)> {
        let informer = self.informers.first_key_value();
        let each = self.reconciles.values();
        let firsts = each.filter_map(|of| Some((of.under_way, of.waiting.first_key_value()?)));
        let reconcile = firsts.min_by_key(|(under_way, (id, _))| (*under_way, **id));
        let reconcile = reconcile.map(|(_, first)| first);
        let first = match self.turn {
            Caller::Informer => informer.or(reconcile),
            Caller::Reconcile => reconcile.or(informer),
        };
        first.map(|(id, waiter)| (*id, waiter))
    }

    /// This waiter has its turn. Its request is under way until it has [`Self::ended`].
    pub(crate) fn passed(
        &mut self,
        (caller, cluster): (Caller, &Option<ClusterName>),
        id: WaiterId,
    ) {
        match caller {
            Caller::Informer => {
                self.informers.remove(&id);
                self.turn = Caller::Reconcile;
            }
            Caller::Reconcile => {
                if let Some(of) = self.reconciles.get_mut(cluster) {
                    of.waiting.remove(&id);
                    of.under_way += 1;
                }
                self.turn = Caller::Informer;
            }
        }
    }

    /// This waiter waits no more.
    pub(crate) fn leave(
        &mut self,
        (caller, cluster): (Caller, &Option<ClusterName>),
        id: WaiterId,
    ) {
        match caller {
            Caller::Informer => drop(self.informers.remove(&id)),
            Caller::Reconcile => self.change(cluster, |of| drop(of.waiting.remove(&id))),
        }
    }

    /// A request that had its turn has ended.
    pub(crate) fn ended(&mut self, (caller, cluster): (Caller, &Option<ClusterName>)) {
        if caller == Caller::Reconcile {
            self.change(cluster, |of| of.under_way = of.under_way.saturating_sub(1));
        }
    }

    /// Changes what a cluster has. Without anything it is forgotten.
    fn change(&mut self, cluster: &Option<ClusterName>, change: impl FnOnce(&mut ForCluster<W>)) {
        let Some(of) = self.reconciles.get_mut(cluster) else { return };
        change(of);
        if of.waiting.is_empty() && of.under_way == 0 {
            self.reconciles.remove(cluster);
        }
    }

    /// The reconciles that wait.
    pub(crate) fn reconciles(&self) -> impl Iterator<Item = &W> {
        self.reconciles.values().flat_map(|of| of.waiting.values())
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        let reconciles = self.reconciles.values().map(|of| of.waiting.len());
        self.informers.len() + reconciles.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_has_an_end() {
        let mut lines = WaitQueues::new();
        assert!((0..MAX_WAITING).all(|_| lines.join((Caller::Reconcile, &None), ()).is_some()));
        assert_eq!(lines.join((Caller::Reconcile, &None), ()), None);
        let informer = lines.join((Caller::Informer, &None), ());
        assert!(informer.is_some(), "the other one's is its own");
    }

    #[test]
    fn the_turn_is_that_of_the_cluster_with_the_fewest_requests_under_way() {
        let mut lines = WaitQueues::new();
        let [east, west] = ["east", "west"].map(|name| Some(name.parse::<ClusterName>().unwrap()));
        for cluster in [&east, &east, &east, &east, &west, &west] {
            lines.join((Caller::Reconcile, cluster), cluster.clone()).unwrap();
        }
        let next = |lines: &mut WaitQueues<Option<ClusterName>>| {
            let (id, cluster) = lines.first().map(|(id, cluster)| (id, cluster.clone())).unwrap();
            lines.passed((Caller::Reconcile, &cluster), id);
            cluster
        };
        let turns: Vec<_> = (0..4).map(|_| next(&mut lines)).collect();
        assert_eq!(turns, [east.clone(), west.clone(), east.clone(), west.clone()]);
        // What it has under way counts when nobody else waits any more, and until it ends.
        assert_eq!(next(&mut lines), east);
        lines.join((Caller::Reconcile, &west), west.clone()).unwrap();
        assert_eq!(next(&mut lines), west);
        for _ in 0..3 {
            lines.ended((Caller::Reconcile, &east));
            lines.ended((Caller::Reconcile, &west));
        }
        assert_eq!(next(&mut lines), east);
        lines.ended((Caller::Reconcile, &east));
        assert!(lines.reconciles.is_empty());
    }

    proptest! {
        #[test]
        fn each_line_is_in_order_and_waits_for_one_of_the_other_at_most(
            steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut lines = WaitQueues::new();
            let mut waiting: Vec<(Caller, WaiterId)> = Vec::new();
            let mut last = None;
            for (what, index) in steps {
                match what {
                    0 | 1 => {
                        let line = if what == 0 { Caller::Informer } else { Caller::Reconcile };
                        waiting.push((line, lines.join((line, &None), line).unwrap()));
                    }
                    2 if !waiting.is_empty() => {
                        let (line, place) = waiting.remove(index.index(waiting.len()));
                        lines.leave((line, &None), place);
                    }
                    _ => {
                        let Some((place, &line)) = lines.first() else {
                            prop_assert!(waiting.is_empty());
                            continue;
                        };
                        let oldest = waiting.iter().position(|(other, _)| *other == line).unwrap();
                        prop_assert_eq!(waiting[oldest].1, place, "first come, first served");
                        let other_waits = waiting.iter().any(|(other, _)| *other != line);
                        prop_assert!(!(other_waits && last == Some(line)), "they take turns");
                        waiting.remove(oldest);
                        lines.passed((line, &None), place);
                        last = Some(line);
                    }
                }
                prop_assert_eq!(lines.len(), waiting.len());
            }
        }
    }
}
