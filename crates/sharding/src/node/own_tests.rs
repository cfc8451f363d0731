//! What a member writes about itself, against a home cluster that accepts every write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{Epoch, MemberId, Moment, Work};

use crate::api::{
    DownCluster, MAX_DOWN_BYTES, MAX_DOWN_CLUSTERS, MAX_REASON_CHARS, MemberSpec, ObjectVersion,
};
use crate::config::Config;
use crate::failing::REPORT_AFTER;
use crate::handover::Entry;
use crate::node::{Input, Node, Note, Output};
use crate::record::{Kind, MapRecord, MemberRecord, Object, Observation, Write, WriteOutcome};

struct Home {
    node: Node,
    now: Moment,
    version: u64,
    /// Every Member as it was written.
    written: Vec<MemberSpec>,
    /// What the member noted.
    notes: Vec<Note>,
    /// Whether it wanted to read home again.
    reread: bool,
    /// Whether it has the definitions of an earlier release and drops what these do not know.
    is_old: bool,
}

impl Home {
    /// One member that has joined.
    fn with_member() -> Self {
        let groups = BTreeSet::from(["g".parse().unwrap()]);
        let now = Moment::from_origin(Duration::from_secs(60));
        let mut node = Node::new(Config::new("replica-0", groups, 1), now);
        for kind in [Kind::Lease, Kind::Member, Kind::Map] {
            node.handle(Input::Observed(Observation::Listed(kind, "1".into(), Vec::new())), now);
        }
        node.handle(Input::Clusters(BTreeSet::new(), Vec::new()), now);
        let mut home = Self {
            node,
            now,
            version: 1,
            written: Vec::new(),
            notes: Vec::new(),
            reread: false,
            is_old: false,
        };
        home.settle();
        home
    }

    fn next_version(&mut self) -> ObjectVersion {
        self.version += 1;
        ObjectVersion { uid: "u".into(), resource: self.version.to_string() }
    }

    /// Carries out writes until there are none.
    fn settle(&mut self) {
        loop {
            let Output { writes, notes, reread, .. } = self.node.step(self.now);
            self.notes.extend(notes);
            self.reread |= reread;
            if writes.is_empty() {
                return;
            }
            for write in writes {
                let target = write.target();
                let written = self.write(write);
                self.node.handle(Input::Completed(target, WriteOutcome::Done(written)), self.now);
            }
        }
    }

    fn write(&mut self, write: Write) -> Option<Object> {
        let (Write::Create(mut object) | Write::Replace(mut object)) = write else { return None };
        if let Object::Member(member) = &mut object {
            self.written.push(member.spec.clone());
            member.spec.clusters = member.spec.clusters.take().filter(|_| !self.is_old);
            let held = self.node.world().members().get(&member.id);
            if held.is_some_and(|held| *held == *member) {
                // As of a server: a write that changes nothing leaves the version.
                return Some(object);
            }
        }
        object.set_version(self.next_version());
        Some(object)
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.settle();
    }

    /// Somebody else writes the Member.
    fn patch(&mut self, change: impl FnOnce(&mut MemberSpec)) {
        let mut member = self.member();
        change(&mut member.spec);
        member.version = self.next_version();
        self.node.handle(Input::Observed(Observation::Applied(Object::Member(member))), self.now);
    }

    fn member(&self) -> MemberRecord {
        self.node.world().members()[self.node.id()].clone()
    }

    /// Lets the Lease run out, so that the member joins again.
    fn rejoin(&mut self) -> MemberId {
        let was = self.node.id().clone();
        self.wait(60);
        assert_ne!(self.node.id(), &was);
        was
    }
}

#[test]
fn a_drain_that_was_asked_for_outlives_rewriting_and_rejoining() {
    let mut home = Home::with_member();
    assert!(!home.member().spec.drain);
    home.patch(|spec| spec.drain = true);
    home.settle();
    let writes = home.written.len();
    let down = DownCluster::new(&"east".parse().unwrap(), "no");
    home.node.handle(Input::Clusters(BTreeSet::new(), vec![down]), home.now);
    home.settle();
    assert_eq!(home.written.len(), writes + 1);
    assert!(home.written[writes].drain, "its own writing keeps it");
    home.rejoin();
    assert!(home.member().spec.drain, "the next incarnation has it");
    home.patch(|spec| spec.drain = false);
    home.rejoin();
    assert!(!home.member().spec.drain, "and no longer after it was withdrawn");
}

