//! What a cluster is for.

/// What a cluster is for. Its connections depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It holds the Leases: requests share no connection, and wait for nothing that workload clusters wait for.
    Home,
    /// Controllers work in it: requests share connections if possible.
    Workload,
}
