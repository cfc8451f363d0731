//! The coordinator's step, case by case.

mod floor;
mod last;
mod load;
mod moved;
mod names;
mod policy;
mod proof;
mod reach;
mod single;
mod skew;
mod unseen;
mod written;

use model::Epoch;

use super::removal::{LEFT_GRACE, LONG_GRACE, REMOVAL_GRACE};
use super::*;
use crate::api::{AcknowledgedDrain, ConfiguredClusters, MemberSpec, MemberState, ObjectVersion};
use crate::handover::Entry;
use crate::record::{Kind, MemberRecord, Target};

/// A world under construction, and the coordinator `m-0`.
struct Scene {
    world: World,
    clusters: BTreeSet<ClusterName>,
    identities: Identities,
    policies: Policies,
    pending: Vec<MapRecord>,
    coordinator: Coordinator,
    revision: u64,
    now: Moment,
}

fn id(name: &str) -> MemberId {
    name.parse().unwrap()
}

fn entry(text: &str) -> Entry {
    let (members, epoch) = text.split_once('@').unwrap();
    let epoch = Epoch(epoch.parse().unwrap());
    match (members, members.split_once('>')) {
        ("", _) => Entry::Unowned { epoch },
        (owner, None) => Entry::Owned { owner: id(owner), epoch },
        (_, Some((owner, target))) => {
            Entry::Draining { owner: id(owner), epoch, target: target.parse().ok() }
        }
    }
}

fn show(entry: &Entry) -> String {
    let (owner, epoch) = (entry.owner().map_or("", MemberId::as_str), entry.epoch());
    match entry {
        Entry::Draining { target, .. } => {
            format!("{owner}>{}@{epoch}", target.as_ref().map_or("", MemberId::as_str))
        }
        _ => format!("{owner}@{epoch}"),
    }
}

impl Scene {
    /// Live, active members and configured clusters, a minute after the coordinator's election.
    fn new(members: &[&str], clusters: &[&str]) -> Self {
        let mut scene = Self {
            world: World::default(),
            clusters: clusters.iter().map(|name| name.parse().unwrap()).collect(),
            identities: Identities::new(),
            policies: Policies::default(),
            pending: Vec::new(),
            coordinator: Coordinator::default(),
            revision: 0,
            now: Moment::from_origin(Duration::from_secs(60)),
        };
        for member in members {
            scene.renew(member);
            scene.member(member, |_| {});
        }
        scene
    }

    fn apply(&mut self, mut object: Object) {
        self.revision += 1;
        let version = ObjectVersion { uid: "u".into(), resource: self.revision.to_string() };
        object.set_version(version);
        self.world.apply(object, self.now);
    }

    fn lease(&mut self, member: &str, holder: Option<&str>) {
        let member = id(member);
        let name = lease::member_lease_name(&member);
        let mut record = LeaseRecord::new(name, &member, LeaseTimings::default().duration);
        record.holder = holder.map(str::to_owned);
        let (name, taken) = (record.name.clone(), holder != Some(member.as_str()));
        self.apply(Object::Lease(record));
        if taken {
            self.world.took(&name);
        }
    }

    fn renew(&mut self, member: &str) {
        self.lease(member, Some(member));
    }

    fn member(&mut self, member: &str, change: impl Fn(&mut MemberSpec)) {
        let mut spec = MemberSpec::new(member, vec!["g".parse().unwrap()]);
        change(&mut spec);
        let version = ObjectVersion::default();
        self.apply(Object::Member(MemberRecord { id: id(member), version, spec }));
    }

    fn map_record(cluster: &str, shard: &str) -> MapRecord {
        let mut record = MapRecord::new(cluster.parse().unwrap());
        record.entries_mut().insert("g/0/1".parse().unwrap(), entry(shard));
        record
    }

    fn map(&mut self, cluster: &str, shard: &str) {
        self.apply(Object::Map(Self::map_record(cluster, shard)));
    }

