//! Whether an API server answers, and as which cluster: one cheap request, bounded in time and number. A
//! server that does not tell which cluster it is gets another. Now and then, the marks of fleets are looked
//! at too.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::{Told, ask};
use crate::turns::{Lane, PROMPT, Turns};
use kube::Client;
use marks::{Looked, Own, Sightings, look};
use model::{Clock, Cluster};

/// How often each cluster is probed.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// How long an answer may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most clusters of a provider asked at once: those that answered soon the last time, those that are asked before
/// they are engaged, and the others. The first connections to ten thousand would not be made within one timeout.
pub(crate) const MAX_PROBES: [usize; 3] = [32, 64, 128];

/// Whether a server answered.
pub(crate) type Finding = Result<(), Arc<str>>;

/// What a probe asks besides whether the server answers.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// Whether it answered the last time, and soon.
    pub(crate) is_prompt: bool,
    /// Which cluster it is.
    pub(crate) identity: bool,
    /// Which fleets have their marks there.
    pub(crate) marks: Option<(Arc<Own>, Sightings)>,
}

/// The result of a probe.
pub(crate) struct Probed {
    pub(crate) finding: Finding,
    pub(crate) answer: Option<Told>,
    pub(crate) looked: Option<Looked>,
    /// Whether all of it took less than a second.
    pub(crate) is_prompt: bool,
}

/// Asks `cluster` after `delay`, when it is its turn.
pub(crate) async fn probe(
    cluster: Cluster,
    turns: Turns,
    clock: Arc<dyn Clock>,
    delay: Duration,
    wanted: Wanted,
) -> Probed {
    tokio::time::sleep(delay).await;
    let lane = if wanted.is_prompt { Lane::Proven } else { Lane::Late };
    turns.run(lane, PROMPT, || ask_all(&cluster, &*clock, wanted.clone())).await
}

async fn ask_all(cluster: &Cluster, clock: &dyn Clock, wanted: Wanted) -> Probed {
    let (began, client) = (clock.now(), cluster.wire.client());
    let answer = if wanted.identity { Some(ask(&client).await) } else { None };
    let finding = match &answer {
        Some(Told::Known(_)) => Ok(()),
        Some(Told::Silent(reason)) => Err(Arc::clone(reason)),
        Some(Told::Untold(_)) | None => version(&client).await,
    };
    let looked = match wanted.marks.filter(|_| finding.is_ok()) {
        Some((own, sightings)) => Some(look(&client, &own, sightings, clock).await),
        None => None,
    };
    Probed { finding, answer, looked, is_prompt: clock.now().since(began) < PROMPT }
}

/// Asks for the version.
async fn version(client: &Client) -> Finding {
    // Open to every authenticated user by default, through the role system:public-info-viewer.
    match tokio::time::timeout(PROBE_TIMEOUT, client.apiserver_version()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => Err(format!(
            "its API server answers {} to GET /version: {}; fix: renew the credentials in the \
             kubeconfig (`leasehold clusters rotate`, if `clusters add` made them)",
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
