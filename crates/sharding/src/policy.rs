//! What people want of the fleet, read from its [`FleetPolicy`](crate::api::FleetPolicy) objects. Pure.
//!
//! A policy that cannot be read, or that selects nothing, is told as a problem and changes nothing else: one
//! wrong object must not undo the others, and one wrong word not the rest of its object. What cannot be read any
//! more holds as it was last read; where that is not known, a pause is still a pause ([`Unread`]).
//!
//! What home forgot when it was restored, emptied or replaced nobody took back: a pause that was read before holds
//! until its policy is written again. A process that starts later does not know it. What home shows first after that
//! is as old as the backup: nobody wrote it again, unless it pauses the same.

mod members;
mod named;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;
use model::{ClusterName, GroupName, MemberId, Range, ShardId};
use serde::Deserialize;
use serde_json::Value;

use crate::api::{
    FleetPolicySpec, MemberPreference, MemberSelector, MemberSpec, MoveLimits, ObjectVersion,
    ShardPath, ShardSelector,
};
use crate::planner::{Fit, Limits, Preferences};
use crate::read;
use crate::record::MapRecord;

/// The most policies that count, pauses before others: whoever writes one more ends no pause. Those whose names come
/// after are told as problems.
const MAX_POLICIES: usize = 256;
/// What becomes of a pause that home has forgotten.
const MISSED: &str = "was lost when the home cluster was restored, emptied or replaced, and its pause holds; fix: write it \
                    again, and delete it then if the pause is over";
/// What is wrong with a policy about shards of which there is none.
const IDLE: &str =
    "selects no shard that there is; fix: compare it with `leasehold status`, or delete it";
/// Problems that are told.
const MAX_PROBLEMS: usize = 8;

/// One FleetPolicy as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRecord {
    /// The object's name.
    pub name: String,
    /// The version read.
    pub version: ObjectVersion,
    /// What it says, if it can be read.
    pub spec: Result<FleetPolicySpec, Unread>,
}

/// A policy that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Why.
    cause: String,
    /// The pause that it is, if it is one: of what it selects, or of all shards if that is what cannot be read.
    pause: Option<FleetPolicySpec>,
}

/// All policies, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    policies: Vec<Policy>,
    index: Index,
    problems: Vec<String>,
    /// The pauses that home may have forgotten, by the names of their policies.
    missed: BTreeMap<String, Missed>,
    /// Whether home may have further ones, or they may say something else.
    may_lack: bool,
}

/// A pause that home may have forgotten.
#[derive(Clone, Debug)]
struct Missed {
    pause: FleetPolicySpec,
    /// Which version of its policy home showed first after that, or that it showed none.
    first: Option<Option<ObjectVersion>>,
}

/// One policy.
#[derive(Clone, Debug)]
struct Policy {
    name: String,
    spec: FleetPolicySpec,
}

/// The groups to which a policy about clusters is limited, if it is.
type Limit = Option<Arc<HashSet<GroupName>>>;

/// Which policies could be about a shard, by their numbers: so that a shard costs only what is about it.
#[derive(Clone, Debug, Default)]
struct Index {
    all: Vec<usize>,
    /// Those about a cluster, each with the groups to which it is limited.
    clusters: HashMap<ClusterName, Vec<(usize, Limit)>>,
    groups: HashMap<GroupName, Vec<usize>>,
    named: HashMap<(ClusterName, GroupName), Vec<(usize, Range)>>,
}

/// What holds for a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberTerms {
    /// Its capacity, in place of its own word.
    pub(crate) capacity: Option<u32>,
    /// How many shards it has at most.
    pub(crate) max_shards: Option<u32>,
    /// Whether it is cordoned.
    pub(crate) is_cordoned: bool,
}

/// How the members of one plan stand with shards, by pins and avoidances.
pub(crate) struct Placing<'a> {
    policies: &'a Policies,
    members: Vec<(&'a MemberId, &'a MemberSpec)>,
    /// By the policies that are about a shard: shards under the same ones share the answer.
    known: BTreeMap<Vec<usize>, Arc<Preferences>>,
}

impl PolicyRecord {
    /// A policy that is not written yet.
    pub fn new(name: &str, spec: FleetPolicySpec) -> Self {
        Self { name: name.to_owned(), version: ObjectVersion::default(), spec: Ok(spec) }
    }

