//! What a home cluster holds of a fleet: CRDs, a namespace, and in it Leases, Members and
//! ShardMaps.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use kube::Client;
use model::{Range, ShardId};
use serde_json::Value;

use super::kubectl::{self, Kubectl};

/// The namespace in which the replicas meet.
pub const NAMESPACE: &str = "leasehold-system";

/// One shard, as a ShardMap or `leasehold status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// As in `east/tdset/0/1`.
    pub shard: String,
    /// Its epoch.
    pub epoch: u64,
    /// Its owner, if it has one.
    pub owner: Option<String>,
    /// `Owned`, `Draining` or `Unowned`.
    pub phase: String,
}

/// Who owns the shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The owner of each shard that is owned and not being handed over.
    pub settled: Vec<(String, String)>,
    /// How many shards have no owner or are being handed over.
    pub unsettled: usize,
}

/// The folders of our CRDs.
fn crds() -> [PathBuf; 2] {
    let folder = xtask::root().join("deploy/charts/leasehold/files/crds");
    ["home", "controllers"].map(|part| folder.join(part))
}

/// Installs our CRDs and waits until they are served.
pub async fn install_crds(kubectl: &Kubectl) -> Result<()> {
    for folder in crds() {
        kubectl.apply_path(&folder).await?;
    }
    kubectl.established().await
}

/// Installs our CRDs and the namespace.
pub async fn install(kubectl: &Kubectl) -> Result<()> {
    install_crds(kubectl).await?;
    kubectl.run(&["create", "namespace", NAMESPACE]).await.map(drop)
}

/// The path of all `leases`, `members` or `shardmaps` in the namespace.
pub fn path(resource: &str) -> String {
    let group = match resource {
        "leases" => "coordination.k8s.io/v1",
        _ => "leasehold.dev/v1alpha1",
    };
    format!("/apis/{group}/namespaces/{NAMESPACE}/{resource}")
}

/// The entries of every ShardMap, in order.
pub async fn shards(home: &Client) -> Result<Vec<Entry>> {
    let maps = kubectl::list(home, &path("shardmaps")).await?;
    let mut entries = maps.iter().flat_map(entries).collect::<Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// The entries of one ShardMap; an error for what is not one.
pub fn entries(map: &Value) -> impl Iterator<Item = Result<Entry>> {
    let cluster = map["metadata"]["name"].as_str().unwrap_or_default();
    let entries = map["spec"]["shards"].as_array().into_iter().flatten();
    entries.map(move |entry| {
        let read = Entry::read(entry, &format!("{cluster}/"));
        read.with_context(|| format!("ShardMap {cluster}: {entry} is not an entry"))
    })
}

impl Entry {
    /// Reads an entry that names its shard without `prefix`.
    pub fn read(value: &Value, prefix: &str) -> Option<Self> {
        Some(Self {
            shard: format!("{prefix}{}", value["shard"].as_str()?),
            epoch: value["epoch"].as_u64()?,
            owner: value["owner"].as_str().map(str::to_owned),
            phase: value["phase"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

impl Owners {
    /// Who owns the shards now.
    pub async fn read(home: &Client) -> Result<Self> {
        let mut this = Self::default();
        for Entry { shard, owner, phase, .. } in shards(home).await? {
            match owner {
                Some(owner) if phase == "Owned" => this.settled.push((shard, owner)),
                _ => this.unsettled += 1,
            }
        }
        Ok(this)
    }

    /// How many controller groups of a cluster have an owner for each of their objects, by one
    /// shard or by several that divide them.
    pub fn whole_groups(&self) -> Result<usize> {
        let mut widths = BTreeMap::<_, u128>::new();
        for (shard, _) in &self.settled {
            let ShardId { cluster, group, range } = shard.parse()?;
            let (first, end) = range.bounds();
            *widths.entry((cluster, group)).or_default() += end - first;
        }
        let (first, end) = Range::WHOLE.bounds();
        Ok(widths.into_values().filter(|width| *width == end - first).count())
    }
}
