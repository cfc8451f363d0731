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

#[derive(Clone, Copy, Debug)]
struct Due {
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
    /// Whether to try a Tunnel now, and no more than that. Before it is due, it is looked at as a whole:
    /// something has changed.
    pub(super) fn is_due(&self, tunnel: &str, now: Timestamp) -> bool {
        let tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        tunnels.get(tunnel).is_some_and(|due| due.probe <= now && now < due.check)
    }

    /// Connections come through. After a look at the whole, `check` is when to look again.
    pub(super) fn passed(&self, tunnel: &str, now: Timestamp, check: Option<Timestamp>) {
        let mut tunnels = self.tunnels.lock().expect("no holder of this lock panics");
        match (check, tunnels.get_mut(tunnel)) {
            (Some(check), _) => {
                // Those that this replica looks at no more.
                tunnels.retain(|_, due| now < due.check);
                tunnels.insert(tunnel.to_owned(), Due { probe: now + EVERY, check });
            }
            (None, Some(due)) => due.probe = now + EVERY,
            (None, None) => {}
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
        assert!(!schedule.is_due("a", at(0)));
        schedule.passed("a", at(0), Some(at(600)));
        assert!(!schedule.is_due("a", at(29)));
        assert!(schedule.is_due("a", at(30)));
        schedule.passed("a", at(30), None);
        assert!(!schedule.is_due("a", at(59)));
        assert!(schedule.is_due("a", at(599)));
        assert!(!schedule.is_due("a", at(600)));
        schedule.forget("a");
        assert!(!schedule.is_due("a", at(599)));
        // What is over goes with the next.
        schedule.passed("b", at(0), Some(at(10)));
        schedule.passed("c", at(20), Some(at(30)));
        assert_eq!(schedule.tunnels.lock().unwrap().len(), 1);
    }
}
