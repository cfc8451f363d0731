//! Users: their names, groups and extra fields, as `UserInfo` shows them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::objects::names;

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of every user who has presented a valid token.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of requests without a token.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of requests without a token.
pub const ANONYMOUS: &str = "system:anonymous";

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// A user of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Unique name.
    pub name: String,
    /// Unique over time, or empty.
    pub uid: String,
    /// Names of groups.
    pub groups: Vec<String>,
    /// More about the user, by lower-case key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of the server's own kubeconfig.
    pub fn administrator() -> Self {
        let groups = vec![MASTERS.into(), AUTHENTICATED.into()];
        Self { name: "system:admin".into(), groups, ..Self::default() }
    }

    /// The user of requests without a token.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// A ServiceAccount, with all of its groups but [`AUTHENTICATED`].
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            name: service_account_name(namespace, name),
            uid: uid.into(),
            groups: service_account_groups(namespace),
            extra: BTreeMap::new(),
        }
    }

    /// Whether the user belongs to a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// `UserInfo`, without what is empty.
    pub fn to_value(&self) -> Value {
        let mut value = json!({});
        for (field, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                value[field] = json!(text);
            }
        }
        if !self.groups.is_empty() {
            value["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            value["extra"] = json!(self.extra);
        }
        value
    }
}

/// The user name of a ServiceAccount.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// Namespace and name of the ServiceAccount that a user name stands for, if it is one.
pub fn service_account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (names::is_label(namespace) && names::is_subdomain(name)).then_some((namespace, name))
}

/// The groups that every ServiceAccount of a namespace belongs to.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.into(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_have_names_and_groups() {
        let user = User::service_account("a", "b", "u");
        assert_eq!(user.name, "system:serviceaccount:a:b");
        assert_eq!(service_account_of(&user.name), Some(("a", "b")));
        for other in ["system:serviceaccount:a", "system:serviceaccount:a:b:c", "jane", ""] {
            assert_eq!(service_account_of(other), None, "{other}");
        }
        assert!(user.is_in("system:serviceaccounts:a") && !user.is_in(AUTHENTICATED));
    }

    #[test]
    fn empty_fields_are_left_out() {
        let user = User { name: "jane".into(), ..User::default() };
        assert_eq!(user.to_value(), json!({"username": "jane"}));
    }
}
