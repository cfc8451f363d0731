//! What is wrong with a spec that cannot be acted on. Pure.

use super::name::BadName;

/// The longest name of a region. API servers enforce it too, but for those that somebody else wrote.
pub(super) const MAX_REGION: usize = 32;

/// A spec that cannot be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSpec {
    /// The queue's name.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A region that AWS cannot have.
    #[error(
        "spec.region is no name of a region: it may have lower-case letters, digits and '-', at most \
         {MAX_REGION} of them: delete this Queue and create another"
    )]
    Region,
    /// A field changed that cannot.
    #[error(
        "spec.{field} cannot be changed from {from:?} to {to:?}: put it back, or delete this Queue \
         and create another"
    )]
    Immutable {
        /// The field.
        field: &'static str,
        /// What it was when the queue was made.
        from: String,
        /// What it is.
        to: String,
    },
    /// Not exactly one of several fields is given.
    #[error("spec.{field} has {count} of {choices}: give exactly one")]
    NotOne {
        /// The field.
        field: &'static str,
        /// How many are given.
        count: usize,
        /// Which there are.
        choices: &'static str,
    },
    /// A name that no Secret has.
    #[error(
        "spec.credentials.secretRef.name is {name:?}, which is no name of a Secret: write lower-case letters, digits, \
         '-' and '.'"
    )]
    SecretName {
        /// The name given.
        name: String,
    },
    /// A field of FIFO queues without FIFO.
    #[error("spec.{field} is for FIFO queues: set spec.fifo too, or remove it")]
    NotFifo {
        /// The field.
        field: &'static str,
    },
    /// A limit for each message group, while deduplication ids count in the whole queue.
    #[error(
        "spec.fifoThroughputLimit is PerMessageGroup: set spec.deduplicationScope to MessageGroup too"
    )]
    Throughput,
    /// A dead-letter queue of the other kind.
    #[error(
        "spec.redrivePolicy.queueArn and this queue must both be FIFO queues, or neither: name another"
    )]
    OtherKind,
    /// ARNs without the permission that they are for, or the other way round.
    #[error(
        "spec.redriveAllowPolicy: give sourceQueueArns with permission ByQueue, and only with that"
    )]
    Sources,
    /// A policy that is no JSON object.
    #[error("spec.policy is not a JSON object: {why}")]
    Policy {
        /// Why not.
        why: String,
    },
    /// A queue that is its own dead-letter queue.
    #[error("spec.redrivePolicy names this Queue itself: name another")]
    OwnTarget,
    /// A tag that SQS would refuse, or that is ours.
    #[error("spec.tags has {key:?}: {why}")]
    Tag {
        /// Its key.
        key: String,
        /// What is wrong.
        why: &'static str,
    },
}
