//! Whether an API server answers, and as which cluster: one cheap request, bounded in time and number. A
//! server that does not tell which cluster it is gets another. Now and then, the marks of fleets are looked
//! at too.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::{Told, ask};
use crate::mark::{Looked, Own, Sightings, look};
use crate::turns::Turns;
use model::{Clock, Cluster};

/// How often each cluster is probed.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// How long an answer may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Who answers within this time has a place among those that do: a thousand that take longer delay none of them.
const PROMPT: Duration = Duration::from_secs(1);
/// The most clusters probed at once that answered soon the last time, and of each provider as many others.
pub(crate) const MAX_PROBES: usize = 32;

/// Whether a server answered.
pub(crate) type Finding = Result<(), Arc<str>>;

/// What a probe asks besides whether the server answers.
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
    in_turn(&turns, wanted.is_prompt, ask_all(&cluster, &*clock, wanted)).await
}

/// Does what a probe does when it is its turn. A place among those that answer is kept for [`PROMPT`], however soon
/// the answer came the last time; whoever takes longer goes on in another.
async fn in_turn<T>(turns: &Turns, is_prompt: bool, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if is_prompt {
        let _turn = turns.turn(true).await;
        if let Ok(done) = tokio::time::timeout(PROMPT, &mut work).await {
            return done;
        }
    }
    let _turn = turns.turn(false).await;
    work.await
}

async fn ask_all(cluster: &Cluster, clock: &dyn Clock, wanted: Wanted) -> Probed {
    let began = clock.now();
    let answer = if wanted.identity { Some(ask(&cluster.client).await) } else { None };
    let finding = match &answer {
        Some(Told::Known(_)) => Ok(()),
        Some(Told::Silent(reason)) => Err(Arc::clone(reason)),
        Some(Told::Untold(_)) | None => version(cluster).await,
    };
    let looked = match wanted.marks.filter(|_| finding.is_ok()) {
        Some((own, sightings)) => Some(look(&cluster.client, &own, sightings, clock).await),
        None => None,
    };
    Probed { finding, answer, looked, is_prompt: clock.now().since(began) < PROMPT }
}

/// Asks `cluster` for its version.
async fn version(cluster: &Cluster) -> Finding {
    // Open to every authenticated user by default, through the role system:public-info-viewer.
    match tokio::time::timeout(PROBE_TIMEOUT, cluster.client.apiserver_version()).await {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_late_for_once_keeps_no_prompt_place() {
        let turns = Turns::new(1);
        let hangs = in_turn(&turns, true, tokio::time::sleep(PROBE_TIMEOUT * 3));
        let other = tokio::time::timeout(PROMPT * 2, in_turn(&turns, true, async {}));
        let another_late = in_turn(&turns, true, tokio::time::sleep(PROBE_TIMEOUT));
        let ((), other, ()) = futures::join!(hangs, other, another_late);
        assert!(other.is_ok(), "the prompt one is asked meanwhile");
    }
}