    /// Reads a FleetPolicy.
    pub fn of(object: &DynamicObject) -> Self {
        let spec = read::policy(object).map_err(|cause| Unread::of(object, cause));
        let version = ObjectVersion::read(&object.metadata);
        Self { name: object.name_any(), version, spec }
    }

    /// Whether it pauses something, as far as it can be read.
    fn is_pause(&self) -> bool {
        let spec = self.spec.as_ref();
        spec.map_or_else(|unread| unread.pause.is_some(), |spec| spec.pause == Some(true))
    }

    /// Whether it pauses what this spec pauses.
    fn pauses_as(&self, other: &FleetPolicySpec) -> bool {
        let same = |spec: &FleetPolicySpec| spec.pause == Some(true) && spec.shards == other.shards;
        self.spec.as_ref().is_ok_and(same)
    }
}

impl Missed {
    /// Brings it up to date with the policy of that name which home shows. Returns whether it holds on.
    fn outlasts(&mut self, shown: Option<&PolicyRecord>) -> bool {
        let version = shown.map(|record| record.version.clone());
        let first = self.first.get_or_insert_with(|| version.clone());
        let is_written = version.is_some() && version != *first;
        !is_written && !shown.is_some_and(|record| record.pauses_as(&self.pause))
    }
}

impl Unread {
    fn of(object: &DynamicObject, cause: String) -> Self {
        let said = &object.data["spec"];
        let is_pause = !matches!(said["pause"], Value::Null | Value::Bool(false));
        let shards = ShardSelector::deserialize(&said["shards"]).ok();
        let pause = FleetPolicySpec { shards, pause: Some(true), ..FleetPolicySpec::default() };
        Self { cause, pause: is_pause.then_some(pause) }
    }
}

impl Policies {
    /// Reads policies.
    pub fn read(records: Vec<PolicyRecord>) -> Self {
        Self::default().read_again(records)
    }

    /// Reads policies that take the place of these.
    pub(crate) fn read_again(&self, mut records: Vec<PolicyRecord>) -> Self {
        let mut missed = self.missed.clone();
        missed.retain(|name, missed| missed.outlasts(records.iter().find(|r| r.name == *name)));
        let kept = missed.iter();
        records.extend(kept.map(|(name, missed)| PolicyRecord::new(name, missed.pause.clone())));
        let mut read = Self { missed, ..Self::default() };
        if records.len() > MAX_POLICIES {
            records.sort_by(|a, b| (!a.is_pause(), &a.name).cmp(&(!b.is_pause(), &b.name)));
            let text =
                format!("does not count: there are more than {MAX_POLICIES}; fix: delete some");
            records.drain(MAX_POLICIES..).for_each(|record| read.problem(&record.name, &text));
            read.may_lack = true;
        }
        records.sort_by(|a, b| a.name.cmp(&b.name));
        for PolicyRecord { name, spec, .. } in records {
            let number = read.policies.len();
            let spec = match spec {
                Ok(spec) => Some(spec),
                Err(unread) => read.salvage(&name, unread, self),
            };
            let Some(spec) = spec else { continue };
            if let Some(odd) = read.index.add(number, &spec) {
                read.problem(&name, &format!("{}; fix: correct it", model::error::foreign(&odd)));
            }
            for odd in spec.selectors().filter_map(MemberSelector::odd) {
                let odd = model::error::foreign(&odd);
                let text = format!("selects nobody by a part of it: {odd}; fix: correct it");
                read.problem(&name, &text);
            }
            read.policies.push(Policy { name, spec });
        }
        read
    }

    /// The same, where home refuses to list them.
    pub(crate) fn unlisted(self) -> Self {
        Self { may_lack: true, ..self }
    }

    /// Whether home may have further ones, or they may say something else: what holds now may be written down nowhere as
    /// what people want.
    pub(crate) fn may_lack(&self) -> bool {
        self.may_lack
    }

    /// Home's history changed: it may have forgotten pauses that people have not taken back.
    pub(crate) fn outlive_history(&mut self) {
        let pauses = self.policies.iter().filter(|policy| policy.pauses());
        let missed = |policy: &Policy| Missed { pause: policy.pause(), first: None };
        self.missed.extend(pauses.map(|policy| (policy.name.clone(), missed(policy))));
    }

    /// Whether home may have forgotten a pause.
    pub(crate) fn miss_any(&self) -> bool {
        !self.missed.is_empty()
    }

