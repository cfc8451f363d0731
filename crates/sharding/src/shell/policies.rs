//! Takes in the FleetPolicies of the home cluster.

use std::sync::Arc;
use std::time::Duration;

use kube::api::DynamicObject;
use model::Clock;
use tokio::sync::mpsc;
use tracing::info;

use super::Message;
use super::follow::{Closed, Failure, Shown, Sink};
use crate::policy::PolicyRecord;
use crate::policy_list::{PolicyList, Refused};
use crate::problem::Operation;
use crate::read::Unreadable;

/// Takes in policies.
pub(super) struct Policies {
    namespace: String,
    messages: mpsc::Sender<Message>,
    clock: Arc<dyn Clock>,
    number: u64,
    list: PolicyList,
}

impl Policies {
    /// The policies as the watches of that number show them. `before` is what the watch before knew.
    pub(super) fn new(
        namespace: &str,
        messages: &mpsc::Sender<Message>,
        clock: &Arc<dyn Clock>,
        number: u64,
        before: Option<Vec<PolicyRecord>>,
    ) -> Self {
        let (namespace, messages, clock) =
            (namespace.to_owned(), messages.clone(), Arc::clone(clock));
        Self { namespace, messages, clock, number, list: PolicyList::after(before) }
    }

    async fn tell(&self, records: Option<Vec<PolicyRecord>>) -> Result<(), Closed> {
        let message = Message::Policies(self.number, records);
        self.messages.send(message).await.map_err(|_| Closed)
    }
}

impl Sink for Policies {
    type Item = PolicyRecord;
    const MAX_PAGES: usize = 10;
    // What is in none of these pages may be a pause.
    const COUNTS_IN_PART: bool = false;

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
        let is_news = match shown {
            Shown::Listed(_, policies) => self.list.listed(policies),
            Shown::Applied(policy) => self.list.applied(policy),
            Shown::Deleted(policy) => self.list.deleted(&policy.name),
        };
        if is_news { self.tell(Some(self.list.records())).await } else { Ok(()) }
    }

    async fn report(
        &mut self,
        operation: Operation,
        failure: Option<Failure>,
    ) -> Result<Duration, Closed> {
        if !failure.as_ref().is_some_and(|failure| matches!(failure.code, Some(403 | 404))) {
            self.list.answered();
        } else {
            match self.list.refused(self.clock.now()) {
                Refused::Holds => {}
                Refused::Doubted => return Ok(Duration::ZERO),
                Refused::Believed { is_news, pause } => {
                    if is_news {
                        info!(
                            namespace = self.namespace,
                            "the home cluster has no FleetPolicies that this member may list and watch: nothing is \
                             paused, pinned or limited"
                        );
                        self.tell(None).await?;
                    }
                    return Ok(pause);
                }
            }
        }
        let message = Message::Problem(operation, failure.map(|failure| failure.text));
        self.messages.send(message).await.map_err(|_| Closed)?;
        Ok(Duration::ZERO)
    }
}
