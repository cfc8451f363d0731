//! Which members a policy selects, by name and by zone, and what holds for a member. Pure.

use model::MemberId;

use super::{MemberTerms, Policies};
use crate::api::{FleetPolicySpec, MemberRule, MemberSelector, MemberSpec};

impl Policies {
    /// What holds for a member.
    pub(crate) fn terms_of(&self, member: &MemberSpec) -> MemberTerms {
        MemberTerms {
            capacity: self.said_of(member, |rule| rule.capacity).map(|(_, it)| it),
            max_shards: self.said_of(member, |rule| rule.max_shards).map(|(_, it)| it),
            is_cordoned: self.cordon_of(member).is_some(),
        }
    }

    /// How much a member can carry: by a policy, or else by its own word.
    pub fn capacity_of(&self, member: &MemberSpec) -> u32 {
        self.terms_of(member).capacity.unwrap_or(member.capacity)
    }

    /// The policy that cordons a member, if one does.
    pub fn cordon_of(&self, member: &MemberSpec) -> Option<&str> {
        let (name, is_cordoned) = self.said_of(member, |rule| rule.cordon)?;
        is_cordoned.then_some(name)
    }

    /// The policy by which a member with so many shards gets no more, if there is one: it cordons it, or says how many
    /// it has at most.
    pub fn closing(&self, member: &MemberSpec, shards: u32) -> Option<&str> {
        let most = || self.said_of(member, |rule| rule.max_shards);
        let full = || most().filter(|(_, most)| shards >= *most).map(|(name, _)| name);
        self.cordon_of(member).or_else(full)
    }

    /// Of all that rules say about one thing of a member, what counts, with its policy: of several, the last among the
    /// most precise.
    fn said_of<T>(
        &self,
        member: &MemberSpec,
        said: impl Fn(&MemberRule) -> Option<T>,
    ) -> Option<(&str, T)> {
        let rules = self.policies.iter().filter_map(|policy| {
            let rule = policy.spec.members.as_ref()?;
            let applies = rule.select.contains(&member.identity, member.zone.as_deref());
            let said = said(rule).filter(|_| applies)?;
            Some((rule.select.precision(&member.identity), policy.name.as_str(), said))
        });
        let (_, name, said) = rules.max_by_key(|(precision, ..)| *precision)?;
        Some((name, said))
    }
}

impl FleetPolicySpec {
    /// Its selectors of members.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &MemberSelector> {
        let placed = self.pin.iter().chain(&self.avoid).map(|preference| &preference.select);
        placed.chain(self.members.iter().map(|rule| &rule.select))
    }
}

impl MemberSelector {
    /// How precisely it selects this member: one that has the whole name outranks one with its beginning, that one for
    /// zones, and that one for all.
    fn precision(&self, identity: &str) -> (bool, bool, bool) {
        let is_named = self.names.iter().any(|name| name == identity);
        (is_named, !self.names.is_empty(), !self.zones.is_empty())
    }

    /// Whether it selects a member with that identity, in that zone.
    pub fn contains(&self, identity: &str, zone: Option<&str>) -> bool {
        let named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => identity.starts_with(start),
            None => identity == *pattern,
        };
        let lies_in = |of: &String| zone == Some(of.as_str());
        (self.names.is_empty() || self.names.iter().any(named))
            && (self.zones.is_empty() || self.zones.iter().any(lies_in))
    }

    /// The first of its texts that selects nobody, because no member can have such a name or be in such a zone.
    pub(super) fn odd(&self) -> Option<String> {
        // Identities and zones follow the rules of a member's id.
        let is_name = |text: &str| text.parse::<MemberId>().is_ok();
        let begins_one = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        let could_be = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => start.chars().all(begins_one),
            None => is_name(pattern),
        };
        let name = self.names.iter().find(|pattern| !could_be(pattern));
        let zone = || self.zones.iter().find(|zone| !is_name(zone));
        let name = name.map(|name| format!("no member can have the name {name:?}"));
        name.or_else(|| Some(format!("no member can be in the zone {:?}", zone()?)))
    }
}
