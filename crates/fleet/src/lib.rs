//! The whole fleet as the home cluster tells it, for `leasehold status`; what is wrong with it; and the way to its
//! replicas, with what they say of their queues. Reads, never writes.

mod clusters;
mod error;
mod events;
#[cfg(any(test, feature = "testing"))]
mod example;
mod health;
mod listing;
mod policies;
mod replica;
mod top;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, ResourceExt};
use model::error::{foreign, foreign_to};
use model::{ClusterName, ControllerName, Epoch, GroupName, MemberId, Moment, ShardId, single};
use serde::Serialize;
use sharding::api::{
    ConfiguredClusters, DownCluster, MAX_REASON_CHARS, Member, MemberSpec, MemberState, Moved,
    Phase, ShardMap,
};
use sharding::lease::{self, LeaseRecord};
use sharding::policy::Policies;
use sharding::protocol;
use sharding::record::{MapRecord, MemberRecord, Object};
use sharding::world::World;

pub use clusters::{LeftOver, NOT_TAKEN_UP};
pub use error::{NO_HOME, ReadError};
pub use events::{CUT, FleetEvent, FleetEvents, events};
pub use health::Problem;
pub use listing::{Objects, UnreadObject, list, listen, pages};
pub use replica::{AskError, Way, get};
pub use top::{ClusterLoad, ControllerLoad, Key, Top};

/// Everything `leasehold status` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// The member that coordinates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<MemberId>,
    /// The version of the protocol in use, as far as the coordinator's Member tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<u32>,
    /// All members that have a Member object, dead ones included until they are collected.
    pub members: Vec<FleetMember>,
    /// All shards, by cluster.
    pub shards: Vec<FleetShard>,
    /// The controllers of each group, as live members name them. A group that is not here is one controller of the
    /// same name, or its members are of an earlier release.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<GroupName, BTreeSet<ControllerName>>,
    /// The live members that cannot take part, each with its cause and what to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Which objects of the home cluster cannot be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadObject>,
    /// The former names of clusters by which FleetPolicies may pause shards of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub former_names: BTreeMap<ClusterName, BTreeSet<ClusterName>>,
    /// What is wrong with the FleetPolicies by themselves. One may be about shards that are still to come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy_problems: Vec<String>,
    /// The FleetPolicy by which no shard moves where nothing fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halted_by: Option<String>,
    /// Whether the reader may not list FleetPolicies, and does not know what is paused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub policies_hidden: bool,
}

impl Fleet {
    /// The shards of a cluster.
    pub fn shards_of(&self, cluster: &ClusterName) -> Vec<&FleetShard> {
        self.shards.iter().filter(|shard| shard.shard.cluster == *cluster).collect()
    }

    /// Whether policies that pause something are about a shard, by a name that its cluster has or had.
    pub fn has_paused(&self, policies: &Policies, shard: &ShardId) -> bool {
        let mut former = self.former_names.get(&shard.cluster).into_iter().flatten();
        let as_of = |cluster: &ClusterName| ShardId { cluster: cluster.clone(), ..shard.clone() };
        policies.are_about(shard) || former.any(|name| policies.are_about(&as_of(name)))
    }

    /// The members that live.
    pub fn alive(&self) -> impl Iterator<Item = &FleetMember> {
        self.members.iter().filter(|member| member.is_alive())
    }

    /// Who can tell of a cluster: the live owners and next owners of its shards. If there are none, those that live
    /// and say that they cannot use it; if nobody says so, all that live.
    pub fn witnesses(&self, cluster: &ClusterName) -> Vec<&FleetMember> {
        let shards = self.shards_of(cluster);
        let named: BTreeSet<&MemberId> =
            shards.iter().flat_map(|shard| shard.owner.iter().chain(&shard.target)).collect();
        let is_named = |member: &FleetMember| named.contains(&member.member);
        let is_down =
            |member: &FleetMember| member.down_clusters.iter().any(|down| down.cluster == *cluster);
        let those = |can_tell: &dyn Fn(&FleetMember) -> bool| -> Vec<_> {
            self.alive().filter(|member| can_tell(member)).collect()
        };
        let all: [&dyn Fn(&FleetMember) -> bool; 3] = [&is_named, &is_down, &|_| true];
        all.into_iter().map(those).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

/// A unit variant as it is serialized, in small letters.
pub fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().map(str::to_lowercase).unwrap_or_default()
}

/// A live member that cannot take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The member.
    pub member: MemberId,
    /// Why, and what to do about it.
    pub reason: String,
}

