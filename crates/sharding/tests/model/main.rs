//! The protocol as a model that a checker explores state by state: three members, two shards, one
//! store. The members are production [`leasehold_sharding::node::Node`]s, with planner, coordinator,
//! handover, membership and fence, not a copy. Only the store, the network, the clocks and the engines
//! are stand-ins.
//!
//! # What may happen
//! Time passes in ticks. At each tick every clock advances by one, beginning with the first member or
//! with the last. So a clock may be a tick ahead of another and then a tick behind: within the 5 ticks
//! of a Lease they drift by 2, which is all that two margins of 1 allow. Runs of a draining shard end at
//! any time. Besides, up to a number of *disturbances* happen: a member starts, leaves, crashes (home says
//! that its container has ended, or not; another process starts in the container, or not), or pauses for up
//! to 9 ticks, perhaps while somebody edits the holder or the duration of its Lease; a watch (of Leases,
//! Members or ShardMaps) stalls for up to 9 ticks and then
//! delivers what it has, or ends, and its next list comes from a cache that has not seen the last change; the
//! cluster goes from a member's configuration, or comes back; a Member tells of a load for which its shard is
//! split; a write is delayed, and reaches the store at any later time or never; an answer
//! is delayed. After a delayed write or answer, the member stops waiting at its next tick.
//!
//! # What is left out
//! Everything but a disturbance happens promptly and in one order. Delayed messages may arrive between
//! the ticks of any two members; disturbances happen only between the ticks of all. Ids come from one
//! seed, jitter is below a tick, the objects of dead members stay (a minute is beyond the model's time),
//! and groups do not come and go. Requests that a process sends outside its Lease's
//! validity count as refused: the fenced client of the engine refuses them. Merges are beyond the model's time:
//! a load is forgotten after minutes.
//!
//! `cargo xtask model` explores with more disturbances. `LEASEHOLD_MODEL=cold,shared,alone,mixed` sets their
//! numbers for each beginning.

mod canonical;
mod explore;
mod oracle;
mod planted;
mod process;
mod store;
mod system;

use std::collections::BTreeSet;
use std::num::NonZero;

use stateright::{Checker, Expectation, Model, Path};

use explore::Fleet;
use system::Beginning;

/// Disturbances of an ordinary run: from a cold start, in a settled fleet, with one member that holds
/// everything, and in a fleet whose members speak different versions of the protocol.
const ORDINARY: [u8; 4] = [1, 1, 2, 1];

fn disturbances() -> [u8; 4] {
    let Ok(text) = std::env::var("LEASEHOLD_MODEL") else { return ORDINARY };
    let numbers: Vec<u8> = text.split(',').map(|n| n.parse().expect("a number")).collect();
    numbers.try_into().expect("four numbers, as in 1,1,2,1")
}

/// S1 to S5 hold in every state within the bounds, and the situations they are about do occur.
#[test]
fn every_rule_holds_in_every_state() {
    let mut vacuous: BTreeSet<&str> = BTreeSet::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let beginnings = [Beginning::Cold, Beginning::Shared, Beginning::Alone, Beginning::Mixed];
    for (beginning, disturbances) in beginnings.into_iter().zip(disturbances()) {
        let fleet = Fleet::new(beginning, disturbances).checker();
        let checker = fleet.threads(threads).spawn_bfs().join();
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        println!("{beginning:?}, {disturbances} disturbances: {states} states, depth {depth}");
        let mut discoveries = checker.discoveries();
        for property in checker.model().properties() {
            let path = discoveries.remove(property.name).map(Path::into_actions);
            match property.expectation {
                Expectation::Sometimes if path.is_some() => drop(seen.insert(property.name)),
                Expectation::Sometimes => drop(vacuous.insert(property.name)),
                _ => assert_eq!(path, None, "{} is broken", property.name),
            }
        }
    }
    let never: Vec<_> = vacuous.difference(&seen).collect();
    assert!(never.is_empty(), "the rules hold idly: it never happens that {never:?}");
}
