//! Carries out one write to the home cluster, bound to the version from which it was decided, and reports
//! how it ended.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::core::Request;

use crate::api::ObjectVersion;
use crate::body::Body;
use crate::problem::{self, Operation};
use crate::read;
use crate::record::{Object, Target, Write, WriteOutcome};

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

impl Writer {
    /// Carries out `write` within `deadline`. `wall` goes into Leases, for people.
    pub(crate) async fn run(self, write: Write, deadline: Duration, wall: Timestamp) -> Done {
        let target = write.target();
        let operation = Operation {
            verb: write.verb(),
            resource: target.kind.resource(),
            namespace: self.namespace.clone(),
        };
        let (outcome, problem) = match tokio::time::timeout(deadline, self.dispatch(write, wall))
            .await
        {
            Ok(Ok(outcome)) => (outcome, None),
            Ok(Err(error)) => (WriteOutcome::Failed, Some(problem::explain(&operation, &error))),
            Err(_) => (WriteOutcome::Failed, Some(problem::timed_out(&operation, deadline))),
        };
        Done { target, outcome, operation, problem }
    }

    async fn dispatch(&self, write: Write, wall: Timestamp) -> kube::Result<WriteOutcome> {
        let target = write.target();
        match self.send(&target, write, wall).await {
            Ok(answer) => {
                let read = answer.and_then(|object| read::object(target.kind, object));
                Ok(WriteOutcome::Done(read))
            }
            Err(error) if is_conflict(&error, &target.name) => {
                Ok(WriteOutcome::Conflict(self.find(&target).await?))
            }
            Err(error) => Err(error),
        }
    }

    /// The object as it is now, of whatever version of the protocol.
    async fn find(&self, target: &Target) -> kube::Result<Option<Object>> {
        let api = read::api(&self.client, &self.namespace, target.kind);
        let found = api.get_opt(&target.name).await?;
        Ok(found.and_then(|object| read::object(target.kind, object)))
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

    fn body(&self, object: Object, wall: Timestamp) -> Result<Vec<u8>, kube::Error> {
        let body = Body { namespace: &self.namespace, owner: self.owner.as_ref(), wall };
        body.of(object).map_err(kube::Error::SerdeError)
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
