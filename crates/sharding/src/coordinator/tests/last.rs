//! What a plan takes over from the one before it, and that it is the plan from scratch all the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use model::{GroupName, GroupScope, Identity};
use proptest::prelude::*;

use super::*;
use crate::api::{
    ConfiguredClusters, FleetPolicySpec, GroupDetail, MemberPreference, MemberRule, MemberSelector,
    ShardLoad, ShardPath, ShardSelector,
};
use crate::policy::PolicyRecord;
use crate::tally::Tally;

/// How many plans a story has.
const PLANS: usize = 40;

/// A fleet whose home carries out what is planned, and to which anything may happen.
struct Story {
    scene: Scene,
    rng: fastrand::Rng,
    /// Writes that are under way.
    sent: Vec<Write>,
}

fn essence(coordinator: &Coordinator) -> u64 {
    let mut hasher = DefaultHasher::new();
    coordinator.hash(&mut hasher);
    hasher.finish()
}

impl Story {
    fn new(seed: u64) -> Self {
        let clusters = ["c0", "c1", "c2", "c3", "c4", "c5"];
        let scene = Scene::new(&["m-0", "m-1", "m-2"], &clusters);
        Self { scene, rng: fastrand::Rng::with_seed(seed), sent: Vec::new() }
    }

    /// Plans from scratch, and with what is left of the last plan: both write and remember the same.
    fn plan(&mut self) -> Plan {
        let known = self.scene.coordinator.clone();
        self.scene.coordinator.last = LastPlan::default();
        let full = self.scene.plan();
        let after = essence(&self.scene.coordinator);
        self.scene.coordinator = known;
        let plan = self.scene.plan();
        assert_eq!((full.kept, full.rebuilt), (0, plan.kept + plan.rebuilt));
        assert_eq!(Plan { kept: full.kept, rebuilt: full.rebuilt, ..plan.clone() }, full);
        assert_eq!(essence(&self.scene.coordinator), after, "what it remembers");
        plan
    }

    /// Plans. Home carries out what was under way, and now or later what is planned.
    fn step(&mut self) {
        let plan = self.plan();
        self.scene.pending.clear();
        std::mem::take(&mut self.sent).into_iter().for_each(|write| self.carry_out(write));
        for write in plan.writes {
            let map = match &write {
                Write::Create(Object::Map(map)) | Write::Replace(Object::Map(map)) => {
                    Some(map.clone())
                }
                _ => None,
            };
            match map.filter(|_| self.rng.u8(0..4) == 0) {
                Some(map) => {
                    self.scene.pending.push(map);
                    self.sent.push(write);
                }
                None => self.carry_out(write),
            }
        }
    }

    /// Lets home carry out a write, unless the object has changed since.
    fn carry_out(&mut self, write: Write) {
        let target = write.target();
        let held = self.scene.world.version_of(&target).cloned();
        match write {
            Write::Create(object) if held.is_none() => self.scene.apply(object),
            Write::Replace(object) if held.as_ref() == Some(object.version()) => {
                self.scene.apply(object);
            }
            Write::Delete(_, ref version) if held.as_ref() == Some(version) => {
                self.scene.world.deleted_by(&write);
            }
            _ => return,
        }
        if target.kind == Kind::Lease {
            self.scene.world.took(&target.name);
        }
    }

    /// Plans until there is nothing to write.
    fn rest(&mut self) {
        for _ in 0..PLANS {
            let plan = self.plan();
            if plan.writes.is_empty() {
                return;
            }
            plan.writes.into_iter().for_each(|write| self.carry_out(write));
        }
        panic!("it never rests");
    }

    /// Everybody renews who still has its Lease, but this member.
    fn pass(&mut self, time: Duration, silent: Option<&str>) {
        self.scene.pass(time);
        let members: Vec<MemberId> = self.scene.world.members().keys().cloned().collect();
        for member in members {
            let lease = self.scene.world.lease_of(&member);
            let holder = lease.and_then(|lease| lease.record.holder.as_deref());
            if holder == Some(member.as_str()) && silent != Some(member.as_str()) {
                self.scene.renew(member.as_str());
            }
        }
    }

