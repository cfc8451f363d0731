//! The accounts that the Tunnels of a cluster have used, so that the sweep knows them all: each is an annotation of
//! the administrator's ConfigMap. Pure.
//!
//! A Tunnel's account is recorded before its first host is requested there, and stays: hosts may be left over when
//! no Tunnel and no ConfigMap names the account any more. Whoever writes Tunnels chooses among the keys of a Secret of
//! their own, and each is another account; so those of one namespace have a bound of their own, and one of them in which
//! nothing is left is forgotten.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::api::{Placement, SecretKey, Tunnel, TunnelSpec};
use crate::choice::{Defaults, InvalidTunnel, TokenRef, in_account, placement, token};
use crate::names::{ACCOUNT, MAX_ACCOUNTS, MAX_OWN_ACCOUNTS};

/// An account, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Used {
    provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<SecretKey>,
}

impl Used {
    /// The account of a placement.
    pub(super) fn new(placement: &Placement, token: Option<&TokenRef>) -> Self {
        Self {
            provider: placement.provider.clone(),
            endpoint: placement.endpoint.clone(),
            namespace: token.map(|token| token.namespace.clone()),
            secret: token.map(|token| token.secret.clone()),
        }
    }

    /// The name of its annotation.
    pub(super) fn key(&self) -> String {
        let digest = Sha256::digest(self.value());
        format!("{ACCOUNT}{}", HEXLOWER.encode(&digest[..8]))
    }

    /// The value of its annotation.
    pub(super) fn value(&self) -> String {
        serde_json::to_string(self).expect("texts are JSON")
    }

    /// The namespace with its token, if that is not the administrator's: whoever writes Tunnels there chose it.
    pub(super) fn tenant(&self, administrator: &str) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| *namespace != administrator)
    }

    /// Whether a Tunnel names it, or has something there.
    pub(super) fn is_named(&self, tunnel: &Tunnel) -> bool {
        let Some((at, token)) = self.account() else { return false };
        let asks = tunnel.metadata.namespace == self.namespace
            && tunnel.spec.token_secret_ref.as_ref() == self.secret.as_ref();
        let held = tunnel.status.as_ref().and_then(|status| status.placement.as_ref());
        asks || held.is_some_and(|held| holds(held, &at, token.as_ref()))
    }

    /// Whether a placement that is recorded as a whole is in another account.
    pub(super) fn is_left(&self, held: &Placement) -> bool {
        let known = held.account.is_some() && held.token_key.is_some();
        known
            && self.account().is_some_and(|(at, token)| {
                held.endpoint != at.endpoint || !holds(held, &at, token.as_ref())
            })
    }

    /// Where it makes hosts, and where its token is; `None` if it was not written by us.
    pub(super) fn account(&self) -> Option<(Placement, Option<TokenRef>)> {
        let spec = TunnelSpec {
            provider: Some(self.provider.clone()),
            endpoint: self.endpoint.clone(),
            ..TunnelSpec::default()
        };
        let token = self.namespace.clone().zip(self.secret.clone());
        let token = token.map(|(namespace, secret)| TokenRef { namespace, secret });
        let is_whole = token.is_some() || self.provider == "local";
        Some((placement(&spec).ok()?, token)).filter(|_| is_whole)
    }
}

/// Whether a placement, as far as it is recorded, is in the account of a token.
fn holds(held: &Placement, at: &Placement, token: Option<&TokenRef>) -> bool {
    let own = in_account(at.clone(), token);
    held.account.as_ref().is_none_or(|_| held.account == own.account)
        && held.token_key.as_ref().is_none_or(|_| held.token_key == own.token_key)
}

/// The accounts that a ConfigMap has recorded, by the names of their annotations.
pub(super) fn recorded(config_map: &ConfigMap) -> BTreeMap<String, Used> {
    read(config_map.annotations()).collect()
}

/// What is wrong with the annotations for accounts that name none.
pub(super) fn unreadable(config_map: &ConfigMap) -> impl Iterator<Item = String> {
    let ours = config_map.annotations().iter().filter(|(key, _)| key.starts_with(ACCOUNT));
    let says = |value: &String| {
        let used = serde_json::from_str::<Used>(value);
        used.is_ok_and(|used| used.account().is_some())
    };
    ours.filter(move |found| !says(found.1)).map(|(key, _)| {
        format!("annotation {key} is not as it was recorded, so its account is not swept: restore or remove it")
    })
}

