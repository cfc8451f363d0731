//! Who waits for a turn, and whose turn it is: two queues, each first come first served, which take
//! turns. So thousands of writes cannot hold up a list, and a restart of all watches cannot hold up
//! writes.

use std::collections::BTreeMap;

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
    reconciles: BTreeMap<WaiterId, W>,
    /// Whose turn it is where both wait.
    turn: Caller,
    next: u64,
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
    pub(crate) fn join(&mut self, caller: Caller, waiter: W) -> Option<WaiterId> {
        let id = WaiterId(self.next);
        let members = self.queue(caller);
        if members.len() >= MAX_WAITING {
            return None;
        }
        members.insert(id, waiter);
        self.next += 1;
        Some(id)
    }

    /// Whose turn it is.
    pub(crate) fn first(&self) -> Option<(WaiterId, &W)> {
        let informer = self.informers.first_key_value();
        let reconcile = self.reconciles.first_key_value();
        let first = match self.turn {
            Caller::Informer => informer.or(reconcile),
            Caller::Reconcile => reconcile.or(informer),
        };
        first.map(|(id, waiter)| (*id, waiter))
    }

    /// This waiter has had its turn.
    pub(crate) fn passed(&mut self, caller: Caller, id: WaiterId) {
        self.leave(caller, id);
        self.turn = match caller {
            Caller::Informer => Caller::Reconcile,
            Caller::Reconcile => Caller::Informer,
        };
    }

    /// This waiter waits no more.
    pub(crate) fn leave(&mut self, caller: Caller, id: WaiterId) {
        self.queue(caller).remove(&id);
    }

    /// The reconciles that wait.
    pub(crate) fn reconciles(&self) -> impl Iterator<Item = &W> {
        self.reconciles.values()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.informers.len() + self.reconciles.len()
    }

    fn queue(&mut self, caller: Caller) -> &mut BTreeMap<WaiterId, W> {
        match caller {
            Caller::Informer => &mut self.informers,
            Caller::Reconcile => &mut self.reconciles,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_has_an_end() {
        let mut lines = WaitQueues::new();
        assert!((0..MAX_WAITING).all(|_| lines.join(Caller::Reconcile, ()).is_some()));
        assert_eq!(lines.join(Caller::Reconcile, ()), None);
        assert!(lines.join(Caller::Informer, ()).is_some(), "the other one's is its own");
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
                        waiting.push((line, lines.join(line, line).unwrap()));
                    }
                    2 if !waiting.is_empty() => {
                        let (line, place) = waiting.remove(index.index(waiting.len()));
                        lines.leave(line, place);
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
                        lines.passed(line, place);
                        last = Some(line);
                    }
                }
                prop_assert_eq!(lines.len(), waiting.len());
            }
        }
    }
}