    fn edit(&mut self, member: &str, change: impl FnOnce(&mut MemberSpec)) {
        if let Some(mut record) = self.scene.world.members().get(&id(member)).cloned() {
            change(&mut record.spec);
            self.scene.apply(Object::Member(record));
        }
    }

    fn edit_map(&mut self, cluster: &ClusterName, change: impl FnOnce(&mut MapRecord)) {
        if let Some(mut map) = self.scene.world.maps().get(cluster).cloned() {
            change(&mut map);
            self.scene.apply(Object::Map(map));
        }
    }

    fn member(&mut self) -> String {
        format!("m-{}", self.rng.u8(1..5))
    }

    fn cluster(&mut self) -> ClusterName {
        format!("c{}", self.rng.u8(0..8)).parse().unwrap()
    }

    /// One thing happens.
    fn change(&mut self) {
        let (member, cluster) = (self.member(), self.cluster());
        match self.rng.u8(0..16) {
            0 => {
                self.scene.renew(&member);
                self.scene.member(&member, |_| {});
            }
            1 => self.edit(&member, |spec| spec.state = MemberState::Leaving),
            2 => {
                let time = Duration::from_millis(self.rng.u64(4_000..12_000));
                self.pass(time, Some(&member));
            }
            3 => self.scene.lease(&member, Some("m-0")),
            4 => self.scene.lease(&member, None),
            5 => {
                let load = ShardLoad {
                    shard: format!("{cluster}/g/0/1").parse().unwrap(),
                    busy: self.rng.u32(0..2_000),
                    heaviest: Some(0),
                    events: 0,
                    cached: 0,
                    waiting: 0,
                };
                self.edit(&member, |spec| spec.loads = vec![load].into());
            }
            6 if self.scene.clusters.contains(&cluster) => {
                self.scene.clusters.remove(&cluster);
            }
            6 => {
                self.scene.clusters.insert(cluster);
            }
            7 => self.scene.policies = self.policies(),
            8 => self.change_map(&cluster),
            9 => self.change_groups(),
            10..13 => self.acknowledge(),
            13 => self.pass(Duration::from_secs(30), None),
            14 => {
                let own: Vec<ClusterName> = self.scene.clusters.iter().cloned().collect();
                let said = ConfiguredClusters {
                    count: own.len() as u32,
                    digest: Tally::of(&own).digest(),
                    only: own.into(),
                    fails: vec![cluster].into(),
                    ..ConfiguredClusters::default()
                };
                let said = Some(said).filter(|_| self.rng.bool());
                self.edit(&member, |spec| spec.clusters = said);
            }
            _ => {
                let uid = format!("u-{}", self.rng.u8(0..8)).parse().unwrap();
                let identity = Identity { uid, origin: Arc::from("kubeconfig"), place: 0 };
                self.scene.identities.insert(cluster, Arc::new(identity));
            }
        }
    }

    fn policies(&mut self) -> Policies {
        let clusters = vec![self.cluster().to_string()];
        let select = MemberSelector { names: vec![self.member()], ..MemberSelector::default() };
        let preference = MemberPreference { select: select.clone(), required: self.rng.bool() };
        let shards = Some(ShardSelector { clusters, ..ShardSelector::default() });
        let mut spec = FleetPolicySpec { shards, ..FleetPolicySpec::default() };
        match self.rng.u8(0..7) {
            0 => spec.pause = Some(true),
            1 => spec.pin = Some(preference),
            2 => spec.avoid = Some(preference),
            3 => spec.busy = Some(900),
            4 => {
                let rule = MemberRule { select, max_shards: Some(2), ..MemberRule::default() };
                spec = FleetPolicySpec { members: Some(rule), ..FleetPolicySpec::default() };
            }
            _ => return Policies::default(),
        }
        Policies::read(vec![PolicyRecord::new("p", spec)])
    }

    /// Somebody edits a map.
    fn change_map(&mut self, cluster: &ClusterName) {
        let path: ShardPath = ["g/0/1", "g/0/2", "h/0/1"][self.rng.usize(0..3)].parse().unwrap();
        let entry = entry(["@9", "m-1@9", "m-2>m-0@9", "m-9@9"][self.rng.usize(0..4)]);
        let removes = self.rng.bool();
        self.edit_map(cluster, |map| {
            if removes {
                map.entries_mut().remove(&path);
            } else {
                map.entries_mut().insert(path, entry);
            }
        });
    }

