//! Plans that are made apart from the steps, against a home cluster that accepts every write.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{ClusterName, Moment};

use super::{MadePlan, PLAN_LIMIT, PlanTask};
use crate::api::{MemberSpec, ObjectVersion};
use crate::config::Config;
use crate::node::{Input, Node};
use crate::record::{Kind, MapRecord, MemberRecord, Object, Observation, Write, WriteOutcome};

struct Home {
    node: Node,
    now: Moment,
    version: u64,
    maps: Vec<ClusterName>,
}

impl Home {
    /// A coordinator that has these clusters, and its first plan that writes maps.
    fn planning(clusters: &[&str]) -> (Self, MadePlan) {
        let now = Moment::from_origin(Duration::from_secs(60));
        let groups = BTreeSet::from(["g".parse().unwrap()]);
        let node = Node::new(Config::new("replica-0", groups, 1), now);
        let mut home = Self { node, now, version: 1, maps: Vec::new() };
        home.list("1");
        assert!(home.settle().is_none(), "it does not know its clusters yet");
        let clusters = clusters.iter().map(|name| name.parse().unwrap()).collect();
        home.node.handle(Input::Clusters(clusters, Vec::new()), now);
        let plan = home.next_writes();
        (home, plan)
    }

    /// The next plan that writes something, not yet carried out.
    fn next_writes(&mut self) -> MadePlan {
        for _ in 0..600 {
            match self.settle().map(PlanTask::run) {
                Some(made) if !made.plan.writes.is_empty() => return made,
                Some(made) => self.answer(made, 0),
                None => self.now = self.now + Duration::from_secs(1),
            }
        }
        panic!("a coordinator gives every cluster an owner");
    }

    fn list(&mut self, version: &str) {
        for kind in [Kind::Lease, Kind::Member, Kind::Map] {
            let list = Observation::Listed(kind, version.into(), Vec::new());
            self.node.handle(Input::Observed(list), self.now);
        }
    }

    /// Carries out writes until there are none. Returns the plan to make.
    fn settle(&mut self) -> Option<PlanTask> {
        let mut plan = None;
        loop {
            let output = self.node.turn(self.now);
            plan = output.plan.or(plan);
            if output.writes.is_empty() {
                return plan;
            }
            for write in output.writes {
                let target = write.target();
                let (Write::Create(mut object) | Write::Replace(mut object)) = write else {
                    continue;
                };
                if let Object::Map(map) = &object {
                    self.maps.push(map.cluster.clone());
                }
                object.set_version(self.next_version());
                let done = WriteOutcome::Done(Some(object));
                self.node.handle(Input::Completed(target, done), self.now);
            }
        }
    }

    fn next_version(&mut self) -> ObjectVersion {
        self.version += 1;
        ObjectVersion { uid: "u".into(), resource: self.version.to_string() }
    }

    fn show(&mut self, mut object: Object) {
        object.set_version(self.next_version());
        self.node.handle(Input::Observed(Observation::Applied(object)), self.now);
    }

    fn answer(&mut self, plan: MadePlan, took: u64) {
        let took = Duration::from_secs(took);
        self.now = self.now + took;
        self.node.handle(Input::Planned(Box::new(plan), took), self.now);
    }
}

#[test]
fn a_plan_is_carried_out_when_it_is_made_and_the_next_one_does_not_follow_at_once() {
    let (mut home, plan) = Home::planning(&["c0", "c1"]);
    assert!(home.settle().is_none(), "one plan at a time");
    home.answer(plan, 2);
    assert!(home.settle().is_none(), "half of the time at most goes into plans");
    assert_eq!(home.maps.len(), 2);
    home.now = home.now + Duration::from_secs(2);
    assert!(home.settle().is_some(), "the maps have changed");
}

#[test]
fn what_changed_meanwhile_is_not_overwritten_and_is_planned_again() {
    let (mut home, plan) = Home::planning(&["c0"]);
    home.answer(plan, 0);
    home.node.handle(Input::Clusters(BTreeSet::new(), Vec::new()), home.now);
    let plan = home.next_writes();
    // The plan drains the shard of the removed cluster. Meanwhile the map changes.
    let map: MapRecord = home.node.world().maps()[&"c0".parse().unwrap()].clone();
    home.show(Object::Map(map));
    let written = home.maps.len();
    home.answer(plan, 0);
    let again = home.next_writes();
    assert_eq!(home.maps.len(), written, "home would refuse it");
    home.answer(again, 0);
    home.settle();
    assert_eq!(home.maps.len(), written + 1);
}

#[test]
fn a_plan_of_a_former_history_of_home_is_dropped() {
    let (mut home, plan) = Home::planning(&["c0"]);
    let record = MemberRecord {
        id: "other".parse().unwrap(),
        version: ObjectVersion::default(),
        spec: MemberSpec::new("other", vec!["g".parse().unwrap()]),
    };
    home.show(Object::Member(record.clone()));
    // The same object, older than it was: home was restored.
    let version = ObjectVersion { uid: "u".into(), resource: "1".into() };
    let older = Object::Member(MemberRecord { version, ..record });
    let list = Observation::Listed(Kind::Member, home.version.to_string(), vec![older]);
    home.node.handle(Input::Observed(list), home.now);
    assert!(home.node.turn(home.now).reread);
    home.list("2");
    home.answer(plan, 0);
    home.settle();
    assert!(home.maps.is_empty(), "its versions say nothing any more");
}

