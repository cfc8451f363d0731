//! Takes in the FleetPolicies of the home cluster. Where there is no such kind, or no right to read it, there are
//! none. But those that were read once hold until home shows others.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::DynamicObject;
use tokio::sync::mpsc;
use tracing::info;

use super::Message;
use super::follow::{Closed, Failure, Shown, Sink};
use crate::policy::PolicyRecord;
use crate::problem::Operation;
use crate::read::Unreadable;

/// The pause where the kind, or the right to read it, is missing.
const MISSING_PAUSE: Duration = Duration::from_secs(60);

/// Takes in policies.
pub(super) struct Policies {
    namespace: String,
    messages: mpsc::Sender<Message>,
    number: u64,
    /// What was read; `None` before the first list.
    known: Option<BTreeMap<String, PolicyRecord>>,
}

impl Policies {
    pub(super) fn new(namespace: &str, messages: &mpsc::Sender<Message>, number: u64) -> Self {
        let (namespace, messages) = (namespace.to_owned(), messages.clone());
        Self { namespace, messages, number, known: None }
    }

    async fn tell(&self) -> Result<(), Closed> {
        let all = self.known.iter().flat_map(|known| known.values().cloned()).collect();
        self.messages.send(Message::Policies(self.number, all)).await.map_err(|_| Closed)
    }
}

impl Sink for Policies {
    type Item = PolicyRecord;
    const MAX_PAGES: usize = 10;

    fn page(&self) -> u32 {
        100
    }

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
        let known = self.known.get_or_insert_default();
        match shown {
            Shown::Listed(_, policies) => {
                let named = policies.into_iter().map(|policy| (policy.name.clone(), policy));
                *known = named.collect();
            }
            Shown::Applied(policy) => drop(known.insert(policy.name.clone(), policy)),
            Shown::Deleted(policy) => drop(known.remove(&policy.name)),
        }
        self.tell().await
    }

    async fn report(
        &mut self,
        operation: Operation,
        failure: Option<Failure>,
    ) -> Result<Duration, Closed> {
        let is_missing = failure.as_ref().is_some_and(|f| matches!(f.code, Some(403 | 404)));
        if is_missing && self.known.is_none() {
            info!(
                namespace = self.namespace,
                "the home cluster has no FleetPolicies that this member may list and watch: nothing is paused, \
                 pinned or limited"
            );
            self.known = Some(BTreeMap::new());
            self.tell().await?;
            return Ok(MISSING_PAUSE);
        }
        // What was read goes on: who loses the right to read a pause must not begin to work.
        let is_none = self.known.as_ref().is_some_and(BTreeMap::is_empty);
        if is_missing && is_none {
            return Ok(MISSING_PAUSE);
        }
        let message = Message::Problem(operation, failure.map(|failure| failure.text));
        self.messages.send(message).await.map_err(|_| Closed)?;
        Ok(Duration::ZERO)
    }
}
