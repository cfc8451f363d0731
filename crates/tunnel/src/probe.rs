//! Whether connections come through a Tunnel. The only file of this controller that connects to hosts.
//!
//! rathole's host listens on a port once its client has authenticated, and its client closes what the Service
//! refuses. So a connection that opens, and is then neither closed nor reset for [`PATIENCE`], says that a client has
//! connected and that the Service has not refused it. That alone shows no backend: one that hangs closes nothing, nor
//! does a client that hangs or whose packets to the Service are lost. What a backend expects is not known, so nothing is
//! sent: the probe ends its own half of the connection. rathole passes that end on, and a backend that gets it ends the
//! other half, as who speaks TCP does when the other has nothing more to say. Only what comes back by then, the end or a
//! byte, counts: [`Proof::End`]. The administrator can ask for less or for more.
//!
//! The only client of a host is also asked on a port of its own, [`BALANCE_PORT`]: one that lives closes each
//! connection, and one that does not leaves it open. That tells a client that hangs from a backend that does. Who cannot
//! be asked is not judged by it: a host may not have that port.
//!
//! A host with several clients asks them itself. It is asked how many are connected, and gets as many connections at
//! once: it leads each to another client, which may not reach the Service.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use jiff::Timestamp;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api::{Protocol, TunnelPort};
use crate::balance::{BALANCE_PORT, is_taken};
use crate::exit::CONTROL_PORT;
use crate::ipv6::Ipv6;
use crate::names::CONFIG_MAP;

/// How long a connection may take to open.
const OPENING: Duration = Duration::from_secs(5);
/// How long one by IPv6 may: where its packets are lost on the way, each try takes as long, and IPv4 waits for it.
const OPENING_IPV6: Duration = Duration::from_secs(2);
/// How long an open connection must stay open.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a backend and the only client of a host may take to answer, and the connection by which the client is asked
/// to open: where packets to that port are lost on the way, each try takes as long.
const ANSWERING: Duration = Duration::from_secs(2);
/// How often connections through a Tunnel are tried.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// When a connection that failed is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(15);

/// What a host with several clients answers.
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
/// What is said of a connection that nobody takes.
const CLOSED: &str =
    "the connection is closed at once: the Service has no backend, or no client is connected";
/// The most that is read of an answer.
const ANSWER_BYTES: u64 = 1_024;

type Try = dyn Fn(SocketAddr, Proof) -> BoxFuture<'static, Result<(), String>> + Send + Sync;
type Check = dyn Fn(SocketAddr) -> BoxFuture<'static, Result<(), String>> + Send + Sync;
type Ask = dyn Fn(SocketAddr) -> BoxFuture<'static, Option<usize>> + Send + Sync;

/// Tries connections, asks hosts how many clients are connected, and the only client of a host whether it lives.
#[derive(Clone)]
pub struct Probe {
    connect: Arc<Try>,
    ask: Arc<Ask>,
    check: Arc<Check>,
}

/// What shows that a connection comes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It opens and stays open. Nothing is asked of the backend.
    Open,
    /// The backend ends it once the probe has ended its half, or says something.
    End,
    /// The backend answers a request, or says something before.
    Answer,
}

/// When each Tunnel is tried again, and when it is looked at as a whole, by its uid.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    tunnels: Mutex<HashMap<String, Due>>,
}

#[derive(Clone, Debug)]
struct Due {
    at: At,
    probe: Timestamp,
    check: Timestamp,
    /// Whether one connection was lost since the last look at the whole.
    is_doubted: bool,
}

/// Where a Tunnel is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct At {
    /// The address at which connections come through.
    pub address: String,
    /// What is known of the host's IPv6 address.
    pub ipv6: Option<Ipv6>,
    /// How many connections are tried at once: a host leads each to another of its clients.
    pub tries: usize,
    /// How many of these came through.
    pub through: usize,
    /// How many of several clients are connected, where the host is asked, if it answered.
    pub clients: Option<Option<usize>>,
    /// What shows that a connection comes through.
    pub proof: Proof,
}

impl At {
    /// The IPv6 address.
    pub(super) fn ipv6(&self) -> Option<&str> {
        self.ipv6.as_ref().and_then(Ipv6::address)
    }

    /// Whether as many connections come through, a try of the IPv6 address shows what was known of it, and as many
    /// clients are connected.
    pub(super) fn is_still(
        &self,
        through: usize,
        tried: Option<&Result<(), String>>,
        clients: Option<Option<usize>>,
    ) -> bool {
        let known = match &self.ipv6 {
            Some(Ipv6::At { closed, .. }) => Some(closed.is_none()),
            Some(Ipv6::None) | None => None,
        };
        through == self.through && known == tried.map(Result::is_ok) && clients == self.clients
    }
}

