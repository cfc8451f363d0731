//! Where backups are stored, as a resource says it, and how a Pod reaches that place. Pure.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume as PodVolume, VolumeMount,
};
use schemars::JsonSchema;
use sdk::error::foreign;
use serde::{Deserialize, Serialize};

/// Where a volume of backups is mounted.
const FOLDER: &str = "/backups";
/// Where the Secret with the keys of a bucket is mounted.
const CREDENTIALS: &str = "/etc/leasehold/credentials";
/// The name of both in a Pod.
const NAME: &str = "destination";

/// Where backups are stored: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    /// A bucket with S3's protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<Bucket>,
    /// A volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
}

/// A bucket with S3's protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BackupBucket")]
pub struct Bucket {
    /// Its name.
    #[schemars(length(min = 1, max = 255))]
    pub bucket: String,
    /// What the keys in it begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub prefix: Option<String>,
    /// Its region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// The address of the service, if not AWS's own: a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub endpoint: Option<String>,
    /// The Secret with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, in the object's namespace. It may
    /// have `AWS_SESSION_TOKEN`, and `ca.crt` with the authority of the service's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
}

/// A volume in which backups are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BackupVolume")]
pub struct Volume {
    /// The PersistentVolumeClaim, in the object's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// The folder in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub path: Option<String>,
}

/// Why a destination cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// None is named, or two.
    #[error("the destination names {0}: give it either s3 or volume")]
    Count(&'static str),
    /// A value cannot be one.
    #[error("{value:?} cannot be the destination's {field}: {fix}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What to write.
        fix: &'static str,
    },
}

/// How a Pod reaches a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Arguments of `leasehold backup`.
    pub arguments: Vec<String>,
    /// Volumes of the Pod.
    pub volumes: Vec<PodVolume>,
    /// Mounts of the container that runs `leasehold backup`.
    pub mounts: Vec<VolumeMount>,
}

impl Destination {
    /// Checks what a schema cannot.
    ///
    /// # Errors
    /// If it names no place, or two, or one that cannot be.
    pub fn check(&self) -> Result<(), DestinationError> {
        match (&self.s3, &self.volume) {
            (None, None) => Err(DestinationError::Count("no place")),
            (Some(_), Some(_)) => Err(DestinationError::Count("two places")),
            (Some(bucket), None) => bucket.check(),
            (None, Some(volume)) => volume.check(),
        }
    }

    /// Where a backup of this name is, for people.
    pub fn location(&self, name: &str) -> String {
        let join = |place: String, folder: &Option<String>| match trimmed(folder) {
            Some(folder) => format!("{place}/{folder}/{name}"),
            None => format!("{place}/{name}"),
        };
        match (&self.s3, &self.volume) {
            (Some(bucket), _) => join(format!("s3://{}", bucket.bucket), &bucket.prefix),
            (None, Some(volume)) => join(format!("pvc://{}", volume.claim_name), &volume.path),
            (None, None) => name.to_owned(),
        }
    }

    /// How a Pod reaches it. `read_only` is for Pods that only fetch.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn access(&self, read_only: bool) -> Result<Access, DestinationError> {
        self.check()?;
        match (&self.s3, &self.volume) {
            (Some(bucket), _) => Ok(bucket.access()),
            (None, Some(volume)) => Ok(volume.access(read_only)),
            (None, None) => Err(DestinationError::Count("no place")),
        }
    }
}

impl Bucket {
    fn check(&self) -> Result<(), DestinationError> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        };
        let field = |field, value: &str, fix| {
            Err(DestinationError::Field { field, value: foreign(value), fix })
        };
        if !is_name(&self.bucket) || self.bucket.starts_with('.') {
            return field("bucket", &self.bucket, "write the bucket's name alone");
        }
        if let Some(region) = self.region.as_deref().filter(|region| !is_name(region)) {
            return field("region", region, "write one such as eu-central-1");
        }
        let has_scheme = |url: &str| url.starts_with("https://") || url.starts_with("http://");
        if let Some(endpoint) = self.endpoint.as_deref().filter(|url| !has_scheme(url)) {
            return field("endpoint", endpoint, "write it like https://minio.shop.svc:9000");
        }
        check_folder("prefix", &self.prefix)
    }

    fn access(&self) -> Access {
        let mut arguments = vec![format!("--bucket={}", self.bucket)];
        let mut option = |name: &str, value: Option<&str>| {
            arguments.extend(value.map(|value| format!("--{name}={value}")));
        };
        option("prefix", trimmed(&self.prefix));
        option("region", self.region.as_deref());
        option("endpoint", self.endpoint.as_deref());
        option("credentials", self.secret_name.as_ref().map(|_| CREDENTIALS));
        let volume = |secret: &String| PodVolume {
            name: NAME.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(secret.clone()),
                ..SecretVolumeSource::default()
            }),
            ..PodVolume::default()
        };
        Access {
            arguments,
            volumes: self.secret_name.iter().map(volume).collect(),
            mounts: self.secret_name.iter().map(|_| mount(CREDENTIALS, true)).collect(),
        }
    }
}

