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
use crate::choice::{TokenRef, placement};
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
    let ours = config_map.annotations().iter().filter(|(key, _)| key.starts_with(ACCOUNT));
    let read = |(key, value): (&String, &String)| {
        Some((key.clone(), serde_json::from_str::<Used>(value).ok()?))
    };
    ours.filter_map(read).take(MAX_ACCOUNTS).collect()
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
