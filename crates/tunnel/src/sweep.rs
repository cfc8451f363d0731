//! Removes hosts whose Tunnel is gone, at a slow pace, from every account that Tunnels of the cluster ever used: the
//! administrator's ConfigMap has recorded them, by whatever annotation or default a Tunnel named them.
//!
//! A finalizer keeps each Tunnel until its host is gone. So there are none, unless a Tunnel was
//! abandoned on purpose, or a request to a provider arrived too late. A host is removed only if it has
//! the tags of this cluster and of a Tunnel that the server, asked after the list, does not have, or that has another
//! host in another account.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use sdk::{Action, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler};
use sdk::{ClusterName, ObjectKey, uid_hash};
use serde_json::json;

use crate::account::{Blocked, ProviderClient, account, cluster_uid};
use crate::api::{Tunnel, TunnelStatus};
use crate::choice::Defaults;
use crate::names::{self, CONFIG_MAP, Tag};
use crate::plan::is_within;
use crate::provider::{Address, Host, State};
use crate::settings::Settings;
use crate::spelling;
use crate::used::{Used, recorded, unreadable};

/// The name of this part of the controller.
pub(super) const NAME: &str = "tunnel-sweep";
/// How often an account is swept.
pub(super) const EVERY: Duration = Duration::from_secs(3_600);
/// When an account is asked again that did not answer.
const SOONER: Duration = Duration::from_secs(900);
/// How old a host must be: a younger one may be another replica's work in progress.
pub(super) const MIN_AGE: Duration = Duration::from_secs(900);

/// Why something is removed.
const GONE: &str = "its Tunnel is gone, or has another in another account";

/// Reconciles ConfigMaps of defaults.
#[derive(Debug)]
pub(super) struct SweepReconciler {
    settings: Settings,
    /// When each account of each cluster was swept: every account that is recorded changes the ConfigMap.
    swept: Mutex<HashMap<(ClusterName, String), Timestamp>>,
}

/// The controller that sweeps.
pub(super) fn controller(settings: Settings) -> ControllerSpec {
    Controller::for_kind::<ConfigMap>(NAME)
        .part_of(crate::NAME)
        .fields(format!("metadata.name={CONFIG_MAP}"))
        .group(crate::GROUP)
        .field_manager(crate::FIELD_MANAGER)
        .workers(1)
        .reconciler(SweepReconciler { settings, swept: Mutex::default() })
}

/// The Tunnels of a cluster by their uids, each with what it has.
type Tunnels = BTreeMap<String, TunnelStatus>;

/// Of the hosts that an account has of this cluster, those that no Tunnel has. Pure.
pub(super) fn orphans<'a>(
    hosts: &'a [Host],
    used: &Used,
    tunnels: &Tunnels,
    now: Timestamp,
) -> Vec<&'a Host> {
    let is_left = |status: &TunnelStatus, host: &Host| {
        let other = status.host_id.as_ref().is_some_and(|id| *id != host.id);
        other && status.creating_since.is_none() && is_elsewhere(status, used)
    };
    let orphan = |host: &&Host| {
        let gone = |uid| tunnels.get(uid).is_none_or(|status| is_left(status, host));
        host.state != State::Leaving
            && is_old(host.created, now)
            && host.tunnel.as_ref().is_some_and(gone)
    };
    hosts.iter().filter(orphan).collect()
}

/// Of the addresses that an account has of this cluster, those that no Tunnel has. Pure.
fn orphaned<'a>(
    addresses: &'a [Address],
    used: &Used,
    tunnels: &Tunnels,
    now: Timestamp,
) -> Vec<&'a Address> {
    let is_left = |status: &TunnelStatus, address: &Address| {
        let other = status.address.as_ref().is_some_and(|own| own.id != address.id);
        other && status.reserving_since.is_none() && is_elsewhere(status, used)
    };
    let orphan = |address: &&Address| {
        let gone = |uid| tunnels.get(uid).is_none_or(|status| is_left(status, address));
        is_old(address.created, now) && address.tunnel.as_ref().is_some_and(gone)
    };
    addresses.iter().filter(orphan).collect()
}

/// Whether a Tunnel has what it has in another account than this one.
fn is_elsewhere(status: &TunnelStatus, used: &Used) -> bool {
    status.placement.as_ref().is_some_and(|held| used.is_left(held))
}

fn is_old(created: Option<Timestamp>, now: Timestamp) -> bool {
    created.is_some_and(|at| now.duration_since(at).as_secs() >= MIN_AGE.as_secs() as i64)
}

