//! Specs that cannot be carried out: each says what is wrong, where, and what to write instead.

/// Why a spec cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    /// The name does not fit the Pods and the Service.
    #[error(
        "the name {name:?} does not fit the Pods and the Service that get it: create a Memcached with a \
         name of at most {most} lower-case letters, digits and dashes that begins with a letter, and \
         delete this one"
    )]
    Name {
        /// The name.
        name: String,
        /// The most characters.
        most: usize,
    },
    /// An argument that another field sets.
    #[error(
        "spec.extraArgs has {argument}, which the controller sets: remove it and use {instead}"
    )]
    Argument {
        /// The argument.
        argument: String,
        /// The field to use.
        instead: &'static str,
    },
    /// An argument with which memcached cannot run here.
    #[error("spec.extraArgs has {argument}, {why}: remove it")]
    Unsupported {
        /// The argument.
        argument: String,
        /// Why.
        why: &'static str,
    },
    /// Text that is no quantity.
    #[error("spec.{field} is {value:?}, which is no quantity: write it like 128Mi or 2Gi")]
    Quantity {
        /// The field.
        field: &'static str,
        /// What it is.
        value: String,
    },
    /// Memory for items out of bounds.
    #[error(
        "spec.memory must be from {least_mib}Mi to {most_mib}Mi: write such a value, like 512Mi"
    )]
    MemoryBounds {
        /// The least.
        least_mib: u64,
        /// The most.
        most_mib: u64,
    },
    /// A limit that leaves nothing for items.
    #[error(
        "spec.resources.limits.memory of {limit_mib}Mi leaves too little for items: raise it to \
         {least_mib}Mi at least, or lower spec.connections"
    )]
    LimitTooLow {
        /// The limit.
        limit_mib: u64,
        /// The least limit.
        least_mib: u64,
    },
    /// Memory for items that a limit does not allow.
    #[error(
        "spec.memory of {items_mib}Mi needs {all_mib}Mi with its hash table and connections, and \
         spec.resources.limits.memory is {limit_mib}Mi: raise the limit, lower spec.memory or \
         spec.connections, or leave spec.memory out, which makes it fit"
    )]
    MemoryDoesNotFit {
        /// For items.
        items_mib: u64,
        /// With what comes on top.
        all_mib: u64,
        /// The limit.
        limit_mib: u64,
    },
    /// An affinity that is none.
    #[error("spec.affinity is not that of a Pod ({cause}): write it as in spec.affinity of a Pod")]
    Affinity {
        /// What is wrong.
        cause: String,
    },
    /// A label that the controller sets.
    #[error("spec.podLabels has {key}, which the controller sets: remove it")]
    Label {
        /// Its key.
        key: String,
    },
}