fn read(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (String, Used)> {
    let ours = annotations.iter().filter(|(key, _)| key.starts_with(ACCOUNT));
    let read = |(key, value): (&String, &String)| {
        Some((key.clone(), serde_json::from_str::<Used>(value).ok()?))
    };
    ours.filter_map(read).take(MAX_ACCOUNTS)
}

/// Whether an account has still to be recorded.
///
/// # Errors
/// If no more can be.
pub(super) fn misses(defaults: &Defaults, account: &Used) -> Result<bool, InvalidTunnel> {
    // Without a ConfigMap there is no account but this machine.
    if defaults.namespace.is_empty() || defaults.used.contains_key(&account.key()) {
        return Ok(false);
    }
    if defaults.used.len() >= MAX_ACCOUNTS {
        let (namespace, max) = (defaults.namespace.clone(), MAX_ACCOUNTS);
        return Err(InvalidTunnel::TooManyAccounts { namespace, max });
    }
    let own = &defaults.namespace;
    let Some(tenant) = account.tenant(own) else { return Ok(true) };
    let theirs = read(&defaults.used).filter(|(_, used)| used.tenant(own) == Some(tenant));
    if theirs.count() < MAX_OWN_ACCOUNTS {
        return Ok(true);
    }
    let (namespace, max) = (tenant.to_owned(), MAX_OWN_ACCOUNTS);
    Err(InvalidTunnel::TooManyOwnAccounts { namespace, max })
}

/// Where the token for a host is that exists or may exist: that of the account in which it was requested.
///
/// # Errors
/// If neither the Tunnel nor the administrator's ConfigMap says so any more.
pub(super) fn held_token(
    spec: &TunnelSpec,
    namespace: &str,
    defaults: &Defaults,
    held: &Placement,
) -> Result<Option<TokenRef>, InvalidTunnel> {
    let named = token(spec, namespace, defaults, held);
    if named.as_ref().is_ok_and(|token| holds(held, held, token.as_ref())) {
        return named;
    }
    match used_token(defaults, namespace, held) {
        Some(used) => Ok(Some(used)),
        None => named.and_then(|_| {
            Err(InvalidTunnel::NoToken {
                provider: held.account.clone().unwrap_or_default(),
                endpoint: held.endpoint.clone().unwrap_or_else(|| "its own address".to_owned()),
            })
        }),
    }
}

/// The token of the account at a placement, if Tunnels of that namespace have used it: whatever a Tunnel asks for now,
/// its host is given back there. A status alone does not say which Secret is sent where, for others may write it: the
/// ConfigMap must have recorded the same.
fn used_token(defaults: &Defaults, namespace: &str, at: &Placement) -> Option<TokenRef> {
    at.account.as_ref()?;
    let mut used = read(&defaults.used).filter_map(|(_, used)| used.account());
    let found = used.find(|(used, token)| {
        let here = used.provider == at.provider && used.endpoint == at.endpoint;
        here && holds(at, used, token.as_ref())
    });
    let ours = |of: &TokenRef| of.namespace == namespace || of.namespace == defaults.namespace;
    found.and_then(|(_, token)| token).filter(ours)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_account_is_read_as_it_was_recorded() {
        let placement = Placement {
            provider: "hetzner".to_owned(),
            endpoint: Some("https://cloud.test/v1".to_owned()),
            region: "fsn1".to_owned(),
            size: "cx23".to_owned(),
            account: None,
            token_key: None,
        };
        let secret = SecretKey { name: "mine".to_owned(), key: "token".to_owned() };
        let token = TokenRef { namespace: "shop".to_owned(), secret };
        let used = Used::new(&placement, Some(&token));
        let mut annotations = json!({used.key(): used.value(), "other": "{}"});
        annotations[format!("{ACCOUNT}theirs")] = json!("not ours");
        annotations[format!("{ACCOUNT}part")] = json!(r#"{"provider":"hetzner"}"#);
        let map = json!({"metadata": {"annotations": annotations}});
        let map = serde_json::from_value(map).unwrap();
        let told: Vec<_> = unreadable(&map).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains(&format!("{ACCOUNT}part ")), "{told:?}");
        let found = recorded(&map);
        let accounts: Vec<_> = found.values().filter_map(Used::account).collect();
        assert_eq!(accounts, [(placement, Some(token))]);
        assert!(used.key().len() <= ACCOUNT.len() + 63);
    }

    fn used(namespace: &str, key: usize) -> Used {
        let value = json!({
            "provider": "hetzner", "namespace": namespace, "secret": {"name": "mine", "key": key.to_string()},
        });
        serde_json::from_value(value).unwrap()
    }

    /// Each key of a Secret is another account.
    #[test]
    fn one_namespace_leaves_room_for_the_others() {
        let mut all: Vec<_> = (0..MAX_OWN_ACCOUNTS).map(|key| used("shop", key)).collect();
        let of = |all: &[Used], account: &Used| {
            let recorded: BTreeMap<_, _> =
                all.iter().map(|used| (used.key(), used.value())).collect();
            let map = json!({"metadata": {
                "name": "leasehold-tunnel", "namespace": "kube-system", "annotations": recorded,
            }});
            let defaults = Defaults::of(&serde_json::from_value(map).unwrap());
            misses(&defaults, account).map_err(|full| full.to_string())
        };
        assert_eq!(of(&all[1..], &all[0]), Ok(true));
        assert_eq!(of(&all, &all[0]), Ok(false));
        let full = of(&all, &used("shop", MAX_OWN_ACCOUNTS)).unwrap_err();
        assert!(full.contains("10 accounts with tokens of namespace shop"), "{full}");
        assert_eq!(of(&all, &used("bank", 0)), Ok(true));
        // The administrator's own are bounded by what all may have.
        let more = MAX_ACCOUNTS - all.len();
        all.extend((0..more).map(|key| used("kube-system", key)));
        assert_eq!(of(&all[1..], &used("kube-system", more)), Ok(true));
        let full = of(&all, &used("bank", 0)).unwrap_err();
        assert!(full.contains("has recorded 300 accounts"), "{full}");
    }

    #[test]
    fn an_account_is_named_by_a_spec_or_by_a_placement() {
        let tunnel = |namespace: &str, key: &str, account: Option<(&str, Option<&str>)>| {
            let mut tunnel = Tunnel::new("web", TunnelSpec::default());
            tunnel.metadata.namespace = Some(namespace.to_owned());
            tunnel.spec.token_secret_ref =
                Some(SecretKey { name: "mine".to_owned(), key: key.to_owned() });
            let placement = |(account, key): (&str, Option<&str>)| json!({"provider": "hetzner", "region": "r", "size": "s", "account": account, "tokenKey": key});
            let status = account.map(|held| json!({"placement": placement(held)}));
            tunnel.status = serde_json::from_value(json!(status)).unwrap();
            tunnel
        };
        let account = used("shop", 1);
        for (tunnel, expect) in [
            (tunnel("shop", "1", None), true),
            (tunnel("shop", "2", None), false),
            (tunnel("bank", "1", None), false),
            // Earlier versions did not record the key.
            (tunnel("shop", "2", Some(("hetzner/shop/mine", None))), true),
            (tunnel("shop", "2", Some(("hetzner/shop/mine", Some("1")))), true),
            (tunnel("shop", "2", Some(("hetzner/shop/mine", Some("2")))), false),
            (tunnel("shop", "2", Some(("hetzner/shop/other", None))), false),
        ] {
            assert_eq!(account.is_named(&tunnel), expect, "{tunnel:?}");
        }
    }

    /// A Tunnel that names another key has its host where the former token is.
    #[test]
    fn the_token_of_a_host_is_that_of_its_account() {
        let used = [1, 2].map(|key| used("kube-system", key));
        let recorded: BTreeMap<_, _> = used.iter().map(|used| (used.key(), used.value())).collect();
        let map = json!({
            "metadata": {"name": "leasehold-tunnel", "namespace": "kube-system", "annotations": recorded},
            "data": {"provider": "hetzner", "tokenSecret": "mine", "tokenSecretKey": "2"},
        });
        let defaults = Defaults::of(&serde_json::from_value(map).unwrap());
        let held = |key: Option<&str>| Placement {
            provider: "hetzner".to_owned(),
            account: Some("hetzner/kube-system/mine".to_owned()),
            token_key: key.map(str::to_owned),
            region: String::new(),
            size: String::new(),
            endpoint: None,
        };
        let spec = TunnelSpec { provider: Some("hetzner".to_owned()), ..TunnelSpec::default() };
        for (key, expect) in [(Some("1"), "1"), (Some("2"), "2"), (None, "2")] {
            let found = held_token(&spec, "shop", &defaults, &held(key)).unwrap();
            assert_eq!(found.unwrap().secret.key, expect, "{key:?}");
        }
        assert!(!held(Some("1")).is(&held(Some("2"))));
        assert!(held(None).is(&held(Some("2"))), "as an earlier version recorded it");
    }
}
