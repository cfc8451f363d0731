//! The IO of sharding: watches of the home cluster, writes to it, and the loop that drives a
//! [`Node`](crate::node::Node). Decides nothing.

pub(crate) mod home;
pub(crate) mod run;
pub(crate) mod write;

use crate::problem::Operation;
use crate::record::Event;

/// What the watches send to the loop.
pub(crate) enum Message {
    /// Something was observed.
    Home(Event),
    /// An operation fails for this reason, or works again.
    Problem(Operation, Option<String>),
}
