//! The objects of the home cluster as they are sent.
//!
//! Members and their Leases have the configured owner, with which Kubernetes deletes them. ShardMaps and
//! the coordinator's Lease have none: they hold who may act, and the epochs, and must outlive an upgrade
//! that replaces whatever the owner is. A replacement sends the whole object, so one that an earlier
//! release wrote loses its owner with the next write.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

use crate::api::{MANAGED_BY, Member, ObjectVersion, ShardMap};
use crate::installation;
use crate::lease::{COORDINATOR, LeaseRecord, MASS};
use crate::map_annotations;
use crate::record::{MapRecord, MemberRecord, Object};

/// What is the same in all objects that a member sends.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// The namespace in the home cluster.
    pub namespace: &'a str,
    /// The owner of Members and their Leases.
    pub owner: Option<&'a OwnerReference>,
    /// The time of day, for people who read Leases.
    pub wall: Timestamp,
}

impl Body<'_> {
    /// An object as JSON.
    ///
    /// # Errors
    /// None for any object that a member makes.
    pub fn of(&self, object: Object) -> Result<Vec<u8>, serde_json::Error> {
        match object {
            Object::Lease(record) => serde_json::to_vec(&self.lease(record)),
            Object::Member(record) => serde_json::to_vec(&self.member(record)),
            Object::Map(record) => serde_json::to_vec(&self.map(record)),
        }
    }

    fn metadata(&self, name: &str, version: &ObjectVersion) -> ObjectMeta {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.namespace.to_owned()),
            uid: some(&version.uid),
            resource_version: some(&version.resource),
            labels: Some([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into()),
            owner_references: None,
            ..ObjectMeta::default()
        }
    }

    /// The same, of an object that goes with the configured owner.
    fn owned_metadata(&self, name: &str, version: &ObjectVersion) -> ObjectMeta {
        let owner_references = self.owner.map(|owner| vec![owner.clone()]);
        ObjectMeta { owner_references, ..self.metadata(name, version) }
    }

    fn lease(&self, record: LeaseRecord) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(record.holder.unwrap_or_default()),
            lease_duration_seconds: Some(
                i32::try_from(record.duration.as_secs()).unwrap_or(i32::MAX),
            ),
            lease_transitions: Some(record.transitions),
            acquire_time: Some(MicroTime(record.acquired.unwrap_or(self.wall))),
            renew_time: Some(MicroTime(self.wall)),
            ..LeaseSpec::default()
        };
        let mut annotations = record.floor.annotations().unwrap_or_default();
        annotations.extend(installation::annotation(record.installation.as_deref()));
        annotations.extend(record.mass.then(|| (MASS.to_owned(), "true".to_owned())));
        let annotations = (!annotations.is_empty()).then_some(annotations);
        let metadata = match record.name.as_str() {
            COORDINATOR => self.metadata(COORDINATOR, &record.version),
            name => self.owned_metadata(name, &record.version),
        };
        let metadata = ObjectMeta { annotations, ..metadata };
        Lease { metadata, spec: Some(spec) }
    }

    fn member(&self, record: MemberRecord) -> Member {
        let metadata = self.owned_metadata(record.id.as_str(), &record.version);
        Member { metadata, spec: record.spec }
    }

    fn map(&self, record: MapRecord) -> ShardMap {
        let MapRecord { cluster_uid, former, version, .. } = &record;
        let annotations = map_annotations::annotations(cluster_uid.as_ref(), former, version);
        let metadata = self.metadata(record.cluster.as_str(), &record.version);
        let metadata = ObjectMeta { annotations, ..metadata };
        ShardMap { metadata, spec: record.spec(self.wall) }
    }
}
