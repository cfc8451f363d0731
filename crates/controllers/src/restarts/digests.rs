//! The digests of contents that were read, by version: of ConfigMaps and Secrets only the metadata is watched,
//! and a content is read when its version is new.
//!
//! In memory only: what is forgotten is read once more.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::core::{ObjectMeta, PartialObjectMeta};
use quick_cache::sync::Cache;
use sdk::{ClusterName, Context, ReconcileError};

use super::content::{Content, ContentKind, ContentRef};

/// How many digests are remembered, about 8 MB. Beyond it the least recently used are forgotten.
pub(crate) const MAX_DIGESTS: usize = 1 << 15;
/// The most bytes of a uid or version that is remembered; those of Kubernetes are shorter.
const MAX_BYTES: usize = 253;

/// An object of a cluster, by its uid.
type Key = (ClusterName, String);

/// The digests of the contents that one controller read last.
#[derive(Debug)]
pub(crate) struct Digests(Cache<Key, (String, String)>);

impl Default for Digests {
    fn default() -> Self {
        Self(Cache::new(MAX_DIGESTS))
    }
}

impl Digests {
    /// The digest of this version of an object, if its content was read.
    pub(crate) fn get(&self, cluster: &ClusterName, metadata: &ObjectMeta) -> Option<String> {
        let key = (cluster.clone(), metadata.uid.clone()?);
        let (version, digest) = self.0.get(&key)?;
        (Some(&version) == metadata.resource_version.as_ref()).then_some(digest)
    }

    /// Remembers the digest of this version of an object.
    pub(crate) fn keep(&self, cluster: &ClusterName, metadata: &ObjectMeta, digest: &str) {
        if let (Some(uid), Some(version)) = (&metadata.uid, &metadata.resource_version)
            && uid.len().max(version.len()) <= MAX_BYTES
        {
            let known = (version.clone(), digest.to_owned());
            self.0.insert((cluster.clone(), uid.clone()), known);
        }
    }

    /// The digest of a content as it is now: remembered for the version in the cache, or else read from the
    /// server. `None` if the cache shows no such object, or it is gone.
    ///
    /// # Errors
    /// If the object cannot be read.
    pub(crate) async fn seen(
        &self,
        ctx: &Context,
        content: &ContentRef,
    ) -> Result<Option<String>, ReconcileError> {
        match content.kind {
            ContentKind::ConfigMap => self.seen_of::<ConfigMap>(ctx, &content.name).await,
            ContentKind::Secret => self.seen_of::<Secret>(ctx, &content.name).await,
        }
    }

    async fn seen_of<K: Content>(
        &self,
        ctx: &Context,
        name: &str,
    ) -> Result<Option<String>, ReconcileError> {
        let namespace = ctx.key().namespace.as_deref();
        let Some(seen) = ctx.get::<PartialObjectMeta<K>>(namespace, name)? else { return Ok(None) };
        match self.get(ctx.cluster(), &seen.metadata) {
            Some(digest) => Ok(Some(digest)),
            None => self.read_of::<K>(ctx, name).await.map(|read| read.map(|(_, digest)| digest)),
        }
    }

    /// [`Self::read_of`] of what `content` names.
    ///
    /// # Errors
    /// If the object cannot be read.
    pub(crate) async fn read(
        &self,
        ctx: &Context,
        content: &ContentRef,
    ) -> Result<Option<(ObjectMeta, String)>, ReconcileError> {
        match content.kind {
            ContentKind::ConfigMap => self.read_of::<ConfigMap>(ctx, &content.name).await,
            ContentKind::Secret => self.read_of::<Secret>(ctx, &content.name).await,
        }
    }

    /// The metadata of an object and the digest of its content, read from the server. Nothing else of it is
    /// kept. `None` if it is gone.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) async fn read_of<K: Content>(
        &self,
        ctx: &Context,
        name: &str,
    ) -> Result<Option<(ObjectMeta, String)>, ReconcileError> {
        let namespace = ctx.key().namespace.as_deref().unwrap_or_default();
        let Some(object) = Api::<K>::namespaced(ctx.client(), namespace).get_opt(name).await?
        else {
            return Ok(None);
        };
        let digest = object.digest();
        self.keep(ctx.cluster(), object.meta(), &digest);
        Ok(Some((object.meta().clone(), digest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(uid: &str, version: &str) -> ObjectMeta {
        let [uid, version] = [uid, version].map(|text| Some(text.to_owned()));
        ObjectMeta { uid, resource_version: version, ..ObjectMeta::default() }
    }

    #[test]
    fn a_digest_is_that_of_one_version_in_one_cluster_and_so_many_are_remembered() {
        let digests = Digests::default();
        let [east, west] = ["east", "west"].map(|name| name.parse::<ClusterName>().unwrap());
        digests.keep(&east, &metadata("u", "1"), "d");
        for (cluster, found, expect) in [
            (&east, metadata("u", "1"), Some("d")),
            (&east, metadata("u", "2"), None),
            (&east, metadata("v", "1"), None),
            (&west, metadata("u", "1"), None),
            (&east, ObjectMeta::default(), None),
        ] {
            assert_eq!(digests.get(cluster, &found).as_deref(), expect, "{found:?}");
        }
        digests.keep(&east, &ObjectMeta::default(), "d");
        let long = "x".repeat(MAX_BYTES + 1);
        for found in [metadata(&long, "1"), metadata("long", &long)] {
            digests.keep(&east, &found, "d");
            assert_eq!(digests.get(&east, &found), None);
        }
        for uid in 0..2 * MAX_DIGESTS {
            digests.keep(&east, &metadata(&uid.to_string(), "1"), "d");
        }
        assert!(digests.0.len() <= MAX_DIGESTS);
    }
}
