//! What people want of the fleet, read from its [`FleetPolicy`](crate::api::FleetPolicy) objects. Pure.
//!
//! A policy that cannot be read, or that selects nothing, is told as a problem and changes nothing else: one
//! wrong object must not undo the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;
use model::{ClusterName, GroupName, MemberId, ShardId};

use crate::api::{FleetPolicySpec, MemberPreference, MemberSelector, MemberSpec, ShardSelector};
use crate::planner::{Fit, Limits, Preferences};
use crate::read;

/// The most policies that count. Those whose names come after are told as problems.
const MAX_POLICIES: usize = 256;
/// Problems that are told.
const MAX_PROBLEMS: usize = 8;

/// One FleetPolicy as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRecord {
    /// The object's name.
    pub name: String,
    /// What it says, or why that cannot be read.
    pub spec: Result<FleetPolicySpec, String>,
}

/// All policies, in the order in which later ones overrule earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    policies: Vec<Policy>,
    problems: Vec<String>,
}

/// One policy.
#[derive(Clone, Debug)]
struct Policy {
    name: String,
    /// The shards that it selects; `None` for all.
    shards: Option<Shards>,
    spec: FleetPolicySpec,
}

/// Selected shards.
#[derive(Clone, Debug, Default)]
struct Shards {
    clusters: BTreeSet<ClusterName>,
    groups: BTreeSet<GroupName>,
    named: Vec<ShardId>,
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
    /// Reads a FleetPolicy.
    pub fn of(object: &DynamicObject) -> Self {
        Self { name: object.name_any(), spec: read::policy(object) }
    }
}

impl Policies {
    /// Reads policies.
    pub fn read(mut records: Vec<PolicyRecord>) -> Self {
        records.sort_by(|a, b| a.name.cmp(&b.name));
        let mut read = Self::default();
        for PolicyRecord { name, spec } in records {
            let policy = spec.and_then(|spec| Policy::read(&name, spec));
            match policy {
                _ if read.policies.len() == MAX_POLICIES => read.problem(
                    &name,
                    &format!("does not count: there are more than {MAX_POLICIES}; delete some"),
                ),
                Ok(policy) => read.policies.push(policy),
                Err(cause) => read.problem(&name, &format!("does not count: {cause}; correct it")),
            }
        }
        read
    }

    fn problem(&mut self, name: &str, text: &str) {
        let name = model::error::foreign(name);
        self.problems.push(format!("fleetpolicies.leasehold.dev {name} {text}"));
    }

    /// What is wrong with them, given which shards there are: each with object, cause and fix.
    pub(crate) fn problems<'a>(&self, shards: impl Iterator<Item = &'a ShardId>) -> Vec<String> {
        let mut idle: BTreeMap<&str, &Shards> = self
            .policies
            .iter()
            .filter_map(|policy| Some((policy.name.as_str(), policy.shards.as_ref()?)))
            .collect();
        for shard in shards {
            if idle.is_empty() {
                break;
            }
            idle.retain(|_, selected| !selected.contain(shard));
        }
        let idle = idle.keys().map(|name| {
            format!(
                "fleetpolicies.leasehold.dev {name} selects no shard that there is: compare it with \
                 `leasehold status`, or delete it"
            )
        });
        self.problems.iter().cloned().chain(idle).take(MAX_PROBLEMS).collect()
    }

    /// The policy that pauses a shard, if one does.
    pub fn pause_of(&self, shard: &ShardId) -> Option<&str> {
        let pauses = |policy: &&Policy| policy.spec.pause == Some(true) && policy.is_about(shard);
        self.policies.iter().find(pauses).map(|policy| policy.name.as_str())
    }

    /// Whether a policy is about a shard.
    pub fn are_about(&self, shard: &ShardId) -> bool {
        self.policies.iter().any(|policy| policy.is_about(shard))
    }

    /// Whether a policy pauses something.
    pub(crate) fn pause_any(&self) -> bool {
        self.policies.iter().any(|policy| policy.spec.pause == Some(true))
    }

    /// The milliseconds of work in each second that a shard counts for, in place of what is measured.
    pub(crate) fn busy_of(&self, shard: &ShardId) -> Option<u32> {
        let latest = self.policies.iter().rev();
        latest
            .filter(|policy| policy.spec.busy.is_some())
            .find(|policy| policy.is_about(shard))?
            .spec
            .busy
    }

    /// Whether they cordon a member.
    pub fn cordon(&self, member: &MemberSpec) -> bool {
        self.terms_of(member).is_cordoned
    }

    /// What holds for a member.
    pub(crate) fn terms_of(&self, member: &MemberSpec) -> MemberTerms {
        let rules = self.policies.iter().filter_map(|policy| policy.spec.members.as_ref());
        let mut terms = MemberTerms::default();
        for rule in rules.filter(|rule| rule.select.contains(member)) {
            terms.capacity = rule.capacity.or(terms.capacity);
            terms.max_shards = rule.max_shards.or(terms.max_shards);
            terms.is_cordoned = rule.cordon.unwrap_or(terms.is_cordoned);
        }
        terms
    }

    /// The bounds of moves.
    pub(crate) fn limits(&self) -> Limits {
        let bound = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let mut limits = Limits::default();
        for moves in self.policies.iter().filter_map(|policy| policy.spec.moves.as_ref()) {
            limits.moves_per_member = moves.per_member.map_or(limits.moves_per_member, bound);
            limits.moves_in_fleet = moves.in_fleet.map_or(limits.moves_in_fleet, bound);
        }
        limits
    }

    /// How these members stand with shards.
    pub(crate) fn placing<'a>(
        &'a self,
        members: impl Iterator<Item = (&'a MemberId, &'a MemberSpec)>,
    ) -> Placing<'a> {
        let places = |policy: &Policy| policy.spec.pin.is_some() || policy.spec.avoid.is_some();
        let any = self.policies.iter().any(places);
        Placing {
            policies: self,
            members: if any { members.collect() } else { Vec::new() },
            known: BTreeMap::new(),
        }
    }
}

