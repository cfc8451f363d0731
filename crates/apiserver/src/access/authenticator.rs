//! Tells the user of a token: the administrator, or a ServiceAccount whose objects still exist.

use jiff::Timestamp;
use serde_json::Value;

use super::token::{Claims, ISSUER, LEEWAY_SECONDS, Reference, Signer, TokenError};
use super::user::{AUTHENTICATED, User};
use crate::objects::meta;
use crate::resource::table_id;
use crate::store::{Key, Store};

/// Knows the administrator's token and those that the server has issued.
#[derive(Debug)]
pub struct Authenticator {
    /// Signs tokens of ServiceAccounts.
    pub signer: Signer,
    administrator: Option<String>,
}

/// The user of a token, and for which of the wanted audiences it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// Who presents it.
    pub user: User,
    /// For which audiences.
    pub audiences: Vec<String>,
}

impl Authenticator {
    /// One that knows this token of the administrator, if any.
    pub fn new(signer: Signer, administrator: Option<String>) -> Self {
        Self { signer, administrator }
    }

    /// Who presents a token for one of these audiences.
    ///
    /// # Errors
    /// Nobody known does, now.
    pub fn authenticate(
        &self,
        store: &Store,
        token: &str,
        wanted: &[String],
        now: Timestamp,
    ) -> Result<Authenticated, TokenError> {
        if self.administrator.as_deref() == Some(token) {
            if !wanted.iter().any(|a| a == ISSUER) {
                return Err(TokenError::Foreign);
            }
            let audiences = vec![ISSUER.into()];
            return Ok(Authenticated { user: User::administrator(), audiences });
        }
        let claims = self.signer.read(token)?;
        let audiences = claims.check_audiences(wanted)?;
        claims.check_time(now)?;
        check_bound(store, &claims, now)?;
        Ok(Authenticated { user: user_of(&claims), audiences })
    }
}

/// Checks that the ServiceAccount and the bound objects are still the same.
fn check_bound(store: &Store, claims: &Claims, now: Timestamp) -> Result<(), TokenError> {
    let bound = &claims.bound;
    let namespace = bound.namespace.as_str();
    let account = &bound.serviceaccount;
    let Some(found) = object(store, "serviceaccounts", namespace, &account.name) else {
        return Err(TokenError::Unbound(format!("serviceaccounts {:?} not found", account.name)));
    };
    let uid = meta(&found, "uid");
    if uid != account.uid {
        let claim = &account.uid;
        let why = format!("service account UID ({uid}) does not match claim ({claim})");
        return Err(TokenError::Unbound(why));
    }
    if gone(&found, now) {
        let why = format!("service account {namespace}/{} has been deleted", account.name);
        return Err(TokenError::Unbound(why));
    }
    check_object(store, ("Secret", "secrets"), namespace, bound.secret.as_ref(), now)?;
    check_object(store, ("Pod", "pods"), namespace, bound.pod.as_ref(), now)?;
    let node = bound.node.as_ref().filter(|_| bound.pod.is_none());
    check_object(store, ("Node", "nodes"), "", node, now)
}

fn check_object(
    store: &Store,
    (kind, plural): (&str, &str),
    namespace: &str,
    reference: Option<&Reference>,
    now: Timestamp,
) -> Result<(), TokenError> {
    let Some(reference) = reference else { return Ok(()) };
    let invalid = || TokenError::Unbound("service account token has been invalidated".to_owned());
    let found = object(store, plural, namespace, &reference.name).ok_or_else(invalid)?;
    let uid = meta(&found, "uid");
    if uid != reference.uid {
        return Err(TokenError::Unbound(format!(
            "{kind} UID ({uid}) does not match service account {} ref claim ({})",
            kind.to_lowercase(),
            reference.uid
        )));
    }
    if gone(&found, now) { Err(invalid()) } else { Ok(()) }
}

fn object(store: &Store, plural: &str, namespace: &str, name: &str) -> Option<Value> {
    let key = Key { namespace: namespace.into(), name: name.into() };
    store.get(&table_id("", plural), &key).map(|object| object.to_value())
}

/// Whether the time of an object's deletion has passed.
fn gone(object: &Value, now: Timestamp) -> bool {
    let deleted: Option<Timestamp> = meta(object, "deletionTimestamp").parse().ok();
    deleted.is_some_and(|at| at.as_second() < now.as_second() - LEEWAY_SECONDS)
}

fn user_of(claims: &Claims) -> User {
    let bound = &claims.bound;
    let account = &bound.serviceaccount;
    let mut user = User::service_account(&bound.namespace, &account.name, &account.uid);
    user.groups.push(AUTHENTICATED.into());
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.into()]);
        }
    };
    extra("credential-id", &format!("JTI={}", claims.jti));
    for (kind, reference) in [("pod", &bound.pod), ("node", &bound.node)] {
        if let Some(reference) = reference {
            extra(&format!("{kind}-name"), &reference.name);
            extra(&format!("{kind}-uid"), &reference.uid);
        }
    }
    user
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::token::BoundObjects;
    use super::*;
    use crate::store::{Change, WindowLimits};

    fn put(store: &Store, plural: &str, namespace: &str, name: &str, uid: &str) {
        let key = Key { namespace: namespace.into(), name: name.into() };
        let table = table_id("", plural);
        let current = store.get(&table, &key);
        let object = json!({"metadata": {"name": name, "namespace": namespace, "uid": uid}});
        store.commit(&table, &key, current.as_ref(), Change::Put(object)).unwrap();
    }

    fn reference(name: &str, uid: &str) -> Reference {
        Reference { name: name.into(), uid: uid.into() }
    }

    fn claims(bound: BoundObjects) -> Claims {
        let bound =
            BoundObjects { namespace: "a".into(), serviceaccount: reference("b", "u"), ..bound };
        Claims {
            aud: vec![ISSUER.into()],
            exp: 3600,
            iat: 0,
            iss: ISSUER.into(),
            jti: "id".into(),
            bound,
            nbf: 0,
            sub: "system:serviceaccount:a:b".into(),
        }
    }

    #[test]
    fn a_token_lives_as_long_as_its_objects() {
        let store = Store::new(WindowLimits::default());
        let authenticator = Authenticator::new(Signer::new(Some(1)), Some("secret".into()));
        let token = authenticator.signer.sign(&claims(BoundObjects {
            pod: Some(reference("p", "v")),
            ..BoundObjects::default()
        }));
        let ask = |token: &str| {
            authenticator
                .authenticate(&store, token, &[ISSUER.into()], Timestamp::UNIX_EPOCH)
                .map(|found| found.user)
                .map_err(|e| e.to_string())
        };
        assert_eq!(ask("secret"), Ok(User::administrator()));
        assert_eq!(ask("guess"), Err("invalid bearer token".into()));
        assert_eq!(ask(&token), Err("serviceaccounts \"b\" not found".into()));
        put(&store, "serviceaccounts", "a", "b", "u");
        assert_eq!(ask(&token), Err("service account token has been invalidated".into()));
        put(&store, "pods", "a", "p", "w");
        assert_eq!(
            ask(&token),
            Err("Pod UID (w) does not match service account pod ref claim (v)".into())
        );
        put(&store, "pods", "a", "p", "v");
        let user = ask(&token).unwrap();
        assert_eq!(user.groups.last().map(String::as_str), Some(AUTHENTICATED));
        assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
        assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=id"]);
        put(&store, "serviceaccounts", "a", "b", "other");
        assert_eq!(ask(&token), Err("service account UID (other) does not match claim (u)".into()));
    }
}