/// One member of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetMember {
    /// The incarnation.
    pub member: MemberId,
    /// The process.
    pub identity: String,
    /// The zone in which it runs, if its configuration says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// What it asks for.
    pub state: MemberState,
    /// Whether it was asked to be drained, or a policy cordons it.
    pub drain: bool,
    /// The FleetPolicy that cordons it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned_by: Option<String>,
    /// How its Lease stands.
    pub lease: LeaseStanding,
    /// For how many seconds it holds after a renewal.
    pub lease_seconds: u32,
    /// When it last renewed its Lease, by its own wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Timestamp>,
    /// Whether the reader saw it renew its Lease, whatever the clocks say: see [`listen`].
    #[serde(skip)]
    pub seen_renewing: bool,
    /// Whether it coordinates.
    pub coordinator: bool,
    /// How much it can carry: as a policy says, or else by its own word.
    pub capacity: u32,
    /// The newest version of the protocol that it speaks.
    pub protocol_version: u32,
    /// The oldest.
    pub oldest_protocol_version: u32,
    /// How many shards name it as owner.
    pub shards: u32,
    /// Milliseconds of work in each second, by its own word.
    pub busy: u32,
    /// Whether it has controllers that work in clusters.
    #[serde(skip)]
    pub works_in_clusters: bool,
    /// How many clusters it has configured; absent if it does not say, or has no controllers that work in
    /// clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<u32>,
    /// The clusters it has no client for, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub down_clusters: Vec<DownCluster>,
    /// How many clusters it fails to reach, if it cannot name all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<u32>,
}

/// How a member's Lease stands, without a clock: a Lease that ran out shows as held until the
/// coordinator takes it, which it does within the Lease's duration and margin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LeaseStanding {
    /// Held by the member.
    Held,
    /// Given back by the member.
    Released,
    /// Ran out and was taken: the member is dead.
    Taken,
    /// There is no such Lease.
    Absent,
}

/// One shard of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetShard {
    /// The shard.
    pub shard: ShardId,
    /// Who owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<MemberId>,
    /// The epoch of its owner.
    pub epoch: Epoch,
    /// Its phase.
    pub phase: Phase,
    /// Whether its owner says that it does not serve it: it does not have the cluster configured, or fails
    /// to reach it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
    /// Whether nobody can tell if its owner serves it: that fails to reach more clusters than it can name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_doubt: bool,
    /// Who gets it next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<MemberId>,
    /// Why and when it came to where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    /// The FleetPolicy that pauses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// The FleetPolicies that leave no live member which may have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ruled_out_by: Vec<String>,
}

/// Who has it, in words.
impl fmt::Display for FleetShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, owner, epoch, phase, target, .. } = self;
        let owner = owner.as_ref().map_or("nobody", |owner| owner.as_str());
        match (phase, target) {
            (Phase::Draining, Some(target)) => {
                write!(f, "shard {shard} is handed over from {owner} to {target}, at epoch {epoch}")
            }
            (Phase::Draining, None) => {
                write!(f, "shard {shard} is taken from {owner}, at epoch {epoch}")
            }
            (Phase::Unowned, _) => write!(f, "shard {shard} has no owner"),
            (Phase::Owned, _) => write!(f, "shard {shard} is owned by {owner} at epoch {epoch}"),
        }?;
        if self.unserved {
            f.write_str(", which cannot work on its cluster")?;
        } else if self.in_doubt {
            f.write_str(", which fails to reach more clusters than it can name")?;
        }
        match &self.paused_by {
            Some(policy) => {
                write!(f, ", paused by the FleetPolicy {policy} (`leasehold policies`)")
            }
            None => Ok(()),
        }
    }
}

/// Reads the fleet from the home cluster.
///
/// # Errors
/// A list that the home cluster refused or did not answer.
pub async fn read(client: Client, namespace: &str) -> Result<Fleet, ReadError> {
    Ok(assemble(&list(client, namespace).await?))
}