impl Volume {
    fn check(&self) -> Result<(), DestinationError> {
        check_folder("path", &self.path)
    }

    fn access(&self, read_only: bool) -> Access {
        let source = PersistentVolumeClaimVolumeSource {
            claim_name: self.claim_name.clone(),
            read_only: read_only.then_some(true),
        };
        let mut arguments = vec![format!("--folder={FOLDER}")];
        arguments.extend(trimmed(&self.path).map(|path| format!("--prefix={path}")));
        Access {
            arguments,
            volumes: vec![PodVolume {
                name: NAME.to_owned(),
                persistent_volume_claim: Some(source),
                ..PodVolume::default()
            }],
            mounts: vec![mount(FOLDER, read_only)],
        }
    }
}

fn mount(path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: NAME.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// A folder without slashes around it, unless it is the whole place.
fn trimmed(folder: &Option<String>) -> Option<&str> {
    folder.as_deref().map(|folder| folder.trim_matches('/')).filter(|folder| !folder.is_empty())
}

fn check_folder(field: &'static str, folder: &Option<String>) -> Result<(), DestinationError> {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match trimmed(folder) {
        Some(folder) if !folder.split('/').all(is_part) => Err(DestinationError::Field {
            field,
            value: foreign(folder),
            fix: "write parts of printable ASCII between slashes, none of which begins with a dot",
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(change: impl FnOnce(&mut Bucket)) -> Destination {
        let mut bucket = Bucket { bucket: "carts".to_owned(), ..Bucket::default() };
        change(&mut bucket);
        Destination { s3: Some(bucket), volume: None }
    }

    fn volume(path: Option<&str>) -> Destination {
        let volume = Volume { claim_name: "backups".to_owned(), path: path.map(str::to_owned) };
        Destination { s3: None, volume: Some(volume) }
    }

    #[test]
    fn what_cannot_be_a_destination_is_named() {
        let some = |text: &str| Some(text.to_owned());
        let both = Destination { volume: volume(None).volume, ..bucket(|_| {}) };
        let cases = [
            (Destination::default(), "no place"),
            (both, "two places"),
            (bucket(|b| b.bucket = "a/b".to_owned()), "bucket"),
            (bucket(|b| b.region = some("a b")), "region"),
            (bucket(|b| b.endpoint = some("minio:9000")), "endpoint"),
            (bucket(|b| b.prefix = some("a/../b")), "prefix"),
            (volume(Some("../etc")), "path"),
        ];
        for (destination, expected) in cases {
            let message = destination.check().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        for fine in [bucket(|b| b.prefix = some("/a/b/")), volume(None), volume(Some("/"))] {
            fine.check().unwrap();
        }
    }

    #[test]
    fn a_pod_reaches_it() {
        let some = |text: &str| Some(text.to_owned());
        let bucket = bucket(|b| {
            (b.prefix, b.secret_name) = (some("/etcd/"), some("keys"));
            b.endpoint = some("http://minio:9000");
        });
        let access = bucket.access(false).unwrap();
        assert_eq!(
            access.arguments,
            [
                "--bucket=carts",
                "--prefix=etcd",
                "--endpoint=http://minio:9000",
                "--credentials=/etc/leasehold/credentials"
            ]
        );
        assert_eq!(access.volumes[0].secret.as_ref().unwrap().secret_name, some("keys"));
        assert_eq!(bucket.location("shop/a"), "s3://carts/etcd/shop/a");
        let access = volume(Some("etcd")).access(true).unwrap();
        assert_eq!(access.arguments, ["--folder=/backups", "--prefix=etcd"]);
        assert_eq!(access.mounts[0].read_only, Some(true));
        assert_eq!(volume(None).location("shop/a"), "pvc://backups/shop/a");
    }
}
