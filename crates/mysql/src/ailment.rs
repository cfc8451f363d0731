//! What ails an instance, as far as one round can tell. Pure; since when is kept between rounds.

/// What ails an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ailment {
    /// There is no Pod.
    Gone,
    /// It does not answer.
    Silent,
    /// It answers, with other data than it is remembered with.
    VolumeLost,
    /// It answers, and its Pod is not ready.
    NotReady,
    /// It is the primary and answers, and each one that follows it fails to connect.
    CutOff,
    /// It does not receive and apply what the primary commits.
    Troubled,
}

impl Ailment {
    /// Whether nothing can be asked of its data. Time counts anew when this changes, as what answers is
    /// given longer.
    pub(crate) fn is_down(self) -> bool {
        matches!(self, Self::Gone | Self::Silent | Self::VolumeLost)
    }
}