/// Joins the kinds into one picture.
pub fn assemble(objects: &Objects) -> Fleet {
    let leases: BTreeMap<String, &Lease> =
        objects.leases.iter().map(|lease| (lease.name_any(), lease)).collect();
    let world = world(objects);
    let coordinator = world.coordinator();
    let mut shards = shards(objects, &world);
    let policies = Policies::read(objects.policies.clone());
    let mut owned: BTreeMap<&MemberId, u32> = BTreeMap::new();
    for owner in shards.iter().filter_map(|shard| shard.owner.as_ref()) {
        *owned.entry(owner).or_default() += 1;
    }
    let member = |member: &Member| {
        let id: MemberId = member.name_any().parse().ok()?;
        let lease = leases.get(&lease::member_lease_name(&id)).copied();
        let cordoned_by = policies.cordon_of(&member.spec).map(str::to_owned);
        Some(FleetMember {
            identity: foreign(&member.spec.identity),
            zone: member.spec.zone.as_deref().map(foreign),
            state: member.spec.state,
            drain: member.spec.drain || cordoned_by.is_some(),
            cordoned_by,
            lease: standing(&id, lease),
            lease_seconds: lease.and_then(duration).unwrap_or_default(),
            renewed: lease.and_then(renewed),
            seen_renewing: false,
            coordinator: coordinator.as_ref() == Some(&id),
            capacity: policies.capacity_of(&member.spec),
            protocol_version: member.spec.versions().newest,
            oldest_protocol_version: member.spec.versions().oldest,
            shards: owned.get(&id).copied().unwrap_or(0),
            busy: member.spec.busy,
            works_in_clusters: works_in_clusters(&member.spec),
            clusters: configured(&member.spec),
            down_clusters: down_clusters(&member.spec),
            failing: member.spec.clusters.as_ref().and_then(ConfiguredClusters::unnamed),
            member: id,
        })
    };
    let members: Vec<FleetMember> = objects.members.iter().filter_map(member).collect();
    policies::mark(&policies, &world, &members, &mut shards);
    let its = coordinator.as_ref().and_then(|id| Some(world.members().get(id)?.spec.versions()));
    let protocol_version =
        coordinator.as_ref().zip(its).map(|(id, its)| protocol::in_use(&world, id, its));
    let former = |map: &MapRecord| -> BTreeSet<_> { map.names().skip(1).cloned().collect() };
    let former_names = world.maps().iter().map(|(cluster, map)| (cluster.clone(), former(map)));
    let former_names = former_names.filter(|(_, names)| !names.is_empty()).collect();
    Fleet {
        coordinator,
        protocol_version,
        groups: groups(&members, objects),
        refused: refused(&world, &members, objects),
        members,
        shards,
        unread: objects.unread.clone(),
        former_names,
        policy_problems: policies.unfit().cloned().collect(),
        halted_by: policies.halted_by().map(str::to_owned),
        policies_hidden: objects.policies_hidden,
    }
}

/// What a member says of clusters that it cannot use. Anybody may have written it.
fn down_clusters(said: &MemberSpec) -> Vec<DownCluster> {
    let clean = |down: &DownCluster| DownCluster {
        cluster: down.cluster.clone(),
        reason: foreign_to(&down.reason, MAX_REASON_CHARS),
    };
    said.down_clusters.iter().map(clean).collect()
}

/// The controllers of each group, as those members say that live.
fn groups(
    members: &[FleetMember],
    objects: &Objects,
) -> BTreeMap<GroupName, BTreeSet<ControllerName>> {
    let alive = members.iter().filter(|member| member.is_alive());
    let alive: BTreeSet<&str> = alive.map(|member| member.member.as_str()).collect();
    let said = objects.members.iter().filter(|member| alive.contains(&*member.name_any()));
    let mut groups: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for detail in said.flat_map(|member| &member.spec.group_details) {
        if !detail.controllers.is_empty() {
            let controllers = detail.controllers.iter().cloned();
            groups.entry(detail.group.clone()).or_default().extend(controllers);
        }
    }
    groups
}

/// How many clusters a member has configured for its controllers, if it has some.
fn configured(member: &MemberSpec) -> Option<u32> {
    let said = member.clusters.as_ref().filter(|_| works_in_clusters(member));
    said.map(|said| said.count)
}

fn works_in_clusters(member: &MemberSpec) -> bool {
    member.groups.iter().any(|group| !single::is_single(group))
}

/// The same objects as a member sees them; when that is, does not matter here.
fn world(objects: &Objects) -> World {
    let mut world = World::default();
    let leases = objects.leases.iter().filter_map(LeaseRecord::read).map(Object::Lease);
    let members = objects.members.iter().filter_map(MemberRecord::read).map(Object::Member);
    let maps = objects.maps.iter().filter_map(MapRecord::read).map(Object::Map);
    for object in leases.chain(members).chain(maps) {
        world.apply(object, Moment::default());
    }
    world
}