    fn map_of(&mut self, cluster: &str, shards: &[(&str, &str)]) {
        let mut record = MapRecord::new(cluster.parse().unwrap());
        let entries = shards.iter().map(|(path, text)| (path.parse().unwrap(), entry(text)));
        *record.entries_mut() = entries.collect();
        self.apply(Object::Map(record));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn plan(&mut self) -> Plan {
        let me = id("m-0");
        let view = View {
            me: &me,
            world: &self.world,
            pending: self.pending.iter().map(|map| (&map.cluster, map)).collect(),
            clusters: &self.clusters,
            identities: &self.identities,
            policies: &self.policies,
            timings: LeaseTimings::default(),
            since: Moment::from_origin(Duration::from_secs(1)),
        };
        self.coordinator.step(&view, self.now)
    }

    /// The writes of the next step, one per line, each with the version it replaces.
    fn writes(&mut self) -> Vec<String> {
        let lines = |write: &Write| {
            let (verb, target) = (write.verb(), write.target());
            let version = match write {
                Write::Create(object) | Write::Replace(object) => object.version(),
                Write::Delete(_, version) => version,
            };
            let body = match write {
                Write::Create(Object::Map(map)) | Write::Replace(Object::Map(map)) => map
                    .entries
                    .iter()
                    .map(|(path, entry)| format!("{path} {}", show(entry)))
                    .collect::<Vec<_>>()
                    .join(", "),
                Write::Create(Object::Lease(lease)) | Write::Replace(Object::Lease(lease)) => {
                    format!("held by {}", lease.holder.as_deref().unwrap_or("nobody"))
                }
                _ => String::new(),
            };
            let name = target.name;
            format!("{verb} {name} v{}: {body}", version.resource)
        };
        self.plan().writes.iter().map(lines).collect()
    }

    fn check(&mut self, expect: &[&str]) {
        assert_eq!(self.writes(), expect);
    }
}

#[test]
fn new_clusters_get_maps_with_owners_in_one_write() {
    let mut scene = Scene::new(&["m-0"], &["east", "west"]);
    scene.check(&["create east v: g/0/1 m-0@1", "create west v: g/0/1 m-0@1"]);
}

#[test]
fn a_fleet_that_begins_waits_a_moment_for_its_members() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.now = Moment::from_origin(Duration::from_secs(1));
    scene.renew("m-0");
    let plan = scene.plan();
    assert_eq!((plan.writes.len(), plan.wake), (0, Some(scene.now + START_WAIT)));
    scene.pass(START_WAIT);
    scene.check(&["create east v: g/0/1 m-0@1"]);
}

#[test]
fn a_part_that_lacks_is_added_above_the_epochs_of_its_group() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.map_of("east", &[("g/0/2", "m-0@4")]);
    scene.check(&["update east v3: g/0/2 m-0@4, g/1/2 m-0@5"]);
}

#[test]
fn parts_that_share_uids_drain_and_the_widest_stays() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map_of("east", &[("g/0/1", "m-0@4"), ("g/1/2", "m-1@6")]);
    scene.check(&["update east v5: g/0/1 m-0>@4, g/1/2 m-1>@6"]);
    scene.map_of("east", &[("g/0/1", "@4"), ("g/1/2", "m-1>@6")]);
    scene.check(&[]);
    scene.map_of("east", &[("g/0/1", "@4"), ("g/1/2", "@6")]);
    let writes = scene.writes();
    assert!(
        writes[0].starts_with("update east v7: g/0/1 m-") && writes[0].ends_with("@7"),
        "{writes:?}"
    );
}

#[test]
fn a_silent_lease_is_taken_first_and_its_shards_only_then() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-1@4");
    let silence = LeaseTimings::default().silence();
    scene.pass(silence - Duration::from_millis(1));
    scene.renew("m-0");
    scene.check(&[]);
    scene.pass(Duration::from_millis(1));
    scene.check(&["update leasehold-member-m-1 v3: held by m-0"]);
    // Nothing more until the taken Lease is read back.
    scene.check(&["update leasehold-member-m-1 v3: held by m-0"]);
    scene.lease("m-1", Some("m-0"));
    scene.check(&["update east v5: g/0/1 m-0@5"]);
}

#[test]
fn a_suspect_member_keeps_its_shards_and_gets_none() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "west"]);
    scene.map("east", "m-1@4");
    scene.pass(LeaseTimings::default().renew_interval * 5 / 2);
    scene.renew("m-0");
    scene.check(&["create west v: g/0/1 m-0@1"]);
}

#[test]
fn a_leaver_drains_and_its_acknowledgement_hands_over() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-1@4");
    scene.member("m-1", |spec| spec.state = MemberState::Leaving);
    scene.check(&["update east v5: g/0/1 m-1>m-0@4"]);
    scene.map("east", "m-1>m-0@4");
    scene.check(&[]);
    let acknowledge = |epoch| {
        move |spec: &mut MemberSpec| {
            spec.state = MemberState::Leaving;
            let shard = "east/g/0/1".parse().unwrap();
            spec.acknowledged_drains = vec![AcknowledgedDrain { shard, epoch: Epoch(epoch) }];
        }
    };
    scene.member("m-1", acknowledge(3));
    scene.check(&[]);
    scene.member("m-1", acknowledge(4));
    scene.check(&["update east v7: g/0/1 m-0@5"]);
}

