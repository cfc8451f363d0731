//! Which members a policy selects, by name and by zone. Pure.

use model::MemberId;

use crate::api::{FleetPolicySpec, MemberSelector};

impl FleetPolicySpec {
    /// Its selectors of members.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &MemberSelector> {
        let placed = self.pin.iter().chain(&self.avoid).map(|preference| &preference.select);
        placed.chain(self.members.iter().map(|rule| &rule.select))
    }
}

impl MemberSelector {
    /// How precise it is: one that names members outranks one for zones, and that one for all.
    pub(super) fn precision(&self) -> (bool, bool) {
        (!self.names.is_empty(), !self.zones.is_empty())
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
