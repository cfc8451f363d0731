//! What the administrator of the manager lets Tunnels use: which namespaces of which clusters may use which
//! account, how many hosts an account may have over all clusters, and in which namespace of each cluster its ConfigMap
//! of defaults counts. It is one: of two, whoever may create namespaces could make the one that comes first. Pure.
//!
//! An account is named by its provider and its token's Secret, as `digitalocean/leasehold-system/cloud`. It is for
//! those that an entry gives it to. If no entry names it, it is for whom the ConfigMap of its cluster lets use it:
//! its token is in that cluster, so that cluster's administrator has put it there.

use sdk::Context;
use sdk::access::{self, Asker, MAX_ENTRIES, at_most};
use serde::Deserialize;
use serde_json::Value;

use crate::choice::InvalidTunnel;

/// The keys of the configuration's section `controllers.tunnel` that are this controller's own.
pub const KEYS: &[&str] = &["access", "configNamespace", "maxHostsPerAccount"];
/// The namespace of the ConfigMap of defaults unless the administrator says otherwise.
const CONFIG_NAMESPACE: &str = "leasehold-system";
/// How many hosts of Tunnels an account may have unless the administrator says otherwise.
const MAX_HOSTS: usize = 500;

/// The administrator's settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Access {
    access: Vec<Entry>,
    config_namespace: String,
    max_hosts_per_account: usize,
}

/// Who may use what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Entry {
    /// Names of clusters, or their uids; all of them if there are none.
    clusters: Vec<String>,
    /// Namespaces, or `*`.
    namespaces: Vec<String>,
    /// Accounts, or providers for all of theirs; every account if there are none.
    accounts: Vec<String>,
}

/// Whether the settings can be used.
///
/// # Errors
/// What is wrong with them.
pub fn check(settings: &Value) -> Result<(), String> {
    let Access { access: entries, config_namespace: namespace, .. } = Access::parse(settings)?;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if namespace.is_empty() || namespace.len() > 63 || !namespace.chars().all(fits) {
        return Err(format!("configNamespace is {namespace:?}; allowed: the name of a namespace"));
    }
    at_most("access", entries.len(), MAX_ENTRIES)?;
    entries.iter().enumerate().try_for_each(|(index, entry)| {
        let lists = [("clusters", &*entry.clusters), ("accounts", &*entry.accounts)];
        access::check(&entry.namespaces, &lists)
            .map_err(|problem| format!("access[{index}]: {problem}"))
    })
}

impl Default for Access {
    fn default() -> Self {
        let config_namespace = CONFIG_NAMESPACE.to_owned();
        Self { access: Vec::new(), config_namespace, max_hosts_per_account: MAX_HOSTS }
    }
}

impl Access {
    /// The settings in a configuration; null for none.
    ///
    /// # Errors
    /// If they have another form.
    pub fn parse(settings: &Value) -> Result<Self, String> {
        if settings.is_null() {
            return Ok(Self::default());
        }
        Self::deserialize(settings).map_err(|error| error.to_string())
    }

    /// The only namespace in which a ConfigMap of defaults counts.
    pub(super) fn config_namespace(&self) -> &str {
        &self.config_namespace
    }

    /// How many hosts of Tunnels an account may have over all clusters.
    pub(super) fn max_hosts(&self) -> usize {
        self.max_hosts_per_account
    }

    /// Whether a namespace of the cluster of a reconcile may use an account.
    ///
    /// # Errors
    /// If the account is for others only.
    pub(super) fn permit(
        &self,
        ctx: &Context,
        namespace: &str,
        account: &str,
    ) -> Result<(), InvalidTunnel> {
        let cluster_uid = ctx.cluster_uid().map(sdk::ClusterUid::as_str);
        let asker = Asker { cluster: ctx.cluster().as_str(), cluster_uid, namespace };
        if self.permits(&asker, account) {
            return Ok(());
        }
        Err(InvalidTunnel::AccountNotPermitted {
            account: account.to_owned(),
            namespace: namespace.to_owned(),
            cluster: ctx.cluster().to_string(),
        })
    }

    pub(super) fn permits(&self, asker: &Asker<'_>, account: &str) -> bool {
        let mut entries = self.access.iter().filter(|entry| entry.names(account)).peekable();
        entries.peek().is_none()
            || entries.any(|entry| access::is_for(&entry.clusters, &entry.namespaces, asker))
    }
}

impl Entry {
    fn names(&self, account: &str) -> bool {
        let provider = account.split('/').next().unwrap_or_default();
        self.accounts.is_empty()
            || self.accounts.iter().any(|name| name == account || name == provider)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_account_that_is_listed_is_for_those_that_the_list_gives_it_to() {
        let (cloud, own) = ("digitalocean/leasehold-system/cloud", "digitalocean/shop/own");
        let hetzner = "hetzner/leasehold-system/cloud";
        let settings = json!({"access": [
            {"clusters": ["east", "c-9"], "namespaces": ["shop", "web"], "accounts": [cloud]},
            {"namespaces": ["ops"], "accounts": [cloud]},
            {"clusters": ["east"], "namespaces": ["*"], "accounts": ["hetzner"]},
        ]});
        check(&settings).unwrap();
        let listed = Access::parse(&settings).unwrap();
        let every = json!({"access": [{"namespaces": ["shop"]}]});
        let every = Access::parse(&every).unwrap();
        for (cluster, namespace, account, expect, of_every) in [
            ("east", "shop", cloud, true, true),
            ("east", "web", cloud, true, false),
            // Another namespace, another cluster.
            ("east", "dev", cloud, false, false),
            ("west", "shop", cloud, false, true),
            ("renamed", "shop", cloud, true, true),
            ("west", "ops", cloud, true, false),
            // All accounts of a provider.
            ("east", "dev", hetzner, true, false),
            ("west", "dev", hetzner, false, false),
            ("west", "shop", hetzner, false, true),
            // What no entry names is its cluster's own matter.
            ("west", "dev", own, true, false),
            ("west", "dev", "local", true, false),
        ] {
            let cluster_uid = (cluster == "renamed").then_some("c-9");
            let asker = Asker { cluster, cluster_uid, namespace };
            assert_eq!(listed.permits(&asker, account), expect, "{asker:?} {account}");
            assert_eq!(every.permits(&asker, account), of_every, "{asker:?} {account}");
            assert!(Access::default().permits(&asker, account), "{asker:?} {account}");
        }
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        for (settings, expect) in [
            (json!({"acces": []}), "unknown field `acces`"),
            (json!({"maxHostsPerAccount": "two"}), "invalid type"),
            (json!({"maxHostsPerAccount": -1}), "invalid value"),
            (json!({"configNamespace": ""}), "configNamespace is \"\""),
            (json!({"configNamespace": "a, b"}), "allowed: the name of a namespace"),
            (json!({"access": [{"accounts": []}]}), "access[0]: namespaces is missing"),
            (
                json!({"access": [{"namespaces": ["a"], "accounts": [""]}]}),
                "access[0]: accounts has an item that is empty or too long",
            ),
            (json!({"access": vec![json!({"namespaces": ["a"]}); 501]}), "at most 500"),
        ] {
            let problem = check(&settings).unwrap_err();
            assert!(problem.contains(expect), "{problem}");
        }
        assert_eq!(check(&Value::Null), Ok(()));
        assert_eq!(check(&json!({"configNamespace": "kube-system"})), Ok(()));
    }
}
