//! Versions of etcd, and which may follow which. Pure.

use std::fmt;
use std::str::FromStr;

/// A version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) patch: u32,
}

/// The first version that has what the controller relies on: `/livez` and `/readyz` of 3.5.11.
pub(crate) const OLDEST: Version = Version { major: 3, minor: 5, patch: 11 };

/// The first version whose data 3.6 certainly reads. Earlier ones of 3.5 do not keep in every copy of their list
/// of members that a learner was promoted, or that a member left, and 3.6 reads the other copy: members come
/// back as learners, or come back though they left. From this one on a member repairs that as it starts.
/// See <https://etcd.io/blog/2025/zombie_members_upgrade/> and etcd's issues 19557 and 20793.
const REPAIRED: Version = Version { major: 3, minor: 5, patch: 26 };

/// Why a version cannot follow those that members run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreachable {
    /// It is of an earlier minor version.
    #[error(
        "members run {from}, and etcd's data does not go back to {to}: set spec.version to {from} or \
         later, or restore a snapshot of that time into another EtcdCluster"
    )]
    Downgrade { from: Version, to: Version },
    /// It skips a minor version.
    #[error(
        "members run {from}, and etcd is upgraded by one minor version at a time: set spec.version \
         to {}.{}.x before {to}", from.major, from.minor + 1
    )]
    Skips { from: Version, to: Version },
    /// It needs a later patch of the version before.
    #[error(
        "members run {from}, and etcd 3.6 may not start, or bring members back that left, on data of a 3.5 \
         before {REPAIRED}: set spec.version to {REPAIRED} or a later 3.5 before {to}"
    )]
    Unpatched { from: Version, to: Version },
}

impl Version {
    /// Whether members that run from `lowest` to `highest` may be brought to this version. Within a
    /// minor version any patch may follow any other. A rise that has begun goes on.
    pub(crate) fn follows(self, lowest: Self, highest: Self) -> Result<(), Unreachable> {
        if (self.major, self.minor) < (highest.major, highest.minor) {
            return Err(Unreachable::Downgrade { from: highest, to: self });
        }
        if self.major != lowest.major || self.minor > lowest.minor + 1 {
            return Err(Unreachable::Skips { from: lowest, to: self });
        }
        let (last, next) = ((3, 5), (3, 6));
        if (highest.major, highest.minor) == last
            && (self.major, self.minor) == next
            && lowest < REPAIRED
        {
            return Err(Unreachable::Unpatched { from: lowest, to: self });
        }
        Ok(())
    }
}

impl Unreachable {
    /// The reason as a condition has it.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Downgrade { .. } => "DowngradeRefused",
            Self::Skips { .. } => "MinorSkipped",
            Self::Unpatched { .. } => "PatchFirst",
        }
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('.').map(|part| {
            let digits =
                !part.is_empty() && part.len() < 6 && part.bytes().all(|b| b.is_ascii_digit());
            part.parse().ok().filter(|_| digits).ok_or(())
        });
        let mut part = || parts.next().unwrap_or(Err(()));
        let version = Self { major: part()?, minor: part()?, patch: part()? };
        if parts.next().is_some() { Err(()) } else { Ok(version) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_three_numbers() {
        assert_eq!(version("3.6.5").to_string(), "3.6.5");
        for wrong in ["", "3", "3.6", "3.6.5.1", "v3.6.5", "3.6.5-rc.0", "3.+6.5", "3.6.1234567"] {
            assert!(wrong.parse::<Version>().is_err(), "{wrong}");
        }
        assert!(version("3.10.0") > version("3.9.9"));
    }

    #[test]
    fn one_minor_at_a_time_and_never_back() {
        for (lowest, highest, to, expect) in [
            ("3.5.20", "3.5.20", "3.5.21", None),
            ("3.5.20", "3.5.20", "3.5.11", None),
            ("3.5.11", "3.5.11", "3.5.26", None),
            ("3.5.26", "3.5.26", "3.6.0", None),
            ("3.5.26", "3.5.30", "3.6.5", None),
            ("3.5.25", "3.5.25", "3.6.0", Some("PatchFirst")),
            ("3.5.15", "3.5.26", "3.6.5", Some("PatchFirst")),
            ("3.5.15", "3.5.15", "3.7.0", Some("MinorSkipped")),
            ("3.6.0", "3.6.0", "3.7.0", None),
            ("3.5.20", "3.6.0", "3.6.1", None),
            ("3.5.20", "3.5.20", "3.7.0", Some("MinorSkipped")),
            ("3.5.20", "3.6.0", "3.7.0", Some("MinorSkipped")),
            ("3.6.0", "3.6.0", "4.0.0", Some("MinorSkipped")),
            ("3.6.0", "3.6.0", "3.5.30", Some("DowngradeRefused")),
            ("3.5.20", "3.6.0", "3.5.20", Some("DowngradeRefused")),
        ] {
            let found = version(to).follows(version(lowest), version(highest));
            let reason = found.err().map(|error| error.reason());
            assert_eq!(reason, expect, "{lowest}..{highest} to {to}");
        }
    }
}
