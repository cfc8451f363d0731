//! The content of a ConfigMap or Secret as one digest. Pure.
//!
//! It covers `data` and `binaryData`, keys in order, each part after its length, so that different
//! contents never digest the same bytes. Metadata is not content: a new label restarts nothing.
//!
//! Digests are written where people may read them who may not read Secrets: into a status, and into
//! annotations of Pods. From a plain digest of a short password they could guess the password. So the digest of
//! a Secret is keyed with the Secret's uid, which is random and which only those learn who may read the Secret:
//! nothing that we write names it, Events about Secrets included (`unnamed`). A Secret that is
//! deleted and created anew has another uid, so it has another digest.

use std::fmt;

use data_encoding::HEXLOWER;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{ObjectMeta, PartialObjectMeta, PartialObjectMetaExt};
use sdk::{Object, Transform};
use sha2::{Digest, Sha256};

/// The kinds whose content Pods read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentKind {
    /// `v1` ConfigMap.
    ConfigMap,
    /// `v1` Secret.
    Secret,
}

/// A ConfigMap or Secret, in the namespace of whoever names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ContentRef {
    pub(crate) kind: ContentKind,
    pub(crate) name: String,
}

impl fmt::Display for ContentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}

impl ContentRef {
    /// The ConfigMap of this name.
    pub(crate) fn config_map(name: &str) -> Self {
        Self { kind: ContentKind::ConfigMap, name: name.to_owned() }
    }

    /// The Secret of this name.
    pub(crate) fn secret(name: &str) -> Self {
        Self { kind: ContentKind::Secret, name: name.to_owned() }
    }

    /// Its value in an index over all namespaces. No two objects have the same: names have no `/`.
    pub(crate) fn indexed(&self, namespace: Option<&str>) -> String {
        format!("{}/{self}", namespace.unwrap_or_default())
    }
}

/// An object whose content Pods read.
pub trait Content: Object + kube::Resource<Scope = NamespaceResourceScope> {
    /// Its kind.
    const KIND: ContentKind;

    /// SHA-256 of the content, in hexadecimal; of a Secret, keyed with its uid.
    fn digest(&self) -> String;
}

impl Content for ConfigMap {
    const KIND: ContentKind = ContentKind::ConfigMap;

    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for (key, value) in self.data.iter().flatten() {
            entry(&mut digest, b'd', key, value.as_bytes());
        }
        for (key, value) in self.binary_data.iter().flatten() {
            entry(&mut digest, b'b', key, &value.0);
        }
        HEXLOWER.encode(&digest.finalize())
    }
}

impl Content for Secret {
    const KIND: ContentKind = ContentKind::Secret;

    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        entry(&mut digest, b'k', "uid", uid.as_bytes());
        for (key, value) in self.data.iter().flatten() {
            entry(&mut digest, b'b', key, &value.0);
        }
        HEXLOWER.encode(&digest.finalize())
    }
}

fn entry(digest: &mut Sha256, field: u8, key: &str, value: &[u8]) {
    digest.update([field]);
    for part in [key.as_bytes(), value] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
}

/// What Events say of an object: of a Secret not its uid, which keys its digest.
pub(crate) fn unnamed<K: Content>(metadata: &ObjectMeta) -> PartialObjectMeta<K> {
    let ObjectMeta { name, namespace, uid, .. } = metadata.clone();
    let uid = uid.filter(|_| K::KIND != ContentKind::Secret);
    ObjectMeta { name, namespace, uid, ..ObjectMeta::default() }.into_request_partial()
}

/// Drops the annotations of which `kept` does not hold. `kubectl apply` writes a copy of what it applied into an
/// annotation, all values of a Secret included.
pub(crate) fn without_annotations(
    kept: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Transform {
    Transform::new(move |path| {
        let [metadata, field, key] = path else { return false };
        metadata == "metadata" && field == "annotations" && !kept(key)
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn text(entries: &[(&str, &str)]) -> ConfigMap {
        let data = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    fn secret(uid: &str, value: &str) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.uid = Some(uid.to_owned());
        secret.data = Some([("pin".to_owned(), ByteString(value.into()))].into());
        secret
    }

    #[test]
    fn only_content_counts() {
        let mut labelled = text(&[("a", "1")]);
        labelled.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
        assert_eq!(labelled.digest(), text(&[("a", "1")]).digest());
        assert_eq!(
            text(&[("b", "2"), ("a", "1")]).digest(),
            text(&[("a", "1"), ("b", "2")]).digest()
        );
        assert_eq!(text(&[]).digest(), ConfigMap::default().digest());
        let mut labelled = secret("u", "1");
        labelled.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
        labelled.metadata.resource_version = Some("7".to_owned());
        assert_eq!(labelled.digest(), secret("u", "1").digest());
    }

    #[test]
    fn no_two_contents_read_the_same() {
        let binary = ConfigMap {
            binary_data: Some([("a".to_owned(), ByteString(b"1".to_vec()))].into()),
            ..ConfigMap::default()
        };
        let all = [
            text(&[]).digest(),
            text(&[("a", "1")]).digest(),
            text(&[("a1", "")]).digest(),
            text(&[("a", ""), ("1", "")]).digest(),
            binary.digest(),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
    }

    /// Who knows the digest of a Secret and not its uid tries every PIN in vain.
    #[test]
    fn a_short_secret_cannot_be_guessed_from_its_digest() {
        let seen = secret("4d3c2f9e-0000-4000-8000-5a3b1c2d9e0f", "0042").digest();
        let pins = (0..10_000).map(|pin| format!("{pin:04}"));
        let plain = |pin: &str| {
            let map = ConfigMap {
                binary_data: Some([("pin".to_owned(), ByteString(pin.into()))].into()),
                ..ConfigMap::default()
            };
            [map.digest(), secret("", pin).digest(), text(&[("pin", pin)]).digest()]
        };
        assert!(pins.flat_map(|pin| plain(&pin)).all(|guess| guess != seen));
        let uid = "4d3c2f9e-0000-4000-8000-5a3b1c2d9e0f";
        assert_eq!(secret(uid, "0042").digest(), seen);
        assert_ne!(secret(uid, "0043").digest(), seen);
    }

    #[test]
    fn events_name_the_uid_of_a_config_map_and_never_that_of_a_secret() {
        let metadata = secret("u", "1").metadata;
        assert_eq!(unnamed::<ConfigMap>(&metadata).metadata.uid.as_deref(), Some("u"));
        assert_eq!(unnamed::<Secret>(&metadata).metadata.uid, None);
    }
}
