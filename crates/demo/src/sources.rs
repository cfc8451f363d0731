//! The sources of the loop's events: watches of every cluster, and the application of objects. Shell.

use futures::StreamExt;
use kube::Api;
use model::{ClusterName, MemberId};
use sharding::api::ShardMap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::follow::{self, Delivered, follow};
use crate::generate::{Kind, Planned, resource};
use crate::scrape::Figures;
use crate::track::Seen;
use crate::world::{Clients, HOME_NAMESPACE};

/// An event for the loop.
pub(crate) enum Event {
    /// A watch of a workload cluster delivered this.
    Seen(Seen),
    /// A ShardMap is new or has changed.
    Map(Box<ShardMap>),
    /// A controller's example shows that it works.
    Example(&'static str, String),
    /// One more object was applied.
    Applied,
    /// An object could not be applied.
    ApplyFailed(String),
    /// A change could not be made.
    ChangeFailed(String),
    /// Who coordinates now.
    Coordinator(Option<MemberId>),
    /// The figures of one replica, if it answers.
    Figures(usize, Option<Figures>),
}

/// Applies the objects and reports each result.
pub(crate) async fn apply(clients: Clients, planned: Vec<Planned>, events: mpsc::Sender<Event>) {
    let mut applied = std::pin::pin!(clients.apply_all(planned));
    while let Some(result) = applied.next().await {
        let event = match result {
            Ok(()) => Event::Applied,
            Err(error) => Event::ApplyFailed(model::error::chain(&error)),
        };
        // The loop may have ended.
        let _ = events.send(event).await;
    }
}

/// Watches every cluster.
pub(crate) fn watch(
    clients: &Clients,
    names: &[ClusterName],
    events: &mpsc::Sender<Event>,
) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    let maps = Api::<ShardMap>::namespaced(clients.home.clone(), HOME_NAMESPACE);
    let read = |delivered| match delivered {
        Delivered::Present(map) => Some(Event::Map(Box::new(map))),
        Delivered::Deleted(_) => None,
    };
    watches.spawn(follow(maps, read, events.clone()));
    for name in names {
        for kind in [Kind::TdSet, Kind::ConfigMonitor] {
            let read = follow::object(name.clone(), kind);
            if let Some(api) = clients.all(name, &kind.resource()) {
                watches.spawn(follow(api, move |d| read(d).map(Event::Seen), events.clone()));
            }
        }
        let read = follow::deployment(name.clone());
        if let Some(api) = clients.all(name, &resource("apps", "v1", "Deployment")) {
            watches.spawn(follow(api, move |d| read(d).map(Event::Seen), events.clone()));
        }
    }
    watches
}
