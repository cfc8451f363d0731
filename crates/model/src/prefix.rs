//! The prefix of a source's clusters: `PREFIX.CONTEXT`.
//!
//! A prefix has no dot, so the part of a name up to its first dot is the prefix, whole: no context of one
//! source has the name of a cluster of another.

use std::str::FromStr;
use std::sync::Arc;

use crate::{ClusterName, uid_hash};

/// The longest prefix, and the longest name of a context behind one, in bytes: with the dot, they make the
/// longest name of a cluster.
const MAX_PART_BYTES: usize = 31;
/// The hash at the end of a name that was cut, with its hyphen, in bytes.
const HASH_BYTES: usize = 9;

/// What the names of a source's clusters begin with: 1 to 31 of a-z, 0-9 and '-', beginning and ending
/// with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix(Arc<str>);

impl FromStr for Prefix {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let good = text.len() <= MAX_PART_BYTES
            && !text.contains('.')
            && text.parse::<ClusterName>().is_ok();
        good.then(|| Self(text.into())).ok_or(())
    }
}

impl Prefix {
    /// What the names begin with, with the dot.
    pub fn beginning(&self) -> String {
        format!("{}.", self.0)
    }
}

/// The name of a context's cluster.
pub fn cluster_name(prefix: Option<&Prefix>, context: &str) -> ClusterName {
    let name = ClusterName::from_context(context);
    let Some(Prefix(prefix)) = prefix else { return name };
    let mut name = String::from(name);
    if name.len() > MAX_PART_BYTES {
        name.truncate(MAX_PART_BYTES - HASH_BYTES);
        let cut = name.trim_end_matches(['-', '.']);
        name = format!("{cut}-{:08x}", uid_hash(context) as u32);
    }
    format!("{prefix}.{name}").parse().expect("two names within their bounds make a name")
}

/// Whether the cluster that a source calls `own` may have this name: by itself, or behind a prefix.
pub fn may_be_called(own: &ClusterName, name: &ClusterName) -> bool {
    let prefix = name.as_str().split_once('.').and_then(|(prefix, _)| prefix.parse().ok());
    own == name || prefix.is_some_and(|prefix| cluster_name(Some(&prefix), own.as_str()) == *name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_begin_with_the_prefix() {
        let prefix: Prefix = "team-a".parse().unwrap();
        let name = |context: &str| cluster_name(Some(&prefix), context).to_string();
        assert_eq!(name("east"), "team-a.east");
        assert_eq!(name("team-b.east"), "team-a.team-b.east");
        assert!(name("admin@prod").starts_with("team-a.admin-prod-"));
        let long = name("arn:aws:eks:eu-west-1:123456789012:cluster/production-and-more");
        assert!(long.len() <= 63 && long.starts_with("team-a.arn-aws-eks-eu-west-1-"), "{long}");
        assert_eq!(cluster_name(None, "east").as_str(), "east");
        let own = |name: &str| name.parse::<ClusterName>().unwrap();
        let eks = "arn-aws-eks-eu-west-1-123456789012-cluster-production";
        for (one, other, expect) in [
            ("east", "east", true),
            ("east", "team-a.east", true),
            (eks, &name(eks), true),
            ("east", "far-east", false),
            ("east", "team-a.far.east", false),
            ("team-a.east", "east", false),
        ] {
            assert_eq!(may_be_called(&own(one), &own(other)), expect, "{one}, {other}");
        }
        for bad in ["", "a.b", "Team", "-a", "a-", &"a".repeat(32)] {
            assert_eq!(bad.parse::<Prefix>(), Err(()), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn sources_with_different_prefixes_never_have_a_name_in_common(
            one in "[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?", other in "[a-z0-9]([a-z0-9-]{0,29}[a-z0-9])?",
            context in ".{0,80}", another in ".{0,80}",
        ) {
            prop_assume!(one != other);
            let name = |prefix: &str, context: &str| {
                cluster_name(Some(&prefix.parse().unwrap()), context)
            };
            prop_assert_ne!(name(&one, &context), name(&other, &another));
            let borrowed = format!("{other}.{another}");
            prop_assert_ne!(name(&one, &borrowed), name(&other, &another));
        }
    }
}
