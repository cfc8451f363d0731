//! Sessions at a real mysqld: the lock, looks, orders and accounts, each within its time.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::timeout;

use crate::calls::{Account, Address, Knowledge, MySqlError, Password, Session, Writer, literal};
use crate::looking::{self, Unread};
use crate::server::{Look, Order};
use crate::wire::{Answer, Connection, Login, Stream, WireError};

/// How long a login may take, TLS among it.
pub(crate) const LOGIN: Duration = Duration::from_secs(5);
/// How long an answer may take.
pub(crate) const QUICK: Duration = Duration::from_secs(5);
/// How long a commit may take.
const COMMIT: Duration = Duration::from_secs(10);
/// How long it may take until a session that was told to end has ended.
const KILLED: Duration = Duration::from_secs(3);

/// What every session begins with. A closing gives up after a second, as it holds up commits meanwhile; a
/// session that nobody ends any more is ended by the server.
const BEGIN: &str =
    "SET SESSION sql_mode = '', autocommit = 1, lock_wait_timeout = 1, wait_timeout = 60";

/// A session at a server.
pub(crate) struct Talk {
    pub(crate) connection: Connection,
    pub(crate) address: Address,
    pub(crate) knows: Knowledge,
}

/// Logs in over a stream, which serves one attempt.
pub(crate) async fn log_in<S: Stream + 'static>(
    address: &Address,
    stream: S,
    (account, password): (Account, &Password),
    now: Timestamp,
) -> Result<Talk, MySqlError> {
    let host = address.host(&address.pod);
    let login = Login {
        host: &host,
        authority: &address.authority,
        user: account.name(),
        password: &password.0,
    };
    let what = "log in to mysqld";
    let connection = within(address, what, LOGIN, Connection::open(stream, &login, now)).await?;
    let mut talk = Talk { connection, address: address.clone(), knows: Knowledge::default() };
    talk.ask("begin a session at mysqld", QUICK, BEGIN).await?;
    Ok(talk)
}

async fn within<T>(
    address: &Address,
    what: &'static str,
    limit: Duration,
    call: impl Future<Output = Result<T, WireError>>,
) -> Result<T, MySqlError> {
    let pod = address.pod.clone();
    match timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(MySqlError::Failed { pod, what, source }),
        Err(_) => Err(MySqlError::Slow { pod, what, seconds: limit.as_secs() }),
    }
}

impl Talk {
    pub(crate) async fn ask(
        &mut self,
        what: &'static str,
        limit: Duration,
        statements: &str,
    ) -> Result<Vec<Answer>, MySqlError> {
        within(&self.address, what, limit, self.connection.ask(statements)).await
    }

    pub(crate) fn unfit(&self, what: &'static str, why: &'static str) -> MySqlError {
        MySqlError::Unfit { pod: self.address.pod.clone(), what, why }
    }

    pub(crate) fn unread(&self, what: &'static str, (field, value): Unread) -> MySqlError {
        MySqlError::Unexpected { pod: self.address.pod.clone(), what, field, value }
    }

