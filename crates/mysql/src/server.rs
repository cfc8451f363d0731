//! What an instance says of itself, and what it is told. Pure.

use crate::gtid::GtidSet;

/// What an instance says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// `server_uuid`: the identity of its data.
    pub(crate) uuid: String,
    pub(crate) version: String,
    /// `gtid_executed`.
    pub(crate) executed: GtidSet,
    /// `gtid_executed` and what its relay log holds besides. That was acknowledged, so it has to survive a
    /// crash: `relay_log_recovery` is off and `sync_relay_log` is 1.
    pub(crate) received: GtidSet,
    /// What is being committed and may be in its binary log already, where replicas receive and
    /// acknowledge it (`gtid_owned`).
    pub(crate) pending: GtidSet,
    /// Whether `super_read_only` is off.
    pub(crate) is_writable: bool,
    /// For how many replicas a commit waits, without end. Zero if it waits for none, or gives up.
    pub(crate) waits_for: u32,
    /// How many replicas acknowledge its commits now (`Rpl_semi_sync_source_clients`).
    pub(crate) followers: u32,
    /// How many sessions wait for an acknowledgement.
    pub(crate) waiting: u32,
    /// Whether it acknowledges what it receives (`rpl_semi_sync_replica_enabled`).
    pub(crate) acknowledges: bool,
    /// Whom it follows.
    pub(crate) following: Option<Following>,
}

/// Why an instance says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Silence {
    /// The error, shortened.
    pub(crate) why: String,
    /// It takes the data of another instance.
    pub(crate) is_cloning: bool,
}

/// Whom an instance follows, and how that goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Following {
    /// The instance that it follows: the first label of the source's host name.
    pub(crate) source: String,
    pub(crate) receives: Receives,
    /// Whether it applies what it received.
    pub(crate) applies: bool,
    /// The last error of either thread, shortened.
    pub(crate) trouble: Option<String>,
}

/// The state of the thread that receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Receives {
    /// It does not, and will not by itself: also not after a restart.
    #[default]
    Stopped,
    /// It tries to connect.
    Connecting,
    /// It is connected.
    Connected,
}

/// What an instance is told. Each order can be given twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Take no writes (`super_read_only` on). Refused while sessions wait for acknowledgements.
    Close,
    /// Take writes.
    Open,
    /// As a source, let each commit wait for so many replicas, without end; zero: for none.
    WaitFor(u32),
    /// Acknowledge what is received, or do not; takes effect when it connects next, so it is told while
    /// nothing is received.
    Acknowledge(bool),
    /// Follow this instance by GTID, from where it is, and apply. If it follows that one already, what
    /// it received and did not apply is kept.
    Follow(String),
    /// Receive no more, also not after a restart; apply what was received.
    StopReceiving,
    /// Follow nobody. What was received and not applied is lost, so it comes when all is applied.
    FollowNobody,
    /// Throw all data away and take that of this instance; restarts, with another `server_uuid`, as the
    /// transactions that it numbered itself may be among those thrown away.
    CloneFrom(String),
}

impl From<&str> for Silence {
    fn from(why: &str) -> Self {
        Self { why: why.to_owned(), is_cloning: false }
    }
}

impl Look {
    /// Whether it receives, or would as soon as it can connect.
    pub(crate) fn receives(&self) -> bool {
        let following = self.following.as_ref();
        following.is_some_and(|following| following.receives != Receives::Stopped)
    }

    /// Whether it has applied all that it received.
    pub(crate) fn has_applied_all(&self) -> bool {
        self.executed.contains(&self.received)
    }

    /// Whether its replication ended with an error.
    pub(crate) fn is_broken(&self) -> bool {
        self.following.as_ref().is_some_and(|following| {
            let ended = following.receives == Receives::Stopped || !following.applies;
            following.trouble.is_some() && ended
        })
    }

    /// Whether it receives from this instance, and applies.
    pub(crate) fn is_connected_to(&self, source: &str) -> bool {
        self.following.as_ref().is_some_and(|following| {
            following.source == source
                && following.receives == Receives::Connected
                && following.applies
        })
    }
}