    fn change_groups(&mut self) {
        let group = |name: &str| name.parse::<GroupName>().unwrap();
        let scope = [GroupScope::Object, GroupScope::Cluster, GroupScope::Fleet];
        let scope = scope[self.rng.usize(0..3)];
        let has_two = self.rng.bool();
        for member in ["m-0", "m-1", "m-2", "m-3", "m-4"] {
            self.edit(member, |spec| {
                spec.groups = vec![group("g")];
                spec.groups.extend(has_two.then(|| group("h")));
                let (controllers, shared_kinds) = (Vec::new(), Vec::new());
                let detail = GroupDetail { group: group("g"), controllers, scope, shared_kinds };
                spec.group_details = vec![detail];
            });
        }
    }

    /// All owners end the drains that they were asked for.
    fn acknowledge(&mut self) {
        let mut drains: BTreeMap<MemberId, Vec<AcknowledgedDrain>> = BTreeMap::new();
        for map in self.scene.world.maps().values() {
            for (path, entry) in map.entries.iter().filter(|(_, entry)| entry.is_draining()) {
                let Some(owner) = entry.owner() else { continue };
                let (shard, epoch) = (path.in_cluster(&map.cluster), entry.epoch());
                drains.entry(owner.clone()).or_default().push(AcknowledgedDrain { shard, epoch });
            }
        }
        for (member, drains) in drains {
            self.edit(member.as_str(), |spec| spec.acknowledged_drains = drains);
        }
    }

    /// How many clusters the next plan takes over, and how many it looks at anew.
    fn counts(&mut self) -> (usize, usize) {
        let plan = self.plan();
        (plan.kept, plan.rebuilt)
    }
}

#[test]
fn only_clusters_that_changed_are_looked_at_again() {
    let mut story = Story::new(0);
    story.rest();
    assert_eq!(story.counts(), (6, 0), "nothing has changed");
    // Loads change, and what people want: that is judged for all shards anyway.
    let load = ShardLoad {
        shard: "c0/g/0/1".parse().unwrap(),
        busy: 10,
        heaviest: None,
        events: 0,
        cached: 0,
        waiting: 0,
    };
    story.edit("m-1", |spec| spec.loads = vec![load].into());
    assert_eq!(story.counts(), (6, 0));
    // A map is written anew.
    let changed = "c1".parse().unwrap();
    story.edit_map(&changed, |map| map.entries = Arc::new((*map.entries).clone()));
    assert_eq!(story.counts(), (5, 1));
    assert_eq!(story.counts(), (6, 0));
    // A member acknowledges a drain.
    let drain = AcknowledgedDrain { shard: "c2/g/0/1".parse().unwrap(), epoch: Epoch(99) };
    story.edit("m-1", |spec| spec.acknowledged_drains = vec![drain]);
    assert_eq!(story.counts(), (5, 1));
    story.edit("m-1", |spec| spec.acknowledged_drains.clear());
    assert_eq!(story.counts(), (6, 0));
    // A Lease is taken: the clusters of its member are looked at.
    let of_dead = |map: &&MapRecord| map.entries.values().any(|e| e.owner() == Some(&id("m-1")));
    let lost = story.scene.world.maps().values().filter(of_dead).count();
    story.scene.lease("m-1", Some("m-0"));
    assert_eq!((story.counts(), lost), ((6 - lost, lost), 2));
    story.rest();
    assert_eq!(story.counts(), (6, 0));
    // All members run another group.
    for member in ["m-0", "m-2"] {
        story.edit(member, |spec| spec.groups.push("h".parse().unwrap()));
    }
    assert_eq!(story.counts(), (0, 6));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens between plans, a plan that takes over what it can is that from scratch. The seed tells the
    /// whole story.
    #[test]
    fn an_incremental_plan_is_that_from_scratch(seed in any::<u64>().no_shrink()) {
        let mut story = Story::new(seed);
        for _ in 0..PLANS {
            for _ in 0..story.rng.u8(0..3) {
                story.change();
            }
            story.step();
            // The coordinator renews its Lease, whatever becomes of the others.
            story.scene.renew("m-0");
        }
    }
}
