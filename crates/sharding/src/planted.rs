//! Bugs planted on purpose, so that tests can show that their oracles would see them.
//!
//! Compiled only with the feature `planted`, which nothing asks for but the test that plants them,
//! and which a release build refuses. Each bug has one switch point, `planted::is(Planted::…)`
//! under `#[cfg(feature = "planted")]`; at most one is planted at a time, in one thread.

use std::cell::Cell;

#[cfg(not(debug_assertions))]
compile_error!("the feature `planted` puts bugs into the product: it is for debug builds of tests");

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A drain is acknowledged as soon as it is asked for.
    AcknowledgeEarly,
    /// A silent Lease is taken whatever its version.
    TakeWithoutVersion,
    /// Shards are given away when their owner's Lease has run out, before it is taken.
    SkipTakeover,
    /// A Lease is taken after its duration, without the margin.
    NoMargin,
    /// Silence is counted from the time written inside the Lease.
    TrustWallClock,
    /// A shard goes from one owner to the next without a drain.
    SkipDrain,
    /// The next owner gets the epoch of the last.
    KeepEpoch,
    /// A ShardMap is replaced whatever its version.
    OverwriteMap,
    /// The fence is asked when a reconcile starts and not when it writes. Planted in the engine
    /// that the test stands in for.
    FenceAtDispatchOnly,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::AcknowledgeEarly,
        Self::TakeWithoutVersion,
        Self::SkipTakeover,
        Self::NoMargin,
        Self::TrustWallClock,
        Self::SkipDrain,
        Self::KeepEpoch,
        Self::OverwriteMap,
        Self::FenceAtDispatchOnly,
    ];
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Plants a bug in this thread, in place of the one before.
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}

/// Whether that bug is planted in this thread.
pub fn is(bug: Planted) -> bool {
    PLANTED.get() == Some(bug)
}