impl Reconciler for SweepReconciler {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(config_map) = ctx.get::<ConfigMap>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let counts = self.settings.access.config_namespace();
        if namespace != Some(counts) {
            let note = format!(
                "this ConfigMap does not count: move it to namespace {counts}, which the manager's configuration names \
                 as controllers.tunnel.configNamespace, and list Secrets that Services may name there as tokenSecrets"
            );
            ctx.publish(Event::warning(&*config_map, "DefaultsIgnored", "Sweep", note)).await;
            return Ok(Action::Done);
        }
        let mut faults = spelling::faults(&config_map);
        faults.extend(unreadable(&config_map));
        if !faults.is_empty() {
            let note = faults.join("; ");
            ctx.publish(Event::warning(&*config_map, "InvalidDefaults", "Sweep", note)).await;
        }
        let share = uid_hash(&config_map.uid().unwrap_or_default()) % 256;
        let again = Action::RequeueAfter(EVERY + Duration::from_secs(share));
        let due = self.due(ctx, &config_map);
        if due.is_empty() {
            return Ok(again);
        }
        let tag = names::cluster_tag(&cluster_uid(ctx).await?);
        let mut then = Ok(again);
        for (name, used) in due {
            match self.sweep(ctx, &config_map, &used, &tag).await {
                Ok(true) => {
                    let at = (ctx.cluster().clone(), name);
                    self.swept.lock().expect("no holder of this lock panics").insert(at, ctx.now());
                }
                Ok(false) => then = then.map(|_| Action::RequeueAfter(SOONER)),
                // It is asked again; meanwhile the others are swept.
                Err(error) => then = then.and(Err(error)),
            }
        }
        then
    }
}

impl SweepReconciler {
    /// The accounts of a ConfigMap that are due.
    fn due(&self, ctx: &Context, config_map: &ConfigMap) -> Vec<(String, Used)> {
        let mut used = recorded(config_map);
        if let Some((placement, token)) = Defaults::of(config_map).account() {
            let own = Used::new(&placement, token.as_ref());
            used.insert(own.key(), own);
        }
        let mut swept = self.swept.lock().expect("no holder of this lock panics");
        swept.retain(|_, at| is_within(*at, EVERY, ctx.now()));
        let is_due = |name: &String| !swept.contains_key(&(ctx.cluster().clone(), name.clone()));
        used.into_iter().filter(|(name, _)| is_due(name)).collect()
    }

    /// Sweeps one account. Returns whether it is done; else it is asked again before long.
    async fn sweep(
        &self,
        ctx: &Context,
        config_map: &ConfigMap,
        used: &Used,
        tag: &Tag,
    ) -> Result<bool, ReconcileError> {
        let Some((placement, token)) = used.account() else { return Ok(true) };
        let found = account(ctx, &self.settings, &placement, token.as_ref()).await;
        let (account, _) = match found {
            Ok(account) => account,
            Err(error) => return Ok(unswept(ctx, config_map, &Blocked::within(error)?).await),
        };
        let provider = ProviderClient::new(ctx, account);
        let hosts = match provider.look(tag.clone(), None).await {
            Ok(hosts) => hosts,
            Err(error) => match error.failure().and_then(Blocked::by) {
                Some(blocked) => return Ok(unswept(ctx, config_map, &blocked).await),
                None => return Ok(false),
            },
        };
        let mut addresses = match provider.addresses().await {
            Ok(addresses) => addresses,
            // A token that may not see addresses has reserved none.
            Err(error) if error.failure().and_then(Blocked::by).is_some() => Vec::new(),
            Err(_) => return Ok(false),
        };
        addresses.retain(|address| address.cluster.as_ref() == Some(&tag.value));
        if hosts.is_empty() && addresses.is_empty() {
            return forget(ctx, config_map, used).await;
        }
        // After the list of hosts: a Tunnel that is not there now is gone.
        let Some(tunnels) = tunnels(ctx).await? else {
            let note = "hosts whose Tunnel is gone are not removed: to know them takes the right to list Tunnels of \
                        all namespaces";
            ctx.publish(Event::normal(config_map, "NotSwept", "Sweep", note)).await;
            return Ok(true);
        };
        // Before the hosts: an address without tags is known by its host.
        for address in orphaned(&addresses, used, &tunnels, ctx.now()) {
            if provider.release(&address.id).await.is_err() {
                return Ok(false);
            }
            let note = format!("released address {} at {}: {GONE}", address.ip, placement.provider);
            ctx.publish(Event::normal(config_map, "OrphanRemoved", "Sweep", note)).await;
        }
        for host in orphans(&hosts, used, &tunnels, ctx.now()) {
            if provider.delete(&host.id).await.is_err() {
                return Ok(false);
            }
            let note = format!("removed host {} at {}: {GONE}", host.id, placement.provider);
            ctx.publish(Event::normal(config_map, "OrphanRemoved", "Sweep", note)).await;
        }
        Ok(true)
    }
}

