//! Names as types, so that nobody can use a cluster's name as a member's.
//!
//! All are DNS-1123 subdomains of at most 63 characters, because they become parts of object names and
//! values of labels.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::range::uid_hash;

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 63;
/// The name that stands for the fleet and for no cluster: see `single`.
pub(crate) const OF_FLEET: &str = "fleet.leasehold.dev";

/// A text that is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is not a {what}: use 1 to 63 of a-z, 0-9, '-' and '.', each part between dots beginning and ending with a letter or digit"
)]
pub struct InvalidName {
    what: &'static str,
    found: String,
}

fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME_BYTES && text.split('.').all(|part| is_label(part.as_bytes()))
}

/// Whether it is a part of a name between dots.
fn is_label(part: &[u8]) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    edge(part.first())
        && edge(part.last())
        && part.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                if is_name(text) {
                    Ok(Self(Arc::from(text)))
                } else {
                    Err(InvalidName { what: $what, found: text.to_owned() })
                }
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name! {
    /// A cluster's name in the fleet.
    ClusterName, "cluster name"
}
name! {
    /// A controller's name, unique in a manager.
    ControllerName, "controller name"
}
name! {
    /// A controller group's name.
    GroupName, "controller group name"
}
name! {
    /// What a cluster is, whatever it is called: the uid of its namespace `kube-system`.
    ClusterUid, "cluster uid"
}
name! {
    /// What a fleet is, whatever it is called: the uid of its namespace in the home cluster.
    FleetId, "fleet id"
}
name! {
    /// One incarnation of a manager process: pod name plus a random suffix.
    MemberId, "member id"
}

impl From<&ControllerName> for GroupName {
    /// A group is named after its first controller.
    fn from(controller: &ControllerName) -> Self {
        Self(Arc::clone(&controller.0))
    }
}

impl ClusterName {
    /// The name for a kubeconfig context, which may be any text (`arn:aws:eks:...`, `admin@prod`).
    ///
    /// A context that is a valid name stays as it is, unless it stands for the fleet. Any other becomes
    /// lower case with `-` in place of other characters, followed by a hash of the original, so that two contexts
    /// never get the same name.
    pub fn from_context(context: &str) -> Self {
        if let Ok(name) = context.parse()
            && context != OF_FLEET
        {
            return name;
        }
        let cleaned: String = context
            .chars()
            .map(|c| c.to_ascii_lowercase())
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(MAX_NAME_BYTES - 9)
            .collect();
        let cleaned = cleaned.trim_matches('-');
        let hash = uid_hash(context) as u32;
        let text = if cleaned.is_empty() {
            format!("{hash:08x}")
        } else {
            format!("{cleaned}-{hash:08x}")
        };
        Self(Arc::from(text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bad_names_say_what_is_allowed() {
        let error = "East".parse::<ClusterName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"East\" is not a cluster name: use 1 to 63 of a-z, 0-9, '-' and '.', each part between dots beginning and ending with a letter or digit"
        );
        // Kubernetes takes none of these as the name of an object.
        for bad in ["", "-a", "a-", "a_b", &"a".repeat(64), "prod..eu", "a.-b", "a-.b", ".a", "a."]
        {
            assert!(bad.parse::<MemberId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn contexts_become_names() {
        assert_eq!(ClusterName::from_context("east").as_str(), "east");
        let name = ClusterName::from_context("admin@Prod");
        assert!(name.as_str().starts_with("admin-prod-"), "{name}");
        assert_ne!(name, ClusterName::from_context("admin@prod"));
        for context in ["prod..eu", "a.-b", OF_FLEET] {
            let name = ClusterName::from_context(context);
            assert!(name.as_str() != context && is_name(name.as_str()), "{context}: {name}");
        }
    }

    proptest! {
        #[test]
        fn every_context_gives_a_valid_name(context in any::<String>()) {
            let name = ClusterName::from_context(&context);
            prop_assert!(is_name(name.as_str()), "{name}");
        }
    }
}