impl Policy {
    fn read(name: &str, spec: FleetPolicySpec) -> Result<Self, String> {
        let shards = spec.shards.as_ref().map(Shards::read).transpose()?;
        Ok(Self { name: name.to_owned(), shards, spec })
    }

    fn is_about(&self, shard: &ShardId) -> bool {
        self.shards.as_ref().is_none_or(|selected| selected.contain(shard))
    }

    /// How a member stands with the shards that it is about.
    fn fit_of(&self, member: &MemberSpec) -> Fit {
        let judge = |preference: &Option<MemberPreference>, wanted: bool| match preference {
            Some(MemberPreference { select, required }) if select.contains(member) != wanted => {
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

impl Shards {
    fn read(selector: &ShardSelector) -> Result<Self, String> {
        Ok(Self {
            clusters: parsed("shards.clusters", &selector.clusters)?.collect(),
            groups: parsed("shards.groups", &selector.groups)?.collect(),
            named: parsed("shards.names", &selector.names)?.collect(),
        })
    }

    fn contain(&self, shard: &ShardId) -> bool {
        let named = |named: &ShardId| {
            named.cluster == shard.cluster
                && named.group == shard.group
                && named.range.overlaps(shard.range)
        };
        let is_selective = !self.clusters.is_empty() || !self.groups.is_empty();
        let fits = (self.clusters.is_empty() || self.clusters.contains(&shard.cluster))
            && (self.groups.is_empty() || self.groups.contains(&shard.group));
        (is_selective && fits) || self.named.iter().any(named)
    }
}

fn parsed<T: FromStr<Err: Display>>(
    field: &str,
    texts: &[String],
) -> Result<std::vec::IntoIter<T>, String> {
    let parse = |text: &String| text.parse().map_err(|error| format!("{field}: {error}"));
    Ok(texts.iter().map(parse).collect::<Result<Vec<T>, _>>()?.into_iter())
}

impl MemberSelector {
    /// Whether it selects a member.
    fn contains(&self, member: &MemberSpec) -> bool {
        let named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => member.identity.starts_with(start),
            None => member.identity == *pattern,
        };
        let lies_in = |zone: &String| member.zone.as_ref() == Some(zone);
        (self.names.is_empty() || self.names.iter().any(named))
            && (self.zones.is_empty() || self.zones.iter().any(lies_in))
    }
}

impl Placing<'_> {
    /// How the members stand with a shard; `None` if all are as good.
    pub(crate) fn of(&mut self, shard: &ShardId) -> Option<Arc<Preferences>> {
        if self.members.is_empty() {
            return None;
        }
        let about = |(number, policy): (usize, &Policy)| policy.is_about(shard).then_some(number);
        let about: Vec<usize> =
            self.policies.policies.iter().enumerate().filter_map(about).collect();
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
