//! Removes hosts whose Tunnel is gone, at a slow pace, from the accounts that the ConfigMaps of
//! defaults name.
//!
//! A finalizer keeps each Tunnel until its host is gone. So there are none, unless a Tunnel was
//! abandoned on purpose, or a request to a provider arrived too late. A host is removed only if it has
//! the tags of this cluster and of a Tunnel that the server, asked after the list, does not have.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use sdk::{Action, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler};
use sdk::{ObjectKey, uid_hash};

use crate::account::{ProviderClient, account, cluster_uid};
use crate::api::Tunnel;
use crate::choice::Defaults;
use crate::names::{self, CONFIG_MAP};
use crate::provider::{Host, State};
use crate::settings::Settings;

/// The name of this part of the controller.
pub(super) const NAME: &str = "tunnel-sweep";
/// How often an account is swept.
pub(super) const EVERY: Duration = Duration::from_secs(3_600);
/// How old a host must be: a younger one may be another replica's work in progress.
pub(super) const MIN_AGE: Duration = Duration::from_secs(900);

/// Reconciles ConfigMaps of defaults.
#[derive(Clone, Debug, Default)]
pub(super) struct SweepReconciler {
    settings: Settings,
}

/// The controller that sweeps.
pub(super) fn controller(settings: Settings) -> ControllerSpec {
    Controller::for_kind::<ConfigMap>(NAME)
        .part_of(crate::NAME)
        .fields(format!("metadata.name={CONFIG_MAP}"))
        .group(crate::GROUP)
        .field_manager(crate::FIELD_MANAGER)
        .workers(1)
        .reconciler(SweepReconciler { settings })
}

/// Of the hosts of this cluster, those that no Tunnel has. Pure.
pub(super) fn orphans<'a>(
    hosts: &'a [Host],
    tunnels: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<&'a Host> {
    let old =
        |created: Timestamp| now.duration_since(created).as_secs() >= MIN_AGE.as_secs() as i64;
    hosts
        .iter()
        .filter(|host| host.state != State::Leaving && host.created.is_some_and(old))
        .filter(|host| host.tunnel.as_ref().is_some_and(|uid| !tunnels.contains(uid)))
        .collect()
}

impl Reconciler for SweepReconciler {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(config_map) = ctx.get::<ConfigMap>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        if !names::is_system(namespace) {
            let note = "this ConfigMap does not count: move it to namespace leasehold-system or kube-system, \
                        and list Secrets that Services may name there as tokenSecrets";
            ctx.publish(Event::warning(&*config_map, "DefaultsIgnored", "Sweep", note)).await;
            return Ok(Action::Done);
        }
        let share = uid_hash(&config_map.uid().unwrap_or_default()) % 256;
        let again = Action::RequeueAfter(EVERY + Duration::from_secs(share));
        let Some((placement, token)) = Defaults::of(&config_map).account() else {
            return Ok(Action::Done);
        };
        // The Tunnels that need the same account report what blocks it.
        let Ok(account) = account(ctx, &self.settings, &placement, token.as_ref()).await? else {
            return Ok(again);
        };
        let provider = ProviderClient::new(ctx, account);
        let tag = names::cluster_tag(&cluster_uid(ctx).await?);
        let hosts = match provider.look(tag, None).await {
            Err(error) if error.failure().and_then(|failure| failure.obstacle()).is_some() => {
                return Ok(again);
            }
            hosts => hosts?,
        };
        let tunnels = match Api::<Tunnel>::all(ctx.client())
            .list_metadata(&ListParams::default())
            .await
        {
            Err(kube::Error::Api(refused)) if refused.is_forbidden() => {
                let note = "hosts whose Tunnel is gone are not removed: to know them takes the right \
                                to list Tunnels of all namespaces";
                ctx.publish(Event::normal(&*config_map, "NotSwept", "Sweep", note)).await;
                return Ok(again);
            }
            tunnels => tunnels?,
        };
        let tunnels = tunnels.items.into_iter().filter_map(|tunnel| tunnel.metadata.uid).collect();
        for host in orphans(&hosts, &tunnels, ctx.now()) {
            provider.delete(&host.id).await?;
            let note =
                format!("removed host {} at {}: its Tunnel is gone", host.id, placement.provider);
            ctx.publish(Event::normal(&*config_map, "OrphanRemoved", "Sweep", note)).await;
        }
        Ok(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_old_host_without_a_tunnel_is_an_orphan() {
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let host = |id: &str, minutes: i64, tunnel: Option<&str>, state| Host {
            id: id.to_owned(),
            state,
            address: None,
            created: Some(now - jiff::SignedDuration::from_mins(minutes)),
            tunnel: tunnel.map(str::to_owned),
            exit: None,
        };
        let hosts = [
            host("orphan", 60, Some("gone"), State::Running),
            host("stopped orphan", 60, Some("gone"), State::Stopped),
            host("young", 5, Some("gone"), State::Running),
            host("owned", 60, Some("here"), State::Running),
            host("untagged", 60, None, State::Running),
            host("leaving", 60, Some("gone"), State::Leaving),
            Host { created: None, ..host("ageless", 0, Some("gone"), State::Running) },
        ];
        let found = orphans(&hosts, &BTreeSet::from(["here".to_owned()]), now);
        let found: Vec<_> = found.into_iter().map(|host| &*host.id).collect();
        assert_eq!(found, ["orphan", "stopped orphan"]);
    }
}
