//! The console that a replica serves: the fleet as home has it, and of queues and objects what this replica knows.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use console::{Answer, Said, Source};
use explain::{Sought, Told};
use fleet::{Fleet, FleetEvents};
use futures::FutureExt;
use kube::Client;
use model::Clock;
use queue::QueueStatus;
use tokio::sync::OnceCell;

use crate::assemble::home_client;
use crate::config::Config;
use crate::inside::{Inside, STARTS};

/// How long a client for home may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The pages for the admin server.
pub(crate) fn pages(config: &Config, inside: Inside, clock: Arc<dyn Clock>) -> axum::Router {
    let config = Arc::new(config.clone());
    let home = Arc::default();
    console::router(Arc::new(Replica { config, inside, home, clock: Arc::clone(&clock) }), clock)
}

/// One replica.
struct Replica {
    config: Arc<Config>,
    inside: Inside,
    // Its own, so that people who look share no connection with the renewals of the Lease.
    home: Arc<OnceCell<Client>>,
    clock: Arc<dyn Clock>,
}

impl Source for Replica {
    fn about(&self) -> String {
        format!("{}, as {} sees it", self.config.namespace, self.config.identity)
    }

    fn fleet(&self) -> Answer<Result<Fleet, String>> {
        let (config, clock) = (Arc::clone(&self.config), Arc::clone(&self.clock));
        let (home, wall) = (Arc::clone(&self.home), Arc::clone(&self.clock));
        async move {
            let plugins = config.clusters.credential_plugins.clone();
            let client = home.get_or_try_init(|| home_client(&config, plugins, clock));
            let late = |_| format!("there is no client for home after {} s", TIMEOUT.as_secs());
            let client = tokio::time::timeout(TIMEOUT, client).await.map_err(late)?;
            let client = client.map_err(|unusable| unusable.reason())?.clone();
            // Each page of it has a bound in time of its own.
            let read = async {
                let mut fleet = fleet::read(client.clone(), &config.namespace).await?;
                let now = wall.wall();
                fleet::listen(&client, &config.namespace, &mut fleet, now).await?;
                Ok(fleet)
            };
            read.await.map_err(|error: fleet::ReadError| model::error::chain(&error))
        }
        .boxed()
    }

    fn queues(&self, _: Arc<Fleet>) -> Answer<Said<Vec<QueueStatus>>> {
        let queues = self.inside.queues().ok_or_else(|| STARTS.to_owned());
        ready(vec![(self.config.identity.clone(), queues)]).boxed()
    }

    fn explain(&self, sought: Sought, _: Arc<Fleet>) -> Answer<Said<Told>> {
        let told = self.inside.explain(&sought).ok_or_else(|| STARTS.to_owned());
        ready(vec![(self.config.identity.clone(), told)]).boxed()
    }

    fn events(&self) -> Answer<Result<FleetEvents, String>> {
        let why =
            "a replica has no right to read Events; see `leasehold console` or `leasehold events`";
        ready(Err(why.to_owned())).boxed()
    }
}