    /// Takes the lock, and ends the session that has it: that of a former manager, or of whoever else asked for
    /// a lock of that name, as every account may. One that is being cloned over goes on: it gives no more
    /// orders.
    pub(crate) async fn lock(&mut self) -> Result<(), MySqlError> {
        let what = "take the lock of mysqld";
        let statement = "SELECT GET_LOCK('leasehold', 0) AS got, \
             IS_USED_LOCK('leasehold') AS holder, IS_USED_LOCK('leasehold clone') AS cloning";
        let answers = self.ask(what, QUICK, statement).await?;
        let row = answers.first().and_then(|rows| rows.first());
        let field = |name| row.and_then(|row| row.get(name));
        let session = |name| field(name).and_then(|id| id.parse::<u64>().ok());
        let (holder, cloning) = (session("holder"), session("cloning"));
        if field("got") == Some("1") {
            // Whoever clones has both.
            return match cloning {
                Some(other) => self.kill(what, other).await,
                None => Ok(()),
            };
        }
        // Given back in between: the next attempt gets it.
        let Some(session) = holder else {
            return Err(self.unread(what, ("holder", "NULL".to_owned())));
        };
        let user = self.user_of(what, session).await?;
        // What it does is not to be seen, as there is a password in the statement.
        if cloning == holder && user.as_deref().is_some_and(is_managers) {
            return Err(MySqlError::Cloning { pod: self.address.pod.clone() });
        }
        self.kill(what, session).await?;
        let statement = format!("SELECT GET_LOCK('leasehold', {}) AS got", KILLED.as_secs());
        let answers = self.ask(what, QUICK + KILLED, &statement).await?;
        let got = answers.first().and_then(|rows| rows.first()).and_then(|row| row.get("got"));
        if got == Some("1") {
            return Ok(());
        }
        let (pod, user) = (self.address.pod.clone(), user.unwrap_or_default());
        Err(MySqlError::Locked { pod, session, user })
    }

    /// Whose session it is, if it has not ended.
    async fn user_of(
        &mut self,
        what: &'static str,
        session: u64,
    ) -> Result<Option<String>, MySqlError> {
        let statement =
            format!("SELECT USER AS user FROM information_schema.PROCESSLIST WHERE ID = {session}");
        let answers = self.ask(what, QUICK, &statement).await?;
        let row = answers.first().and_then(|rows| rows.first());
        Ok(row.map(|row| row.get("user").unwrap_or_default().chars().take(80).collect()))
    }

    async fn kill(&mut self, what: &'static str, session: u64) -> Result<(), MySqlError> {
        match self.ask(what, QUICK, &format!("KILL {session}")).await {
            // It has ended meanwhile.
            Err(MySqlError::Failed { source: WireError::Refused { code: 1094, .. }, .. }) => Ok(()),
            killed => killed.map(drop),
        }
    }

    /// Takes the lock of our accounts. Another manager keeps it until it is done; whoever else has it does not.
    async fn lock_accounts(&mut self, what: &'static str) -> Result<(), MySqlError> {
        let statement = "SELECT GET_LOCK('leasehold accounts', 0) AS got, \
             IS_USED_LOCK('leasehold accounts') AS holder";
        let answers = self.ask(what, QUICK, statement).await?;
        let row = answers.first().and_then(|rows| rows.first());
        let field = |name| row.and_then(|row| row.get(name));
        if field("got") == Some("1") {
            return Ok(());
        }
        if let Some(session) = field("holder").and_then(|id| id.parse().ok())
            && let Some(user) = self.user_of(what, session).await?
            && !is_managers(&user)
        {
            self.kill(what, session).await?;
        }
        Err(self.unfit(what, "another session changes them"))
    }

    pub(crate) async fn see(&mut self) -> Result<Look, MySqlError> {
        let what = "look at mysqld";
        let answers = self.ask(what, QUICK, looking::STATEMENTS).await?;
        looking::read(&answers).map_err(|unread| self.unread(what, unread))
    }

    /// Commits, if it will not wait.
    async fn commit(&mut self, what: &'static str, statement: &str) -> Result<(), MySqlError> {
        let look = self.see().await?;
        if !look.is_writable {
            return Err(self.unfit(what, "it takes no writes"));
        }
        if look.followers < look.waits_for {
            return Err(self.unfit(what, "too few replicas acknowledge"));
        }
        self.ask(what, COMMIT, statement).await.map(drop)
    }
}

/// A session that has the lock.
pub(crate) struct Locked(pub(crate) Talk);

impl Session for Locked {
    fn knows(&self) -> Knowledge {
        self.0.knows
    }

