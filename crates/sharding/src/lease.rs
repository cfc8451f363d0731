//! Names of Leases.

use model::MemberId;

use crate::api::MANAGED_BY;

/// The name of the coordinator's Lease.
pub const COORDINATOR: &str = "leasehold-coordinator";
/// What the names of members' Leases begin with.
pub const MEMBER_PREFIX: &str = "leasehold-member-";

/// The name of a member's Lease.
pub fn member_lease_name(member: &MemberId) -> String {
    format!("{MEMBER_PREFIX}{member}")
}

/// The label selector that finds our Leases.
pub fn selector() -> String {
    format!("{}={}", MANAGED_BY.0, MANAGED_BY.1)
}
