//! How urgent a key is.

/// How urgent a ready key is. The more urgent are given out first, within each cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Something changed. The default for events.
    Change = 0,
    /// An earlier run failed.
    Retry = 1,
    /// An earlier run asked to run again, or a periodic resync. The default for both.
    Resync = 2,
    /// The initial list, after a shard was gained.
    Initial = 3,
}

impl Priority {
    /// All of them, most urgent first.
    pub const ALL: [Self; 4] = [Self::Change, Self::Retry, Self::Resync, Self::Initial];

    /// Its number in metrics, higher for more urgent: those of controller-runtime for changes and for
    /// the initial list.
    pub fn label(self) -> &'static str {
        match self {
            Self::Change => "0",
            Self::Retry => "-10",
            Self::Resync => "-50",
            Self::Initial => "-100",
        }
    }
}
