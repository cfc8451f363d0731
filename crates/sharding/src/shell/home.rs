//! Follows Leases, Members, ShardMaps and FleetPolicies of the home cluster, one task each.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{DynamicObject, ListParams};
use model::Clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Message;
use super::follow::{Closed, Failure, Shown, Sink, follow};
use super::policies::Policies;
use crate::lease;
use crate::problem::Operation;
use crate::read::{self, Unreadable};
use crate::record::{Kind, Object, Observation};

/// Starts the watches. They end with the loop that receives their messages. `number` tells what they
/// show from what earlier watches showed.
pub(crate) fn spawn(
    client: &Client,
    namespace: &str,
    messages: &mpsc::Sender<Message>,
    clock: &Arc<dyn Clock>,
    rng: &mut fastrand::Rng,
    number: u64,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for kind in [Kind::Lease, Kind::Member, Kind::Map] {
        let (namespace, messages) = (namespace.to_owned(), messages.clone());
        let sink = Home { kind, number, namespace, messages };
        let api = read::api(client, &sink.namespace, kind);
        tasks.spawn(follow(api, sink, Arc::clone(clock), rng.fork()));
    }
    let policies = Policies::new(namespace, messages, number);
    let api = read::policies(client, namespace);
    tasks.spawn(follow(api, policies, Arc::clone(clock), rng.fork()));
    tasks
}

struct Home {
    kind: Kind,
    number: u64,
    namespace: String,
    messages: mpsc::Sender<Message>,
}

impl Sink for Home {
    type Item = Object;

    fn selection(&self) -> ListParams {
        match self.kind {
            Kind::Lease => ListParams::default().labels(&lease::selector()),
            Kind::Member | Kind::Map => ListParams::default(),
        }
    }

    fn operation(&self, verb: &'static str) -> Operation {
        Operation { verb, resource: self.kind.resource(), namespace: self.namespace.clone() }
    }

    fn read(&self, object: DynamicObject) -> Result<Option<Object>, Unreadable> {
        read::object(self.kind, object)
    }

    async fn show(&mut self, shown: Shown<Object>) -> Result<(), Closed> {
        let observation = match shown {
            Shown::Listed(version, objects) => Observation::Listed(self.kind, version, objects),
            Shown::Applied(object) => Observation::Applied(object),
            Shown::Deleted(object) => Observation::Deleted(object),
        };
        let message = Message::Home(self.number, Box::new(observation));
        self.messages.send(message).await.map_err(|_| Closed)
    }

    async fn report(
        &mut self,
        operation: Operation,
        failure: Option<Failure>,
    ) -> Result<Duration, Closed> {
        let message = Message::Problem(operation, failure.map(|failure| failure.text));
        self.messages.send(message).await.map_err(|_| Closed)?;
        Ok(Duration::ZERO)
    }
}
