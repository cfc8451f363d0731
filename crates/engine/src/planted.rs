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
    /// Who gains a shard believes that its former owner has left nothing undone: keys that waited
    /// there for a retry or a wake-up are forgotten.
    ForgetDelayed,
    /// Of the keys gathered while a shard is warmed, one is lost when it opens.
    PurgeLosesKey,
    /// What a new list does not mention any more is dropped in silence.
    RelistDropsDeletes,
    /// The fence is asked when a reconcile starts and not when it writes.
    FenceAtDispatchOnly,
    /// A drain is acknowledged while reconciles still run.
    AcknowledgeEarly,
    /// What runs for a shard that is lost runs on.
    RunOnWithoutShard,
    /// A change of a key that runs does not make it run again.
    ForgetChangeOfRunning,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ForgetDelayed,
        Self::PurgeLosesKey,
        Self::RelistDropsDeletes,
        Self::FenceAtDispatchOnly,
        Self::AcknowledgeEarly,
        Self::RunOnWithoutShard,
        Self::ForgetChangeOfRunning,
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
pub(crate) fn is(bug: Planted) -> bool {
    PLANTED.get() == Some(bug)
}
