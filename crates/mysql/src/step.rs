//! Steps: what can be done next, and what is awaited. Pure.

use std::time::Duration;

use crate::memory::Memory;
use crate::role::Role;
use crate::server::Order;

/// The pause before the look that follows a step: none to speak of, as a switchover is a row of them.
pub(crate) const SOON: Duration = Duration::from_millis(20);
/// The pause while something is awaited that takes a moment.
pub(crate) const MOMENT: Duration = Duration::from_millis(200);
/// The pause before a step is tried again, and between looks while something is awaited; changes of Pods
/// end it earlier.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Write this memory into the status, if nobody wrote since it was read.
    Remember { memory: Box<Memory>, change: Change },
    /// Tell an instance something, in the session in which it was looked at.
    Tell { instance: String, order: Order },
    /// Give an instance's Pod this role label, or none.
    Label { instance: String, role: Option<Role> },
    /// Delete an instance's Pod: the very one that was seen.
    DeletePod { instance: String, why: Why },
    /// Nothing can be done now.
    Wait(Waiting),
    /// All is well.
    Rest,
}

/// How the memory changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// This manager begins.
    Begin,
    /// The first instance is the primary of a new cluster.
    Found,
    /// Nobody is primary: the one that was is lost, for this reason.
    Depose(String),
    /// Nobody is primary: the one that was works, and another one should be it, for this reason.
    HandOver(String),
    /// This instance becomes primary.
    Elect(String),
    /// This instance becomes a member, perhaps with other data than before.
    Join(String),
    /// This instance is no member any more.
    Leave(String),
    /// So many acknowledgements instead of so many.
    Acks(u32, u32),
}

/// Why a Pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is not what the spec asks for.
    Outdated,
    /// It was primary, and sessions wait in it that must never hear that they committed.
    Deposed,
    /// It is primary, and sessions wait in it that must never hear that they committed. Who could acknowledge has
    /// to be cloned, and no clone ends while they wait.
    MakesRoom,
}

/// What is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The reason as a condition has it.
    pub(crate) reason: &'static str,
    /// Cause, object, and what to do if there is something.
    pub(crate) message: String,
    /// Whether a person should look.
    pub(crate) is_stuck: bool,
    /// How long to wait before the next look.
    pub(crate) pause: Duration,
}

impl Waiting {
    /// Something is awaited that comes by itself.
    pub(crate) fn step(reason: &'static str, message: impl Into<String>) -> Step {
        Step::Wait(Self { reason, message: message.into(), is_stuck: false, pause: RETRY })
    }

    /// Something is awaited that comes in a moment.
    pub(crate) fn moment(reason: &'static str, message: impl Into<String>) -> Step {
        Step::Wait(Self { reason, message: message.into(), is_stuck: false, pause: MOMENT })
    }

    /// Something is awaited that a person should look at.
    pub(crate) fn stuck(reason: &'static str, message: impl Into<String>) -> Step {
        Step::Wait(Self { reason, message: message.into(), is_stuck: true, pause: RETRY })
    }
}

impl Step {
    pub(crate) fn tell(instance: impl Into<String>, order: Order) -> Self {
        Self::Tell { instance: instance.into(), order }
    }

    pub(crate) fn remember(memory: Memory, change: Change) -> Self {
        Self::Remember { memory: Box::new(memory), change }
    }

    /// Whether it does something.
    pub(crate) fn is_deed(&self) -> bool {
        !matches!(self, Self::Wait(_) | Self::Rest)
    }
}