#[test]
fn a_released_lease_frees_at_once() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-1@4");
    scene.lease("m-1", None);
    scene.check(&["update east v5: g/0/1 m-0@5"]);
}

#[test]
fn planning_goes_on_from_what_is_being_written() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "west"]);
    scene.map("east", "@4");
    scene.pending = vec![Scene::map_record("east", "m-0@5")];
    // Without the pending write, both members would look equally free.
    scene.check(&["create west v: g/0/1 m-1@1"]);
}

#[test]
fn a_member_of_another_protocol_gets_nothing() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east", "west"]);
    scene.member("m-1", |spec| spec.protocol_version = 2);
    scene.check(&["create east v: g/0/1 m-0@1", "create west v: g/0/1 m-0@1"]);
}

#[test]
fn a_group_nobody_runs_drains_and_goes_and_its_epoch_stays() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.map("east", "m-0@4");
    scene.member("m-0", |spec| spec.groups = vec!["h".parse().unwrap()]);
    scene.check(&["update east v3: g/0/1 m-0>@4, h/0/1 m-0@1"]);
    scene.map("east", "@4");
    scene.check(&["update east v5: h/0/1 m-0@5"]);
}

#[test]
fn a_member_that_has_not_reported_its_groups_removes_none() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.map("east", "m-1@4");
    scene.renew("m-1");
    scene.member("m-0", |spec| spec.groups = Vec::new());
    scene.check(&[]);
}

#[test]
fn a_missing_lease_is_created_in_the_coordinators_name_after_the_same_silence() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.map("east", "m-9@4");
    scene.check(&[]);
    scene.pass(LeaseTimings::default().silence());
    scene.renew("m-0");
    scene.check(&["create leasehold-member-m-9 v: held by m-0"]);
    scene.lease("m-9", Some("m-0"));
    scene.check(&["update east v3: g/0/1 m-0@5"]);
}

#[test]
fn the_dead_are_collected_once_nothing_names_them() {
    let mut scene = Scene::new(&["m-0", "m-1"], &["east"]);
    scene.map("east", "m-0@5");
    scene.lease("m-1", Some("m-0"));
    scene.check(&[]);
    scene.pass(DEAD_KEPT);
    scene.renew("m-0");
    scene.check(&["delete m-1 v4: "]);
    scene.world.remove(&Target { kind: Kind::Member, name: "m-1".into() }, None);
    scene.check(&["delete leasehold-member-m-1 v6: "]);
}

/// A second release or a laptop in the namespace waits, and changes nothing.
#[test]
fn what_members_of_another_installation_say_does_not_count() {
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.member("m-0", |spec| spec.installation = Some("prod".into()));
    scene.map("east", "m-0@4");
    let stranger = |installation: Option<&'static str>| {
        move |spec: &mut MemberSpec| {
            spec.state = MemberState::Joining;
            spec.groups = vec!["h".parse().unwrap()];
            spec.installation = installation.map(str::to_owned);
        }
    };
    scene.renew("s-0");
    for state in [MemberState::Joining, MemberState::Active] {
        scene.member("s-0", |spec| {
            stranger(Some("laptop"))(spec);
            spec.state = state;
            let only = vec!["theirs".parse().unwrap()].into();
            spec.clusters =
                Some(ConfiguredClusters { count: 1, only, ..ConfiguredClusters::default() });
        });
        scene.check(&[]);
    }
    // One that owns shards is drained.
    scene.map_of("west", &[("g/0/1", "s-0@2")]);
    scene.clusters.insert("west".parse().unwrap());
    scene.member("s-0", |spec| {
        stranger(Some("laptop"))(spec);
        spec.state = MemberState::Leaving;
    });
    scene.check(&["update west v8: g/0/1 s-0>m-0@2"]);
    // A member of an earlier release does not say of which it is, and counts.
    let mut scene = Scene::new(&["m-0"], &["east"]);
    scene.map("east", "m-0@4");
    scene.renew("s-0");
    scene.member("s-0", stranger(None));
    scene.check(&["update east v3: g/0/1 m-0@4, h/0/1 @0"]);
}
