//! A member and a shard for tests, which say only what differs from these.

use model::Epoch;
use sharding::api::{MemberState, Phase};

use crate::{FleetMember, FleetShard, LeaseStanding};

impl FleetMember {
    /// One that lives and has nothing to do.
    ///
    /// # Panics
    /// If the name is none.
    pub fn example(name: &str) -> Self {
        Self {
            member: name.parse().expect("the name of a member"),
            identity: name.to_owned(),
            zone: None,
            state: MemberState::Active,
            drain: false,
            cordoned_by: None,
            lease: LeaseStanding::Held,
            lease_seconds: 10,
            renewed: None,
            seen_renewing: false,
            coordinator: false,
            capacity: 1,
            protocol_version: 1,
            oldest_protocol_version: 1,
            shards: 0,
            busy: 0,
            works_in_clusters: true,
            clusters: None,
            down_clusters: Vec::new(),
            failing: None,
        }
    }
}

impl FleetShard {
    /// One in a phase, with its owner if it has one.
    ///
    /// # Panics
    /// If a name is none.
    pub fn example(name: &str, owner: Option<&str>, phase: Phase) -> Self {
        Self {
            shard: name.parse().expect("the name of a shard"),
            owner: owner.map(|owner| owner.parse().expect("the name of a member")),
            epoch: Epoch(1),
            phase,
            unserved: false,
            in_doubt: false,
            target: None,
            moved: None,
            paused_by: None,
            ruled_out_by: Vec::new(),
        }
    }
}
