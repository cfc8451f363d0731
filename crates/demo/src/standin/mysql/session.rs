//! One connection to a server: the login, and queries until either side ends it.

use std::io;

use apiserver::faults::Fault;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio_rustls::TlsAcceptor;

use super::group::Group;
use super::server::{Mysqld, Refusal};
use super::shared::{Id, Servers};
use super::sql::{self, Reply};
use super::wire::{self, Packets};

/// A session; it ends with this.
struct Session {
    servers: Servers,
    me: Id,
    run: u64,
    id: u64,
}

/// Serves one connection, until the client leaves or the session is ended.
pub(super) async fn serve(
    servers: Servers,
    me: Id,
    tls: TlsAcceptor,
    stream: DuplexStream,
) -> io::Result<()> {
    let find = |group: &mut Group| Some(group.servers.get(&me.name)?.version.clone());
    let Some(version) = servers.change(&me.key, find) else { return Ok(()) };
    let mut packets = Packets::at(stream, 0);
    packets.write(&wire::greeting(&version)).await?;
    packets.read().await?;
    let (stream, sequence) = packets.into_parts();
    let mut packets = Packets::at(tls.accept(stream).await?, sequence);
    let user = wire::user(&packets.read().await?).unwrap_or_default();
    packets.write(&wire::SAY_IT).await?;
    let password = wire::said(&packets.read().await?);
    let gone = || Refusal::new(1053, "Server shutdown in progress");
    let begun = servers.change(&me.key, |group| {
        let server = group.servers.get_mut(&me.name).ok_or_else(gone)?;
        Ok((server.run, server.log_in(&user, &password)?))
    });
    let (run, id) = match begun {
        Ok(begun) => begun,
        Err(refusal) => {
            packets.push_error(&refusal);
            return packets.flush().await;
        }
    };
    servers.count_session();
    let session = Session { servers, me, run, id };
    packets.push_done(false);
    packets.flush().await?;
    tokio::select! {
        biased;
        _ = session.until(|_| false) => Ok(()),
        done = session.converse(&mut packets) => done,
    }
}

impl Session {
    /// Waits until this is so of its server, and says so; or until the session is ended.
    async fn until(&self, mut is_so: impl FnMut(&Mysqld) -> bool) -> bool {
        let mut changed = self.servers.changes();
        loop {
            let found = self.servers.read(&self.me.key, |group| {
                let server =
                    group.servers.get(&self.me.name).filter(|server| server.run == self.run);
                server.filter(|server| server.user_of(self.id).is_some()).map(&mut is_so)
            });
            match found.flatten() {
                None => return false,
                Some(true) => return true,
                Some(false) => drop(changed.changed().await),
            }
        }
    }

    async fn converse<S>(&self, packets: &mut Packets<S>) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        loop {
            let packet = packets.read().await?;
            let [3, query @ ..] = &packet[..] else { return Ok(()) };
            let query = String::from_utf8_lossy(query);
            let fault = self.fault(&query);
            if matches!(fault, Fault::Drop) {
                return Ok(());
            }
            let statements = sql::statements(&query);
            for (number, statement) in statements.iter().enumerate() {
                let more = number + 1 < statements.len();
                let reply = self.servers.change(&self.me.key, |group| {
                    sql::ask(group, &self.me.name, self.id, statement)
                });
                match reply {
                    Reply::Done => packets.push_done(more),
                    Reply::Rows(table) => packets.push_rows(&table, more),
                    Reply::Refused(refusal) => {
                        packets.push_error(&refusal);
                        break;
                    }
                    Reply::Waits(gtid) => {
                        if !self.until(|server| server.data.has_committed(&gtid)).await {
                            return Ok(());
                        }
                        packets.push_done(more);
                    }
                    Reply::Broken => return Ok(()),
                }
            }
            if matches!(fault, Fault::DropAnswer) {
                return Ok(());
            }
            packets.flush().await?;
        }
    }

    fn fault(&self, query: &str) -> Fault {
        match sql::changes(query) {
            true => self.servers.fault(&format!("{}: {query}", self.me.name)),
            false => Fault::None,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Self { me, run, id, .. } = self;
        self.servers.change(&me.key, |group| {
            let server = group.servers.get_mut(&me.name).filter(|server| server.run == *run);
            server.is_some_and(|server| server.end(*id))
        });
    }
}