#[test]
fn a_plan_that_takes_longer_than_the_lease_is_dropped() {
    let (mut home, plan) = Home::planning(&["c0"]);
    home.answer(plan, 600);
    home.settle();
    assert!(home.maps.is_empty(), "the member has fenced itself");
}

/// The loop renews the Leases all the while, so nobody else would take its place.
#[test]
fn a_coordinator_whose_plan_does_not_end_gives_up_its_office_until_it_does() {
    let (mut home, plan) = Home::planning(&["c0"]);
    let begun = home.now;
    let pass = |home: &mut Home| {
        home.now = home.now + Duration::from_secs(1);
        assert!(home.settle().is_none(), "one plan at a time");
    };
    while home.now.since(begun) < PLAN_LIMIT {
        assert!(home.node.is_coordinator(home.now) && home.node.hindrance().is_none());
        pass(&mut home);
    }
    for _ in 0..20 {
        assert!(!home.node.is_coordinator(home.now));
        assert_eq!(home.node.coordinator(), None, "it gave the Lease back");
        pass(&mut home);
    }
    let told = home.node.hindrance().expect("people must know");
    assert!(told.contains("has not ended after 60s"), "{told}");
    home.answer(plan, 0);
    assert!(home.settle().is_some(), "it coordinates again");
    assert!(home.maps.is_empty(), "the plan was of no use any more");
    assert_eq!(home.node.hindrance(), None);
}

/// What home says would make the plan of the next process panic as well, and meanwhile the owners would be lost.
#[test]
fn a_coordinator_whose_plan_panics_gives_up_its_office_for_a_while() {
    let (mut home, _) = Home::planning(&["c0"]);
    let panicked = home.now;
    home.node.handle(Input::PlanPanicked, home.now);
    while home.now.since(panicked) < PLAN_LIMIT {
        assert!(home.settle().is_none(), "it plans no more");
        assert!(!home.node.is_coordinator(home.now));
        assert_eq!(home.node.coordinator(), None, "it gave the Lease back");
        home.now = home.now + Duration::from_secs(1);
    }
    let told = home.node.hindrance().expect("people must know");
    assert!(told.contains("has panicked"), "{told}");
    let tries_again = |_| {
        home.now = home.now + Duration::from_secs(1);
        home.settle().is_some()
    };
    assert!((0..10).any(tries_again));
    home.node.turn(home.now);
    assert_eq!(home.node.hindrance(), None);
}

/// Home does not list policies to it. Who has read them must be able to take office, or no crash is covered.
#[test]
fn who_does_not_know_what_people_want_takes_no_office() {
    let now = Moment::from_origin(Duration::from_secs(60));
    let groups = BTreeSet::from(["g".parse().unwrap()]);
    let node = Node::new(Config::new("replica-0", groups, 1), now);
    let mut home = Home { node, now, version: 1, maps: Vec::new() };
    home.node.handle(Input::Policies(None), now);
    home.list("1");
    home.node.handle(Input::Clusters(BTreeSet::from(["c0".parse().unwrap()]), Vec::new()), now);
    for _ in 0..20 {
        assert!(home.settle().is_none());
        assert_eq!(home.node.coordinator(), None);
        home.now = home.now + Duration::from_secs(1);
    }
    home.node.handle(Input::Policies(Some(Vec::new())), home.now);
    home.next_writes();
}

#[test]
fn changed_wishes_make_a_plan_void_that_is_being_made() {
    let (mut home, plan) = Home::planning(&["c0"]);
    home.node.handle(Input::Policies(Some(Vec::new())), home.now);
    home.answer(plan, 0);
    assert!(home.settle().is_some(), "it is planned again");
}

#[test]
fn what_has_no_room_is_sent_before_the_next_plan_is_made() {
    let names: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut home, plan) = Home::planning(&names);
    home.answer(plan, 2);
    assert!(home.settle().is_none(), "the time of the plan has not passed again");
    assert_eq!(home.maps.len(), 200, "and all is written");
    // But not if something else is wanted by then.
    let (mut home, plan) = Home::planning(&names);
    home.answer(plan, 2);
    home.node.handle(Input::Policies(Some(Vec::new())), home.now);
    home.settle();
    assert!(home.maps.len() < 200, "the rest is planned anew");
}

#[test]
fn a_plan_takes_over_the_clusters_that_the_one_before_it_left_settled() {
    let (mut home, plan) = Home::planning(&["c0", "c1"]);
    home.answer(plan, 0);
    let mut counts = Vec::new();
    for _ in 0..10 {
        let Some(made) = home.settle().map(PlanTask::run) else { break };
        counts.push((made.plan.kept, made.plan.rebuilt));
        home.answer(made, 0);
    }
    assert_eq!(counts.first(), Some(&(0, 2)), "both maps have changed");
    home.show(Object::Member(MemberRecord {
        id: "other".parse().unwrap(),
        version: ObjectVersion::default(),
        spec: MemberSpec::new("other", vec!["g".parse().unwrap()]),
    }));
    let made = home.settle().expect("a Member has come").run();
    assert_eq!((made.plan.kept, made.plan.rebuilt), (2, 0), "no map has changed");
}