/// Forgets an account of a namespace that chose it, in which nothing is left, if no Tunnel names it. Returns whether
/// that is done.
async fn forget(
    ctx: &Context,
    config_map: &ConfigMap,
    used: &Used,
) -> Result<bool, ReconcileError> {
    let (key, namespace) = (used.key(), config_map.namespace().unwrap_or_default());
    let Some(tenant) =
        used.tenant(&namespace).filter(|_| config_map.annotations().contains_key(&key))
    else {
        return Ok(true);
    };
    let tunnels = Api::<Tunnel>::namespaced(ctx.client(), tenant);
    let tunnels = match tunnels.list(&ListParams::default()).await {
        Err(kube::Error::Api(refused)) if refused.is_forbidden() => return Ok(true),
        tunnels => tunnels?,
    };
    if tunnels.items.iter().any(|tunnel| used.is_named(tunnel)) {
        return Ok(true);
    }
    // A Tunnel that comes meanwhile records it anew.
    let version = &config_map.metadata.resource_version;
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": {key: null}}});
    let maps = Api::<ConfigMap>::namespaced(ctx.client(), &namespace);
    let patch = Patch::Merge(patch);
    match maps.patch_metadata(CONFIG_MAP, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(refused)) if refused.is_forbidden() => Ok(true),
        Err(kube::Error::Api(changed)) if changed.is_conflict() => Ok(false),
        patched => Ok(patched.map(|_| true)?),
    }
}

/// All Tunnels of the cluster; `None` if they may not be listed.
async fn tunnels(ctx: &Context) -> Result<Option<Tunnels>, ReconcileError> {
    match Api::<Tunnel>::all(ctx.client()).list(&ListParams::default()).await {
        Err(kube::Error::Api(refused)) if refused.is_forbidden() => Ok(None),
        tunnels => {
            let known =
                |found: Tunnel| Some((found.metadata.uid?, found.status.unwrap_or_default()));
            Ok(Some(tunnels?.items.into_iter().filter_map(known).collect()))
        }
    }
}

/// Says that an account cannot be swept until a person acts.
async fn unswept(ctx: &Context, config_map: &ConfigMap, blocked: &Blocked) -> bool {
    let note = format!("an account that was used is not swept: {}", blocked.message);
    ctx.publish(Event::normal(config_map, "NotSwept", "Sweep", note)).await;
    true
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
            ipv6: None,
            created: Some(now - jiff::SignedDuration::from_mins(minutes)),
            tunnel: tunnel.map(str::to_owned),
            cluster: None,
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
        let found = |key: Option<&str>, host_id: Option<&str>, creating: bool| {
            let used = json!({
                "provider": "hetzner", "namespace": "shop", "secret": {"name": "mine", "key": "a"},
            });
            let status = json!({
                "hostID": host_id, "creatingSince": creating.then_some("2026-11-22T11:59:00Z"),
                "placement": {
                    "provider": "hetzner", "region": "r", "size": "s", "account": "hetzner/shop/mine",
                    "tokenKey": key,
                },
            });
            let status = serde_json::from_value(status).unwrap();
            let tunnels = BTreeMap::from([("here".to_owned(), status)]);
            let found = orphans(&hosts, &serde_json::from_value(used).unwrap(), &tunnels, now);
            found.into_iter().map(|host| host.id.clone()).collect::<Vec<_>>()
        };
        let gone = ["orphan", "stopped orphan"];
        // The same account, and one of which the key is not recorded.
        assert_eq!(found(Some("a"), Some("2"), false), gone);
        assert_eq!(found(None, Some("2"), false), gone);
        // Another account, in which the Tunnel has its host, or may have it before long.
        assert_eq!(found(Some("b"), Some("2"), false), ["orphan", "stopped orphan", "owned"]);
        assert_eq!(found(Some("b"), Some("2"), true), gone);
        assert_eq!(found(Some("b"), None, false), gone);
        assert_eq!(found(Some("b"), Some("owned"), false), gone);
    }
}