    /// What people should know of the pauses that home may have forgotten.
    pub(crate) fn missed(&self) -> impl Iterator<Item = String> {
        let told = self.missed.iter().filter(|(_, missed)| missed.first.is_some());
        told.take(MAX_PROBLEMS).map(|(name, _)| about(name, MISSED))
    }

    /// The pauses that end if these take the place of what is known.
    pub(crate) fn lost_by(&self, records: &[PolicyRecord]) -> Vec<PolicyRecord> {
        let is_missed = |policy: &Policy| {
            self.missed.get(&policy.name).is_some_and(|m| m.pause.shards == policy.spec.shards)
        };
        let goes_on = |policy: &Policy| {
            let holds =
                |record: &PolicyRecord| record.pauses_as(&policy.spec) || record.spec.is_err();
            records.iter().any(|record| record.name == policy.name && holds(record))
        };
        let pauses = self.policies.iter().filter(|policy| policy.pauses());
        let lost = pauses.filter(|policy| !is_missed(policy) && !goes_on(policy));
        lost.map(|policy| PolicyRecord::new(&policy.name, policy.pause())).collect()
    }

    /// What holds of a policy that cannot be read. `before` are the policies as they were read last.
    fn salvage(
        &mut self,
        name: &str,
        Unread { cause, pause }: Unread,
        before: &Self,
    ) -> Option<FleetPolicySpec> {
        let known = before.policies.iter().find(|policy| policy.name == name);
        let (spec, what) = match (known, pause) {
            (Some(known), _) => (Some(known.spec.clone()), "holds as it was before"),
            (None, Some(pause)) if pause.shards.is_some() => {
                (Some(pause), "counts as a pause of what it selects")
            }
            (None, Some(pause)) => (Some(pause), "counts as a pause of all shards"),
            (None, None) => (None, "does not count"),
        };
        let cause = model::error::foreign(&cause);
        self.may_lack = true;
        self.problem(name, &format!("{what}, because it cannot be read: {cause}; fix: correct it"));
        spec
    }

    fn problem(&mut self, name: &str, text: &str) {
        self.problems.push(about(name, text));
    }