fn refused(world: &World, members: &[FleetMember], objects: &Objects) -> Vec<Refused> {
    let namespace = objects.members.iter().find_map(ResourceExt::namespace).unwrap_or_default();
    let alive = members.iter().filter(|member| member.is_alive());
    let refused = alive.filter_map(|FleetMember { member, .. }| {
        let speaks = world.members().get(member)?.spec.versions();
        let reason = protocol::refusal(world, member, speaks, &namespace)?;
        Some(Refused { member: member.clone(), reason })
    });
    refused.collect()
}

fn shards(objects: &Objects, world: &World) -> Vec<FleetShard> {
    let mut shards: Vec<FleetShard> = objects.maps.iter().flat_map(shards_of).collect();
    for shard in &mut shards {
        let owner = shard.owner.as_ref().filter(|_| shard.phase == Phase::Owned);
        let said = owner.and_then(|owner| world.members().get(owner)?.spec.clusters.as_ref());
        shard.unserved = said.is_some_and(|said| said.denies(&shard.shard.cluster));
    }
    clusters::doubt(world, &mut shards);
    shards.sort_by(|a, b| a.shard.cmp(&b.shard));
    shards
}

fn shards_of(map: &ShardMap) -> Vec<FleetShard> {
    let Ok(cluster) = map.name_any().parse() else { return Vec::new() };
    map.spec
        .shards
        .iter()
        .map(|entry| FleetShard {
            shard: entry.shard.in_cluster(&cluster),
            owner: entry.owner.clone(),
            epoch: entry.epoch,
            phase: entry.phase,
            unserved: false,
            in_doubt: false,
            target: entry.target.clone(),
            moved: entry.moved.clone(),
            paused_by: None,
            ruled_out_by: Vec::new(),
        })
        .collect()
}

fn standing(member: &MemberId, lease: Option<&Lease>) -> LeaseStanding {
    let Some(lease) = lease else { return LeaseStanding::Absent };
    match lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) {
        None | Some("") => LeaseStanding::Released,
        Some(holder) if holder == member.as_str() => LeaseStanding::Held,
        Some(_) => LeaseStanding::Taken,
    }
}

/// When a Lease was renewed, by its holder's clock.
pub(crate) fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

