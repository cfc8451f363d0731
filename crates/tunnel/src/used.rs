//! The accounts that the Tunnels of a cluster have used, so that the sweep knows them all: each is an annotation of
//! the administrator's ConfigMap. Pure.
//!
//! A Tunnel's account is recorded before its first host is requested there, and stays: hosts may be left over when
//! no Tunnel and no ConfigMap names the account any more.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::api::{Placement, SecretKey, TunnelSpec};
use crate::choice::{Defaults, InvalidTunnel, TokenRef, account_name, placement, token};
use crate::names::{ACCOUNT, MAX_ACCOUNTS};

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

/// The accounts that a ConfigMap has recorded, by the names of their annotations.
pub(super) fn recorded(config_map: &ConfigMap) -> BTreeMap<String, Used> {
    read(config_map.annotations()).collect()
}

fn read(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (String, Used)> {
    let ours = annotations.iter().filter(|(key, _)| key.starts_with(ACCOUNT));
    let read = |(key, value): (&String, &String)| {
        Some((key.clone(), serde_json::from_str::<Used>(value).ok()?))
    };
    ours.filter_map(read).take(MAX_ACCOUNTS)
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
    let is = |token: &Option<TokenRef>| {
        held.account.as_ref().is_none_or(|at| *at == account_name(held, token.as_ref()))
    };
    if named.as_ref().is_ok_and(is) {
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
    let account = at.account.as_deref()?;
    let mut used = read(&defaults.used).filter_map(|(_, used)| used.account());
    let found = used.find(|(used, token)| {
        let here = used.provider == at.provider && used.endpoint == at.endpoint;
        here && account_name(used, token.as_ref()) == account
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
        };
        let secret = SecretKey { name: "mine".to_owned(), key: "token".to_owned() };
        let token = TokenRef { namespace: "shop".to_owned(), secret };
        let used = Used::new(&placement, Some(&token));
        let mut annotations = json!({used.key(): used.value(), "other": "{}"});
        annotations[format!("{ACCOUNT}theirs")] = json!("not ours");
        annotations[format!("{ACCOUNT}part")] = json!(r#"{"provider":"hetzner"}"#);
        let map = json!({"metadata": {"annotations": annotations}});
        let found = recorded(&serde_json::from_value(map).unwrap());
        let accounts: Vec<_> = found.values().filter_map(Used::account).collect();
        assert_eq!(accounts, [(placement, Some(token))]);
        assert!(used.key().len() <= ACCOUNT.len() + 63);
    }
}
