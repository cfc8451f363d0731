//! The Secret with the passwords of our accounts, and how far their rotation is. Pure.
//!
//! ```text
//!           ┌──────────────────────────────────────────────────────────────────┐
//!           ▼                                                                  │
//!   Settled ──▶ Next: others are there too, ──▶ Changed: those are the ones ───┘
//!                     servers learn them        in use, the former still work
//!                                                  ▲
//!               Lost: servers do not know them ────┘
//! ```
//!
//! What a server accepts is asked of the server. So whoever takes over goes on with what the Secret says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use operands::pod::typed;
use serde_json::json;

use crate::api::MySQLCluster;
use crate::calls::{Account, Password};
use crate::names::{self, PORT, TLS};
use crate::objects::metadata;

/// The key with what the exporter reads.
pub(crate) const EXPORTER_FILE: &str = "exporter.cnf";
/// The longest password, in bytes.
pub(crate) const MAX_PASSWORD: usize = 256;
/// The key of the manager's former password.
const FORMER: &str = "leasehold-former";
/// The annotation with the phase.
const PHASE: &str = "mysql.leasehold.dev/rotation";
/// The annotation with the time when the phase began.
const SINCE: &str = "mysql.leasehold.dev/rotation-since";
/// The annotation with the time when the passwords in use came into use.
const ROTATED: &str = "mysql.leasehold.dev/rotated";

/// Passwords by the names of their accounts.
type Set = BTreeMap<&'static str, Password>;

/// How far a rotation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is none: servers accept the passwords in use and no others.
    #[default]
    Settled,
    /// The next passwords are in the Secret, and servers learn them.
    Next,
    /// The Secret was lost, and its passwords are new: servers do not know them.
    Lost,
    /// All servers know the passwords in use. They accept the former ones too.
    Changed,
}

/// The passwords of our accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keyring {
    /// Those in use: Pods have them as files.
    in_use: Set,
    /// Those that come into use.
    next: Set,
    /// The manager's own before those in use, while a server may know it alone.
    former: Option<Password>,
    pub(crate) phase: Phase,
    /// When the phase began.
    pub(crate) since: Timestamp,
    /// When the passwords in use came into use.
    pub(crate) rotated: Timestamp,
    /// The value of the cluster's annotation [`names::ROTATE`] that was followed last.
    pub(crate) request: Option<String>,
}

impl Keyring {
    /// New passwords of all accounts. If servers have data already, they do not know them.
    pub(crate) fn new(phase: Phase, now: Timestamp, random: impl FnMut() -> String) -> Self {
        Self { in_use: drawn(random), phase, since: now, rotated: now, ..Self::default() }
    }

    /// Reads the Secret. If one of its passwords is missing, all of them are made anew: servers are told all
    /// at once.
    pub(crate) fn read(secret: &Secret, now: Timestamp, random: impl FnMut() -> String) -> Self {
        let noted = |key: &str| secret.annotations().get(key);
        // One that is ahead is of a clock that was wrong, or of somebody else: it is as good as now.
        let time = |key: &str| Some(noted(key)?.parse::<Timestamp>().ok()?.min(now));
        let phase = noted(PHASE).map_or(Phase::Settled, |text| Phase::parse(text));
        let request = names::noted_request(secret.annotations());
        let (in_use, next) = (whole(secret, ""), whole(secret, "-next"));
        let (Some(in_use), false) = (in_use, phase == Phase::Next && next.is_none()) else {
            let former = password(secret, Account::Leasehold.name());
            let former = former.or_else(|| password(secret, FORMER));
            return Self { former, request, ..Self::new(Phase::Lost, now, random) };
        };
        let rotated = time(ROTATED).unwrap_or(now);
        Self {
            in_use,
            next: next.filter(|_| phase == Phase::Next).unwrap_or_default(),
            former: password(secret, FORMER).filter(|_| phase != Phase::Settled),
            phase,
            since: time(SINCE).unwrap_or(rotated),
            rotated,
            request,
        }
    }

    /// Whether a Secret has the passwords in use.
    pub(crate) fn is_in(&self, secret: &Secret) -> bool {
        whole(secret, "").is_some_and(|found| found == self.in_use)
    }

    /// The password in use of an account.
    pub(crate) fn of(&self, account: Account) -> Password {
        self.in_use.get(account.name()).cloned().unwrap_or_else(|| Password(String::new()))
    }

    /// The passwords that all servers know in the end.
    pub(crate) fn newest(&self) -> Vec<(Account, Password)> {
        let set = if self.phase == Phase::Next { &self.next } else { &self.in_use };
        let of = |account: Account| Some((account, set.get(account.name())?.clone()));
        Account::OURS.into_iter().filter_map(of).collect()
    }

