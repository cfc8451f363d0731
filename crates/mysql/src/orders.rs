//! How orders are carried out at a real mysqld. Each is made such that giving it twice is like giving it
//! once, and ends with a look at what came of it.

use std::time::Duration;

use crate::calls::{MySqlError, literal};
use crate::looking::{self, ENDLESS};
use crate::server::{Following, Look, Order, Receives};
use crate::session::{QUICK, Talk};
use crate::wire::Row;

/// How long an order may take that stops threads.
const STOP: Duration = Duration::from_secs(15);
/// How long the beginning of a clone is watched. It goes on by itself, for hours if need be.
const CLONE: Duration = Duration::from_secs(5);
/// The port on which instances reach each other.
const PORT: u16 = 3306;
/// Where the certificate of the cluster's authority is.
const AUTHORITY: &str = "/leasehold-tls/ca.crt";

impl Talk {
    pub(crate) async fn carry_out(&mut self, order: &Order) -> Result<(), MySqlError> {
        match order {
            Order::Close => self.close().await,
            Order::Open => self.open().await,
            Order::WaitFor(count) => self.wait_for(*count).await,
            Order::Acknowledge(acknowledges) => self.acknowledge(*acknowledges).await,
            Order::Follow(source) => self.follow(source).await,
            Order::StopReceiving => self.stop_receiving().await,
            Order::FollowNobody => self.follow_nobody().await,
            Order::CloneFrom(donor) => self.clone_from(donor).await,
        }
    }

    /// Fails while a commit is under way. Commits that wait for acknowledgements are.
    async fn close(&mut self) -> Result<(), MySqlError> {
        let what = "close mysqld to writes";
        let statements = "SET GLOBAL super_read_only = ON; SET GLOBAL offline_mode = OFF";
        self.ask(what, QUICK, statements).await?;
        self.verify(what, "super_read_only is OFF", |look| !look.is_writable).await
    }

    async fn open(&mut self) -> Result<(), MySqlError> {
        let what = "open mysqld to writes";
        if self.replication(what).await?.is_some() {
            return Err(self.unfit(what, "it follows another instance"));
        }
        self.ask(what, QUICK, "SET GLOBAL read_only = OFF").await?;
        self.verify(what, "super_read_only is ON", |look| look.is_writable).await
    }

    /// A replica that waits for acknowledgements would wait for each commit that it applies.
    async fn wait_for(&mut self, count: u32) -> Result<(), MySqlError> {
        let what = "set how many replicas commits wait for";
        let statement = if count == 0 {
            "SET GLOBAL rpl_semi_sync_source_enabled = OFF".to_owned()
        } else if self.replication(what).await?.is_some() {
            return Err(self.unfit(what, "it follows another instance"));
        } else {
            format!(
                "SET GLOBAL rpl_semi_sync_source_wait_for_replica_count = {count}, \
                 GLOBAL rpl_semi_sync_source_timeout = {ENDLESS}, \
                 GLOBAL rpl_semi_sync_source_wait_no_replica = ON, \
                 GLOBAL rpl_semi_sync_source_wait_point = AFTER_SYNC, \
                 GLOBAL rpl_semi_sync_source_enabled = ON"
            )
        };
        self.ask(what, QUICK, &statement).await?;
        self.verify(what, "it is another number", |look| look.waits_for == count).await
    }

    async fn acknowledge(&mut self, acknowledges: bool) -> Result<(), MySqlError> {
        let what = "set whether it acknowledges";
        let value = if acknowledges { "ON" } else { "OFF" };
        let statement = format!("SET GLOBAL rpl_semi_sync_replica_enabled = {value}");
        self.ask(what, QUICK, &statement).await?;
        // A connection in which it acknowledges goes on to do so.
        self.verify(what, "it still acknowledges", |look| look.acknowledges == acknowledges).await
    }

