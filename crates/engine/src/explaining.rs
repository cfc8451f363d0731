//! Where one object stands with the controllers of its kind: what is cached of it, in which shard it is, what
//! the queue does with its key, how it failed last, and whether the fence lets it run.
//!
//! Everything is looked up when somebody asks: nothing is kept for it but how failing keys failed last, and when keys
//! last succeeded, within the bounds of the queue.

use cache::Entry;
use explain::{CachedObject, Explained, Explanation, HeldBack, Sought, Status, Watched};
use model::{ControllerName, Kind, ObjectKey, Purpose, Range};
use queue::{HeldShard, KeyStatus};

use crate::handler::all_hold;
use crate::source::{Role, Source};
use crate::status::{Board, EngineStatus};
use crate::view::CacheView;
use informer::Condition;

impl EngineStatus {
    /// How an object stands.
    pub fn explain(&self, sought: &Sought) -> Explanation {
        let board = &*self.0;
        let primary = |source: &&Source| matches!(source.role, Role::Primary);
        let kinds = board.controllers().flat_map(|(_, sources)| sources.iter().filter(primary));
        let mut kinds: Vec<_> = kinds.map(|source| source.kind.to_string()).collect();
        kinds.sort();
        kinds.dedup();
        let explained = board.controllers().filter_map(|(queue, sources)| {
            let of_kind = || sources.iter().filter(primary).filter(|s| sought.is_of(&s.kind));
            let source = of_kind().find(|source| is_in(sought, source));
            let key =
                ObjectKey::new(sought.cluster.clone(), sought.namespace.as_deref(), &sought.name);
            let (kind, status) = (&of_kind().next()?.kind, queue.look(&key));
            Some(explained(board, queue.name(), kind, source, (sought, status)))
        });
        let now = board.now();
        let gates = self.upstreams().into_iter().filter(|gate| gate.cluster == sought.cluster);
        Explanation {
            controllers: explained.collect(),
            kinds,
            held_back: gates
                .filter_map(|gate| gate.cause.zip(gate.retry_seconds))
                .next()
                .map(|(cause, retry_seconds)| HeldBack { cause, retry_seconds }),
            quarantined: board
                .quarantines()
                .last_reason(&sought.cluster, now)
                .map(|reason| reason.to_string()),
        }
    }
}

/// Whether a source watches the namespace of an object.
fn is_in(sought: &Sought, source: &Source) -> bool {
    let within = &source.scope.namespace;
    within.is_none() || *within == sought.namespace
}

/// How an object stands with a controller of its kind; `source` is what watches its namespace.
fn explained(
    board: &Board,
    controller: &ControllerName,
    kind: &Kind,
    source: Option<&Source>,
    (sought, key): (&Sought, KeyStatus),
) -> Explained {
    let states = source.into_iter().flat_map(|source| {
        let mut states = board.informers();
        states.retain(|state| {
            let target = &state.target;
            target.cluster == sought.cluster
                && (&target.kind, &target.scope, target.form)
                    == (&source.kind, &source.scope, source.form)
        });
        states.pop()
    });
    let (mut watch, mut entry) = (None, None);
    for state in states {
        let status = state.status(board.now());
        let Condition { error, .. } = state.condition();
        entry = state.store.get(sought.namespace.as_deref(), &sought.name);
        watch = Some(Watched {
            synced: status.synced,
            lag_seconds: status.lag_seconds,
            error,
            ranges: status.ranges,
            selector: status.selector,
        });
    }
    let cached = entry.as_deref().zip(source).map(|(entry, source)| cached(entry, source));
    let hash = entry.as_deref().map(|entry| entry.header.hash());
    let has = |held: &&HeldShard| match hash {
        Some(hash) => held.shard.range.contains(hash),
        None => held.shard.range == Range::WHOLE,
    };
    let shard = key.shards.iter().find(has).cloned();
    let permit = shard
        .as_ref()
        .map(|held| board.ownership().permit(&held.shard, held.epoch, Purpose::Dispatch));
    let (fence, fence_seconds) = match permit {
        Some(Ok(permit)) => (None, Some(board.now().until(permit.valid_until).as_secs_f64())),
        Some(Err(refusal)) => (Some(refusal.to_string()), None),
        None => (None, None),
    };
    Explained {
        controller: controller.clone(),
        kind: kind.to_string(),
        misnamed: sought.misnamed(kind),
        in_scope: source.is_some(),
        cached,
        watch,
        shard,
        fence,
        fence_seconds,
        key,
    }
}

fn cached(entry: &Entry, source: &Source) -> CachedObject {
    CachedObject {
        hash: format!("{:016x}", entry.header.hash()),
        resource_version: entry.header.resource_version.to_string(),
        deleting: entry.header.deleting,
        // Who asks may see each time what goes wrong.
        matters: all_hold(&source.predicates, None, Some(entry), &CacheView::default()),
        // One whose status has another form says nothing.
        not_ready: entry
            .decode_field::<Status>("status")
            .ok()
            .flatten()
            .and_then(Status::not_ready),
    }
}
