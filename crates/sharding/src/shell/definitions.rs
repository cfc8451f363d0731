//! Asks the home cluster now and then what it has for definitions.

use std::time::Duration;

use kube::Client;
use kube::api::GetParams;
use kube::core::Request;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Message;
use crate::api;
use crate::definitions;
use crate::problem::{self, Operation};

/// The pause after an answer without a problem.
const PAUSE: Duration = Duration::from_secs(300);
/// The pause after a problem.
const RETRY: Duration = Duration::from_secs(2);
/// Where servers publish their definitions.
const OPENAPI: &str = "/openapi/v3/apis";
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reports whether the home cluster's definitions keep what members write, until the loop is gone.
pub(crate) async fn watch(client: Client, namespace: String, messages: mpsc::Sender<Message>) {
    let operation = Operation { verb: "get", resource: OPENAPI, namespace };
    loop {
        let text = check(&client, &operation).await;
        let pause = if text.is_some() { RETRY } else { PAUSE };
        let checked = Message::Definitions(operation.clone(), text);
        if messages.send(checked).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

async fn check(client: &Client, operation: &Operation) -> Option<String> {
    let crds = api::crds();
    let (group, version) = (&crds.first()?.spec.group, &crds.first()?.spec.versions.first()?.name);
    let request = Request::new(format!("{OPENAPI}/{group}")).get(version, &GetParams::default());
    let request = match request {
        Ok(request) => request,
        Err(error) => return Some(model::error::chain(&error)),
    };
    match tokio::time::timeout(TIMEOUT, client.request::<Value>(request)).await {
        Ok(Ok(document)) => definitions::problem(&document, &crds),
        // It has none of the kinds, or not yet.
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            definitions::problem(&Value::Null, &crds)
        }
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            tracing::warn!(
                "the home cluster does not let this member read /openapi: it does not know whether the \
                 definitions are those of this release (the ClusterRole system:discovery allows it)"
            );
            None
        }
        Ok(Err(error)) => Some(problem::explain(operation, &error)),
        Err(_) => Some(problem::timed_out(operation, TIMEOUT)),
    }
}