/// A member goes on writing while a list is on its way, so the list may be older than that.
#[test]
fn a_list_from_before_its_own_writes_is_not_read_again_and_one_from_before_what_watches_showed_is()
{
    let now = Moment::from_origin(Duration::from_secs(60));
    let groups = BTreeSet::from(["g".parse().unwrap()]);
    let mut node = Node::new(Config::new("replica-0", groups, 1), now);
    node.handle(Input::Clusters(BTreeSet::new(), Vec::new()), now);
    let mut home = Home {
        node,
        now,
        version: 100,
        written: Vec::new(),
        notes: Vec::new(),
        reread: false,
        is_old: false,
    };
    home.settle();
    let lists = |home: &mut Home| {
        for kind in [Kind::Lease, Kind::Member, Kind::Map] {
            let list = Observation::Listed(kind, "50".into(), Vec::new());
            home.node.handle(Input::Observed(list), home.now);
        }
    };
    let reads_again = |home: &mut Home| {
        lists(home);
        home.reread = false;
        home.wait(3);
        home.reread
    };
    for _ in 0..2 {
        assert!(!reads_again(&mut home), "what it wrote meanwhile comes with the watch");
    }
    let shown = Observation::Applied(Object::Member(home.member()));
    home.node.handle(Input::Observed(shown), home.now);
    assert!(reads_again(&mut home), "now it must know whether home went back");
}

#[test]
fn a_write_of_which_older_definitions_keep_nothing_is_no_proof_that_home_went_back() {
    let mut home = Home::with_member();
    home.is_old = true;
    let (me, written) = (home.node.id().clone(), home.written.len());
    let (id, version) = ("other-1".parse().unwrap(), home.next_version());
    let spec = MemberSpec::new("other", Vec::new());
    let other = Object::Member(MemberRecord { id, version, spec });
    home.node.handle(Input::Observed(Observation::Applied(other)), home.now);
    let clusters = ["east", "west"].map(|name| name.parse().unwrap());
    home.node.handle(Input::Clusters(clusters.into(), Vec::new()), home.now);
    home.wait(3);
    assert!(home.written.len() > written, "it said which clusters it has");
    assert_eq!(home.node.id(), &me);
    let noticed = |note: &Note| matches!(note, Note::HistoryChanged { .. });
    assert!(!home.notes.iter().any(noticed), "{:?}", home.notes);
}

#[test]
fn a_list_that_lacks_much_is_read_again() {
    let mut home = Home::with_member();
    let others: Vec<Object> = (0..9)
        .map(|n| {
            let (id, version) = (format!("other-{n}").parse().unwrap(), home.next_version());
            let spec = MemberSpec::new("other", Vec::new());
            Object::Member(MemberRecord { id, version, spec })
        })
        .collect();
    let list = |home: &mut Home, others: &[Object]| {
        let mut members = others.to_vec();
        members.push(Object::Member(home.member()));
        let list = Observation::Listed(Kind::Member, home.next_version().resource, members);
        home.node.handle(Input::Observed(list), home.now);
        home.reread = false;
        home.wait(3);
        home.reread
    };
    assert!(!list(&mut home, &others), "more than before");
    assert!(!list(&mut home, &others[1..]), "one that somebody deleted meanwhile");
    assert!(list(&mut home, &[]), "hardly all of them");
}

#[test]
fn what_a_map_gives_in_vain_is_not_served() {
    let mut home = Home::with_member();
    let give = |home: &mut Home, epoch: u64, protocol: u32| {
        let mut map = MapRecord::new("east".parse().unwrap());
        map.version = home.next_version();
        map.protocol = protocol;
        let owner = home.node.id().clone();
        map.entries_mut()
            .insert("g/0/1".parse().unwrap(), Entry::Owned { owner, epoch: Epoch(epoch) });
        home.node.handle(Input::Observed(Observation::Applied(Object::Map(map))), home.now);
        home.settle();
        home.node.unserved().len()
    };
    home.node
        .handle(Input::Clusters(BTreeSet::from(["east".parse().unwrap()]), Vec::new()), home.now);
    assert_eq!(give(&mut home, 5, 1), 0);
    assert_eq!(give(&mut home, 5, 2), 1, "it does not speak that version");
}

#[test]
fn a_cluster_that_is_down_is_noted_once_and_when_it_works_again() {
    let mut home = Home::with_member();
    let east = || "east".parse().unwrap();
    let mut noted = |down: Vec<DownCluster>| {
        home.notes.clear();
        home.node.handle(Input::Clusters(BTreeSet::from([east()]), down), home.now);
        home.wait(3);
        home.notes.clone()
    };
    noted(Vec::new());
    let refused = DownCluster::new(&east(), "another fleet works there");
    assert_eq!(noted(vec![refused.clone()]), [Note::ClusterDown(refused)]);
    assert_eq!(noted(vec![DownCluster::new(&east(), "its client is not ready")]), []);
    assert_eq!(noted(Vec::new()), [], "it may be a moment");
    noted(Vec::new());
    noted(Vec::new());
    assert_eq!(noted(Vec::new()), [Note::ClusterUp(east())]);
}

