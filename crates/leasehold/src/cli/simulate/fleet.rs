//! A simulated fleet whose members obey at once, under the production coordinator.
//!
//! Its members are only objects in the home cluster: they renew their Leases, report their true load,
//! acknowledge each drain, and leave when they have no shard left. Time is simulated, five seconds for
//! each round of decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::range::MAX_BITS;
use model::{ClusterName, GroupName, MemberId, Moment, Range, ShardId};
use sharding::api::{AcknowledgedDrain, MemberState, ObjectVersion, ShardLoad, ShardPath};
use sharding::coordinator::{Coordinator, Plan, View};
use sharding::handover::Entry;
use sharding::lease::{LeaseRecord, member_lease_name};
use sharding::policy::{Policies, PolicyRecord};
use sharding::record::{Kind, MapRecord, MemberRecord, Object, Observation, Target, Write};
use sharding::world::World;
use sharding::{LeaseTimings, spelled_out};

use super::report::{Counts, Standing};
use super::scenario::{Change, Scenario, member};

/// How long one round of decisions takes.
const ROUND: Duration = Duration::from_secs(5);
/// A fleet has settled when nothing was decided for so long. The coordinator never waits longer.
const QUIET: Duration = Duration::from_secs(600);
/// How long a coordinator looks before `next` asks it: longer than an owner may fail to reach a cluster, and than it takes
/// to know which shards are idle.
const IN_OFFICE: Duration = Duration::from_secs(125);
/// How long a fleet may take to settle.
const PATIENCE: Duration = Duration::from_secs(100_000);

/// A simulation that cannot give a result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SimulationError {
    /// All members would leave.
    #[error(
        "{leave} members cannot leave: the fleet has {members}, and one must stay; fix: --leave {} at most, or more --members",
        members - 1
    )]
    NobodyLeft {
        /// How many there are.
        members: usize,
        /// How many should leave.
        leave: u16,
    },
    /// There is no fleet.
    #[error(
        "the fleet has no live member; fix: look at `leasehold status`, and name the namespace it runs in with --namespace"
    )]
    NoMembers,
    /// It never settled.
    #[error(
        "the fleet does not settle: shards still move after {} s of simulated time; this is a defect of the planner: please report it with the command",
        PATIENCE.as_secs()
    )]
    Restless,
}

/// The fleet and its coordinator.
#[derive(Debug)]
pub(crate) struct Fleet {
    world: World,
    policies: Vec<PolicyRecord>,
    coordinator: Coordinator,
    /// Who coordinates, while it lives.
    elected: Option<MemberId>,
    clusters: BTreeSet<ClusterName>,
    groups: Vec<GroupName>,
    /// The true load of shards.
    loads: BTreeMap<(ClusterName, GroupName), Vec<ShardLoad>>,
    /// The last owner of each shard, whatever is in flight.
    owners: BTreeMap<ShardId, MemberId>,
    leavers: BTreeSet<MemberId>,
    newcomers: BTreeSet<MemberId>,
    counts: Counts,
    /// What the coordinator found wrong at its last step.
    problems: Vec<String>,
    version: u64,
    now: Moment,
    began: Moment,
}

/// What one member holds.
#[derive(Debug, Default)]
struct Held {
    shards: Vec<ShardId>,
    drains: Vec<AcknowledgedDrain>,
}

impl Fleet {
    /// A fleet whose members have all joined.
    pub(crate) fn new(scenario: Scenario) -> Self {
        let now = Moment::from_origin(Duration::from_secs(60));
        let mut fleet = Self {
            world: World::default(),
            policies: scenario.policies.clone(),
            coordinator: Coordinator::default(),
            elected: scenario.coordinator.clone(),
            clusters: scenario.maps.iter().map(|map| map.cluster.clone()).collect(),
            groups: scenario.members.iter().flat_map(|m| m.spec.groups.clone()).collect(),
            loads: BTreeMap::new(),
            owners: BTreeMap::new(),
            leavers: BTreeSet::new(),
            newcomers: BTreeSet::new(),
            counts: Counts::default(),
            problems: Vec::new(),
            version: 0,
            now,
            began: now,
        };
        fleet.groups.sort();
        fleet.groups.dedup();
        for kind in [Kind::Lease, Kind::Member, Kind::Map] {
            fleet.world.observe(Observation::Listed(kind, "0".into(), Vec::new()), now);
        }
        for member in scenario.members.clone() {
            fleet.put(Object::Member(member));
        }
        for map in scenario.maps.iter().filter(|map| !map.entries.is_empty()) {
            fleet.owners.extend(owners_of(map));
            fleet.put(Object::Map(map.clone()));
        }
        // What they say of their clusters must stay true when ShardMaps come and go.
        for MemberRecord { id, version, mut spec } in scenario.members.clone() {
            let said = spec.clusters.as_ref();
            let Some(said) = said.and_then(|said| spelled_out(said, &fleet.world)) else {
                continue;
            };
            spec.clusters = Some(said);
            fleet.put(Object::Member(MemberRecord { id, version, spec }));
        }
        fleet.loads = scenario.loads_by_group();
        fleet
    }

