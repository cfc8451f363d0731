//! One cluster's part of a queue: its routes, what waits under each, and what runs.

use std::collections::{HashMap, VecDeque};

use model::{Epoch, Moment, ObjectKey, Range, ShardId};
use tracing::Span;

use super::core::{Popped, Priority};
#[cfg(feature = "planted")]
use crate::planted::{self, Planted};

/// Tells routes apart over time: a shard that is lost and regained gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteId(pub(super) u64);

/// Everything of one cluster.
#[derive(Debug)]
pub(super) struct Lane<T> {
    pub(super) routes: Vec<Route<T>>,
    pub(super) running: HashMap<ObjectKey, Run>,
    /// Whether the cluster stands in the line of turns.
    pub(super) has_turn: bool,
}

/// One shard held at one epoch.
#[derive(Debug)]
pub(super) struct Route<T> {
    pub(super) id: RouteId,
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    tenure: T,
    /// Since when keys are given out.
    opened: Option<Moment>,
    waiting: HashMap<ObjectKey, Waiting>,
    /// Ready keys by priority. A key that rose leaves its place behind; the token tells.
    lines: [VecDeque<(u64, ObjectKey)>; 4],
    ready: [usize; 4],
}

/// A reason to run a key.
#[derive(Debug)]
pub(super) struct Nudge {
    pub(super) priority: Priority,
    /// Whether a retry came due.
    pub(super) retry: bool,
    /// The span of the cause.
    pub(super) span: Span,
}

/// A key's wake-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub(super) at: Moment,
    pub(super) token: u64,
    pub(super) priority: Priority,
}

/// A key that runs.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) route: RouteId,
    pub(super) shard: ShardId,
    pub(super) since: Moment,
    /// Failures in a row before this run.
    pub(super) failures: u32,
    /// Whether a failure of this run raises the backoff.
    pub(super) escalates: bool,
    /// What came in meanwhile.
    pub(super) again: Option<(RouteId, Nudge)>,
}

/// A ready key taken out of its line.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) wake: Option<Wake>,
    route: usize,
    key: ObjectKey,
    ready: Ready,
    failures: u32,
}

#[derive(Debug, Default)]
struct Waiting {
    ready: Option<Ready>,
    wake: Option<Wake>,
    failures: u32,
}

#[derive(Debug)]
struct Ready {
    priority: Priority,
    token: u64,
    since: Moment,
    span: Span,
    retry: bool,
}

// === impl Lane ===

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { routes: Vec::new(), running: HashMap::new(), has_turn: false }
    }
}

impl<T: Clone> Lane<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.running.is_empty()
    }

    pub(super) fn route(&mut self, id: RouteId) -> Option<&mut Route<T>> {
        self.routes.iter_mut().find(|route| route.id == id)
    }

    /// Adds the ready keys of open routes to `sum`, by priority.
    pub(super) fn depth(&self, mut sum: [usize; 4]) -> [usize; 4] {
        for route in self.routes.iter().filter(|route| route.opened.is_some()) {
            for (sum, ready) in sum.iter_mut().zip(route.ready) {
                *sum += ready;
            }
        }
        sum
    }

    /// Takes the next key out of its line: the most urgent of any route, the earliest of those.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let best = |(index, route): (usize, &mut Route<T>)| Some((route.front()?, index));
        let (_, index) = self.routes.iter_mut().enumerate().filter_map(best).min()?;
        let (key, waiting) = self.routes[index].take_front()?;
        let ready = waiting.ready?;
        Some(Taken { wake: waiting.wake, route: index, key, ready, failures: waiting.failures })
    }

    /// Begins the run of a taken key. One that runs already, having been queued a second time under
    /// another shard, is put off until that run ends.
    pub(super) fn begin(&mut self, taken: Taken, now: Moment) -> Option<Popped<T>> {
        let Taken { route, key, ready, failures, .. } = taken;
        let route = &self.routes[route];
        if let Some(run) = self.running.get_mut(&key) {
            let Ready { priority, retry, span, .. } = ready;
            run.run_again(route.id, Nudge { priority, retry, span });
            return None;
        }
        let escalates = ready.retry || failures == 0;
        let run = Run {
            route: route.id,
            shard: route.shard.clone(),
            since: now,
            failures,
            escalates,
            again: None,
        };
        self.running.insert(key.clone(), run);
        // A key that was held back became ready when its shard was opened.
        let since = ready.since.max(route.opened.unwrap_or_default());
        Some(Popped {
            key,
            tenure: route.tenure.clone(),
            waited: now.since(since),
            span: ready.span,
        })
    }
}

// === impl Run ===

impl Run {
    /// Notes that the key must run again under `route`.
    pub(super) fn run_again(&mut self, route: RouteId, nudge: Nudge) {
        match &mut self.again {
            Some((present, earlier)) => {
                *present = route;
                earlier.priority = earlier.priority.min(nudge.priority);
                earlier.retry |= nudge.retry;
                if earlier.span.is_disabled() {
                    earlier.span = nudge.span;
                }
            }
            None => self.again = Some((route, nudge)),
        }
    }
}

// === impl Route ===

