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
use crate::policy::PolicyRecord;
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
    /// `policies` are those that the watches before knew.
    pub(crate) fn start(mut self, number: u64, policies: Option<Vec<PolicyRecord>>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for kind in [Kind::Member, Kind::Map] {
            self.follow(&mut tasks, kind, LeasesSeen::All, number);
        }
        let policies = Policies::new(self.namespace, self.messages, self.clock, number, policies);
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

    fn page(&self) -> u32 {
        self.kind.page()
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use model::Epoch;

    use super::*;
    use crate::api::{MAX_SHARDS, ShardMap};
    use crate::handover::Entry;
    use crate::record::MapRecord;

    /// What one answer of home may have.
    const MOST_BYTES: usize = 33 << 20;

    #[test]
    fn a_page_of_the_largest_maps_can_be_read() {
        let name = |n: usize| format!("{n:03}{}", "x".repeat(60));
        let mut map = MapRecord::new(name(0).parse().unwrap());
        let entry = Entry::Draining {
            owner: name(1).parse().unwrap(),
            epoch: Epoch::MAX,
            target: Some(name(2).parse().unwrap()),
        };
        let shards = (0..MAX_SHARDS / 3).flat_map(|n| {
            ["0/2", "2/4", "3/4"].map(|range| format!("{}/{range}", name(n)).parse().unwrap())
        });
        map.entries_mut().extend(shards.map(|path| (path, entry.clone())));
        let object = ShardMap::new(map.cluster.as_str(), map.spec(Timestamp::UNIX_EPOCH));
        let own = serde_json::to_vec(&object).unwrap().len();
        // `k:{"shard":"..."}: {".":{},"f:epoch":{},"f:moved":{...},...}`, as the server notes it.
        let noted = MAX_SHARDS * (name(0).len() + 200);
        let (messages, _) = mpsc::channel(1);
        let namespace = String::new();
        let home =
            Home { kind: Kind::Map, number: 0, namespace, messages, leases: LeasesSeen::All };
        let page = home.page() as usize * (own + noted);
        assert!(page < MOST_BYTES, "{page} bytes, each {own} and {noted}");
    }
}
