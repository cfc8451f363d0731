//! Follows the FleetPolicies of the home cluster. Where there is no such kind, or no right to read it, there
//! are none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::DynamicObject;
use model::Clock;
use tokio::sync::mpsc;
use tracing::info;

use super::Message;
use super::follow::{Closed, Failure, Shown, Sink, follow};
use crate::policy::PolicyRecord;
use crate::problem::Operation;
use crate::read::{self, Unreadable};

/// The pause where the kind, or the right to read it, is missing.
const MISSING_PAUSE: Duration = Duration::from_secs(60);

/// Follows the policies until the loop is gone.
pub(crate) fn spawn(
    client: &Client,
    namespace: String,
    messages: mpsc::Sender<Message>,
    clock: Arc<dyn Clock>,
    rng: fastrand::Rng,
) -> impl Future<Output = ()> + Send + 'static {
    let api = read::policies(client, &namespace);
    let known = BTreeMap::new();
    follow(api, Policies { namespace, messages, known, was_missing: false }, clock, rng)
}

struct Policies {
    namespace: String,
    messages: mpsc::Sender<Message>,
    known: BTreeMap<String, PolicyRecord>,
    was_missing: bool,
}

impl Policies {
    async fn tell(&self) -> Result<(), Closed> {
        let all = self.known.values().cloned().collect();
        self.messages.send(Message::Policies(all)).await.map_err(|_| Closed)
    }
}

impl Sink for Policies {
    type Item = PolicyRecord;
    const PAGE: u32 = 100;
    const MAX_PAGES: usize = 10;

    fn operation(&self, verb: &'static str) -> Operation {
        Operation {
            verb,
            resource: "fleetpolicies.leasehold.dev",
            namespace: self.namespace.clone(),
        }
    }

    fn read(&self, object: DynamicObject) -> Result<Option<PolicyRecord>, Unreadable> {
        Ok(Some(PolicyRecord::of(&object)))
    }

    async fn show(&mut self, shown: Shown<PolicyRecord>) -> Result<(), Closed> {
        match shown {
            Shown::Listed(_, policies) => {
                let named = policies.into_iter().map(|policy| (policy.name.clone(), policy));
                self.known = named.collect();
            }
            Shown::Applied(policy) => drop(self.known.insert(policy.name.clone(), policy)),
            Shown::Deleted(policy) => drop(self.known.remove(&policy.name)),
        }
        self.tell().await
    }

    async fn report(
        &mut self,
        operation: Operation,
        failure: Option<Failure>,
    ) -> Result<Duration, Closed> {
        let is_missing = failure.as_ref().is_some_and(|f| matches!(f.code, Some(403 | 404)));
        if is_missing {
            if !std::mem::replace(&mut self.was_missing, true) {
                info!(
                    namespace = self.namespace,
                    "the home cluster has no FleetPolicies that this member may list and watch: nothing is paused, \
                     pinned or limited"
                );
            }
            self.known.clear();
            self.tell().await?;
            return Ok(MISSING_PAUSE);
        }
        let message = Message::Problem(operation, failure.map(|failure| failure.text));
        self.messages.send(message).await.map_err(|_| Closed)?;
        Ok(Duration::ZERO)
    }
}
