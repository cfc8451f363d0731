//! Whether connections come through a Tunnel. The only file of this controller that connects to hosts.
//!
//! rathole's host listens on a port once its client has authenticated, and its client closes what the Service
//! refuses. So a connection that opens, and is then neither closed nor reset for [`PATIENCE`], says that a client has
//! connected and that the Service has not refused it. It sends nothing: what a backend expects is not known, nor whether
//! it would answer. And a client that hangs, or is cut off, closes nothing either. So the only client of a host is asked
//! on a port of its own, [`BALANCE_PORT`]: one that lives closes each connection, and one that does not leaves it open.
//! Who cannot be asked is not judged by it: a host may not have that port. Where the administrator says that backends
//! answer requests, one gets a request, and its address counts only while something comes back.
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
use crate::ipv6::Ipv6;

/// How long a connection may take to open.
const OPENING: Duration = Duration::from_secs(5);
/// How long one by IPv6 may: where its packets are lost on the way, each try takes as long, and IPv4 waits for it.
const OPENING_IPV6: Duration = Duration::from_secs(2);
/// How long an open connection must stay open.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the only client of a host may take to answer, and the connection by which it is asked to open: where
/// packets to that port are lost on the way, each try takes as long.
const ANSWERING: Duration = Duration::from_secs(2);
/// How often connections through a Tunnel are tried.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// When a connection that failed is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(15);

/// What a host with several clients answers.
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
/// The most that is read of an answer.
const ANSWER_BYTES: u64 = 1_024;

type Try = dyn Fn(SocketAddr) -> BoxFuture<'static, Result<(), String>> + Send + Sync;
type Ask = dyn Fn(SocketAddr) -> BoxFuture<'static, Option<usize>> + Send + Sync;