    fn source_password(&mut self) -> BoxFuture<'_, Result<Option<String>, MySqlError>> {
        // Not the password itself: it would stand in the server's log of queries, if there is one.
        let statement = "SELECT SHA2(User_password, 256) AS hash FROM mysql.slave_master_info \
             WHERE Channel_name = ''";
        let answers = self.0.ask("see how mysqld receives", QUICK, statement);
        async move {
            let answers = answers.await?;
            let row = answers.first().and_then(|rows| rows.first());
            Ok(row.and_then(|row| row.get("hash")).map(str::to_owned))
        }
        .boxed()
    }

    fn look(&mut self) -> BoxFuture<'_, Result<Look, MySqlError>> {
        self.0.see().boxed()
    }

    fn tell<'a>(&'a mut self, order: &'a Order) -> BoxFuture<'a, Result<(), MySqlError>> {
        self.0.carry_out(order).boxed()
    }

    fn reload_tls(&mut self) -> BoxFuture<'_, Result<(), MySqlError>> {
        let statements = "ALTER INSTANCE RELOAD TLS FOR CHANNEL mysql_main; \
             ALTER INSTANCE RELOAD TLS FOR CHANNEL mysql_admin";
        let answers = self.0.ask("read certificates anew", QUICK, statements);
        answers.map(|answers| answers.map(drop)).boxed()
    }
}

/// A session that commits.
pub(crate) struct Unlocked(pub(crate) Talk);

impl Writer for Unlocked {
    fn set_password<'a>(
        &'a mut self,
        account: Account,
        password: &'a Password,
    ) -> BoxFuture<'a, Result<(), MySqlError>> {
        let statement = format!(
            "ALTER USER {} IDENTIFIED WITH caching_sha2_password BY {} ACCOUNT UNLOCK",
            named(account),
            literal(&password.0)
        );
        async move { self.0.commit("set a password", &statement).await }.boxed()
    }

    fn hold_accounts(&mut self) -> BoxFuture<'_, Result<(), MySqlError>> {
        let what = "take the lock of the accounts";
        async move { self.0.lock_accounts(what).await }.boxed()
    }

    fn set_all<'a>(
        &'a mut self,
        passwords: &'a [(Account, Password)],
    ) -> BoxFuture<'a, Result<(), MySqlError>> {
        let one = |(account, password): &(Account, Password)| {
            let (name, password) = (named(*account), literal(&password.0));
            format!(
                "{name} IDENTIFIED WITH caching_sha2_password BY {password} RETAIN CURRENT PASSWORD"
            )
        };
        let all: Vec<_> = passwords.iter().map(one).collect();
        let statement = format!("ALTER USER {} PASSWORD EXPIRE NEVER", all.join(", "));
        async move { self.0.commit("set passwords", &statement).await }.boxed()
    }

    fn keep_passwords(&mut self) -> BoxFuture<'_, Result<(), MySqlError>> {
        let all = Account::OURS.map(named).join(", ");
        let statement = format!("ALTER USER {all} PASSWORD EXPIRE NEVER");
        async move { self.0.commit("keep passwords from expiring", &statement).await }.boxed()
    }

    fn discard_former(&mut self) -> BoxFuture<'_, Result<(), MySqlError>> {
        let one = |account| format!("{} DISCARD OLD PASSWORD", named(account));
        let statement = format!("ALTER USER {}", Account::OURS.map(one).join(", "));
        async move { self.0.commit("discard former passwords", &statement).await }.boxed()
    }

    fn commit_nothing(&mut self) -> BoxFuture<'_, Result<(), MySqlError>> {
        self.0.commit("commit nothing", "FLUSH OPTIMIZER_COSTS").boxed()
    }
}

/// Whether managers log in so: one whose account was refused comes as root.
fn is_managers(user: &str) -> bool {
    [Account::Leasehold, Account::Root].map(Account::name).contains(&user)
}

fn named(account: Account) -> String {
    format!("{}@{}", literal(account.name()), literal(account.host()))
}

#[cfg(test)]
#[path = "session_tests.rs"]
pub(crate) mod tests;
