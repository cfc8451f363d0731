//! The hosts of each account as last listed, for all Tunnels of a cluster at once. Shell.
//!
//! Providers accept a few thousand requests an hour. A thousand Tunnels that each look for their own
//! host would leave none for Tunnels that need a host. So one list of all hosts of the cluster serves
//! every Tunnel for [`FRESH`]. It only confirms that a host is as desired; a Tunnel that finds a
//! difference looks for itself before it acts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use sdk::ClusterName;
use sdk::{Context, ExternalError};

use crate::account::ProviderClient;
use crate::names::Tag;
use crate::provider::{Failure, Host};

/// How long a list is used.
pub(super) const FRESH: Duration = Duration::from_secs(300);

/// The last list of each account, for each cluster.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    seen: Mutex<HashMap<(ClusterName, String), Seen>>,
}

#[derive(Debug)]
struct Seen {
    at: Timestamp,
    by_tunnel: HashMap<String, Vec<Host>>,
}

impl Seen {
    fn is_fresh(&self, now: Timestamp) -> bool {
        // A clock that was set back makes it stale.
        Duration::try_from(now.duration_since(self.at)).is_ok_and(|age| age < FRESH)
    }
}

impl Inventory {
    /// The hosts of a Tunnel in a fresh list, if there is one.
    pub(super) fn of(
        &self,
        ctx: &Context,
        provider: &ProviderClient,
        tunnel: &str,
    ) -> Option<Vec<Host>> {
        let seen = self.seen.lock().expect("no holder of this lock panics");
        let seen = seen.get(&key(ctx, provider)).filter(|seen| seen.is_fresh(ctx.now()))?;
        Some(seen.by_tunnel.get(tunnel).cloned().unwrap_or_default())
    }

    /// Lists an account's hosts with the cluster's tag.
    ///
    /// # Errors
    /// What the provider says.
    pub(super) async fn take(
        &self,
        ctx: &Context,
        provider: &ProviderClient,
        cluster: Tag,
    ) -> Result<(), ExternalError<Failure>> {
        let at = ctx.now();
        let mut by_tunnel = HashMap::<_, Vec<_>>::new();
        for host in provider.look(cluster, None).await? {
            if let Some(tunnel) = host.tunnel.clone() {
                by_tunnel.entry(tunnel).or_default().push(host);
            }
        }
        let mut seen = self.seen.lock().expect("no holder of this lock panics");
        seen.retain(|_, seen| seen.is_fresh(at));
        seen.insert(key(ctx, provider), Seen { at, by_tunnel });
        Ok(())
    }
}

fn key(ctx: &Context, provider: &ProviderClient) -> (ClusterName, String) {
    (ctx.cluster().clone(), provider.account.upstream.clone())
}
