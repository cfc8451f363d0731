//! Follows the Pods beside the Leases in the home cluster, for what they show of containers that have ended
//! ([`crate::death`]).
//!
//! It begins when a Member names a container, so a fleet outside of Kubernetes asks nobody for Pods. The
//! right to read them is optional, and so is this whole task: without it, silence decides.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use model::Clock;
use tokio::sync::mpsc;
use tracing::{debug, info};

use super::Message;
use super::follow::{Closed, Failure, Shown, Sink, follow};
use crate::death::Ended;
use crate::problem::Operation;
use crate::read::Unreadable;
use crate::refusals::Refusals;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(2);
/// The pause where the right to read Pods is missing for a while.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(300);

/// Follows the Pods until the loop is gone.
pub(crate) fn spawn(
    client: &Client,
    namespace: String,
    messages: mpsc::Sender<Message>,
    clock: Arc<dyn Clock>,
    rng: fastrand::Rng,
) -> impl Future<Output = ()> + Send + 'static {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let api = Api::namespaced_with(client.clone(), &namespace, &resource);
    let refusals = Refusals::default();
    let pods = Pods { namespace, messages, clock: Arc::clone(&clock), refusals, is_told: false };
    follow(api, pods, clock, rng)
}

struct Pods {
    namespace: String,
    messages: mpsc::Sender<Message>,
    clock: Arc<dyn Clock>,
    refusals: Refusals,
    is_told: bool,
}

impl Sink for Pods {
    type Item = Vec<Ended>;
    const MAX_PAGES: usize = 50;

    fn page(&self) -> u32 {
        100
    }

    fn operation(&self, verb: &'static str) -> Operation {
        Operation { verb, resource: "pods", namespace: self.namespace.clone() }
    }

    fn read(&self, pod: DynamicObject) -> Result<Option<Vec<Ended>>, Unreadable> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let ended: Vec<Ended> = Ended::shown_by(uid, &pod.data["status"]).into_iter().collect();
        Ok((!uid.is_empty() && !ended.is_empty()).then_some(ended))
    }

    async fn show(&mut self, shown: Shown<Vec<Ended>>) -> Result<(), Closed> {
        let ended = match shown {
            Shown::Listed(_, pods) => pods.into_iter().flatten().collect(),
            // What a Pod shows last is as true as what it showed before.
            Shown::Applied(ended) | Shown::Deleted(ended) => ended,
        };
        self.messages.send(Message::Ended(ended)).await.map_err(|_| Closed)
    }

    async fn report(&mut self, _: Operation, failure: Option<Failure>) -> Result<Duration, Closed> {
        let Some(Failure { code, text }) = failure else {
            self.refusals.end();
            return Ok(Duration::ZERO);
        };
        debug!("{text}");
        if code != Some(403) {
            self.refusals.end();
            return Ok(PAUSE);
        }
        let now = self.clock.now();
        if self.refusals.refused(now) && !std::mem::replace(&mut self.is_told, true) {
            info!(
                namespace = self.namespace,
                "this member may not list and watch Pods in the home cluster: where a container ends and does not start again, its Lease decides when its shards move"
            );
        }
        Ok(self.refusals.pause(now, FORBIDDEN_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use jiff::Timestamp;
    use model::ManualClock;

    use super::*;

    /// A home that restarts again and again answers 403 each time, before it has read the rules.
    #[test]
    fn only_refusals_in_a_row_make_the_pause_long() {
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        let mut pods = Pods {
            namespace: "home".to_owned(),
            messages: mpsc::channel(1).0,
            clock: Arc::<ManualClock>::clone(&clock),
            refusals: Refusals::default(),
            is_told: false,
        };
        let mut reported = |code: Option<u16>| {
            let operation = pods.operation("list");
            let failure = Failure { code, text: String::new() };
            let pause = pods.report(operation, Some(failure)).now_or_never();
            pause.and_then(Result::ok).expect("it waits for nobody").as_secs()
        };
        for (after_s, code, pause_s) in
            [(0, Some(403), 5), (5, None, 2), (65, Some(403), 5), (61, Some(403), 300)]
        {
            clock.advance(Duration::from_secs(after_s));
            assert_eq!(reported(code), pause_s, "after {after_s} s, {code:?}");
        }
    }
}
