//! The members as the coordinator judges them: by their Leases and their Members.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::{ClusterName, GroupName, GroupScope, GroupTraits, MemberId, Moment};

use super::View;
use super::reach::Reports;
use crate::api::{AcknowledgedDrain, MemberSpec, MemberState, ShardPath};
use crate::handover::{Entry, Facts};
use crate::lease::LeaseState;
use crate::member;
use crate::planner::{Fit, PlanMember, Reach, Role};
use crate::policy::Policies;
use crate::protocol;
use crate::versions::ProtocolVersions;
use crate::weight::Reported;
use crate::world::{FormerMap, World};

/// The members as the coordinator judges them.
pub(super) struct Peers<'a> {
    pub(super) states: BTreeMap<MemberId, LeaseState>,
    pub(super) roles: BTreeMap<MemberId, PlanMember>,
    /// Members that a Member or a map names, but whose Lease is not seen.
    pub(super) missing: BTreeSet<MemberId>,
    /// The acknowledged drains, with their members.
    acknowledged: HashMap<&'a ClusterName, Vec<(&'a MemberId, &'a AcknowledgedDrain)>>,
    /// All groups that some member can run which is not gone, with their details.
    pub(super) groups: BTreeMap<GroupName, GroupTraits>,
    /// The open members, by the identities of their processes.
    identities: BTreeMap<&'a str, &'a MemberId>,
    /// Whether every live member has reported its groups.
    pub(super) groups_known: bool,
    /// The reported loads, also by members that are gone.
    pub(super) reported: BTreeMap<&'a MemberId, Reported<'a>>,
    pub(super) spoken: Spoken,
    /// The coordinator's installation, if home keeps it.
    installation: Option<&'a str>,
    /// The clusters of members that died a short while ago and may return.
    pub(super) died: Vec<Reach>,
    /// The clusters that some member has configured and that have no map.
    pub(super) new_clusters: BTreeSet<&'a ClusterName>,
}

/// Versions of the protocol.
pub(super) struct Spoken {
    /// Those that the coordinator speaks.
    pub(super) mine: ProtocolVersions,
    /// The version in use.
    pub(super) in_use: u32,
}

impl<'a> Peers<'a> {
    pub(super) fn judge(view: &View<'a>, mine: ProtocolVersions, now: Moment) -> Self {
        let world = view.world;
        let states: BTreeMap<MemberId, LeaseState> =
            world.lease_states(view.timings, now).collect();
        let missing = world
            .members()
            .keys()
            .chain(world.owners().keys())
            .chain(world.former_owners())
            .filter(|member| !states.contains_key(*member))
            .cloned()
            .collect();
        let reports = Reports::of(view);
        let ours = world.members().get(view.me).and_then(|me| me.spec.installation.as_deref());
        let mut peers = Self {
            installation: ours,
            died: Vec::new(),
            new_clusters: reports.new_clusters().collect(),
            roles: BTreeMap::new(),
            identities: BTreeMap::new(),
            missing,
            acknowledged: HashMap::new(),
            groups: BTreeMap::new(),
            reported: BTreeMap::new(),
            spoken: Spoken { mine, in_use: protocol::in_use(world, view.me, mine) },
            groups_known: states
                .iter()
                .all(|(member, state)| !state.is_alive() || world.members().contains_key(member)),
            states,
        };
        for (id, member) in world.members() {
            peers.add(id, &member.spec, &reports, view.policies);
        }
        // What it carried, its process will carry again, under its present id.
        let Self { roles, identities, .. } = &mut peers;
        roles.retain(|id, member| {
            member.role != Role::Suspect || !identities.contains_key(member::identity_of(id))
        });
        peers
    }

