//! The faults, by name. Each does its harm to a settled fleet under load, and undoes what can be
//! undone; whether everything is well afterwards is for others to find out.

mod clock;
mod network;
mod process;

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use super::field::Field;
use super::figures::Expected;

/// One kind of harm.
#[derive(Debug)]
pub struct Fault {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    /// How metrics must move.
    pub expected: Expected,
    /// Why it cannot be done here, if it cannot.
    pub obstacle: fn() -> Option<String>,
    /// Does it.
    pub run: for<'a, 'b> fn(&'a mut Field<'b>, Round) -> LocalBoxFuture<'a, Result<()>>,
}

/// One round of a fault.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// From 0.
    pub number: usize,
    /// How long SIGSTOP lasts.
    pub stop_for: Duration,
}

const NO_MOVES: Expected = Expected { reason: None, old_lease: false };
const CRASH: Expected = Expected { reason: Some("crash"), old_lease: false };
const DRAIN: Expected = Expected { reason: Some("drain"), old_lease: false };
const LEAVE: Expected = Expected { reason: Some("leave"), old_lease: false };

/// Every fault, in the order they are done.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "kill",
        about: "SIGKILL of a replica that owns shards",
        expected: CRASH,
        obstacle: || None,
        run: |field, _| Box::pin(process::kill(field)),
    },
    Fault {
        name: "term",
        about: "SIGTERM of a replica that owns shards",
        expected: LEAVE,
        obstacle: || None,
        run: |field, _| Box::pin(process::term(field)),
    },
    Fault {
        name: "join",
        about: "another replica joins",
        expected: DRAIN,
        obstacle: || None,
        run: |field, _| Box::pin(process::join(field)),
    },
    Fault {
        name: "stop",
        about: "SIGSTOP for longer than the Lease, then SIGCONT",
        expected: CRASH,
        obstacle: || None,
        run: |field, round| Box::pin(process::stop(field, round)),
    },
    Fault {
        name: "rolling",
        about: "every replica is replaced, one after the other",
        expected: LEAVE,
        obstacle: || None,
        run: |field, _| Box::pin(process::rolling(field)),
    },
    Fault {
        name: "double-kill",
        about: "SIGKILL of the coordinator and of another replica at once",
        expected: CRASH,
        obstacle: || None,
        run: |field, _| Box::pin(process::double_kill(field)),
    },
    Fault {
        name: "coordinator",
        about: "SIGKILL of the coordinator while shards move to a newcomer",
        expected: CRASH,
        obstacle: || None,
        run: |field, _| Box::pin(process::coordinator_in_a_rebalance(field)),
    },
    Fault {
        name: "cut-home",
        about: "a replica loses its home cluster for longer than its Lease: cut, then silent",
        expected: Expected { old_lease: true, ..CRASH },
        obstacle: || None,
        run: |field, round| Box::pin(network::cut_home(field, round)),
    },
    Fault {
        name: "slow-home",
        about: "a replica reaches its home cluster 300 ms late each way",
        expected: NO_MOVES,
        obstacle: || None,
        run: |field, _| Box::pin(network::slow_home(field)),
    },
    Fault {
        name: "cut-cluster",
        about: "a replica loses a workload cluster it has shards of: cut, then silent",
        expected: NO_MOVES,
        obstacle: || None,
        run: |field, round| Box::pin(network::cut_cluster(field, round)),
    },
    Fault {
        name: "home-restart",
        about: "the home cluster's API server is killed and started again",
        expected: NO_MOVES,
        obstacle: || None,
        run: |field, _| Box::pin(network::home_restart(field)),
    },
    Fault {
        name: "clock-step",
        about: "a replica's wall clock steps by an hour, forth and back (libfaketime)",
        expected: NO_MOVES,
        obstacle: clock::obstacle,
        run: |field, _| Box::pin(clock::step(field)),
    },
];
