//! Rules that the model test breaks, one at a time, to show that it would notice. Outside tests nothing
//! is planted: the macro is `false`, and the list does not exist.

/// Whether this rule is broken on purpose.
#[cfg(test)]
macro_rules! planted {
    ($observed:expr, $bug:ident) => {
        $observed.bug == Some($crate::planted::Bug::$bug)
    };
}

/// Whether this rule is broken on purpose: never.
#[cfg(not(test))]
macro_rules! planted {
    ($observed:expr, $bug:ident) => {
        false
    };
}

pub(crate) use planted;

/// A rule that is broken on purpose.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Promoted although as many members as acknowledge a commit did not answer.
    OneTooFew,
    /// Promoted while members still receive.
    StillReceiving,
    /// Promoted without comparing what the members received.
    AnyHeir,
    /// Promoted although no member had to acknowledge.
    HeirWithoutAcks,
    /// A deposed primary counts as closed while it is open.
    OpenCountsAsClosed,
    /// Opened before it applied what it received.
    OpenUnapplied,
    /// Opened with fewer acknowledgements than are remembered.
    OpenWithFewer,
    /// A member whose volume was lost counts like one that has its data.
    LostVolumeCounts,
    /// More acknowledgements are remembered before the primary asks for them.
    RaiseBeforeServer,
    /// More acknowledgements are remembered before so many members have the older commits.
    RaiseWithoutBarrier,
    /// The older commits are counted before the primary asks for more acknowledgements.
    RaiseLookedTooEarly,
    /// The primary waits for fewer before that is remembered.
    LowerServerFirst,
    /// Members come and go although the others do not have the commits.
    MembersWithoutBarrier,
    /// Members come and go although the others do not have the commits that wait.
    WaitingOverlooked,
    /// A member goes while it still receives.
    LeavesReceiving,
    /// An instance acknowledges before it is remembered.
    AcknowledgesEarly,
    /// A member is cloned over.
    MemberCloned,
    /// An instance follows another before it applied what it received.
    FollowsUnapplied,
    /// Commits that the primary does not have are overlooked.
    ErrantKept,
    /// An order is given although the memory has changed since it was read.
    StaleMemory,
    /// A manager gives orders although its predecessor may still.
    NoLock,
    /// A manager begins without a write.
    NoReign,
    /// A restart throws away what was received and not applied.
    RelayLogForgotten,
    /// A deposed primary that ends tells waiting sessions that they committed.
    EndReleases,
    /// A clone keeps its uuid, and gives the numbers of lost commits again.
    CloneKeepsUuid,
}
