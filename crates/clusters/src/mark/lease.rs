//! The Lease with the marks: read, and written by compare-and-swap. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use model::Clock;
use model::error::chain;
use serde_json::{Map, Value, json};

use super::{
    Change, Decision, MAX_OTHERS, NAME, NAMESPACE, Own, PREFIX, Sightings, Standing, decide, marks,
};

/// How long one look may take, with what it writes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a look begins anew because somebody else wrote meanwhile.
const ATTEMPTS: usize = 3;

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) standing: Standing,
    pub(crate) sightings: Sightings,
}

/// Why a request did not succeed.
enum Failure {
    /// Somebody else wrote meanwhile.
    Conflict,
    /// It is not allowed, or there is no such namespace.
    Denied(Arc<str>),
    /// Anything else, which may pass.
    Other,
}

/// Looks at the marks in a cluster, and writes ours if it is due.
pub(crate) async fn look(
    client: &Client,
    own: &Own,
    mut sightings: Sightings,
    clock: &dyn Clock,
) -> Looked {
    let looking = attempts(client, own, &mut sightings, clock);
    let looked = tokio::time::timeout(LOOK_TIMEOUT, looking).await;
    let standing = match looked.unwrap_or(Err(Failure::Other)) {
        Ok(standing) => standing,
        Err(Failure::Denied(reason)) => Standing::Unmarked(reason),
        Err(Failure::Conflict | Failure::Other) => Standing::Unknown,
    };
    Looked { standing, sightings }
}

async fn attempts(
    client: &Client,
    own: &Own,
    sightings: &mut Sightings,
    clock: &dyn Clock,
) -> Result<Standing, Failure> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    for _ in 0..ATTEMPTS {
        let found = leases.get_metadata_opt(NAME).await.map_err(|e| failure("get", &e))?;
        let found = found.map(|found| found.metadata);
        let annotations = found.as_ref().and_then(|found| found.annotations.clone());
        let marks = marks(own, &annotations.unwrap_or_default());
        let now = clock.now();
        sightings.observe(&marks, now);
        let change = match decide(own, &marks, sightings, now) {
            Decision::Stands => return Ok(Standing::Marked),
            Decision::Refused(refusal) => return Ok(Standing::Refused(refusal)),
            Decision::Full => return Ok(Standing::Unmarked(full())),
            Decision::Write(change) => change,
        };
        let written = match found {
            Some(found) => patch(&leases, found.resource_version, &change).await,
            None => create(&leases, change).await,
        };
        match written {
            Ok(()) => return Ok(Standing::Marked),
            Err(Failure::Conflict) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Conflict)
}

async fn create(leases: &Api<Lease>, change: Change) -> Result<(), Failure> {
    let (fleet, text) = change.put;
    let annotations = [(format!("{PREFIX}{fleet}"), text)].into();
    let metadata = ObjectMeta {
        name: Some(NAME.to_owned()),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    let lease = Lease { metadata, ..Lease::default() };
    let created = leases.create(&PostParams::default(), &lease).await;
    created.map(drop).map_err(|error| failure("create", &error))
}

/// Changes the marks of exactly that version.
async fn patch(
    leases: &Api<Lease>,
    version: Option<String>,
    change: &Change,
) -> Result<(), Failure> {
    let (fleet, text) = &change.put;
    let removed = change.remove.iter().map(|fleet| (fleet, Value::Null));
    let annotations: Map<String, Value> = removed
        .chain([(fleet, json!(text))])
        .map(|(fleet, text)| (format!("{PREFIX}{fleet}"), text))
        .collect();
    let body = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
    let patched = leases.patch_metadata(NAME, &PatchParams::default(), &Patch::Merge(&body)).await;
    patched.map(drop).map_err(|error| failure("patch", &error))
}

fn failure(verb: &str, error: &Error) -> Failure {
    match error {
        Error::Api(status) if status.code == 409 => Failure::Conflict,
        // Somebody deleted it meanwhile: the next attempt creates it.
        Error::Api(status) if verb == "patch" && status.code == 404 => Failure::Conflict,
        Error::Api(status) if matches!(status.code, 403 | 404) => Failure::Denied(
            format!(
                "this fleet cannot mark it, so another fleet that works there is not noticed: {verb} Lease \
                 {NAMESPACE}/{NAME}: {}; fix: give its user, in the namespace {NAMESPACE}, the verb create on \
                 leases.coordination.k8s.io, and get and patch on that one",
                chain(error)
            )
            .into(),
        ),
        _ => Failure::Other,
    }
}

fn full() -> Arc<str> {
    format!(
        "this fleet cannot mark it: {MAX_OTHERS} other fleets have, and no more are allowed; fix: remove the \
         annotations of those that are gone from Lease {NAMESPACE}/{NAME}"
    )
    .into()
}