/// The duration of a Lease, in seconds.
fn duration(lease: &Lease) -> Option<u32> {
    lease.spec.as_ref()?.lease_duration_seconds?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use sharding::policy::PolicyRecord;

    use super::*;

    fn lease(name: &str, holder: &str) -> Lease {
        let holder_identity = Some(holder.to_owned());
        Lease {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec { holder_identity, ..LeaseSpec::default() }),
        }
    }

    /// The Lease of a member that lives.
    fn of(member: &str) -> Lease {
        lease(&lease::member_lease_name(&member.parse().unwrap()), member)
    }

    #[test]
    fn shards_say_who_has_them_and_their_members_can_tell() {
        let shard = |phase, owner: Option<&str>, target: Option<&str>| FleetShard {
            epoch: Epoch(4),
            target: target.map(|target| target.parse().unwrap()),
            ..FleetShard::example("east/g/0/1", owner, phase)
        };
        let owned = shard(Phase::Owned, Some("m-0"), None);
        let moving = shard(Phase::Draining, Some("m-0"), Some("m-1"));
        let paused =
            FleetShard { paused_by: Some("p".into()), ..shard(Phase::Unowned, None, None) };
        let unserved = FleetShard { unserved: true, ..owned.clone() };
        for (shard, expect) in [
            (&owned, "shard east/g/0/1 is owned by m-0 at epoch 4"),
            (&moving, "shard east/g/0/1 is handed over from m-0 to m-1, at epoch 4"),
            (
                &paused,
                "shard east/g/0/1 has no owner, paused by the FleetPolicy p (`leasehold policies`)",
            ),
            (
                &unserved,
                "shard east/g/0/1 is owned by m-0 at epoch 4, which cannot work on its cluster",
            ),
        ] {
            assert_eq!(shard.to_string(), expect);
        }
        let member = |name: &str, lease| FleetMember { lease, ..FleetMember::example(name) };
        let (held, taken) = (LeaseStanding::Held, LeaseStanding::Taken);
        let down = |member| {
            let reason = "no answer".to_owned();
            let down_clusters = vec![DownCluster { cluster: "east".parse().unwrap(), reason }];
            FleetMember { down_clusters, ..member }
        };
        let all = [member("m-0", taken), member("m-1", held), member("m-2", held)];
        let one_down = [all[0].clone(), all[1].clone(), down(all[2].clone())];
        for (members, shards, expect) in [
            // A dead member tells nothing.
            (&all, vec![&moving], &["m-1"][..]),
            (&one_down, vec![&moving], &["m-1"]),
            // Then whoever fails to reach the cluster, or else any that lives.
            (&one_down, vec![&owned], &["m-2"]),
            (&one_down, vec![], &["m-2"]),
            (&all, vec![&owned], &["m-1", "m-2"]),
            (&all, vec![], &["m-1", "m-2"]),
        ] {
            let shards = shards.into_iter().cloned().collect();
            let fleet = Fleet { members: members.to_vec(), shards, ..Fleet::default() };
            let found = fleet.witnesses(&"east".parse().unwrap());
            let found: Vec<_> = found.iter().map(|member| member.identity.as_str()).collect();
            assert_eq!(found, expect, "{fleet:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_policies_and_who_cordons_is_told() {
        let policy = |name: &str, spec: serde_json::Value| {
            let object = serde_json::json!({"metadata": {"name": name}, "spec": spec});
            PolicyRecord::of(&serde_json::from_value(object).unwrap())
        };
        let fleet = assemble(&Objects {
            leases: vec![of("m-0")],
            members: vec![Member::new("m-0", MemberSpec::new("replica-0", Vec::new()))],
            policies: vec![
                policy("calm", serde_json::json!({"members": {"cordon": true, "capacity": 30}})),
                policy("odd", serde_json::json!({"pause": "yes"})),
                policy("soon", serde_json::json!({"pause": true, "shards": {"clusters": ["new"]}})),
            ],
            ..Objects::default()
        });
        assert_eq!(fleet.members[0].cordoned_by.as_deref(), Some("calm"));
        assert!(fleet.members[0].drain);
        assert_eq!(fleet.members[0].capacity, 30, "what counts, and not its own word");
        let what = "fleetpolicies.leasehold.dev odd counts as a pause of all shards";
        let problems = fleet.problems(Timestamp::UNIX_EPOCH);
        let told = problems.iter().find(|problem| problem.what.starts_with(what));
        assert_eq!(told.map(|problem| problem.fix.as_str()), Some("correct it"), "{problems:?}");
        assert!(!problems.iter().any(|problem| problem.what.contains("soon")), "{problems:?}");
    }

    #[test]
    fn the_controllers_of_a_group_are_those_that_live_members_name() {
        let member = |name: &str, details: serde_json::Value| {
            let groups = vec!["etcd".parse().unwrap(), "tunnel".parse().unwrap()];
            let group_details = serde_json::from_value(details).unwrap();
            let zone = Some("eu-1a".to_owned());
            Member::new(name, MemberSpec { group_details, zone, ..MemberSpec::new(name, groups) })
        };
        let detail = |controllers: &[&str]| {
            serde_json::json!([{"group": "etcd", "controllers": controllers},
                {"group": "tunnel", "scope": "Cluster"}])
        };
        let fleet = assemble(&Objects {
            leases: vec![of("m-0"), of("m-1")],
            members: vec![
                member("m-0", detail(&["etcd", "tdset"])),
                member("m-1", detail(&["etcd", "mysql"])),
                member("m-2", detail(&["gone"])),
            ],
            ..Objects::default()
        });
        assert_eq!(
            serde_json::to_value(&fleet.groups).unwrap(),
            serde_json::json!({"etcd": ["etcd", "mysql", "tdset"]})
        );
        assert_eq!(fleet.members[0].zone.as_deref(), Some("eu-1a"));
        assert_eq!(fleet.alive().count(), 2);
    }

    #[test]
    fn who_does_not_speak_the_version_in_use_is_listed_with_cause_and_fix() {
        let member = |name: &str, version| {
            let spec =
                MemberSpec { protocol_version: version, ..MemberSpec::new(name, Vec::new()) };
            let mut member = Member::new(name, spec);
            member.metadata.namespace = Some("ns".into());
            member
        };
        let fleet = assemble(&Objects {
            leases: vec![lease(lease::COORDINATOR, "m-0"), of("m-0"), of("m-1"), of("m-2")],
            members: vec![member("m-0", 1), member("m-1", 2), member("m-2", 1)],
            ..Objects::default()
        });
        assert_eq!(fleet.protocol_version, Some(1));
        assert_eq!(fleet.refused.len(), 1);
        let Refused { member, reason } = &fleet.refused[0];
        assert_eq!(member.as_str(), "m-1");
        assert!(reason.contains("uses protocol version 1 and this member speaks"), "{reason}");
        assert!(reason.contains("in namespace ns"), "{reason}");
    }
}