    /// What is wrong with them, given which shards there are: each with object, cause and fix.
    pub(crate) fn problems<'a>(&self, shards: impl Iterator<Item = &'a ShardId>) -> Vec<String> {
        let selective = |policy: &Policy| policy.spec.shards.is_some();
        let mut idle: Vec<bool> = self.policies.iter().map(selective).collect();
        let mut missing = self.named();
        for shard in shards {
            self.about(shard).into_iter().for_each(|number| idle[number] = false);
            missing.saw(shard);
        }
        let problem = |(policy, is_idle): (&Policy, bool)| {
            let what = if is_idle {
                IDLE.to_owned()
            } else {
                let part = missing.part_of(policy.spec.shards.as_ref()?)?;
                format!(
                    "names the {part}, of which there is no shard, and holds for what else it selects; fix: compare it \
                     with `leasehold status`, or take that name out"
                )
            };
            Some(about(&policy.name, &what))
        };
        let found = self.policies.iter().zip(idle).filter_map(problem);
        self.problems.iter().cloned().chain(found).take(MAX_PROBLEMS).collect()
    }

    /// What is wrong with the objects by themselves, whichever shards there are: the first of it.
    pub fn unfit(&self) -> impl Iterator<Item = &String> {
        self.problems.iter().take(MAX_PROBLEMS)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.problems.is_empty()
    }

    /// The policies that are about a shard, by their numbers, in their order.
    fn about(&self, shard: &ShardId) -> Vec<usize> {
        let Index { all, clusters, groups, named } = &self.index;
        let mut about = all.clone();
        let of_cluster = clusters.get(&shard.cluster).into_iter().flatten();
        let in_group =
            |limit: &Limit| limit.as_ref().is_none_or(|groups| groups.contains(&shard.group));
        about.extend(of_cluster.filter(|(_, limit)| in_group(limit)).map(|(number, _)| *number));
        about.extend(groups.get(&shard.group).into_iter().flatten());
        if !named.is_empty() {
            let named = named.get(&(shard.cluster.clone(), shard.group.clone()));
            let overlapping = named.into_iter().flatten();
            let overlapping = overlapping.filter(|(_, range)| range.overlaps(shard.range));
            about.extend(overlapping.map(|(number, _)| *number));
        }
        about.sort_unstable();
        about.dedup();
        about
    }

    fn policies_about(&self, shard: &ShardId) -> impl DoubleEndedIterator<Item = &Policy> {
        self.about(shard).into_iter().map(|number| &self.policies[number])
    }

    /// The policy that pauses a shard of that name, if one does.
    pub(crate) fn pause_of(&self, shard: &ShardId) -> Option<&str> {
        let mut about = self.policies_about(shard);
        about.find(|policy| policy.pauses()).map(|policy| policy.name.as_str())
    }

    /// The policy that pauses a shard of a map, if one does, by a name that its cluster has or had.
    pub fn pause_in(&self, map: &MapRecord, path: &ShardPath) -> Option<&str> {
        map.names().find_map(|name| self.pause_of(&path.in_cluster(name)))
    }

    /// The policy that pauses one of these shards by a `former` name of a cluster, and does not do so itself by its name,
    /// if there is one. What others pause besides is over when they are.
    pub(crate) fn pause_of_former<'m>(
        &self,
        former: &ClusterName,
        name: &ClusterName,
        mut paths: impl Iterator<Item = &'m ShardPath>,
    ) -> Option<&str> {
        paths.find_map(|path| {
            let by_name = self.about(&path.in_cluster(name));
            let about = self.about(&path.in_cluster(former)).into_iter();
            let mut only = about.filter(|number| !by_name.contains(number));
            let pauses = |number: usize| Some(&self.policies[number]).filter(|p| p.pauses());
            only.find_map(pauses).map(|policy| policy.name.as_str())
        })
    }

    /// Whether a policy says where a shard should be.
    pub(crate) fn place(&self, shard: &ShardId) -> bool {
        self.policies_about(shard).any(Policy::places)
    }

    /// Whether a policy is about a shard.
    pub fn are_about(&self, shard: &ShardId) -> bool {
        !self.about(shard).is_empty()
    }

    /// Whether a policy pauses something.
    pub(crate) fn pause_any(&self) -> bool {
        self.policies.iter().any(Policy::pauses)
    }

    /// The milliseconds of work in each second that a shard counts for, in place of what is measured.
    pub(crate) fn busy_of(&self, shard: &ShardId) -> Option<u32> {
        if self.policies.iter().all(|policy| policy.spec.busy.is_none()) {
            return None;
        }
        self.policies_about(shard).rev().find_map(|policy| policy.spec.busy)
    }

    /// The bounds of moves in a fleet of so many shards and members.
    pub(crate) fn limits(&self, shards: usize, members: usize) -> Limits {
        let bound = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let mut limits = Limits::of_fleet(shards, members);
        for moves in self.policies.iter().filter_map(|policy| policy.spec.moves.as_ref()) {
            limits.moves_per_member = moves.per_member.map_or(limits.moves_per_member, bound);
            limits.moves_in_fleet = moves.in_fleet.map_or(limits.moves_in_fleet, bound);
        }
        limits
    }

    /// The policy by which no shard moves where nothing fails, if there is one.
    pub fn halted_by(&self) -> Option<&str> {
        // Of several, the last one counts, as in `limits`.
        let last = |of: fn(&MoveLimits) -> Option<u32>| {
            let mut policies = self.policies.iter().rev();
            let (name, most) = policies.find_map(|policy| {
                let most = of(policy.spec.moves.as_ref()?)?;
                Some((policy.name.as_str(), most))
            })?;
            (most == 0).then_some(name)
        };
        last(|moves| moves.per_member).or_else(|| last(|moves| moves.in_fleet))
    }

    /// The policies that together leave none of these members for a shard, each given with the policy by which it gets
    /// no more, if there is one ([`Self::closing`]). None if a member may have it.
    pub fn ruling_out<'p>(
        &'p self,
        shard: &ShardId,
        members: &[(&MemberSpec, Option<&'p str>)],
    ) -> Vec<&'p str> {
        let places: Vec<&Policy> = self.policies_about(shard).filter(|p| p.places()).collect();
        let mut ruling = BTreeSet::new();
        for (member, closed_by) in members {
            let lacking = places.iter().filter(|policy| policy.fit_of(member) == Fit::Lacks);
            let mut by: Vec<&str> = lacking.map(|policy| policy.name.as_str()).collect();
            if by.is_empty() {
                by.extend(*closed_by);
            }
            if by.is_empty() {
                return Vec::new();
            }
            ruling.extend(by);
        }
        ruling.into_iter().collect()
    }

    /// How these members stand with shards.
    pub(crate) fn placing<'a>(
        &'a self,
        members: impl Iterator<Item = (&'a MemberId, &'a MemberSpec)>,
    ) -> Placing<'a> {
        let any = self.policies.iter().any(Policy::places);
        Placing {
            policies: self,
            members: if any { members.collect() } else { Vec::new() },
            known: BTreeMap::new(),
        }
    }
}

