//! Names that people give, against those that the fleet has: a wrong one is refused, with those that there are. Pure.

use std::collections::{BTreeMap, BTreeSet};

use fleet::{Fleet, FleetMember, Problem};

/// The most names that are offered when there is no such one.
const MAX_OFFERED: usize = 10;

/// The names of one kind of things.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    what: &'static str,
    names: BTreeSet<String>,
    /// Those that are there and cannot be read, and why.
    unread: BTreeMap<String, Problem>,
}

/// A name of something that the fleet does not have, or that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unknown {
    #[error("no {what} {name:?} in the fleet: {offer}")]
    Absent { what: &'static str, name: String, offer: String },
    #[error("{0}")]
    Unread(Problem),
}

impl Known {
    pub(crate) fn new(what: &'static str, names: impl IntoIterator<Item = impl ToString>) -> Self {
        let names = names.into_iter().map(|name| name.to_string()).collect();
        Self { what, names, unread: BTreeMap::new() }
    }

    /// The clusters that home knows: by their shards, or because members cannot use them.
    pub(crate) fn clusters(fleet: &Fleet) -> Self {
        let down = fleet.members.iter().flat_map(|member| &member.down_clusters);
        let down = down.map(|down| &down.cluster);
        let names = fleet.shards.iter().map(|shard| &shard.shard.cluster).chain(down);
        let unread = fleet.unread.iter();
        let unread =
            unread.filter_map(|map| Some((map.name.clone(), fleet.unread_map(&map.name)?)));
        Self { unread: unread.collect(), ..Self::new("cluster", names) }
    }

    /// Members, by their ids and their identities.
    pub(crate) fn members<'f>(members: impl IntoIterator<Item = &'f FleetMember>) -> Self {
        let names = members.into_iter().flat_map(|m| [m.member.as_str(), m.identity.as_str()]);
        Self::new("member", names)
    }

    /// These, and more of them.
    pub(crate) fn and(mut self, more: impl IntoIterator<Item = impl ToString>) -> Self {
        self.names.extend(more.into_iter().map(|name| name.to_string()));
        self
    }

    /// Whether all of these are among them.
    pub(crate) fn have(&self, wanted: &[impl ToString]) -> Result<(), Unknown> {
        let mut wanted = wanted.iter().map(ToString::to_string);
        match wanted.find(|name| !self.names.contains(name)) {
            Some(name) => Err(self.unknown(&name)),
            None => Ok(()),
        }
    }

    /// The error for a name that is not one of them. It lists those that there are, or of many the most similar.
    pub(crate) fn unknown(&self, name: &str) -> Unknown {
        if let Some(problem) = self.unread.get(name) {
            return Unknown::Unread(problem.clone());
        }
        let alike = |other: &String| strsim::jaro_winkler(name, other);
        let mut offered: Vec<_> = self.names.iter().collect();
        offered.sort_by(|a, b| alike(b).total_cmp(&alike(a)));
        let (what, name) = (self.what, model::error::foreign(name));
        Unknown::Absent { what, name, offer: offer(offered) }
    }
}

/// What an id begins with: the identity of its process, of which it is the name with a suffix.
pub(crate) fn identity_of(id: &str) -> &str {
    id.rsplit_once('-').map_or(id, |(identity, _)| identity)
}

fn offer(mut names: Vec<&String>) -> String {
    let more = names.len().saturating_sub(MAX_OFFERED);
    names.truncate(MAX_OFFERED);
    names.sort();
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    match (names.len(), more) {
        (0, _) => "there is none".to_owned(),
        (1, _) => format!("there is {}", names[0]),
        (_, 0) => format!("there are {}", names.join(", ")),
        (_, more) => format!("there are {} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use fleet::UnreadObject;

    use super::*;

    #[test]
    fn a_wrong_name_is_refused_with_those_that_there_are() {
        let known = Known::new("cluster", ["north", "east", "west"]);
        assert_eq!(known.have(&["west", "east"]), Ok(()));
        let said = |known: &Known, name: &str| known.have(&[name]).unwrap_err().to_string();
        let all = r#"no cluster "eats" in the fleet: there are east, north, west"#;
        assert_eq!(said(&known, "eats"), all);
        let one = Known::new("cluster", ["east"]);
        assert_eq!(said(&one, "x"), r#"no cluster "x" in the fleet: there is east"#);
        assert_eq!(one.and(["x"]).have(&["x"]), Ok(()));
        let fleet = Fleet {
            unread: vec![UnreadObject {
                resource: "shardmaps.leasehold.dev",
                name: "east".into(),
                why: "shardmaps.leasehold.dev east cannot be read".into(),
                later: None,
            }],
            ..Fleet::default()
        };
        let unread = said(&Known::clusters(&fleet), "east");
        assert!(
            unread.starts_with("shardmaps.leasehold.dev east cannot be read; fix: "),
            "{unread}"
        );
        let none = Known::new("zone", [""; 0]);
        assert_eq!(said(&none, "eu"), r#"no zone "eu" in the fleet: there is none"#);
        let many = Known::new("cluster", (0..30).map(|n| format!("c-{n:02}")));
        let text = said(&many, "c-07x");
        assert!(text.contains("c-07") && text.ends_with(" and 20 more"), "{text}");
    }
}
