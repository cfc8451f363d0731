//! Whether connections come through a Tunnel. The only file of this controller that connects to hosts.
//!
//! rathole's host listens on a port once its client has authenticated, and its client closes what the Service
//! refuses. So a connection that opens, and is then neither closed nor reset for [`PATIENCE`], has come through to
//! a backend. It sends nothing: what a backend expects is not known.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api::{Protocol, TunnelPort};

/// How long a connection may take to open.
const OPENING: Duration = Duration::from_secs(5);
/// How long an open connection must stay open.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often connections through a Tunnel are tried.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// When a connection that failed is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(15);

type Try = dyn Fn(SocketAddr) -> BoxFuture<'static, Result<(), String>> + Send + Sync;

/// Tries connections.
#[derive(Clone)]
pub struct Probe(Arc<Try>);

/// When each Tunnel is tried again, and when it is looked at as a whole, by its uid.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    tunnels: Mutex<HashMap<String, Due>>,
}

#[derive(Clone, Debug)]
struct Due {
    address: String,
    probe: Timestamp,
    check: Timestamp,
}

impl Probe {
    /// Over the network.
    pub fn new() -> Self {
        Self::through(|address| connect(address).boxed())
    }

    /// Through a function: a stand-in of the same process.
    pub fn through(
        connect: impl Fn(SocketAddr) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(connect))
    }

    /// Tries the first TCP port of a host. `None` if it has none: whether a datagram arrives only its receiver
    /// knows.
    pub(super) async fn run(
        &self,
        address: &str,
        ports: &[TunnelPort],
    ) -> Option<Result<(), String>> {
        let port = ports.iter().find(|port| port.protocol == Protocol::Tcp)?.port;
        let to = address.parse::<IpAddr>().ok().zip(u16::try_from(port).ok())?;
        let tried = self.0(SocketAddr::from(to)).await;
        Some(tried.map_err(|error| format!("{address}:{port}: {error}")))
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

async fn connect(address: SocketAddr) -> Result<(), String> {
    let opened = timeout(OPENING, TcpStream::connect(address)).await;
    let opened = opened.map_err(|_| format!("no answer within {} s", OPENING.as_secs()))?;
    let stream = opened.map_err(|error| error.to_string())?;
    match timeout(PATIENCE, stream.peek(&mut [0])).await {
        Ok(Ok(0)) => Err("the connection is closed at once: the Service has no backend".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

impl Schedule {
    /// The address of a Tunnel to try now, if that is all to do. Before it is due, it is looked at as a whole:
    /// something has changed.
    pub(super) fn due(&self, tunnel: &str, now: Timestamp) -> Option<String> {
        let tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        let due = tunnels.get(tunnel).filter(|due| due.probe <= now && now < due.check)?;
        Some(due.address.clone())
    }

    /// A look at the whole has found that connections come through at that address; the next is at `check`.
    pub(super) fn found(&self, tunnel: &str, address: String, now: Timestamp, check: Timestamp) {
        let mut tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        // Those that this replica looks at no more.
        tunnels.retain(|_, due| now < due.check);
        tunnels.insert(tunnel.to_owned(), Due { address, probe: now + EVERY, check });
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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
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

    #[test]
    fn a_tunnel_is_looked_at_as_a_whole_before_it_is_due_and_after_its_time() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        let schedule = Schedule::default();
        let is_due = |tunnel, second| schedule.due(tunnel, at(second)).is_some();
        let found = |tunnel: &str, second, check| {
            schedule.found(tunnel, "203.0.113.7".to_owned(), at(second), at(check));
        };
        assert!(!is_due("a", 0));
        found("a", 0, 600);
        assert!(!is_due("a", 29));
        assert_eq!(schedule.due("a", at(30)).as_deref(), Some("203.0.113.7"));
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