impl Probe {
    /// Over the network.
    pub fn new() -> Self {
        Self::proving(|address, proof| connect(address, proof).boxed())
            .asking(|address| ask(address).boxed())
            .checking(|address| check(address, ANSWERING).boxed())
    }

    /// Through a function: a stand-in of the same process. No host says how many clients are connected, and none has a
    /// client that can be asked.
    pub fn through(
        connect: impl Fn(SocketAddr) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
        Self::proving(move |address, _| connect(address))
    }

    /// The same, through a function that learns what has to be shown.
    pub fn proving<F>(connect: F) -> Self
    where
        F: Fn(SocketAddr, Proof) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    {
        Self {
            connect: Arc::new(connect),
            ask: Arc::new(|_| future::ready(None).boxed()),
            check: Arc::new(|_| future::ready(Ok(())).boxed()),
        }
    }

    /// The same, which asks hosts through a function how many clients are connected.
    #[must_use]
    pub fn asking(
        self,
        ask: impl Fn(SocketAddr) -> BoxFuture<'static, Option<usize>> + Send + Sync + 'static,
    ) -> Self {
        Self { ask: Arc::new(ask), ..self }
    }

    /// The same, which asks the only client of a host through a function whether it lives.
    #[must_use]
    pub fn checking(
        self,
        check: impl Fn(SocketAddr) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
        Self { check: Arc::new(check), ..self }
    }

    /// How many clients are connected, as a host with several says.
    pub(super) async fn connected(&self, address: &str) -> Option<usize> {
        (self.ask)(socket(address, BALANCE_PORT)?).await
    }

    /// Whether the only client of a host lives, as far as it can be asked.
    async fn lives(&self, at: &At, ports: &[TunnelPort]) -> Result<(), String> {
        let is_asked = at.tries <= 1 && !is_taken(ports);
        match socket(&at.address, BALANCE_PORT).filter(|_| is_asked) {
            Some(to) => (self.check)(to).await.map_err(|error| {
                format!("{to}: {error}: the client hangs, or is cut off from its host")
            }),
            None => Ok(()),
        }
    }

    /// Tries the first TCP port of a host. If it has none, the port for its clients: whether a datagram arrives only its
    /// receiver knows.
    pub(super) async fn run(
        &self,
        address: &str,
        ports: &[TunnelPort],
        proof: Proof,
    ) -> Option<Result<(), String>> {
        let tcp = ports.iter().find(|port| port.protocol == Protocol::Tcp);
        let (port, proof) = tcp.map_or((CONTROL_PORT, Proof::Open), |tcp| (tcp.port, proof));
        let to = socket(address, port)?;
        Some((self.connect)(to, proof).await.map_err(|error| format!("{to}: {error}")))
    }

