//! Bugs planted on purpose, so that tests can show that they would be found.
//!
//! They exist only with the feature `planted`, which no product build enables, and then only on a
//! thread that asked for one: the simulation runs a whole fleet on one thread.

/// What can be got wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Who gains a shard believes that its former owner has left nothing undone: keys that waited
    /// there for a retry or a wake-up are forgotten.
    ForgetsDelayed,
    /// Of the keys gathered while a shard is warmed, one is lost when it opens.
    PurgeLosesKey,
    /// What a new list does not mention any more is dropped in silence.
    RelistDropsDeletes,
    /// A write is sent without asking the fence again.
    FenceAtDispatchOnly,
    /// A drain is acknowledged while reconciles still run.
    AcknowledgesEarly,
    /// What runs for a shard that is lost runs on.
    RunsOnWithoutShard,
    /// A change of a key that runs does not make it run again.
    ForgetsChangeOfRunning,
}

#[cfg(feature = "planted")]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug on this thread, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PRESENT.set(bug);
}

/// Whether this bug is planted here.
#[cfg(feature = "planted")]
pub(crate) fn has(bug: Bug) -> bool {
    PRESENT.get() == Some(bug)
}

/// Never, in a product.
#[cfg(not(feature = "planted"))]
pub(crate) const fn has(_: Bug) -> bool {
    false
}