    /// Lets the coordinator decide until nothing is left to decide. Returns the time to the last
    /// decision.
    ///
    /// # Errors
    /// When there is no member, or no end.
    pub(crate) fn settle(&mut self) -> Result<Duration, SimulationError> {
        let (started, mut decided) = (self.now, self.now);
        while self.now < decided + QUIET {
            if self.now > started + PATIENCE {
                return Err(SimulationError::Restless);
            }
            if self.round()? {
                decided = self.now;
            }
        }
        Ok(decided.since(started))
    }

    /// Applies a change.
    ///
    /// # Errors
    /// When no member would be left.
    pub(crate) fn change(&mut self, change: Change, seed: u64) -> Result<(), SimulationError> {
        match change {
            Change::Nothing => {}
            Change::Leave(leave) => {
                let mut members: Vec<MemberId> = self.world.members().keys().cloned().collect();
                // Without members, settling has failed before.
                if members.len() <= usize::from(leave) {
                    return Err(SimulationError::NobodyLeft { members: members.len(), leave });
                }
                fastrand::Rng::with_seed(seed).shuffle(&mut members);
                self.leavers.extend(members.into_iter().take(leave.into()));
            }
            Change::Join(join) => {
                let fresh = (0..=u16::MAX).map(|number| member(number, &self.groups));
                let fresh = fresh.filter(|new| !self.world.members().contains_key(&new.id));
                let fresh: Vec<_> = fresh.take(join.into()).collect();
                for new in fresh {
                    self.newcomers.insert(new.id.clone());
                    self.put(Object::Member(new));
                }
            }
        }
        Ok(())
    }

    /// The present figures.
    pub(crate) fn standing(&self) -> Standing {
        let mut busy: BTreeMap<&MemberId, u64> =
            self.world.members().keys().map(|member| (member, 0)).collect();
        let mut caches = BTreeSet::new();
        let measured = self.loads.values().flatten().any(|load| load.busy > 0);
        let entries =
            || self.world.maps().values().flat_map(|map| map.entries.iter().map(move |e| (map, e)));
        for (map, (path, entry)) in entries() {
            let Some(owner) = entry.owner() else { continue };
            let shard = path.in_cluster(&map.cluster);
            let cost = if measured { u64::from(self.load_of(&shard).busy) } else { 1 };
            *busy.entry(owner).or_default() += cost;
            caches.insert((owner, shard.cluster, shard.group));
        }
        let max = busy.values().copied().max().unwrap_or(0);
        let sum: u64 = busy.values().sum();
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let max_over_mean =
            if sum == 0 { 1.0 } else { (max * busy.len() as u64) as f64 / sum as f64 };
        Standing {
            members: busy.len(),
            clusters: self.clusters.len(),
            shards: entries().count(),
            unowned: entries().filter(|(_, (_, entry))| entry.owner().is_none()).count(),
            max_over_mean,
            caches: caches.len(),
        }
    }

    /// What was counted since the start.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Makes one round of decisions and carries them out. Returns whether there were any.
    fn round(&mut self) -> Result<bool, SimulationError> {
        self.now = self.now + ROUND;
        let leaving = self.play_members();
        let writes = self.decide()?.writes;
        let decided = !writes.is_empty();
        for write in writes {
            self.carry_out(write);
        }
        Ok(decided || leaving)
    }

    /// One step of the coordinator.
    fn decide(&mut self) -> Result<Plan, SimulationError> {
        let members = self.world.members();
        let elected = self.elected.as_ref().filter(|elected| members.contains_key(elected));
        let me = elected.or(members.keys().next()).ok_or(SimulationError::NoMembers)?.clone();
        let said = members[&me].spec.clusters.as_ref();
        let named = said.filter(|said| said.only.len() == said.count as usize);
        let own = named.map(|said| said.only.iter().cloned().collect());
        let view = View {
            me: &me,
            world: &self.world,
            pending: BTreeMap::new(),
            clusters: own.as_ref().unwrap_or(&self.clusters),
            identities: &BTreeMap::new(),
            policies: &Policies::read(self.policies.clone()),
            timings: LeaseTimings::default(),
            since: self.began,
        };
        let plan = self.coordinator.step(&view, self.now);
        self.problems.clone_from(&plan.problems);
        Ok(plan)
    }

