//! The passwords: the users' for root, and those that the manager makes for its own accounts.
//!
//! Secrets are read one by one, not watched: a controller that watches Secrets sees all of a cluster. What
//! was read is remembered for a minute, so failing over costs no reads.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use operands::children::{Obstacle, is_of};
use sdk::condition::rest;
use sdk::{Context, ReconcileError};

use crate::api::MySQLCluster;
use crate::calls::{Account, Password};
use crate::keyring::{Keyring, MAX_PASSWORD, Phase};
use crate::names;

/// The key of the password in the users' Secret.
const PASSWORD_KEY: &str = "password";
/// How long what was read is not read again.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long it is not if the users' Secret could not be used, or ours not be written.
const REMEMBERED_IN_TROUBLE: Duration = Duration::from_secs(10);
/// The longest password with which MySQL follows another server, in bytes.
const MAX_SOURCE_PASSWORD: usize = 32;
/// The longest version of a Secret that is remembered, in bytes; no server of Kubernetes has longer ones.
const MAX_VERSION: usize = 253;

/// The passwords of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Passwords {
    /// Root's: that of the users' Secret, or else the last one that worked.
    pub(crate) root: Option<Password>,
    /// Why the users' Secret cannot be used, if so.
    pub(crate) trouble: Option<String>,
    /// Why the server does not take the Secret with the keyring, if so.
    pub(crate) untaken: Option<String>,
    pub(crate) keyring: Keyring,
    /// The version of the Secret with the keyring.
    version: Option<String>,
    read: Timestamp,
}

impl Passwords {
    /// The password in use of one of our accounts.
    pub(crate) fn of(&self, account: Account) -> Password {
        self.keyring.of(account)
    }

    /// With what instances follow and clone each other: as root while servers may not know the passwords in
    /// use, unless root's is too long for that.
    pub(crate) fn replication(&self) -> (Account, Password) {
        let is_lost = self.keyring.phase == Phase::Lost;
        let root = self.root.as_ref().filter(|root| root.0.len() <= MAX_SOURCE_PASSWORD);
        match root.filter(|_| is_lost) {
            Some(root) => (Account::Root, root.clone()),
            None => (Account::Replication, self.of(Account::Replication)),
        }
    }

    /// Whether they were read so lately that they need not be read again.
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        let is_well = self.trouble.is_none() && self.untaken.is_none();
        let lasts = if is_well { REMEMBERED } else { REMEMBERED_IN_TROUBLE };
        rest(self.read, lasts, now).is_some()
    }
}

/// Reads the passwords, and makes them with `random` where they are missing. Root's is `former` where the
/// users' Secret has none. Passwords that were known before serve on if the server does not take the Secret.
///
/// # Errors
/// If something of others has the name of ours, or what the server says.
pub(crate) async fn passwords(
    ctx: &Context,
    cluster: &MySQLCluster,
    random: fn() -> String,
    (former, known): (Option<&Password>, Option<Passwords>),
) -> Result<Passwords, Obstacle> {
    let namespace = cluster.namespace().unwrap_or_default();
    let secrets = Api::<Secret>::namespaced(ctx.client(), &namespace);
    let users = secrets.get_opt(&cluster.spec.secret).await?;
    let (root, trouble) = match root_password(&cluster.spec.secret, users.as_ref()) {
        Ok(root) => (Some(root), None),
        Err(trouble) => (former.cloned(), Some(trouble)),
    };
    let name = names::accounts(cluster);
    let found = secrets.get_opt(&name).await?;
    if found.as_ref().is_some_and(|found| !is_of(cluster, found)) {
        return Err(Obstacle::Blocked(format!(
            "Secret {name} exists and is not of this MySQLCluster: delete it, or give the MySQLCluster \
             another name"
        )));
    }
    let now = ctx.now();
    let keyring = match &found {
        Some(found) => Keyring::read(found, now, random),
        None => absent(cluster, now, random),
    };
    let version = found.as_ref().and_then(ResourceExt::resource_version);
    let wanted = keyring.secret(cluster, version.as_deref());
    let is_kept = found.as_ref().is_some_and(|found| {
        let has = |(key, value): (&String, &String)| found.annotations().get(key) == Some(value);
        found.data == wanted.data && wanted.annotations().iter().all(has)
    });
    let read = Passwords { root, trouble, untaken: None, keyring, version, read: now };
    if is_kept {
        return Ok(read.bounded());
    }
    match ctx.apply_child(cluster, wanted).await {
        Ok(secret) => Ok(Passwords { version: secret.resource_version(), ..read }.bounded()),
        Err(error) => {
            let obstacle = Obstacle::unwritten::<Secret>(&name, error);
            // Passwords that are nowhere but here would be others after the next read.
            let usable = match found.is_some_and(|found| read.keyring.is_in(&found)) {
                true => read,
                false => match known {
                    Some(known) => {
                        Passwords { keyring: known.keyring, version: known.version, ..read }
                    }
                    None => return Err(obstacle),
                },
            };
            let words = obstacle.answered()?;
            let untaken = Some(format!("Secret {name} is not written: {words}"));
            Ok(Passwords { untaken, ..usable }.bounded())
        }
    }
}

