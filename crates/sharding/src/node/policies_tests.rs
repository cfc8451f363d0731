//! Policies that home shows before a member has noticed that home was restored, against a home cluster that accepts
//! every write or shows what it was.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{Moment, ShardId};

use crate::api::{FleetPolicySpec, ObjectVersion, ShardSelector};
use crate::config::Config;
use crate::lease;
use crate::node::{Input, Node};
use crate::policy::PolicyRecord;
use crate::record::{Kind, Object, Observation, Target, Write, WriteOutcome};

struct Home {
    node: Node,
    now: Moment,
    version: u64,
    problems: usize,
}

fn pause(name: &str) -> PolicyRecord {
    let spec = FleetPolicySpec { pause: Some(true), ..FleetPolicySpec::default() };
    PolicyRecord::new(name, spec)
}

impl Home {
    /// One member that has joined and read a pause.
    fn paused() -> Self {
        let now = Moment::from_origin(Duration::from_secs(60));
        let groups = BTreeSet::from(["g".parse().unwrap()]);
        let node = Node::new(Config::new("replica-0", groups, 1), now);
        let mut home = Self { node, now, version: 1, problems: 0 };
        home.list();
        home.node.handle(Input::Clusters(BTreeSet::new(), Vec::new()), now);
        home.show(&["p"]);
        home.settle();
        assert!(home.is_paused());
        home
    }

    fn list(&mut self) {
        for kind in [Kind::Lease, Kind::Member, Kind::Map] {
            let list = Observation::Listed(kind, self.version.to_string(), Vec::new());
            self.node.handle(Input::Observed(list), self.now);
        }
    }

    fn show(&mut self, pauses: &[&str]) {
        self.show_all(pauses.iter().map(|name| pause(name)).collect());
    }

    fn show_all(&mut self, records: Vec<PolicyRecord>) {
        self.node.handle(Input::Policies(Some(records)), self.now);
    }

    fn is_paused(&self) -> bool {
        self.pauses("east/g/0/1")
    }

    fn pauses(&self, shard: &str) -> bool {
        let shard: ShardId = shard.parse().unwrap();
        self.node.policies.as_ref().is_some_and(|policies| policies.pause_of(&shard).is_some())
    }

    /// Home was restored from before the pause: it lists no policies, and that before anything else shows it.
    fn restore(&mut self) {
        self.show(&[]);
        let writes = self.turn();
        writes.into_iter().for_each(|write| self.refuse(write));
        // It joins again, and reads home anew.
        let writes = self.turn();
        self.list();
        self.show(&[]);
        writes.into_iter().for_each(|write| self.accept(write));
        self.settle();
    }

    /// The writes of the next turn.
    fn turn(&mut self) -> Vec<Write> {
        self.node.turn(self.now).writes
    }

    /// Carries out writes until there are none.
    fn settle(&mut self) {
        loop {
            let writes = self.turn();
            if writes.is_empty() {
                self.problems = self.node.problems().len();
                return;
            }
            writes.into_iter().for_each(|write| self.accept(write));
        }
    }

    fn accept(&mut self, write: Write) {
        self.version += 1;
        let target = write.target();
        let (Write::Create(mut object) | Write::Replace(mut object)) = write else { return };
        object.set_version(ObjectVersion { uid: "u".into(), resource: self.version.to_string() });
        self.complete(target, WriteOutcome::Done(Some(object)));
    }

    /// Home was restored: it has the object at the version that it had at the start.
    fn refuse(&mut self, write: Write) {
        let (Write::Create(mut object) | Write::Replace(mut object)) = write.clone() else {
            return;
        };
        object.set_version(ObjectVersion { uid: "u".into(), resource: "1".into() });
        self.complete(write.target(), WriteOutcome::Conflict(Some(object)));
    }

    fn complete(&mut self, target: Target, outcome: WriteOutcome) {
        self.node.handle(Input::Completed(target, outcome), self.now);
    }
}

/// A restored home may list policies before anything else shows that it was restored.
#[test]
fn a_list_without_a_pause_counts_when_home_has_accepted_a_renewal() {
    let mut home = Home::paused();
    home.show(&[]);
    let writes = home.turn();
    let is_lease = |write: &Write| matches!(write, Write::Replace(Object::Lease(_)));
    assert!(home.is_paused() && writes.iter().any(is_lease), "it asks home at once: {writes:?}");
    writes.into_iter().for_each(|write| home.accept(write));
    home.settle();
    assert!(!home.is_paused(), "somebody took it back");

    let mut home = Home::paused();
    home.restore();
    assert!(home.is_paused());
    let problems = home.node.problems().join("\n");
    assert!(problems.contains("p was lost when the home cluster was restored"), "{problems}");
}

fn pause_of(name: &str, cluster: &str) -> PolicyRecord {
    let shards = ShardSelector { clusters: vec![cluster.to_owned()], ..ShardSelector::default() };
    let (shards, pause) = (Some(shards), Some(true));
    PolicyRecord::new(name, FleetPolicySpec { shards, pause, ..FleetPolicySpec::default() })
}

/// What was paused waits for the answer of home, what is paused instead does not: also if the question comes while a
/// renewal is under way.
#[test]
fn a_pause_that_takes_the_place_of_another_counts_at_once_and_the_other_ends_soon() {
    let mut home = Home::paused();
    home.show_all(vec![pause_of("p", "east")]);
    home.settle();
    home.now = home.now + Duration::from_secs(3);
    let is_own = |write: &Write| match write {
        Write::Replace(Object::Lease(lease)) => lease::subject(&lease.name).is_some(),
        _ => false,
    };
    let renewals = home.turn();
    assert!(renewals.iter().any(is_own), "{renewals:?}");
    home.now = home.now + Duration::from_millis(100);
    home.show_all(vec![pause_of("p", "west")]);
    assert!(!home.turn().iter().any(is_own), "one renewal is under way");
    assert!(home.pauses("east/g/0/1") && home.pauses("west/g/0/1"));
    renewals.into_iter().for_each(|write| home.accept(write));
    let renewals = home.turn();
    assert!(home.pauses("east/g/0/1") && renewals.iter().any(is_own), "that was sent before");
    renewals.into_iter().for_each(|write| home.accept(write));
    home.settle();
    assert!(!home.pauses("east/g/0/1") && home.pauses("west/g/0/1"));
}

/// `kubectl apply` and `kubectl delete`, of which the loop hears at once.
#[test]
fn a_lost_pause_that_is_written_and_deleted_at_once_is_over() {
    let mut home = Home::paused();
    home.restore();
    assert_eq!((home.is_paused(), home.problems), (true, 1), "whoever coordinates");
    home.show(&["p"]);
    home.show(&[]);
    home.settle();
    assert_eq!((home.is_paused(), home.problems), (false, 0));
}