    /// Changes whom it follows while it applies: if it does not, MySQL throws away what was received.
    async fn follow(&mut self, source: &str) -> Result<(), MySqlError> {
        let what = "follow another instance";
        let look = self.see().await?;
        if look.is_writable {
            return Err(self.unfit(what, "it takes writes"));
        }
        self.ask(what, QUICK, "SET GLOBAL rpl_semi_sync_source_enabled = OFF").await?;
        let (user, password) = &self.address.replication;
        let account = format!(
            "SOURCE_HOST = {}, SOURCE_PORT = {PORT}, SOURCE_USER = {}, SOURCE_PASSWORD = {}, \
             SOURCE_SSL = 1, SOURCE_SSL_CA = '{AUTHORITY}', SOURCE_SSL_VERIFY_SERVER_CERT = 1, \
             SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 0, SOURCE_HEARTBEAT_PERIOD = 1",
            literal(&self.address.host(source)),
            literal(user.name()),
            literal(&password.0),
        );
        if look.following.is_none() {
            let change =
                format!("CHANGE REPLICATION SOURCE TO {account}, SOURCE_AUTO_POSITION = 1");
            self.ask(what, STOP, &change).await?;
        } else {
            let stop = "STOP REPLICA IO_THREAD; START REPLICA SQL_THREAD";
            self.ask(what, STOP, stop).await?;
            let look = self.see().await?;
            let is_same = look.following.as_ref().is_some_and(|now| now.source == source);
            let applies = look.following.as_ref().is_some_and(|now| now.applies);
            match look.has_applied_all() {
                true => self.change(what, &account).await?,
                false if !is_same => {
                    return Err(self.unfit(what, "it has not applied what it received"));
                }
                false if applies => self.change(what, &account).await?,
                // Its applier failed: what was received stays for whoever repairs it.
                false => {}
            }
        }
        self.ask(what, STOP, "START REPLICA").await?;
        self.verify(what, "it does not", |look| {
            look.following.as_ref().is_some_and(|now| now.source == source && receives(now))
        })
        .await
    }

    async fn change(&mut self, what: &'static str, account: &str) -> Result<(), MySqlError> {
        let change = format!("CHANGE REPLICATION SOURCE TO {account}");
        self.ask(what, STOP, &change).await.map(drop)
    }

    async fn stop_receiving(&mut self) -> Result<(), MySqlError> {
        let what = "receive no more";
        if self.replication(what).await?.is_some() {
            let statements = "STOP REPLICA IO_THREAD; START REPLICA SQL_THREAD";
            self.ask(what, STOP, statements).await?;
        }
        self.verify(what, "it still receives", |look| {
            !look.following.as_ref().is_some_and(receives)
        })
        .await
    }

    async fn follow_nobody(&mut self) -> Result<(), MySqlError> {
        let what = "follow nobody";
        let look = self.see().await?;
        let Some(following) = &look.following else { return Ok(()) };
        if receives(following) || !look.has_applied_all() {
            return Err(self.unfit(what, "it receives, or has not applied all"));
        }
        self.ask(what, STOP, "STOP REPLICA; RESET REPLICA ALL").await?;
        self.verify(what, "it still follows", |look| look.following.is_none()).await
    }

    /// A clone needs `super_read_only` off, and `offline_mode` keeps clients out meanwhile. All is sent at
    /// once, so that it comes to its end also without us; if it fails, all is as before.
    async fn clone_from(&mut self, donor: &str) -> Result<(), MySqlError> {
        let what = "take the data of another instance";
        let look = self.see().await?;
        if look.is_writable {
            return Err(self.unfit(what, "it takes writes"));
        }
        if look.following.is_some() {
            self.ask(what, STOP, "STOP REPLICA").await?;
        }
        let host = self.address.host(donor);
        let (user, password) = &self.address.replication;
        let (user, name) = (literal(user.name()), literal(&host));
        let list = literal(&format!("{host}:{PORT}"));
        let password = literal(&password.0);
        let statements = format!(
            "DO GET_LOCK('leasehold clone', 0); \
             SET GLOBAL clone_valid_donor_list = {list}; SET GLOBAL offline_mode = ON; \
             SET GLOBAL super_read_only = OFF; \
             CLONE INSTANCE FROM {user}@{name}:{PORT} IDENTIFIED BY {password} REQUIRE SSL"
        );
        match self.ask(what, CLONE, &statements).await {
            Ok(_) | Err(MySqlError::Slow { .. }) => Ok(()),
            Err(error) => {
                drop(self.ask(what, QUICK, "DO RELEASE_LOCK('leasehold clone')").await);
                // If the connection is of no use any more, the next look finds it open, and closes it.
                drop(self.close().await);
                Err(error)
            }
        }
    }

    /// How it follows, if it does.
    async fn replication(&mut self, what: &'static str) -> Result<Option<Row>, MySqlError> {
        let answers = self.ask(what, QUICK, "SHOW REPLICA STATUS").await?;
        Ok(answers.first().and_then(looking::channel).cloned())
    }

    async fn verify(
        &mut self,
        what: &'static str,
        otherwise: &'static str,
        is_done: impl Fn(&Look) -> bool,
    ) -> Result<(), MySqlError> {
        let look = self.see().await?;
        if is_done(&look) { Ok(()) } else { Err(self.unfit(what, otherwise)) }
    }
}

fn receives(following: &Following) -> bool {
    following.receives != Receives::Stopped
}

#[cfg(test)]
#[path = "orders_tests.rs"]
mod tests;