impl<T> Route<T> {
    pub(super) fn new(id: RouteId, shard: ShardId, epoch: Epoch, tenure: T) -> Self {
        Self {
            id,
            shard,
            epoch,
            tenure,
            opened: None,
            waiting: HashMap::new(),
            lines: Default::default(),
            ready: [0; 4],
        }
    }

    /// Begins to give keys out. Gives how many became ready by that.
    pub(super) fn open(&mut self, now: Moment) -> u64 {
        if self.opened.is_some() {
            return 0;
        }
        self.opened = Some(now);
        #[cfg(feature = "planted")]
        if planted::is(Planted::PurgeLosesKey) {
            drop(self.take_front());
        }
        self.ready.iter().sum::<usize>() as u64
    }

    /// Whether it takes a key: by its hash, or, for want of one, if it is the whole cluster's.
    pub(super) fn takes(&self, hash: Option<u64>) -> bool {
        match hash {
            Some(hash) => self.shard.range.contains(hash),
            None => self.shard.range == Range::WHOLE,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// Keys that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.waiting.contains_key(key)
    }

    pub(super) fn wakes(&self) -> impl Iterator<Item = Wake> {
        self.waiting.values().filter_map(|waiting| waiting.wake)
    }

    pub(super) fn has_ready(&self) -> bool {
        self.opened.is_some() && self.ready.iter().any(|ready| *ready > 0)
    }

    /// Since when the key is ready that is ready longest.
    pub(super) fn oldest(&self) -> Option<Moment> {
        let opened = self.opened?;
        let firsts = self.lines.iter().filter_map(|line| {
            line.iter().find_map(|(token, key)| {
                let ready = self.waiting.get(key)?.ready.as_ref()?;
                (ready.token == *token).then_some(ready.since)
            })
        });
        firsts.min().map(|since| since.max(opened))
    }

    /// Makes a key ready, or more urgent if it is. Gives whether it became ready to be given out.
    pub(super) fn make_ready(
        &mut self,
        key: &ObjectKey,
        nudge: Nudge,
        token: u64,
        now: Moment,
    ) -> bool {
        let Nudge { priority, retry, span } = nudge;
        let waiting = self.waiting.entry(key.clone()).or_default();
        let line = priority as usize;
        match &mut waiting.ready {
            Some(ready) => {
                ready.retry |= retry;
                link(&mut ready.span, &span, key);
                if priority >= ready.priority {
                    return false;
                }
                self.ready[ready.priority as usize] -= 1;
                ready.priority = priority;
                ready.token = token;
                self.ready[line] += 1;
                self.lines[line].push_back((token, key.clone()));
                false
            }
            None => {
                let span = queue_span(&span, key);
                waiting.ready = Some(Ready { priority, token, since: now, span, retry });
                self.ready[line] += 1;
                self.lines[line].push_back((token, key.clone()));
                self.opened.is_some()
            }
        }
    }

    /// Lets a key wait for a wake-up. Gives the one it replaces.
    pub(super) fn delay(&mut self, key: &ObjectKey, failures: u32, wake: Wake) -> Option<Wake> {
        let waiting = self.waiting.entry(key.clone()).or_default();
        waiting.failures = failures;
        waiting.wake.replace(wake)
    }

    pub(super) fn take_wake(&mut self, key: &ObjectKey) -> Option<Wake> {
        self.waiting.get_mut(key)?.wake.take()
    }

    /// Where the next ready key stands, after places left behind are cleared away.
    fn front(&mut self) -> Option<(Priority, u64)> {
        self.opened?;
        for priority in Priority::ALL {
            let line = &mut self.lines[priority as usize];
            while let Some((token, key)) = line.front() {
                let ready = self.waiting.get(key).and_then(|waiting| waiting.ready.as_ref());
                if ready.is_some_and(|ready| ready.token == *token) {
                    return Some((priority, *token));
                }
                line.pop_front();
            }
        }
        None
    }

    fn take_front(&mut self) -> Option<(ObjectKey, Waiting)> {
        let (priority, _) = self.front()?;
        let (_, key) = self.lines[priority as usize].pop_front()?;
        self.ready[priority as usize] -= 1;
        let waiting = self.waiting.remove(&key)?;
        Some((key, waiting))
    }
}

/// The span of a key's wait. Without a cause there is none: the first look at everything makes no
/// trace.
fn queue_span(cause: &Span, key: &ObjectKey) -> Span {
    if cause.is_disabled() {
        return Span::none();
    }
    tracing::info_span!(
        parent: cause,
        "queue",
        cluster = %key.cluster,
        key = %key,
        otel.kind = "internal",
    )
}

/// A second cause joins the first: the trace of the first goes on and refers to the second.
///
/// Only the span of a key's wait ever refers to others, and only to causes, which refer to none:
/// the exporter locks both ends of a reference, so a span that refers to itself, or two that refer
/// to each other, would stop the thread for good.
fn link(waiting: &mut Span, cause: &Span, key: &ObjectKey) {
    if waiting.is_disabled() {
        *waiting = queue_span(cause, key);
    } else {
        waiting.follows_from(cause.id());
    }
}
