//! Which state of an object was read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Names one state of an object: uid and resourceVersion. Empty for one that does not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectVersion {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource: String,
}

impl ObjectVersion {
    /// The version of an object that was read.
    pub(crate) fn read(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource: metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    /// That of the object of a test.
    #[cfg(test)]
    pub(crate) fn numbered(resource: u64) -> Self {
        Self { uid: "u".to_owned(), resource: resource.to_string() }
    }

    /// Whether this version is known to be older than a resourceVersion. The resourceVersions of
    /// Kubernetes' own storage are integers that grow (KEP-5504); of others nothing is known.
    pub(crate) fn older_than(&self, resource: &str) -> bool {
        match (self.resource.parse::<u64>(), resource.parse::<u64>()) {
            (Ok(mine), Ok(other)) => mine < other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_as_integers_and_only_as_integers() {
        let version = |resource: &str| ObjectVersion { uid: "u".into(), resource: resource.into() };
        assert!(version("9").older_than("10"));
        assert!(!version("10").older_than("10"));
        assert!(!version("a9").older_than("b10"));
    }
}
