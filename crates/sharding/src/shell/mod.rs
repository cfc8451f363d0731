//! The IO of sharding: watches of the home cluster, writes to it, and the loop that drives a
//! [`Node`](crate::node::Node). It decides nothing.

pub(crate) mod container;
pub(crate) mod definitions;
pub(crate) mod events;
mod follow;
pub(crate) mod home;
pub(crate) mod pods;
pub(crate) mod policies;
pub(crate) mod run;
pub(crate) mod write;

use crate::death::Ended;
use crate::policy::PolicyRecord;
use crate::problem::Operation;
use crate::record::Observation;

/// What the watches send to the loop.
pub(crate) enum Message {
    /// Something was observed, by the watches of that number.
    Home(u64, Box<Observation>),
    /// Containers have ended.
    Ended(Vec<Ended>),
    /// All policies, as the watches of that number show them; `None` if home refuses to list them.
    Policies(u64, Option<Vec<PolicyRecord>>),
    /// An operation fails for this reason, or works again.
    Problem(Operation, Option<String>),
    /// The definitions were asked for: what is wrong with them.
    Definitions(Operation, Option<String>),
}
