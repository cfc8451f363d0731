//! What an instance is asked. Pure but for [`Gateway`], [`Session`] and [`Writer`], the seam behind which
//! connections or a stand-in answer.
//!
//! Whoever looks and gives orders holds the lock of the instance (`GET_LOCK`), from the first look to the
//! last order; whoever comes next ends that session first. So no late order comes after a newer look.
//! What commits may wait for acknowledgements without end, so it never happens in that session: see
//! [`Writer`].

use futures::future::BoxFuture;
use sdk::{Context, ReconcileError};

use crate::server::{Look, Order};
use crate::wire::WireError;

/// The code of mysqld's refusal of every statement but a new password.
const EXPIRED: u16 = 1820;
/// The code of its refusal of a login.
const EXPIRED_AT_LOGIN: u16 = 1862;

/// Why an instance was not asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MySqlError {
    /// There is no connection.
    #[error("reach mysqld in Pod {pod}")]
    Unreached {
        pod: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no answer yet.
    #[error("{what} in Pod {pod}: no answer after {seconds} s")]
    Slow { pod: String, what: &'static str, seconds: u64 },
    /// There is no answer, or mysqld refuses.
    #[error("{what} in Pod {pod}")]
    Failed {
        pod: String,
        what: &'static str,
        #[source]
        source: WireError,
    },
    /// A session has the lock that was told to end, and has not ended.
    #[error("look at mysqld in Pod {pod}: session {session} of {user} has the lock `leasehold`")]
    Locked { pod: String, session: u64, user: String },
    /// It is being cloned over, in a session that began earlier.
    #[error("look at mysqld in Pod {pod}: it takes the data of another instance")]
    Cloning { pod: String },
    /// It is not in the state that the order is for.
    #[error("{what} in Pod {pod}: {why}")]
    Unfit { pod: String, what: &'static str, why: &'static str },
    /// What it answers is not what is asked for.
    #[error("{what} in Pod {pod}: it says that {field} is {value:?}")]
    Unexpected { pod: String, what: &'static str, field: &'static str, value: String },
}

impl From<MySqlError> for ReconcileError {
    fn from(error: MySqlError) -> Self {
        Self::transient(error)
    }
}

impl MySqlError {
    /// Whether it finds the password wrong or expired, or lacks the account.
    pub(crate) fn is_denied(&self) -> bool {
        [1045, EXPIRED, EXPIRED_AT_LOGIN].into_iter().any(|code| self.has_code(code))
    }

    /// Whether sessions kept it from being closed: they commit, or wait for acknowledgements.
    pub(crate) fn is_held_up(&self) -> bool {
        self.has_code(1205)
    }

    fn has_code(&self, wanted: u16) -> bool {
        matches!(self, Self::Failed { source: WireError::Refused { code, .. }, .. } if *code == wanted)
    }
}

/// A password. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(pub(crate) String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

/// An instance to be asked, how it proves itself, and how the manager does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) namespace: String,
    /// Its Pod, which is its name.
    pub(crate) pod: String,
    /// What follows an instance's name in its DNS name: `NAME-instances.NAMESPACE.svc`.
    pub(crate) domain: String,
    /// The certificate of the cluster's authority, as PEM.
    pub(crate) authority: String,
    /// The passwords of the manager's account, the newest first: while they are rotated an instance may
    /// know another one.
    pub(crate) passwords: Vec<Password>,
    /// Root's, for an instance that knows none of those, if it is known.
    pub(crate) root: Option<Password>,
    /// With what instances follow and clone each other.
    pub(crate) replication: (Account, Password),
}

impl Address {
    /// The DNS name of an instance.
    pub(crate) fn host(&self, instance: &str) -> String {
        format!("{instance}.{}", self.domain)
    }
}

/// What an instance has proved to know of the manager's passwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// The newest.
    Newest,
    /// An earlier one.
    Earlier,
    /// None of them: root's alone.
    #[default]
    None,
}

/// An account of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// The user's: everything, from everywhere.
    Root,
    /// The manager's.
    Leasehold,
    /// The one with which instances follow and clone each other.
    Replication,
    /// The one of probes and of the end of a Pod.
    Probe,
    /// The one of the exporter.
    Exporter,
    /// The one of backups.
    Backup,
}

impl Account {
    /// Those whose passwords the manager makes, as they are called in its Secret.
    pub(crate) const OURS: [Self; 5] =
        [Self::Leasehold, Self::Replication, Self::Probe, Self::Exporter, Self::Backup];