    fn add(
        &mut self,
        id: &'a MemberId,
        spec: &'a MemberSpec,
        reports: &Reports<'_>,
        policies: &Policies,
    ) {
        let is_foreign = self.is_foreign(spec);
        self.reported.insert(id, Reported::by(spec));
        for drain in &spec.acknowledged_drains {
            self.acknowledged.entry(&drain.shard.cluster).or_default().push((id, drain));
        }
        let state = self.states.get(id).copied();
        if state.is_some_and(LeaseState::is_gone) {
            if spec.state != MemberState::Leaving && spec.clusters.is_some() && !is_foreign {
                self.died.push(reports.reach(id, spec));
            }
            return;
        }
        if !is_foreign {
            self.add_groups(spec);
        }
        let speaks = spec.versions().speaks(self.spoken.in_use);
        let terms = policies.terms_of(spec);
        let role = match (state, spec.state) {
            (Some(state), MemberState::Leaving) if state.is_alive() => Role::Leaving,
            // An owner that does not speak the version in use keeps maps from changing to it.
            (Some(LeaseState::Fresh), MemberState::Active)
                if spec.drain || terms.is_cordoned || !speaks =>
            {
                Role::Cordoned
            }
            (Some(LeaseState::Fresh), MemberState::Active) if !is_foreign => Role::Open,
            _ => Role::Suspect,
        };
        if role == Role::Open {
            self.identities.insert(member::identity_of(id), id);
        }
        let groups = spec.groups.iter().cloned().collect();
        let capacity = terms.capacity.unwrap_or(spec.capacity).max(1);
        let reach = if is_foreign { Reach::none() } else { reports.reach(id, spec) };
        let max_shards = terms.max_shards;
        self.roles.insert(id.clone(), PlanMember { role, capacity, groups, reach, max_shards });
    }

    /// Whether a member is of another installation: it takes no part, and what it owns it must drain.
    pub(super) fn is_foreign(&self, spec: &MemberSpec) -> bool {
        let its = spec.installation.as_deref();
        self.installation.zip(its).is_some_and(|(ours, its)| ours != its)
    }

    /// If members differ about a group, as during an update, the strictest scope counts.
    fn add_groups(&mut self, spec: &MemberSpec) {
        for group in &spec.groups {
            self.groups.entry(group.clone()).or_default();
        }
        for detail in &spec.group_details {
            let Some(traits) = self.groups.get_mut(&detail.group) else { continue };
            traits.scope = traits.scope.max(detail.scope);
            traits.kinds.extend(detail.shared_kinds.iter().cloned());
        }
    }

    /// The present member of the process that was `former`.
    pub(super) fn successor(&self, former: &MemberId) -> Option<&'a MemberId> {
        self.identities.get(member::identity_of(former)).copied()
    }

    /// Whether a group has scope `Fleet`.
    pub(super) fn is_fleet_wide(&self, group: &GroupName) -> bool {
        self.groups.get(group).is_some_and(|traits| traits.scope == GroupScope::Fleet)
    }

    /// Whether a member never acts again, whatever is written into its Lease.
    pub(super) fn is_over(&self, member: &MemberId) -> bool {
        self.states.get(member) == Some(&LeaseState::Taken)
    }

    /// Whether a map was exactly so when it was deleted, in a version that the coordinator speaks.
    pub(super) fn knows_exactly(&self, former: &FormerMap) -> bool {
        former.is_exact && self.spoken.mine.speaks(former.map.protocol)
    }

    /// Whether a member is alive, as far as its Lease tells.
    pub(super) fn is_alive(&self, member: &MemberId) -> bool {
        self.states.get(member).is_some_and(|state| state.is_alive())
    }

    /// Whether an owner of shards speaks the version in use, or never acts again.
    pub(super) fn follows(&self, world: &World, owner: &MemberId) -> bool {
        let member = world.members().get(owner);
        self.is_over(owner)
            || member.is_some_and(|member| member.spec.versions().speaks(self.spoken.in_use))
    }

    /// Whether a member acknowledges a drain in a cluster.
    pub(super) fn acknowledge_in(&self, cluster: &ClusterName) -> bool {
        self.acknowledged.contains_key(cluster)
    }

    pub(super) fn facts(&self, cluster: &ClusterName, path: &ShardPath, entry: &Entry) -> Facts {
        let Some(owner) = entry.owner() else { return Facts::default() };
        let open = |target: &MemberId| {
            self.roles.get(target).is_some_and(|member| {
                let stays = target == owner;
                member.role == Role::Open && (stays || member.reach.of(cluster) != Fit::Lacks)
            })
        };
        let is_this = |(member, drain): &(&MemberId, &AcknowledgedDrain)| {
            let AcknowledgedDrain { shard, epoch } = drain;
            *member == owner
                && *epoch == entry.epoch()
                && (&shard.group, shard.range) == (&path.group, path.range)
        };
        Facts {
            owner_gone: self.is_over(owner),
            acknowledged: self.acknowledged.get(cluster).into_iter().flatten().any(is_this),
            target_eligible: entry.target().is_some_and(open),
        }
    }
}