    /// Tries as many connections as there are clients, and one by the IPv6 address, if there is one; asks the client, if
    /// it is the only one. Returns how many come through, or why none does.
    pub(super) async fn both(
        &self,
        at: &At,
        ports: &[TunnelPort],
    ) -> (Option<Result<usize, String>>, Option<Result<(), String>>) {
        let second = async { self.run(at.ipv6()?, ports, at.proof).await };
        let first = (0..at.tries.max(1)).map(|_| self.run(&at.address, ports, at.proof));
        let first = future::join_all(first);
        let (first, second, lives) = future::join3(first, second, self.lives(at, ports)).await;
        // That the client hangs says more than that nothing came back.
        (through(first).map(|first| lives.and(first)), second)
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

/// How many of several tries came through, or why none did.
fn through(tried: Vec<Option<Result<(), String>>>) -> Option<Result<usize, String>> {
    let tried: Vec<_> = tried.into_iter().collect::<Option<_>>()?;
    let count = tried.iter().filter(|tried| tried.is_ok()).count();
    let why = tried.into_iter().find_map(Result::err);
    Some(why.filter(|_| count == 0).map_or(Ok(count), Err))
}

fn socket(address: &str, port: i32) -> Option<SocketAddr> {
    Some(SocketAddr::new(address.parse().ok()?, u16::try_from(port).ok()?))
}

async fn connect(address: SocketAddr, proof: Proof) -> Result<(), String> {
    let limit = if address.is_ipv6() { OPENING_IPV6 } else { OPENING };
    let opened = timeout(limit, TcpStream::connect(address)).await;
    let opened = opened.map_err(|_| format!("no answer within {} s", limit.as_secs()))?;
    let stream = opened.map_err(|error| why(address, &error))?;
    prove(stream, proof, PATIENCE, ANSWERING).await
}

/// Whether an open connection shows what it has to: it stays open for `patience`, and what is asked of the backend then
/// has an answer within `limit`. A backend that says something has shown itself.
async fn prove(
    mut stream: TcpStream,
    proof: Proof,
    patience: Duration,
    limit: Duration,
) -> Result<(), String> {
    match timeout(patience, stream.peek(&mut [0])).await {
        Ok(Ok(0)) => return Err(CLOSED.to_owned()),
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(_)) => return Ok(()),
        Err(_) => {}
    }
    let (asked, what) = match proof {
        Proof::Open => return Ok(()),
        Proof::End => (stream.shutdown().await, "the probe ended its half of the connection"),
        Proof::Answer => (stream.write_all(REQUEST).await, "a request of HTTP/1.0"),
    };
    // Its end is an answer, and so is a reset.
    let answered = match asked {
        Ok(()) => timeout(limit, stream.read(&mut [0])).await.map(drop),
        Err(_) => Ok(()),
    };
    answered.map_err(|_| {
        format!(
            "nothing comes back within {} s after {what}: the backend hangs or does not answer that (key probe of \
             ConfigMap {CONFIG_MAP}), or the client does not reach it, as where a NetworkPolicy drops its packets",
            limit.as_secs()
        )
    })
}

/// Asks the only client of a host. Should the host be one for several clients, it answers in the place of one. That no
/// connection opens is for others to tell.
async fn check(address: SocketAddr, limit: Duration) -> Result<(), String> {
    let opened = timeout(limit, TcpStream::connect(address)).await;
    let Ok(Ok(mut stream)) = opened else { return Ok(()) };
    let answer = async {
        stream.write_all(REQUEST).await?;
        stream.read(&mut [0]).await
    };
    // It need not say anything: that it closes the connection is its answer.
    let answered = timeout(limit, answer).await;
    answered.map(drop).map_err(|_| format!("nothing comes back within {} s", limit.as_secs()))
}

async fn ask(address: SocketAddr) -> Option<usize> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(REQUEST).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = timeout(OPENING, exchange).await.ok()?.ok()?;
    let (head, body) = str::from_utf8(&answer).ok()?.split_once("\r\n\r\n")?;
    body.parse().ok().filter(|_| head.contains(" 200 "))
}

/// Why no connection opens. Without a route, without an address of that family, or with IPv6 switched off, it is this
/// replica that has no IPv6.
fn why(address: SocketAddr, error: &io::Error) -> String {
    let routeless = [Errno::NETUNREACH, Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT];
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    match address.is_ipv6() && routeless.into_iter().any(is) {
        true => format!("the manager's replica has no IPv6 route, give its Pods one ({error})"),
        false => error.to_string(),
    }
}

impl Schedule {
    /// Where to try a Tunnel now, if that is all to do. Before it is due, it is looked at as a whole: something has
    /// changed.
    pub(super) fn due(&self, tunnel: &str, now: Timestamp) -> Option<At> {
        let tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        let due = tunnels.get(tunnel).filter(|due| due.probe <= now && now < due.check)?;
        Some(due.at.clone()).filter(|_| !due.is_doubted)
    }

    /// A look at the whole has found that connections come through there; the next is at `check`.
    pub(super) fn found(&self, tunnel: &str, at: At, now: Timestamp, check: Timestamp) {
        let mut tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        // Those that this replica looks at no more.
        tunnels.retain(|_, due| now < due.check);
        let due = Due { at, probe: now + EVERY, check, is_doubted: false };
        tunnels.insert(tunnel.to_owned(), due);
    }

    /// Connections still come through.
    pub(super) fn passed(&self, tunnel: &str, now: Timestamp) {
        let mut tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        if let Some(due) = tunnels.get_mut(tunnel) {
            due.probe = now + EVERY;
        }
    }

    /// One connection was lost: it is looked at as a whole next, and tried before all else.
    pub(super) fn doubt(&self, tunnel: &str) {
        let mut tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        if let Some(due) = tunnels.get_mut(tunnel) {
            due.is_doubted = true;
        }
    }

    /// Whether one connection was lost before this look.
    pub(super) fn take_doubt(&self, tunnel: &str) -> bool {
        let mut tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        let is_doubted = tunnels.get(tunnel).is_some_and(|due| due.is_doubted);
        is_doubted && tunnels.remove(tunnel).is_some()
    }

    /// It is looked at as a whole next.
    pub(super) fn forget(&self, tunnel: &str) {
        self.tunnels.lock().expect("no holder of this lock panics").remove(tunnel);
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
