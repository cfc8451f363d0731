//! How urgent a key is.

/// Why a key is ready; the more urgent, the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Something changed.
    Change = 0,
    /// An earlier run failed.
    Retry = 1,
    /// A wake-up that an earlier run asked for.
    Resync = 2,
    /// The first look at everything after a shard was gained.
    Initial = 3,
}

impl Priority {
    /// All of them, most urgent first.
    pub const ALL: [Self; 4] = [Self::Change, Self::Retry, Self::Resync, Self::Initial];

    /// The number for it in metrics: the higher, the more urgent, with controller-runtime's for
    /// changes and for the first list.
    pub fn label(self) -> &'static str {
        match self {
            Self::Change => "0",
            Self::Retry => "-10",
            Self::Resync => "-50",
            Self::Initial => "-100",
        }
    }
}
