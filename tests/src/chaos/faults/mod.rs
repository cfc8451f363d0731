//! The faults, by name. Each harms a settled fleet under load, and undoes what can be undone. It
//! does not check whether the fleet recovers.

mod clock;
mod clusters;
mod home;
mod network;
mod process;

use std::time::Duration;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use super::figures::Expected;
use super::fleet::Fleet;

/// One fault.
#[derive(Debug)]
pub struct NamedFault {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// What happens.
    pub about: &'static str,
    /// How metrics must change.
    pub expected: Expected,
    /// Why it cannot be run here, if it cannot.
    pub obstacle: fn() -> Option<String>,
    /// Runs it.
    pub run: for<'a, 'b> fn(&'a mut Fleet<'b>, Round) -> LocalBoxFuture<'a, Result<()>>,
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
/// Home comes back at once, as it was before or empty; who gets what then is not foreseen.
const FORGETFUL: Expected = Expected { reason: None, old_lease: false };
const DRAIN: Expected = Expected { reason: Some("drain"), old_lease: false };
const LEAVE: Expected = Expected { reason: Some("leave"), old_lease: false };

/// Every fault, in the order in which they run.
pub const FAULTS: &[NamedFault] = &[
    NamedFault {
        name: "kill",
        about: "SIGKILL of a replica that owns shards",
        expected: CRASH,
        obstacle: || None,
        run: |fleet, _| Box::pin(process::kill(fleet)),
    },
    NamedFault {
        name: "term",
        about: "SIGTERM of a replica that owns shards",
        expected: LEAVE,
        obstacle: || None,
        run: |fleet, _| Box::pin(process::term(fleet)),
    },
    NamedFault {
        name: "join",
        about: "another replica joins",
        expected: DRAIN,
        obstacle: || None,
        run: |fleet, _| Box::pin(process::join(fleet)),
    },
    NamedFault {
        name: "stop",
        about: "SIGSTOP for longer than the Lease, then SIGCONT",
        expected: CRASH,
        obstacle: || None,
        run: |fleet, round| Box::pin(process::stop(fleet, round)),
    },
    NamedFault {
        name: "stop-in-reconcile",
        about: "SIGSTOP in the midst of a reconcile, for longer than the Lease, then SIGCONT",
        expected: CRASH,
        obstacle: || None,
        run: |fleet, round| Box::pin(process::stop_in_reconcile(fleet, round)),
    },
    NamedFault {
        name: "rolling",
        about: "every replica is replaced, one after the other",
        expected: LEAVE,
        obstacle: || None,
        run: |fleet, _| Box::pin(process::rolling(fleet)),
    },
    NamedFault {
        name: "double-kill",
        about: "SIGKILL of the coordinator and of another replica at once",
        expected: CRASH,
        obstacle: || None,
        run: |fleet, _| Box::pin(process::double_kill(fleet)),
    },
    NamedFault {
        name: "coordinator",
        about: "SIGKILL of the coordinator while shards move to a new replica",
        expected: CRASH,
        obstacle: || None,
        run: |fleet, _| Box::pin(process::coordinator_in_a_rebalance(fleet)),
    },
    NamedFault {
        name: "cut-home",
        about: "a replica loses its home cluster for longer than its Lease: cut, then silent",
        expected: Expected { old_lease: true, ..CRASH },
        obstacle: || None,
        run: |fleet, round| Box::pin(network::cut_home(fleet, round)),
    },
    NamedFault {
        name: "slow-home",
        about: "requests of a replica to its home cluster are 300 ms late each way",
        expected: NO_MOVES,
        obstacle: || None,
        run: |fleet, _| Box::pin(network::slow_home(fleet)),
    },
    NamedFault {
        name: "cut-cluster",
        about: "a replica loses a workload cluster of which it has shards: cut, then silent",
        expected: NO_MOVES,
        obstacle: || None,
        run: |fleet, round| Box::pin(network::cut_cluster(fleet, round)),
    },
    NamedFault {
        name: "one-reaches",
        about: "only a replica without shards of a workload cluster still reaches it, and must get them",
        expected: DRAIN,
        obstacle: || None,
        run: |fleet, round| Box::pin(clusters::one_reaches(fleet, round)),
    },
    NamedFault {
        name: "emptied-secret",
        about: "the mounted Secret of all clusters is emptied for longer than a removal takes, and filled again",
        expected: NO_MOVES,
        obstacle: || None,
        run: |fleet, _| Box::pin(clusters::emptied_secret(fleet)),
    },
    NamedFault {
        name: "home-restart",
        about: "the home cluster's API server is killed and started again",
        expected: NO_MOVES,
        obstacle: || None,
        run: |fleet, _| Box::pin(network::home_restart(fleet)),
    },
    NamedFault {
        name: "home-outage",
        about: "the home cluster's API server is down for longer than a Lease",
        expected: Expected { old_lease: true, ..CRASH },
        obstacle: || None,
        run: |fleet, _| Box::pin(network::home_outage(fleet)),
    },
    NamedFault {
        name: "home-restored",
        about: "the home cluster is restored from a backup that does not know the last owners",
        expected: FORGETFUL,
        obstacle: || None,
        run: |fleet, round| Box::pin(home::restored(fleet, round)),
    },
    NamedFault {
        name: "home-emptied",
        about: "the home cluster loses all that it holds, and gets our definitions again",
        expected: FORGETFUL,
        obstacle: || None,
        run: |fleet, _| Box::pin(home::emptied(fleet)),
    },
    NamedFault {
        name: "home-certificates",
        about: "the home cluster gets another certificate authority and other tokens",
        expected: NO_MOVES,
        obstacle: || None,
        run: |fleet, _| Box::pin(home::certificates(fleet)),
    },
    NamedFault {
        name: "clock-step",
        about: "a replica's wall clock steps by an hour, forward and back (libfaketime)",
        expected: NO_MOVES,
        obstacle: clock::obstacle,
        run: |fleet, _| Box::pin(clock::step(fleet)),
    },
];
