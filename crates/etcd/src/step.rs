//! Steps: what can be done next, and what is awaited. Pure.

use std::time::Duration;

use crate::change::Change;
use crate::objects::Start;
use crate::version::Version;

/// The pause before a look that follows a step.
pub(crate) const SOON: Duration = Duration::from_secs(1);
/// The pause between looks while something is awaited; changes of Pods end it earlier.
pub(crate) const POLL: Duration = Duration::from_secs(5);

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Write this into the status.
    Record(Change),
    /// Create the member's volume.
    CreateVolume(String),
    /// Delete the member's volume.
    DeleteVolume(String),
    /// Create the member's Pod.
    CreatePod { member: String, version: Version, start: Start },
    /// Delete the member's Pod.
    DeletePod { member: String, why: Why },
    /// Ask `via` to add a learner.
    Add { via: String, member: String },
    /// Ask `via` to promote a learner.
    Promote { via: String, member: String, id: u64 },
    /// Ask `via` to remove a member.
    Remove { via: String, member: String, id: u64 },
    /// Ask `from`, which leads, to let another lead.
    MoveLeader { from: String, to: String, id: u64 },
    /// Defragment the member's database.
    Defragment(String),
    /// End the alarm of a member.
    Disarm { via: String, id: u64 },
    /// Nothing can be done now.
    Wait(Waiting),
    /// All is well.
    Rest,
}

/// Why a Pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its member has left.
    Left,
    /// It ended.
    Over,
    /// It is not what the spec asks for.
    Outdated,
    /// No member belongs to it.
    Orphan,
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
}

impl Waiting {
    pub(crate) fn step(reason: &'static str, message: impl Into<String>) -> Step {
        Step::Wait(Self { reason, message: message.into(), is_stuck: false })
    }

    pub(crate) fn stuck(reason: &'static str, message: impl Into<String>) -> Step {
        Step::Wait(Self { reason, message: message.into(), is_stuck: true })
    }
}
