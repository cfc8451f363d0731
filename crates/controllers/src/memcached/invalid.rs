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
    Name { name: String, most: usize },
    /// An argument that another field sets.
    #[error(
        "spec.extraArgs has {argument}, which the controller sets: remove it and use {instead}"
    )]
    Argument { argument: String, instead: &'static str },
    /// An argument with which memcached cannot run here.
    #[error("spec.extraArgs has {argument}, {why}: remove it")]
    Unsupported { argument: String, why: &'static str },
    /// Text that is no quantity.
    #[error("spec.{field} is {value:?}, which is no quantity: write it like 128Mi or 2Gi")]
    Quantity { field: &'static str, value: String },
    /// Memory for items out of bounds.
    #[error(
        "spec.memory must be from {least_mib}Mi to {most_mib}Mi: write such a value, like 512Mi"
    )]
    MemoryBounds { least_mib: u64, most_mib: u64 },
    /// A limit that leaves nothing for items.
    #[error(
        "spec.resources.limits.memory of {limit_mib}Mi leaves too little for items: raise it to \
         {least_mib}Mi at least, or lower spec.connections"
    )]
    LimitTooLow { limit_mib: u64, least_mib: u64 },
    /// Memory for items that a limit does not allow.
    #[error(
        "spec.memory of {items_mib}Mi needs {all_mib}Mi with its hash table and connections, and \
         spec.resources.limits.memory is {limit_mib}Mi: raise the limit, lower spec.memory or \
         spec.connections, or leave spec.memory out, which makes it fit"
    )]
    MemoryDoesNotFit { items_mib: u64, all_mib: u64, limit_mib: u64 },
    /// An affinity that is none.
    #[error("spec.affinity is not that of a Pod ({cause}): write it as in spec.affinity of a Pod")]
    Affinity { cause: String },
    /// A label that the controller sets.
    #[error("spec.podLabels has {key}, which the controller sets: remove it")]
    Label { key: String },
}
