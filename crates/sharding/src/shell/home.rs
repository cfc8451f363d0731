//! Follows Leases, Members, ShardMaps and FleetPolicies of the home cluster, one task each.
//!
//! A message says which watch it is of, so that the loop drops what a former one showed.

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
use crate::world::LeasesSeen;

/// What the watches of home need. They end with the loop that receives their messages.
pub(crate) struct Watches<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    pub(crate) messages: &'a mpsc::Sender<Message>,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) rng: &'a mut fastrand::Rng,
}

impl Watches<'_> {
    /// Starts all but that of Leases. `number` tells what they show from what earlier watches showed.
    pub(crate) fn start(mut self, number: u64) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for kind in [Kind::Member, Kind::Map] {
            self.follow(&mut tasks, kind, LeasesSeen::All, number);
        }
        let policies = Policies::new(self.namespace, self.messages, number);
        let api = read::policies(self.client, self.namespace);
        tasks.spawn(follow(api, policies, Arc::clone(self.clock), self.rng.fork()));
        tasks
    }

    /// Starts the watch of these Leases.
    pub(crate) fn start_leases(mut self, leases: LeasesSeen, number: u64) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        self.follow(&mut tasks, Kind::Lease, leases, number);
        tasks
    }

    fn follow(&mut self, tasks: &mut JoinSet<()>, kind: Kind, leases: LeasesSeen, number: u64) {
        let (namespace, messages) = (self.namespace.to_owned(), self.messages.clone());
        let sink = Home { kind, number, namespace, messages, leases };
        let api = read::api(self.client, self.namespace, kind);
        tasks.spawn(follow(api, sink, Arc::clone(self.clock), self.rng.fork()));
    }
}

struct Home {
    kind: Kind,
    number: u64,
    namespace: String,
    messages: mpsc::Sender<Message>,
    leases: LeasesSeen,
}

impl Sink for Home {
    type Item = Object;

    fn selection(&self) -> ListParams {
        match (self.kind, self.leases) {
            (Kind::Lease, LeasesSeen::All) => ListParams::default().labels(&lease::selector()),
            (Kind::Lease, LeasesSeen::Coordinator) => {
                let name = format!("metadata.name={}", lease::COORDINATOR);
                ListParams::default().labels(&lease::selector()).fields(&name)
            }
            (Kind::Member | Kind::Map, _) => ListParams::default(),
        }
    }

    fn operation(&self, verb: &'static str) -> Operation {
        Operation { verb, resource: self.kind.resource(), namespace: self.namespace.clone() }
    }

    fn read(&self, object: DynamicObject) -> Result<Option<Object>, Unreadable> {
        Ok(read::object(self.kind, object))
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