    /// Its name, which is also that of its key in the Secret.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Leasehold => "leasehold",
            Self::Replication => "replication",
            Self::Probe => "probe",
            Self::Exporter => "exporter",
            Self::Backup => "backup",
        }
    }

    /// From where it may log in: within the Pod, or from everywhere.
    pub(crate) fn host(self) -> &'static str {
        match self {
            Self::Leasehold | Self::Probe | Self::Exporter => "127.0.0.1",
            Self::Root | Self::Replication | Self::Backup => "%",
        }
    }
}

/// Opens connections to instances. A test has a stand-in of MySQL here.
pub(crate) trait Gateway: Send + Sync + 'static {
    /// A session that has the lock, as the manager or else as root. The one that a manager left over is
    /// ended.
    fn open<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, MySqlError>>;

    /// Whether an account of ours or root proves itself with a password.
    fn proves<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
        account: Account,
        password: &'a Password,
    ) -> BoxFuture<'a, Result<bool, MySqlError>>;

    /// A session that commits, on the primary.
    fn write<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
    ) -> BoxFuture<'a, Result<Box<dyn Writer>, MySqlError>>;
}

/// A session that has the lock.
pub(crate) trait Session: Send {
    /// Which of the manager's passwords it was opened with.
    fn knows(&self) -> Knowledge;

    /// What the instance says of itself.
    fn look(&mut self) -> BoxFuture<'_, Result<Look, MySqlError>>;

    /// Gives an order, and sees that it was followed. After an error it may have been.
    fn tell<'a>(&'a mut self, order: &'a Order) -> BoxFuture<'a, Result<(), MySqlError>>;

    /// The SHA-256 of the password with which the instance receives, in hexadecimal digits; nothing if it
    /// follows nobody.
    fn source_password(&mut self) -> BoxFuture<'_, Result<Option<String>, MySqlError>>;

    /// Lets new connections prove themselves with the certificate that the files have now.
    fn reload_tls(&mut self) -> BoxFuture<'_, Result<(), MySqlError>>;
}

/// A session on the primary that commits. It begins only while enough replicas acknowledge: a change of
/// an account that waits for them holds up all logins, those of replicas among them, and so never ends.
pub(crate) trait Writer: Send {
    /// Sets a password, and unlocks the account.
    fn set_password<'a>(
        &'a mut self,
        account: Account,
        password: &'a Password,
    ) -> BoxFuture<'a, Result<(), MySqlError>>;

    /// Takes the lock of our accounts, which goes with the session. So no late change comes after the look
    /// of whoever has it next.
    fn hold_accounts(&mut self) -> BoxFuture<'_, Result<(), MySqlError>>;

    /// Sets passwords, all or none. The former ones are accepted too, in place of those before them.
    fn set_all<'a>(
        &'a mut self,
        passwords: &'a [(Account, Password)],
    ) -> BoxFuture<'a, Result<(), MySqlError>>;

    /// Sees to it that the passwords of our accounts do not expire, whatever is set for others.
    fn keep_passwords(&mut self) -> BoxFuture<'_, Result<(), MySqlError>>;

    /// Lets the former passwords of our accounts be refused.
    fn discard_former(&mut self) -> BoxFuture<'_, Result<(), MySqlError>>;

    /// Commits nothing. A replica that had received a commit before its connection broke does not
    /// acknowledge it again, but what follows it: so sessions that wait for that go on.
    fn commit_nothing(&mut self) -> BoxFuture<'_, Result<(), MySqlError>>;
}

/// A text as a literal of SQL, with the session's `sql_mode` empty.
pub(crate) fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\'', "''").replace('\0', "\\0");
    format!("'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_ends_where_it_should() {
        for (text, expect) in [
            ("abc", "'abc'"),
            ("", "''"),
            ("a'b", "'a\'\'b'"),
            ("\\", "'\\\\'"),
            ("'; DROP USER root; --\\", "'\'\'; DROP USER root; --\\\\'"),
            ("\0é😀", "'\\0é😀'"),
        ] {
            assert_eq!(literal(text), expect);
        }
    }

    #[test]
    fn an_expired_password_is_like_a_wrong_one() {
        for (code, expect) in [(1045, true), (1820, true), (1862, true), (1205, false)] {
            let source = WireError::Refused { code, state: String::new(), message: String::new() };
            let error = MySqlError::Failed { pod: "db-0".into(), what: "log in to mysqld", source };
            assert_eq!(error.is_denied(), expect, "{code}");
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        assert_eq!(format!("{:?}", Password("hunter2".to_owned())), "Password");
    }
}
