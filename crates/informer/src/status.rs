//! What an informer reports about itself.

use std::fmt;

use extent::ShardMode;
use listwatch::{End, Throttled};
use model::ClusterName;
use serde::Serialize;

/// Why a kind cannot be watched in a cluster that answers otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Absence {
    /// The server does not know it: its definition is not installed.
    NotInstalled,
    /// The server does not let this client list or watch it.
    Forbidden,
}

impl Absence {
    /// What the end of a request says.
    pub(crate) fn of(end: End) -> Option<Self> {
        match end {
            End::Refused(404) => Some(Self::NotInstalled),
            End::Refused(403) => Some(Self::Forbidden),
            _ => None,
        }
    }
}

impl Absence {
    /// What helps.
    pub fn fix(self) -> &'static str {
        match self {
            Self::NotInstalled => {
                "install its definition (`leasehold crds` prints ours, `leasehold clusters add` applies them)"
            }
            Self::Forbidden => {
                "give its user the rights (`leasehold clusters add` does, `leasehold doctor` names them)"
            }
        }
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotInstalled => "is not installed",
            Self::Forbidden => "may not be listed or watched",
        })
    }
}

/// One informer at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerStatus {
    /// The cluster.
    pub cluster: ClusterName,
    /// The kind, as `group/Kind`.
    pub kind: String,
    /// The namespace it is restricted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The label and field selectors it is restricted to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Of which objects it holds: ranges of their uids, as `0/2,5/8`, and of their owners', as
    /// `owner:0/2`. `0/1` are all.
    pub ranges: String,
    /// Who leaves the others out.
    pub mode: ShardMode,
    /// Whether the first list is complete.
    pub synced: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// Bytes of the cache: objects, tables, dictionaries.
    pub bytes: usize,
    /// Why less of its cluster is taken in than it sends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttled: Vec<Throttled>,
    /// The newest resourceVersion seen.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Seconds since the server was last heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Subscribers.
    pub subscribers: usize,
    /// Whether it holds no more than the metadata.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub metadata_only: bool,
    /// Why the kind is not there; absent where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<Absence>,
    /// Why the last attempt failed; absent once the server answers again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