impl Policy {
    fn pauses(&self) -> bool {
        self.spec.pause == Some(true)
    }

    /// What it pauses, and nothing else.
    fn pause(&self) -> FleetPolicySpec {
        let shards = self.spec.shards.clone();
        FleetPolicySpec { shards, pause: Some(true), ..FleetPolicySpec::default() }
    }

    /// Whether it says where shards should be.
    fn places(&self) -> bool {
        self.spec.pin.is_some() || self.spec.avoid.is_some()
    }

    /// How a member stands with the shards that it is about.
    fn fit_of(&self, member: &MemberSpec) -> Fit {
        let is_of =
            |select: &MemberSelector| select.contains(&member.identity, member.zone.as_deref());
        let judge = |preference: &Option<MemberPreference>, wanted: bool| match preference {
            Some(MemberPreference { select, required }) if is_of(select) != wanted => {
                if *required {
                    Fit::Lacks
                } else {
                    Fit::Unwanted
                }
            }
            _ => Fit::Serves,
        };
        judge(&self.spec.pin, true).min(judge(&self.spec.avoid, false))
    }
}

impl Index {
    /// Takes in which shards a policy selects. Returns which of its names select nothing, because nothing can have
    /// such a name.
    fn add(&mut self, number: usize, spec: &FleetPolicySpec) -> Option<String> {
        let Some(selector) = &spec.shards else {
            self.all.push(number);
            return None;
        };
        let mut odd = Vec::new();
        let clusters: Vec<ClusterName> = parsed("shards.clusters", &selector.clusters, &mut odd);
        let groups: Vec<GroupName> = parsed("shards.groups", &selector.groups, &mut odd);
        let named: Vec<ShardId> = parsed("shards.names", &selector.names, &mut odd);
        if selector.clusters.is_empty() {
            for group in groups {
                self.groups.entry(group).or_default().push(number);
            }
        } else {
            let limit = (!selector.groups.is_empty()).then(|| Arc::new(HashSet::from_iter(groups)));
            for cluster in clusters {
                self.clusters.entry(cluster).or_default().push((number, limit.clone()));
            }
        }
        for ShardId { cluster, group, range } in named {
            self.named.entry((cluster, group)).or_default().push((number, range));
        }
        let first = odd.first()?;
        Some(format!("selects nothing by {} of its names: {first}", odd.len()))
    }
}

/// A text about a policy.
fn about(name: &str, text: &str) -> String {
    format!("fleetpolicies.leasehold.dev {} {text}", model::error::foreign(name))
}

/// The names among these texts. What is none is added to `odd`, with its field.
fn parsed<T: FromStr<Err: Display>>(
    field: &str,
    texts: &[String],
    odd: &mut Vec<String>,
) -> Vec<T> {
    let parse =
        |text: &String| text.parse().map_err(|error| odd.push(format!("{field}: {error}"))).ok();
    texts.iter().filter_map(parse).collect()
}

impl Placing<'_> {
    /// How the members stand with a shard; `None` if all are as good.
    pub(crate) fn of(&mut self, shard: &ShardId) -> Option<Arc<Preferences>> {
        if self.members.is_empty() {
            return None;
        }
        let places = |number: &usize| self.policies.policies[*number].places();
        let about: Vec<usize> = self.policies.about(shard).into_iter().filter(places).collect();
        let Self { policies, members, known } = self;
        let judge = || {
            let fit =
                |spec: &MemberSpec| about.iter().map(|&p| policies.policies[p].fit_of(spec)).min();
            let fits = members.iter().filter_map(|&(id, spec)| Some((id.clone(), fit(spec)?)));
            Arc::new(fits.filter(|(_, fit)| *fit != Fit::Serves).collect::<Preferences>())
        };
        let answer = match known.get(&about) {
            Some(answer) => Arc::clone(answer),
            None => {
                let answer = judge();
                known.insert(about, Arc::clone(&answer));
                answer
            }
        };
        (!answer.is_empty()).then_some(answer)
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
