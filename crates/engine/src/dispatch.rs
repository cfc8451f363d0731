//! One dispatch of one key: who runs what under which shard and epoch, and the hook that records
//! it.

use std::fmt::Debug;

use model::{ControllerName, Epoch, MemberId, Moment, ObjectKey, ShardId};

/// One run of one controller for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The member that runs it.
    pub member: MemberId,
    /// The shard it runs under.
    pub shard: ShardId,
    /// The shard's epoch when the run began.
    pub epoch: Epoch,
    /// The controller.
    pub controller: ControllerName,
    /// The key.
    pub key: ObjectKey,
}

/// Observes every dispatch; one implementation writes the journal.
///
/// Called on the engine's tasks: be quick and never block.
pub trait DispatchObserver: Debug + Send + Sync + 'static {
    /// A reconcile begins: the fence allowed it.
    fn started(&self, dispatch: &Dispatch);
    /// It ended: it finished, failed or was cancelled. None of its code runs any more, and its writes
    /// are done or have timed out. `ran` is when its code was last let run, by the engine's clock.
    fn finished(&self, dispatch: &Dispatch, ran: Moment);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl DispatchObserver for Unobserved {
    fn started(&self, _: &Dispatch) {}
    fn finished(&self, _: &Dispatch, _: Moment) {}
}