/// The keyring of a cluster without a Secret: if it is not new, its servers do not know these passwords.
fn absent(cluster: &MySQLCluster, now: Timestamp, random: fn() -> String) -> Keyring {
    let is_old = cluster.status.as_ref().is_some_and(|status| status.replication.term > 0);
    let phase = if is_old { Phase::Lost } else { Phase::Settled };
    let mut keyring = Keyring::new(phase, now, random);
    keyring.request = names::request(cluster);
    keyring
}

impl Passwords {
    fn bounded(mut self) -> Self {
        self.version.take_if(|version| version.len() > MAX_VERSION);
        self
    }

    /// Writes another keyring into the Secret. It fails if the Secret is not the one that was read.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn write(
        &self,
        ctx: &Context,
        cluster: &MySQLCluster,
        keyring: &Keyring,
    ) -> Result<(), ReconcileError> {
        ctx.apply_child(cluster, keyring.secret(cluster, self.version.as_deref())).await.map(drop)
    }

    /// Whether the Secret is still the one that was read.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn are_current(
        &self,
        ctx: &Context,
        cluster: &MySQLCluster,
    ) -> Result<bool, ReconcileError> {
        let namespace = cluster.namespace().unwrap_or_default();
        let secrets = Api::<Secret>::namespaced(ctx.client(), &namespace);
        let found = secrets.get_metadata_opt(&names::accounts(cluster)).await?;
        Ok(found.is_some_and(|found| found.resource_version() == self.version))
    }
}

/// Root's password in the users' Secret, or why there is none.
fn root_password(name: &str, secret: Option<&Secret>) -> Result<Password, String> {
    let unusable = |why: &str| {
        format!("Secret {name} {why}: it has to have root's password under the key {PASSWORD_KEY}")
    };
    let secret = secret.ok_or_else(|| unusable("does not exist"))?;
    let text =
        text(Some(secret), PASSWORD_KEY).ok_or_else(|| unusable("has no such key, or no text"))?;
    let text = text.trim_end_matches('\n');
    match text.len() {
        0 => Err(unusable("has an empty password")),
        1..=MAX_PASSWORD => Ok(Password(text.to_owned())),
        _ => Err(unusable("has a password of more than 256 bytes")),
    }
}

fn text(secret: Option<&Secret>, key: &str) -> Option<String> {
    let value = secret?.data.as_ref()?.get(key)?;
    String::from_utf8(value.0.clone()).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn roots_password_is_in_the_users_secret() {
        let secret = |key: &str, value: &[u8]| Secret {
            data: Some(BTreeMap::from([(key.to_owned(), ByteString(value.to_vec()))])),
            ..Secret::default()
        };
        assert_eq!(
            root_password("s", Some(&secret("password", b"it's\n"))).unwrap(),
            Password("it's".to_owned())
        );
        let long = "x".repeat(MAX_PASSWORD + 1);
        for (found, says) in [
            (None, "Secret s does not exist"),
            (Some(secret("Password", b"x")), "no such key"),
            (Some(secret("password", b"\xff")), "no text"),
            (Some(secret("password", b"\n")), "empty"),
            (Some(secret("password", long.as_bytes())), "256 bytes"),
        ] {
            let message = root_password("s", found.as_ref()).unwrap_err();
            assert!(message.contains(says), "{message}");
        }
    }
}