    /// The manager's own, the newest first.
    pub(crate) fn own(&self) -> Vec<Password> {
        let next = self.next.get(Account::Leasehold.name()).cloned();
        let all = next.into_iter().chain([self.of(Account::Leasehold)]);
        all.chain(self.former.clone()).collect()
    }

    /// A rotation begins, as this request asks for or because it is due.
    pub(crate) fn begun(
        &self,
        request: Option<&str>,
        now: Timestamp,
        random: impl FnMut() -> String,
    ) -> Self {
        Self {
            next: drawn(random),
            phase: Phase::Next,
            since: now,
            request: request.map(str::to_owned),
            ..self.clone()
        }
    }

    /// Servers do not know the passwords in use.
    pub(crate) fn lost(&self, now: Timestamp) -> Self {
        Self { phase: Phase::Lost, since: now, ..self.clone() }
    }

    /// All servers know the newest passwords.
    pub(crate) fn changed(&self, now: Timestamp) -> Self {
        let (phase, since, rotated) = (Phase::Changed, now, now);
        match self.phase {
            Phase::Next => {
                let former = self.in_use.get(Account::Leasehold.name()).cloned();
                let (in_use, request) = (self.next.clone(), self.request.clone());
                Self { in_use, next: Set::new(), former, phase, since, rotated, request }
            }
            _ => Self { phase, since, rotated, ..self.clone() },
        }
    }

    /// The former passwords are of no use any more.
    pub(crate) fn settled(&self, now: Timestamp) -> Self {
        Self { next: Set::new(), former: None, phase: Phase::Settled, since: now, ..self.clone() }
    }

    /// The Secret. It replaces exactly the version that was read.
    pub(crate) fn secret(&self, cluster: &MySQLCluster, version: Option<&str>) -> Secret {
        let mut secret: Secret = typed(
            json!({"metadata": metadata(cluster, &names::accounts(cluster)), "type": "Opaque"}),
        );
        secret.metadata.resource_version = version.map(str::to_owned);
        let request = self.request.clone().map(|request| (names::ROTATE.to_owned(), request));
        let noted = [
            (PHASE, self.phase.as_str().to_owned()),
            (SINCE, self.since.to_string()),
            (ROTATED, self.rotated.to_string()),
        ];
        let noted = noted.map(|(key, value)| (key.to_owned(), value));
        secret.metadata.annotations = Some(noted.into_iter().chain(request).collect());
        let texts = |set: &Set, suffix: &str| {
            let text = |(name, password): (&&str, &Password)| {
                (format!("{name}{suffix}"), password.clone())
            };
            set.iter().map(text).collect::<Vec<_>>()
        };
        let mut all = texts(&self.in_use, "");
        all.extend(texts(&self.next, "-next"));
        all.extend(self.former.clone().map(|former| (FORMER.to_owned(), former)));
        all.push((EXPORTER_FILE.to_owned(), Password(self.exporter_file())));
        let bytes = |(key, text): (String, Password)| (key, ByteString(text.0.into_bytes()));
        secret.data = Some(all.into_iter().map(bytes).collect());
        secret
    }

    fn exporter_file(&self) -> String {
        let password = self.of(Account::Exporter).0;
        format!(
            "[client]\nuser=exporter\npassword={password}\nhost=127.0.0.1\nport={PORT}\nssl-ca={TLS}/ca.crt\n"
        )
    }
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "Settled",
            Self::Next => "Next",
            Self::Lost => "Lost",
            Self::Changed => "Changed",
        }
    }

    fn parse(text: &str) -> Self {
        let all = [Self::Next, Self::Lost, Self::Changed];
        all.into_iter().find(|phase| phase.as_str() == text).unwrap_or_default()
    }
}

fn drawn(mut random: impl FnMut() -> String) -> Set {
    Account::OURS.into_iter().map(|account| (account.name(), Password(random()))).collect()
}

/// The passwords of all accounts, if none is missing.
fn whole(secret: &Secret, suffix: &str) -> Option<Set> {
    let of = |account: Account| {
        let name = account.name();
        Some((name, password(secret, &format!("{name}{suffix}"))?))
    };
    Account::OURS.into_iter().map(of).collect()
}

/// A password that we made.
fn password(secret: &Secret, key: &str) -> Option<Password> {
    let text = String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()?;
    let is_ours = (1..=MAX_PASSWORD).contains(&text.len()) && text.bytes().all(is_sign);
    is_ours.then_some(Password(text))
}

/// Whether a sign may be in a password that we made. It is in scripts, statements and option files as it is.
pub(crate) fn is_sign(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
#[path = "keyring_tests.rs"]
mod tests;
