//! Carries out one write to the home cluster, bound to the version from which it was decided, and reports
//! how it ended.
//!
//! Members and their Leases have the configured owner, with which Kubernetes deletes them. ShardMaps and
//! the coordinator's Lease have none: they hold who may act, and the epochs, and must outlive an upgrade
//! that replaces whatever the owner is. A replacement sends the whole object, so one that an earlier
//! release wrote loses its owner with the next write.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::core::Request;

use crate::api::{MANAGED_BY, Member, ObjectVersion, ShardMap};
use crate::installation;
use crate::lease::{COORDINATOR, LeaseRecord};
use crate::problem::{self, Operation};
use crate::read::{self, Unreadable};
use crate::record::{MapRecord, MemberRecord, Object, Target, Write, WriteOutcome};
use crate::uid_annotation;

/// How to reach the home cluster.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) owner: Option<OwnerReference>,
}

/// How a write ended, and the problem to report, if any.
pub(crate) struct Done {
    pub(crate) target: Target,
    pub(crate) outcome: WriteOutcome,
    pub(crate) operation: Operation,
    pub(crate) problem: Option<String>,
}

/// Why a write is not known to be done.
enum Failure {
    /// The home cluster refused, or could not be reached.
    Refused(kube::Error),
    /// The object has another version, and that one cannot be read.
    Unreadable(Unreadable),
}

impl Writer {
    /// Carries out `write` within `deadline`. `wall` goes into Leases, for people.
    pub(crate) async fn run(self, write: Write, deadline: Duration, wall: Timestamp) -> Done {
        let target = write.target();
        let operation = Operation {
            verb: write.verb(),
            resource: target.kind.resource(),
            namespace: self.namespace.clone(),
        };
        let (outcome, problem) =
            match tokio::time::timeout(deadline, self.dispatch(write, wall)).await {
                Ok(Ok(outcome)) => (outcome, None),
                Ok(Err(Failure::Refused(error))) => {
                    (WriteOutcome::Failed, Some(problem::explain(&operation, &error)))
                }
                Ok(Err(Failure::Unreadable(error))) => {
                    (WriteOutcome::Failed, Some(problem::unreadable(&operation, &error)))
                }
                Err(_) => (WriteOutcome::Failed, Some(problem::timed_out(&operation, deadline))),
            };
        Done { target, outcome, operation, problem }
    }

    async fn dispatch(&self, write: Write, wall: Timestamp) -> Result<WriteOutcome, Failure> {
        let target = write.target();
        match self.send(&target, write, wall).await {
            Ok(answer) => {
                let read = answer.map(|object| read::object(target.kind, object));
                let read = read.transpose().map_err(Failure::Unreadable)?;
                Ok(WriteOutcome::Done(read.flatten()))
            }
            Err(error) if is_conflict(&error, &target.name) => {
                Ok(WriteOutcome::Conflict(self.find(&target).await?))
            }
            Err(error) => Err(Failure::Refused(error)),
        }
    }

    /// The object as it is now, of whatever version of the protocol.
    async fn find(&self, target: &Target) -> Result<Option<Object>, Failure> {
        let api = read::api(&self.client, &self.namespace, target.kind);
        let found = api.get_opt(&target.name).await.map_err(Failure::Refused)?;
        let read = found.map(|object| read::object(target.kind, object));
        read.transpose().map(Option::flatten).map_err(Failure::Unreadable)
    }

    /// Sends a write; returns the object as it is then, which is not read as its type: the code which
    /// does that is there once, in [`read`].
    async fn send(
        &self,
        target: &Target,
        write: Write,
        wall: Timestamp,
    ) -> Result<Option<DynamicObject>, kube::Error> {
        let path = read::api(&self.client, &self.namespace, target.kind).resource_url().to_owned();
        let (requests, params) = (Request::new(path), PostParams::default());
        let request = match write {
            Write::Create(object) => requests.create(&params, self.body(object, wall)?),
            Write::Replace(object) => {
                requests.replace(&target.name, &params, self.body(object, wall)?)
            }
            Write::Delete(_, version) => {
                let request = requests.delete(&target.name, &exactly(version));
                let request = request.map_err(kube::Error::BuildRequest)?;
                return self.client.request_text(request).await.map(|_| None);
            }
        };
        self.client.request(request.map_err(kube::Error::BuildRequest)?).await.map(Some)
    }

    /// An object as it is sent.
    fn body(&self, object: Object, wall: Timestamp) -> Result<Vec<u8>, kube::Error> {
        match object {
            Object::Lease(record) => serde_json::to_vec(&self.lease(record, wall)),
            Object::Member(record) => serde_json::to_vec(&self.member(record)),
            Object::Map(record) => serde_json::to_vec(&self.map(record)),
        }
        .map_err(kube::Error::SerdeError)
    }

    fn metadata(&self, name: &str, version: &ObjectVersion) -> ObjectMeta {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.namespace.clone()),
            uid: some(&version.uid),
            resource_version: some(&version.resource),
            labels: Some([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into()),
            owner_references: None,
            ..ObjectMeta::default()
        }
    }

    /// The same, of an object that goes with the configured owner.
    fn owned_metadata(&self, name: &str, version: &ObjectVersion) -> ObjectMeta {
        let owner_references = self.owner.clone().map(|owner| vec![owner]);
        ObjectMeta { owner_references, ..self.metadata(name, version) }
    }

    fn lease(&self, record: LeaseRecord, wall: Timestamp) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(record.holder.unwrap_or_default()),
            lease_duration_seconds: Some(
                i32::try_from(record.duration.as_secs()).unwrap_or(i32::MAX),
            ),
            lease_transitions: Some(record.transitions),
            acquire_time: Some(MicroTime(record.acquired.unwrap_or(wall))),
            renew_time: Some(MicroTime(wall)),
            ..LeaseSpec::default()
        };
        let mut annotations = record.floor.annotations().unwrap_or_default();
        annotations.extend(installation::annotation(record.installation.as_deref()));
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
        let annotations = uid_annotation::annotations(record.cluster_uid.as_ref());
        let metadata = self.metadata(record.cluster.as_str(), &record.version);
        let metadata = ObjectMeta { annotations, ..metadata };
        ShardMap { metadata, spec: record.spec() }
    }
}

/// Deletes exactly that version.
fn exactly(version: ObjectVersion) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(version.uid),
            resource_version: Some(version.resource),
        }),
        ..DeleteParams::default()
    }
}

/// Whether the object was not as the write expected: it exists, has another version, or is gone.
///
/// Only a 404 that names the object itself says that it is gone. A 404 for the namespace or the kind
/// says nothing about the object.
fn is_conflict(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let named = status.details.as_ref().is_some_and(|details| details.name == name);
    status.code == 409 || (status.code == 404 && named)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_the_object_itself_can_be_gone() {
        let answer = |code, name: &str| {
            let details = serde_json::from_value(serde_json::json!({"name": name})).unwrap();
            let status = Status::failure("", "").with_code(code).with_details(details);
            is_conflict(&kube::Error::Api(status.boxed()), "m-1")
        };
        assert!(answer(409, "m-1"));
        assert!(answer(404, "m-1"));
        assert!(!answer(404, "leasehold-system"), "the namespace");
        assert!(!answer(404, ""), "the kind");
        assert!(!answer(403, "m-1"));
    }
}