#[test]
fn a_cluster_that_fails_for_long_is_reported_beside_those_without_a_client() {
    let mut home = Home::with_member();
    let down = |cluster: &str, reason: &str| DownCluster::new(&cluster.parse().unwrap(), reason);
    let unusable = vec![down("west", "no kubeconfig")];
    home.node.handle(Input::Clusters(BTreeSet::new(), unusable.clone()), home.now);
    home.settle();
    let fails = |clusters: &[&str], home: &mut Home| {
        let failing = clusters.iter().map(|name| (name.parse().unwrap(), Arc::from("refused")));
        home.node.handle(Input::Failing(failing.collect()), home.now);
        home.settle();
    };
    fails(&["east", "west"], &mut home);
    assert_eq!(home.member().spec.down_clusters, unusable, "it may be a hiccup");
    home.now = home.now + REPORT_AFTER;
    fails(&["east", "west"], &mut home);
    let reported = home.member().spec.down_clusters;
    assert_eq!(reported, [down("west", "no kubeconfig"), down("east", "refused")]);
    let writes = home.written.len();
    fails(&["east"], &mut home);
    assert_eq!(home.written.len(), writes, "the same is not reported again");
    home.now = home.now + REPORT_AFTER;
    fails(&[], &mut home);
    assert_eq!(home.member().spec.down_clusters, unusable);
}

#[test]
fn what_it_has_configured_and_does_not_reach_is_in_its_member() {
    let mut home = Home::with_member();
    let names: BTreeSet<model::ClusterName> =
        ["east", "west"].map(|name| name.parse().unwrap()).into();
    home.node.handle(Input::Clusters(names.clone(), Vec::new()), home.now);
    let west = DownCluster::new(&"west".parse().unwrap(), "no kubeconfig");
    home.node.handle(Input::Clusters(names, vec![west.clone()]), home.now);
    home.settle();
    let said = home.member().spec.clusters.unwrap();
    assert_eq!((said.count, said.only.len()), (2, 2));
    assert_eq!(*said.fails, *std::slice::from_ref(&west.cluster));
    home.node.handle(Input::Failing([(west.cluster, Arc::from("x"))].into()), home.now);
    home.node.handle(Input::Clusters(BTreeSet::from(["east".parse().unwrap()]), vec![]), home.now);
    home.settle();
    let said = home.member().spec.clusters.unwrap();
    assert_eq!((said.only.len(), said.fails.len()), (1, 0), "it has the other one no longer");
}

#[test]
fn what_the_definitions_of_an_earlier_release_drop_is_not_sent_again_and_again() {
    let mut home = Home::with_member();
    home.is_old = true;
    home.node.handle(Input::Clusters(["east".parse().unwrap()].into(), Vec::new()), home.now);
    home.settle();
    assert_eq!(home.member().spec.clusters, None);
    // It coordinates: the new cluster gets a shard, which it counts.
    home.wait(3);
    let writes = home.written.len();
    for _ in 0..10 {
        home.wait(1);
    }
    assert_eq!(home.written.len(), writes);
    home.patch(|spec| spec.drain = true);
    home.settle();
    assert!(home.written.last().unwrap().drain, "what others write is still followed");
}

/// Somebody writes a Secret again and again, and its kubeconfig is wrong.
#[test]
fn unusable_clusters_that_come_and_go_are_not_written_each_time() {
    let west = || -> model::ClusterName { "west".parse().unwrap() };
    let flip: [fn(usize) -> (usize, bool); 4] = [
        // Its name changes between two, or is another one each time; or it comes and goes.
        |n| (n % 2, true),
        |n| (n, true),
        |n| (0, n % 2 == 0),
        // It works, and works no more.
        |_| (0, true),
    ];
    for (which, flip) in flip.into_iter().enumerate() {
        let mut home = Home::with_member();
        let usable: BTreeSet<_> = [west(), "c0".parse().unwrap()].into();
        let start = if which == 3 { usable.clone() } else { BTreeSet::from([west()]) };
        home.node.handle(Input::Clusters(start, Vec::new()), home.now);
        // It coordinates, and counts its shards.
        home.wait(3);
        home.wait(3);
        let writes = home.written.len();
        for n in 0..200 {
            let ((name, is_there), works) = (flip(n), which == 3 && n % 2 == 1);
            let name: model::ClusterName = format!("c{name}").parse().unwrap();
            let set = [west()].into_iter().chain(is_there.then(|| name.clone())).collect();
            let why = DownCluster::new(&name, &format!("line {n} is no YAML"));
            let down = if is_there && !works { vec![why] } else { Vec::new() };
            home.node.handle(Input::Clusters(set, down), home.now);
            home.node.handle(Input::Failing(BTreeMap::new()), home.now);
            home.now = home.now + Duration::from_millis(300);
            home.settle();
        }
        let written = home.written.len() - writes;
        assert!(written <= 2, "{which}: {written} writes in a minute");
    }
    // What stays is told.
    let mut home = Home::with_member();
    let down = DownCluster::new(&west(), "no kubeconfig");
    home.node.handle(Input::Clusters([west()].into(), vec![down.clone()]), home.now);
    home.settle();
    assert!(home.member().spec.down_clusters.is_empty());
    home.now = home.now + REPORT_AFTER;
    home.node.handle(Input::Failing(BTreeMap::new()), home.now);
    home.settle();
    assert_eq!(home.member().spec.down_clusters, [down]);
    assert_eq!(home.member().spec.clusters.unwrap().count, 1);
}