    /// What the coordinator found wrong at its last step.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// People write these policies; those of the same names are replaced.
    pub(crate) fn write_policies(&mut self, policies: Vec<PolicyRecord>) {
        self.policies.retain(|old| policies.iter().all(|new| new.name != old.name));
        self.policies.extend(policies);
    }

    /// What the coordinator would begin now, a line for each shard, with the reason where it moves. Drains under way have
    /// ended, and the coordinator has been in office for a while.
    ///
    /// # Errors
    /// When there is no member.
    pub(crate) fn next(&mut self) -> Result<Vec<String>, SimulationError> {
        self.play_members();
        self.decide()?;
        self.now = self.now + IN_OFFICE;
        self.play_members();
        let plan = self.decide()?;
        Ok(plan.writes.iter().flat_map(|write| self.steps(write)).collect())
    }

    /// What a write begins, a line for each shard and each ShardMap that goes.
    fn steps(&self, write: &Write) -> Vec<String> {
        let map = match write {
            Write::Create(Object::Map(map)) | Write::Replace(Object::Map(map)) => map,
            Write::Delete(target, _) if target.kind == Kind::Map => {
                return vec![format!("{}: its ShardMap goes", target.name)];
            }
            _ => return Vec::new(),
        };
        let before = self.world.maps().get(&map.cluster).map(|before| &*before.entries);
        let shard = |path: &ShardPath| path.in_cluster(&map.cluster);
        let is_new = |(path, entry): &(&ShardPath, &Entry)| {
            before.and_then(|before| before.get(*path)) != Some(*entry)
        };
        let changes = map.entries.iter().filter(is_new).map(|(path, entry)| {
            let (shard, owner) = (shard(path), name(entry.owner()));
            let why = map.moves.why(path).map_or(String::new(), |why| format!(": {why}"));
            match entry {
                Entry::Draining { target, .. } if target.as_ref() == entry.owner() => {
                    format!("{shard}: {owner} drains for itself{why}")
                }
                Entry::Draining { target, .. } => {
                    format!("{shard}: {owner} drains for {}{why}", name(target.as_ref()))
                }
                _ => format!("{shard}: goes to {owner}{why}"),
            }
        });
        let gone = before.into_iter().flat_map(BTreeMap::keys);
        let gone = gone.filter(|path| !map.entries.contains_key(*path));
        changes.chain(gone.map(|path| format!("{}: is no more", shard(path)))).collect()
    }

    /// Everything that members do by themselves. Returns whether any is leaving.
    fn play_members(&mut self) -> bool {
        let members: Vec<_> = self.world.members().values().cloned().collect();
        let mut held = self.held();
        for mut record in members {
            let id = record.id.clone();
            let Held { shards, drains } = held.remove(&id).unwrap_or_default();
            if self.leavers.contains(&id) {
                record.spec.state = MemberState::Leaving;
                if shards.is_empty() {
                    self.retire(&id);
                    continue;
                }
            }
            record.spec.acknowledged_drains = drains;
            record.spec.loads = shards.iter().map(|shard| self.load_of(shard)).collect();
            let duration = LeaseTimings::default().duration;
            self.put(Object::Lease(LeaseRecord::new(member_lease_name(&id), &id, duration)));
            if self.world.members()[&id].spec != record.spec {
                self.put(Object::Member(record));
            }
        }
        !self.leavers.is_empty()
    }

    fn retire(&mut self, member: &MemberId) {
        self.leavers.remove(member);
        let target = |kind, name: String| Target { kind, name };
        self.world.remove(&target(Kind::Member, member.to_string()), None);
        self.world.remove(&target(Kind::Lease, member_lease_name(member)), None);
    }

    /// The shards of each member, and which of them drain.
    fn held(&self) -> BTreeMap<MemberId, Held> {
        let mut all: BTreeMap<MemberId, Held> = BTreeMap::new();
        for map in self.world.maps().values() {
            for (path, entry) in map.entries.iter() {
                let Some(owner) = entry.owner() else { continue };
                let held = all.entry(owner.clone()).or_default();
                let shard = path.in_cluster(&map.cluster);
                if matches!(entry, Entry::Draining { .. }) {
                    let epoch = entry.epoch();
                    held.drains.push(AcknowledgedDrain { shard: shard.clone(), epoch });
                }
                held.shards.push(shard);
            }
        }
        all
    }

