//! The hosts of each account as last listed, for all Tunnels of a cluster at once. Shell.
//!
//! Providers accept a few thousand requests an hour. A thousand Tunnels that each look for their own
//! host would leave none for Tunnels that need a host. So one list of all hosts of the cluster serves
//! every Tunnel whose host runs for [`FRESH`], and those whose host is being made until they look again. It only confirms
//! that a host is as desired, or on its way; a Tunnel that finds a difference looks for itself before it acts.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use sdk::ClusterName;
use sdk::{Context, ExternalError};

use crate::account::ProviderClient;
use crate::names::Tag;
use crate::plan::{POLL, is_within};
use crate::provider::{Address, Failure, Host};

/// How long a list is used for hosts that run.
pub(super) const FRESH: Duration = Duration::from_secs(300);

/// The last list of each account, for each cluster.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    seen: Mutex<HashMap<(ClusterName, String), Seen>>,
}

#[derive(Debug)]
struct Seen {
    at: Timestamp,
    /// Whether somebody found it too old, and takes another.
    is_renewed: bool,
    by_tunnel: HashMap<String, Vec<Host>>,
    /// The account's reserved addresses, if a Tunnel that may have one asked for the list.
    addresses: Option<Vec<Address>>,
}

impl Seen {
    /// Whether it is younger than `age`. Who finds it too old takes another; the others use it for [`POLL`] more, so that
    /// those that come at once take one together.
    fn serves(&mut self, age: Duration, now: Timestamp) -> bool {
        let limit = if self.is_renewed { age + POLL } else { age };
        let serves = is_within(self.at, limit, now);
        self.is_renewed |= !serves;
        serves
    }
}

impl Inventory {
    /// The hosts of a Tunnel in a list that is younger than `age`, if there is one; and the account's reserved addresses, where they matter.
    pub(super) fn of(
        &self,
        ctx: &Context,
        provider: &ProviderClient,
        tunnel: &str,
        addresses: bool,
        age: Duration,
    ) -> Option<(Vec<Host>, Vec<Address>)> {
        let mut seen = self.seen.lock().expect("no holder of this lock panics");
        let seen = seen.get_mut(&key(ctx, provider))?;
        if !seen.serves(age, ctx.now()) {
            return None;
        }
        let hosts = seen.by_tunnel.get(tunnel).cloned().unwrap_or_default();
        match addresses {
            true => Some((hosts, seen.addresses.clone()?)),
            false => Some((hosts, Vec::new())),
        }
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
        addresses: bool,
    ) -> Result<(), ExternalError<Failure>> {
        let at = ctx.now();
        let mut by_tunnel = HashMap::<_, Vec<_>>::new();
        for host in provider.look(cluster, None).await? {
            if let Some(tunnel) = host.tunnel.clone() {
                by_tunnel.entry(tunnel).or_default().push(host);
            }
        }
        let addresses = match addresses {
            true => Some(provider.addresses().await?),
            false => None,
        };
        let mut seen = self.seen.lock().expect("no holder of this lock panics");
        seen.retain(|_, seen| is_within(seen.at, FRESH, at));
        seen.insert(key(ctx, provider), Seen { at, is_renewed: false, by_tunnel, addresses });
        Ok(())
    }
}

fn key(ctx: &Context, provider: &ProviderClient) -> (ClusterName, String) {
    (ctx.cluster().clone(), provider.account.upstream.clone())
}