/// Tries connections, asks hosts how many clients are connected, and the only client of a host whether it lives.
#[derive(Clone)]
pub struct Probe {
    connect: Arc<Try>,
    ask: Arc<Ask>,
    check: Arc<Try>,
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
    /// Whether a backend must answer a request.
    pub asks: bool,
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
        Self::through(|address| connect(address).boxed())
            .asking(|address| ask(address).boxed())
            .checking(|address| check(address, ANSWERING).boxed())
    }

    /// Through a function: a stand-in of the same process. No host says how many clients are connected, and none has a
    /// client that can be asked.
    pub fn through(
        connect: impl Fn(SocketAddr) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
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
        let has_tcp = ports.iter().any(|port| port.protocol == Protocol::Tcp);
        let is_asked = at.tries <= 1 && has_tcp && !is_taken(ports);
        match socket(&at.address, BALANCE_PORT).filter(|_| is_asked) {
            Some(to) => (self.check)(to).await.map_err(|error| {
                format!("{to}: {error}: the client hangs, or is cut off from its host")
            }),
            None => Ok(()),
        }
    }

    /// Whether a backend answers a request at the first TCP port, where that is wanted.
    async fn answers(&self, at: &At, ports: &[TunnelPort]) -> Result<(), String> {
        let port = ports.iter().find(|port| port.protocol == Protocol::Tcp).filter(|_| at.asks);
        match port.and_then(|port| socket(&at.address, port.port)) {
            Some(to) => (self.check)(to).await.map_err(|error| {
                format!("{to}: {error}: no backend answers, or the client does not reach them")
            }),
            None => Ok(()),
        }
    }

    /// Tries the first TCP port of a host. `None` if it has none: whether a datagram arrives only its receiver
    /// knows.
    pub(super) async fn run(
        &self,
        address: &str,
        ports: &[TunnelPort],
    ) -> Option<Result<(), String>> {
        let port = ports.iter().find(|port| port.protocol == Protocol::Tcp)?.port;
        let to = socket(address, port)?;
        Some((self.connect)(to).await.map_err(|error| format!("{to}: {error}")))
    }

    /// Tries as many connections as there are clients, and one by the IPv6 address, if there is one; asks the client, if
    /// it is the only one, and a backend, if that is wanted. Returns how many come through, or why none does.
    pub(super) async fn both(
        &self,
        at: &At,
        ports: &[TunnelPort],
    ) -> (Option<Result<usize, String>>, Option<Result<(), String>>) {
        let second = async { self.run(at.ipv6()?, ports).await };
        let first = (0..at.tries.max(1)).map(|_| self.run(&at.address, ports));
        let first = future::join_all(first);
        let asked = async { self.lives(at, ports).await.and(self.answers(at, ports).await) };
        let (first, second, asked) = future::join3(first, second, asked).await;
        let first = through(first).map(|first| first.and_then(|count| asked.map(|()| count)));
        (first, second)
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

async fn connect(address: SocketAddr) -> Result<(), String> {
    let limit = if address.is_ipv6() { OPENING_IPV6 } else { OPENING };
    let opened = timeout(limit, TcpStream::connect(address)).await;
    let opened = opened.map_err(|_| format!("no answer within {} s", limit.as_secs()))?;
    let stream = opened.map_err(|error| why(address, &error))?;
    match timeout(PATIENCE, stream.peek(&mut [0])).await {
        Ok(Ok(0)) => Err("the connection is closed at once: the Service has no backend, or no client is connected".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

/// Asks the only client of a host, or a backend. Should the host be one for several clients, it answers in the place of
/// one. That no connection opens is for others to tell.
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
        Some(due.at.clone())
    }

    /// A look at the whole has found that connections come through there; the next is at `check`.
    pub(super) fn found(&self, tunnel: &str, at: At, now: Timestamp, check: Timestamp) {
        let mut tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        // Those that this replica looks at no more.
        tunnels.retain(|_, due| now < due.check);
        tunnels.insert(tunnel.to_owned(), Due { at, probe: now + EVERY, check });
    }

    /// Connections still come through.
    pub(super) fn passed(&self, tunnel: &str, now: Timestamp) {
        let mut tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        if let Some(due) = tunnels.get_mut(tunnel) {
            due.probe = now + EVERY;
        }
    }

    /// It is looked at as a whole next.
    pub(super) fn forget(&self, tunnel: &str) {
        self.tunnels.lock().expect("no holder of this lock panics").remove(tunnel);
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_stays_open_or_says_something_comes_through() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            comes_through(address).await;
        }
    }

    async fn comes_through(address: &str) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tried, held) = tokio::join!(connect(address), listener.accept());
        assert_eq!(tried, Ok(()));
        drop(held);
        let closing = async { drop(listener.accept().await.unwrap()) };
        let (tried, ()) = tokio::join!(connect(address), closing);
        assert!(tried.unwrap_err().contains("no backend"));
        drop(listener);
        assert!(connect(address).await.unwrap_err().contains("refused"));
    }

    #[tokio::test]
    async fn a_host_says_how_many_clients_are_connected() {
        for (answer, expect) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n2", Some(2)),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n2", None),
            ("HTTP/1.1 200 OK\r\n\r\nmany", None),
            ("SSH-2.0", None),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let says = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 64];
                let read = stream.read(&mut request).await.unwrap();
                assert_eq!(&request[..read], REQUEST);
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let asked = ask(listener.local_addr().unwrap());
            assert_eq!(tokio::join!(asked, says).0, expect, "{answer}");
        }
    }

    /// A host that has no such port, and one that answers for its clients, are not held against them.
    #[tokio::test]
    async fn a_client_that_hangs_is_told_from_one_that_closes_what_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let short = Duration::from_millis(100);
        let (tried, held) = tokio::join!(check(address, short), listener.accept());
        assert!(tried.unwrap_err().contains("nothing comes back"));
        drop(held);
        let closing = async { drop(listener.accept().await.unwrap()) };
        let (tried, ()) = tokio::join!(check(address, OPENING), closing);
        assert_eq!(tried, Ok(()));
        let saying = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK").await.unwrap();
            stream
        };
        let (tried, _open) = tokio::join!(check(address, OPENING), saying);
        assert_eq!(tried, Ok(()));
        drop(listener);
        assert_eq!(check(address, OPENING).await, Ok(()));
    }

    #[test]
    fn a_replica_without_ipv6_says_so() {
        let [v4, v6] = ["68.183.4.5:80", "[2a01:4f8::1]:80"].map(|to| to.parse().unwrap());
        for (errno, to, expect) in [
            (Errno::NETUNREACH, v6, true),
            (Errno::ADDRNOTAVAIL, v6, true),
            (Errno::AFNOSUPPORT, v6, true),
            (Errno::CONNREFUSED, v6, false),
            (Errno::NETUNREACH, v4, false),
        ] {
            let told = why(to, &io::Error::from(errno));
            assert_eq!(told.contains("replica has no IPv6 route"), expect, "{told}");
        }
    }

    #[test]
    fn an_ipv6_address_is_looked_at_once_a_try_shows_something_else() {
        let ipv6 = |closed: Option<&str>| {
            let known = Ipv6::At { address: String::new(), closed: closed.map(str::to_owned) };
            let address = String::new();
            At {
                address,
                ipv6: Some(known),
                tries: 2,
                through: 2,
                clients: Some(Some(2)),
                asks: false,
            }
        };
        let (opens, fails) = (Ok(()), Err("refused".to_owned()));
        let is_still =
            |at: At, tried: &Result<(), String>| at.is_still(2, Some(tried), Some(Some(2)));
        assert!(is_still(ipv6(None), &opens) && !is_still(ipv6(None), &fails));
        assert!(is_still(ipv6(Some("")), &fails) && !is_still(ipv6(Some("")), &opens));
        assert!(At { ipv6: Some(Ipv6::None), ..ipv6(None) }.is_still(2, None, Some(Some(2))));
        // So it is once another number of clients is connected, or of connections comes through.
        assert!(!ipv6(None).is_still(2, Some(&opens), Some(Some(1))));
        assert!(!ipv6(None).is_still(1, Some(&opens), Some(Some(2))));
        // And once the host does not say it, or says it again.
        let silent = At { clients: Some(None), ..ipv6(None) };
        assert!(!ipv6(None).is_still(2, Some(&opens), Some(None)));
        assert!(!silent.is_still(2, Some(&opens), Some(Some(2))));
    }

    #[test]
    fn of_several_connections_one_is_enough() {
        let (opens, fails) = (|| Some(Ok(())), || Some(Err("refused".to_owned())));
        assert_eq!(through(vec![opens(), fails()]), Some(Ok(1)));
        assert_eq!(through(vec![fails(), fails()]), Some(Err("refused".to_owned())));
        assert_eq!(through(vec![opens()]), Some(Ok(1)));
        assert_eq!(through(vec![None, None]), None);
    }

    #[test]
    fn a_tunnel_is_looked_at_as_a_whole_before_it_is_due_and_after_its_time() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let schedule = Schedule::default();
        let is_due = |tunnel, second| schedule.due(tunnel, at(second)).is_some();
        let found = |tunnel: &str, second, check| {
            let address = "203.0.113.7".to_owned();
            let there =
                At { address, ipv6: None, tries: 1, through: 1, clients: None, asks: false };
            schedule.found(tunnel, there, at(second), at(check));
        };
        assert!(!is_due("a", 0));
        found("a", 0, 600);
        assert!(!is_due("a", 29));
        assert_eq!(schedule.due("a", at(30)).unwrap().address, "203.0.113.7");
        schedule.passed("a", at(30));
        assert!(!is_due("a", 59));
        assert!(is_due("a", 599));
        assert!(!is_due("a", 600));
        schedule.forget("a");
        assert!(!is_due("a", 599));
        // What is over goes with the next.
        found("b", 0, 10);
        found("c", 20, 30);
        assert_eq!(schedule.tunnels.lock().unwrap().len(), 1);
    }
}
