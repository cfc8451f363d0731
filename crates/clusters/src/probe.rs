//! Whether an API server answers, and as which cluster: one cheap request, bounded in time and number. A
//! server that does not tell which cluster it is gets another.

use std::sync::Arc;
use std::time::Duration;

use model::Cluster;
use tokio::sync::Semaphore;

use crate::identity::{Told, ask};

/// How often each cluster is probed.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// How long an answer may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most clusters probed at once.
pub(crate) const MAX_PROBES: usize = 32;

/// The result of a probe.
pub(crate) type Finding = Result<(), Arc<str>>;

/// Asks `cluster` who it is after `delay`, when a place is free; if it is `untold`, only whether it answers.
pub(crate) async fn probe(
    cluster: Cluster,
    places: Arc<Semaphore>,
    delay: Duration,
    untold: bool,
) -> (Finding, Option<Told>) {
    tokio::time::sleep(delay).await;
    let _place = places.acquire().await.expect("the semaphore is never closed");
    if untold {
        return (version(&cluster).await, None);
    }
    let answer = ask(&cluster.client).await;
    let finding = match &answer {
        Told::Known(_) => Ok(()),
        Told::Untold(_) => version(&cluster).await,
        Told::Silent(reason) => Err(Arc::clone(reason)),
    };
    (finding, Some(answer))
}

/// Asks `cluster` for its version.
async fn version(cluster: &Cluster) -> Finding {
    // Open to every authenticated user by default, through the role system:public-info-viewer.
    match tokio::time::timeout(PROBE_TIMEOUT, cluster.client.apiserver_version()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => Err(format!(
            "its API server answers {} to GET /version: {}; fix: renew the credentials in the kubeconfig",
            status.code,
            model::error::foreign(&status.message)
        )
        .into()),
        Ok(Err(error)) => Err(format!(
            "its API server gives no answer to GET /version that can be used: {}; fix: check the server's \
             address, and what answers there",
            model::error::chain(&error)
        )
        .into()),
        Err(_) => Err(format!(
            "its API server gives no answer within {}s; fix: check the server's address and the way \
             to it",
            PROBE_TIMEOUT.as_secs()
        )
        .into()),
    }
}
