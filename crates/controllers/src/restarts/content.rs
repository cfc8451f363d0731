//! The content of a ConfigMap as one hash. Pure.
//!
//! It covers `data` and `binaryData`, keys in order, each part after its length, so that different
//! contents never hash the same bytes. Metadata is not content: a new label restarts nothing.

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::ConfigMap;
use sha2::{Digest, Sha256};

/// SHA-256 of the content, in hexadecimal.
pub fn hash(config_map: &ConfigMap) -> String {
    let mut digest = Sha256::new();
    for (key, value) in config_map.data.iter().flatten() {
        entry(&mut digest, b'd', key, value.as_bytes());
    }
    for (key, value) in config_map.binary_data.iter().flatten() {
        entry(&mut digest, b'b', key, &value.0);
    }
    HEXLOWER.encode(&digest.finalize())
}

fn entry(digest: &mut Sha256, field: u8, key: &str, value: &[u8]) {
    digest.update([field]);
    for part in [key.as_bytes(), value] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn text(entries: &[(&str, &str)]) -> ConfigMap {
        let data = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    #[test]
    fn only_content_counts() {
        let mut labelled = text(&[("a", "1")]);
        labelled.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
        assert_eq!(hash(&labelled), hash(&text(&[("a", "1")])));
        assert_eq!(hash(&text(&[("b", "2"), ("a", "1")])), hash(&text(&[("a", "1"), ("b", "2")])));
        assert_eq!(hash(&text(&[])), hash(&ConfigMap::default()));
    }

    #[test]
    fn no_two_contents_read_the_same() {
        let binary = ConfigMap {
            binary_data: Some([("a".to_owned(), ByteString(b"1".to_vec()))].into()),
            ..ConfigMap::default()
        };
        let all = [
            hash(&text(&[])),
            hash(&text(&[("a", "1")])),
            hash(&text(&[("a1", "")])),
            hash(&text(&[("a", ""), ("1", "")])),
            hash(&binary),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
    }
}