    fn carry_out(&mut self, write: Write) {
        match write {
            Write::Create(object) | Write::Replace(object) => {
                if let Object::Map(map) = &object {
                    self.count(map);
                }
                let taken = match &object {
                    Object::Lease(lease) => Some(lease.name.clone()),
                    _ => None,
                };
                self.put(object);
                // A coordinator writes no other Leases than those that it takes.
                taken.into_iter().for_each(|lease| self.world.took(&lease));
            }
            Write::Delete(target, _) => self.world.remove(&target, None),
        }
    }

    /// Counts what a map changes compared with the last owners.
    fn count(&mut self, map: &MapRecord) {
        for (shard, owner) in owners_of(map) {
            self.halve_down_to(&shard);
            let had: Vec<ShardId> = self.overlapping(&shard).cloned().collect();
            let before: BTreeSet<MemberId> =
                had.iter().filter_map(|part| self.owners.remove(part)).collect();
            self.counts.merges += u32::from(had.iter().any(|part| part.range != shard.range));
            if !before.is_empty() && !before.contains(&owner) {
                self.counts.moves += 1;
                let asked = self.newcomers.contains(&owner)
                    || before.iter().any(|before| self.leavers.contains(before));
                self.counts.excess += u32::from(!asked);
            }
            self.owners.insert(shard, owner);
        }
    }

    /// Splits a wider known range until it contains exactly this one.
    fn halve_down_to(&mut self, shard: &ShardId) {
        loop {
            let wider = self.overlapping(shard).find(|had| had.range.bits() < shard.range.bits());
            let Some(wider) = wider.cloned() else { return };
            let owner = self.owners.remove(&wider).expect("it was just found there");
            for range in wider.range.halves().into_iter().flatten() {
                self.owners.insert(ShardId { range, ..wider.clone() }, owner.clone());
            }
            self.counts.splits += 1;
        }
    }

    /// The known shards of the same group and cluster that share objects with this one.
    fn overlapping<'a>(&'a self, shard: &'a ShardId) -> impl Iterator<Item = &'a ShardId> {
        let first = ShardId { range: Range::WHOLE, ..shard.clone() };
        let all = self.owners.range(first..).map(|(had, _)| had);
        all.take_while(|had| had.cluster == shard.cluster && had.group == shard.group)
            .filter(|had| had.range.overlaps(shard.range))
    }

    fn put(&mut self, mut object: Object) {
        self.version += 1;
        let resource = self.version.to_string();
        object.set_version(ObjectVersion { uid: "simulated".to_owned(), resource });
        self.world.apply(object, self.now);
    }

    /// The true load of a shard: the sum of its known parts, or its part of a known whole. The heaviest
    /// object of a known range counts as its first.
    fn load_of(&self, shard: &ShardId) -> ShardLoad {
        let (shard_id, heaviest) = (shard.clone(), Some(0));
        let mut sum =
            ShardLoad { shard: shard_id, busy: 0, heaviest, events: 0, cached: 0, waiting: 0 };
        let key = (shard.cluster.clone(), shard.group.clone());
        for known in self.loads.get(&key).into_iter().flatten() {
            if !known.shard.range.overlaps(shard.range) {
                continue;
            }
            let (part, whole) = (width(shard.range), width(known.shard.range));
            let of = |amount: u64| amount * part.min(whole) / whole;
            let whole_object = known.heaviest.unwrap_or(known.busy).min(known.busy);
            let object = if begins_in(known.shard.range, shard.range) { whole_object } else { 0 };
            let rest = of((known.busy - whole_object).into());
            sum.busy += u32::try_from(rest).unwrap_or(u32::MAX).saturating_add(object);
            sum.heaviest = sum.heaviest.max(Some(object));
            sum.events += of(known.events);
            sum.cached += of(known.cached);
        }
        sum
    }
}

/// The owners in a map. Drains are left out: a shard belongs to its owner until the next one has it.
fn owners_of(map: &MapRecord) -> impl Iterator<Item = (ShardId, MemberId)> {
    let owned = |(path, entry): (&ShardPath, &Entry)| match entry {
        Entry::Owned { owner, .. } => Some((path.in_cluster(&map.cluster), owner.clone())),
        Entry::Unowned { .. } | Entry::Draining { .. } => None,
    };
    map.entries.iter().filter_map(owned)
}

/// Whether the first hash of a range is in another.
fn begins_in(range: Range, other: Range) -> bool {
    let (from, to) = other.bounds();
    (from..to).contains(&range.bounds().0)
}

/// How many of the narrowest ranges it covers.
fn width(range: Range) -> u64 {
    1 << (MAX_BITS - range.bits())
}

fn name(member: Option<&MemberId>) -> &str {
    member.map_or("nobody", MemberId::as_str)
}