#[test]
fn what_is_reported_of_down_clusters_has_its_bounds() {
    let long = "x".repeat(10_000);
    let all = (0..1000).map(|n| DownCluster::new(&format!("c-{n}").parse().unwrap(), &long));
    let fit = DownCluster::that_fit(all);
    let bytes = serde_json::to_vec(&fit).unwrap().len();
    assert!(bytes <= MAX_DOWN_BYTES + "[]".len(), "{bytes}");
    assert_eq!(fit.len(), MAX_DOWN_BYTES / MAX_REASON_CHARS - 1);
    let short = (0..1000).map(|n| DownCluster::new(&format!("c-{n}").parse().unwrap(), "no"));
    assert_eq!(DownCluster::that_fit(short).len(), MAX_DOWN_CLUSTERS);
}

#[test]
fn a_drain_asked_for_at_the_moment_of_the_fence_is_not_lost() {
    let mut home = Home::with_member();
    home.patch(|spec| spec.drain = true);
    home.rejoin();
    assert!(home.member().spec.drain);
}

#[test]
fn a_drain_taken_back_in_the_member_of_the_ended_incarnation_is_taken_back() {
    let mut home = Home::with_member();
    home.patch(|spec| spec.drain = true);
    home.settle();
    let mut old = home.member();
    home.rejoin();
    assert!(home.member().spec.drain);
    old.spec.drain = false;
    old.version = home.next_version();
    home.node.handle(Input::Observed(Observation::Applied(Object::Member(old))), home.now);
    home.settle();
    assert!(!home.member().spec.drain);
}

#[test]
fn load_is_reported_in_the_member_and_ends_with_the_incarnation() {
    let mut home = Home::with_member();
    let shard: model::ShardId = "east/g/0/1".parse().unwrap();
    for seconds in 1..=20u64 {
        home.wait(5);
        let busy = Duration::from_secs(seconds * 10);
        let work = Work { busy, ..Work::default() };
        home.node.handle(Input::Measured(BTreeMap::from([(shard.clone(), work)])), home.now);
        home.settle();
    }
    let spec = home.member().spec;
    assert_eq!((spec.busy, spec.loads.len(), spec.loads[0].busy), (2_000, 1, 2_000));
    let reported = home.written.iter().filter(|spec| !spec.loads.is_empty()).count();
    assert_eq!(reported, 1, "a steady load is written once");
    home.rejoin();
    assert_eq!((home.member().spec.busy, home.member().spec.loads.len()), (0, 0));
}

#[test]
fn what_it_does_not_serve_is_counted_also_where_its_member_has_no_room_to_name_it() {
    let mut home = Home::with_member();
    let name = |number: usize| format!("c-{number}").parse::<model::ClusterName>().unwrap();
    let names: BTreeSet<_> = (0..300).map(name).collect();
    for cluster in &names {
        let mut map = MapRecord::new(cluster.clone());
        map.version = home.next_version();
        let owner = home.node.id().clone();
        let entry = Entry::Owned { owner, epoch: Epoch(1) };
        map.entries_mut().insert("g/0/1".parse().unwrap(), entry);
        home.node.handle(Input::Observed(Observation::Applied(Object::Map(map))), home.now);
    }
    let down = names.iter().map(|name| DownCluster::new(name, "no route")).collect();
    home.node.handle(Input::Clusters(names.clone(), Vec::new()), home.now);
    home.node.handle(Input::Clusters(names, down), home.now);
    home.settle();
    let said = home.member().spec.clusters.unwrap();
    assert_eq!((said.fails.len(), said.unnamed()), (256, Some(300)));
    assert_eq!(home.node.unserved().len(), 300);
}
