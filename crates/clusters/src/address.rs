//! Which addresses a server may have, and a connector that opens no other.
//!
//! A name in a kubeconfig says nothing about the address behind it, and its owner may change it at any
//! time. So every address is checked right before it is connected to, as well as those that the
//! kubeconfig writes out.
//!
//! A lookup takes a thread until the system gives it up, which may be a minute after nobody waits for it any
//! more, and the runtime has 512 threads for lookups and files. So a server has one lookup at a time, and the servers of
//! a provider have [`MAX_LOOKUPS`] together, by what is known of them: names that hang delay no server that is found, no
//! new one that comes after them, and nothing of another provider. A lookup goes on when its caller gives up, in its place
//! among those that wait, and the next caller gets what it finds. While it takes long, and if it then fails, a server is
//! where it was found last.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::TokioIo;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceExt};

use crate::bounds::Unread;
use crate::handshakes::Handshakes;
use crate::metered::{HTTP1_BYTES, HTTP2_BYTES, Metered};
use crate::risk::Risk;
use crate::role::Role;
use crate::turns::{Lane, Turns};

/// Addresses at which clouds serve the credentials of their machines, or worse, beside those that are
/// link-local: Azure's wire server, Alibaba's, Oracle's and AWS's metadata services.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// The most names of a provider that are looked up at once, of servers whose last lookup succeeded, of new ones, and of
/// the others: with four providers, half of the threads that files need too.
const MAX_LOOKUPS: [usize; 3] = [32, 16, 16];
/// The most names of home that are looked up at once: it waits for no cluster.
const MAX_HOME_LOOKUPS: [usize; 3] = [8, 4, 4];
/// What a lookup has found is kept for the next caller for so long, if nobody waited for it.
const FOUND_FOR: Duration = Duration::from_secs(60);
/// How long a server is looked up before it is reached where it was found last.
const KNOWN_AFTER: Duration = Duration::from_secs(1);
/// The most addresses of a name that count.
const MAX_ADDRESSES: usize = 16;
/// The most connections opened to a server within [`OPENED_WITHIN`]: it says when each ends, and a handshake costs much.
const MAX_OPENED: usize = 1000;
const OPENED_WITHIN: Duration = Duration::from_secs(30);

/// Turns at lookups for clusters with a role.
pub(crate) fn lookups(role: Role) -> Turns {
    Turns::new(match role {
        Role::Workload => MAX_LOOKUPS,
        Role::Home => MAX_HOME_LOOKUPS,
    })
}

/// Which addresses beside ordinary ones may be connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) loopback: bool,
    pub(crate) link_local: bool,
}

impl Reach {
    /// The risk of a host that is an address, if it is not taken. A name is checked when it is resolved.
    pub(crate) fn refuses_host(self, host: &str) -> Option<Risk> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.trim_end_matches('.').eq_ignore_ascii_case("localhost") {
            return (!self.loopback).then_some(Risk::Loopback);
        }
        self.refuses(host.parse().ok()?)
    }

    /// The risk of an address, if it is not taken.
    pub(crate) fn refuses(self, address: IpAddr) -> Option<Risk> {
        let risk = risk(address)?;
        let taken = match risk {
            Risk::Loopback => self.loopback,
            _ => self.link_local,
        };
        (!taken).then_some(risk)
    }
}

/// The risk of connecting to an address.
fn risk(address: IpAddr) -> Option<Risk> {
    let address = plain(address);
    let (loopback, link_local) = match address {
        // 0.0.0.0 and :: are this host, for those who connect.
        IpAddr::V4(v4) => (v4.is_loopback() || v4.octets()[0] == 0, v4.is_link_local()),
        IpAddr::V6(v6) => (v6.is_loopback() || v6.is_unspecified(), v6.is_unicast_link_local()),
    };
    if loopback {
        Some(Risk::Loopback)
    } else if link_local || METADATA.contains(&address) {
        Some(Risk::LinkLocal)
    } else {
        None
    }
}

/// The address that is meant by one that carries another: an IPv4 address in an IPv6 one, as written by
/// RFC 4291 (mapped, compatible), RFC 6052 (NAT64) or RFC 3056 (6to4).
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => v4(g, h),
        (0, 0, 0, 0, 0, 0) if g != 0 || h > 1 => v4(g, h),
        (0x2002, high, low, ..) => v4(high, low),
        _ => address,
    }
}

/// An address that may not be connected to.
#[derive(Debug, thiserror::Error)]
#[error("{host} is {address}, which is a {risk} address, and that is not allowed")]
struct Refused {
    host: String,
    address: IpAddr,
    risk: Risk,
}

/// A server gets no further connection for now.
#[derive(Debug, thiserror::Error)]
#[error("{MAX_OPENED} connections to the server were opened within {}s; fix: see why it, or a proxy before it, ends them", OPENED_WITHIN.as_secs())]
struct TooMany;

/// Resolves names, and leaves out addresses that may not be connected to.
#[derive(Clone)]
pub(crate) struct Resolver<R = GaiResolver> {
    inner: R,
    reach: Reach,
    turns: Turns,
    server: Arc<Mutex<Server>>,
}

/// What is known of the name of a server.
#[derive(Default)]
struct Server {
    /// The name, and where it was found last.
    known: Option<(Name, Vec<SocketAddr>)>,
    /// Whether the last lookup found it.
    is_found: bool,
    /// Counts the lookups.
    begun: u64,
    /// The lookup under way, or one for which nobody waited to the end.
    pending: Option<Pending>,
}

/// The addresses of a name, or why there are none.
type Found = Result<Vec<SocketAddr>, Arc<str>>;

#[derive(Clone)]
struct Pending {
    name: Name,
    number: u64,
    found: Shared<BoxFuture<'static, Found>>,
}

/// Opens connections to what is within reach. Clones are for the same server.
#[derive(Clone)]
pub(crate) struct Dialer {
    inner: HttpConnector<Resolver>,
    reach: Reach,
    is_limited: bool,
    /// For each connection that may be opened, and their handshakes, if there are bounds.
    rations: Option<(Arc<Semaphore>, Arc<Handshakes>)>,
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl Dialer {
    /// Connections over TCP, without delay of small packets, below TLS if there is any.
    pub(crate) fn new(reach: Reach, turns: Turns) -> Self {
        let resolver = Resolver { inner: GaiResolver::new(), reach, turns, server: Arc::default() };
        let mut inner = HttpConnector::new_with_resolver(resolver);
        inner.enforce_http(false);
        inner.set_nodelay(true);
        Self { inner, reach, is_limited: true, rations: None }
    }

    /// The same with no more than [`MAX_OPENED`] connections, whose TLS handshakes take those turns.
    pub(crate) fn rationed(self, handshakes: Turns) -> Self {
        let places = Arc::new(Semaphore::new(MAX_OPENED));
        let handshakes = Arc::new(Handshakes::new(handshakes));
        Self { rations: Some((places, handshakes)), ..self }
    }

    /// The same for connections that change their protocol: what comes then is no answer.
    pub(crate) fn without_limit(self) -> Self {
        Self { is_limited: false, rations: None, ..self }
    }

    /// The turns of TLS handshakes with the server, if they take any.
    pub(crate) fn handshakes(&self) -> Option<Arc<Handshakes>> {
        self.rations.as_ref().map(|(_, handshakes)| Arc::clone(handshakes))
    }
}

impl Server {
    /// Where a name was found last.
    fn known(&self, name: &Name) -> Option<Vec<SocketAddr>> {
        self.known.as_ref().filter(|(of, _)| of == name).map(|(_, found)| found.clone())
    }

    /// A lookup has ended. Returns what its callers get: after a late failure, where the server was found last.
    fn ended(&mut self, number: u64, found: Found, is_late: bool) -> Found {
        // The lookup of another name may have taken its place.
        let pending = self.pending.as_ref().filter(|pending| pending.number == number);
        let Some(Pending { name, .. }) = pending else { return found };
        self.is_found = found.is_ok();
        if found.is_err() && is_late {
            return self.known(name).map_or(found, Ok);
        }
        self.known = found.clone().ok().map(|found| (name.clone(), found));
        found
    }

    /// The next caller begins another lookup.
    fn forget(&mut self, number: u64) {
        self.pending.take_if(|pending| pending.number == number);
    }
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R> Resolver<R>
where
    R: Service<Name> + Clone + Send + 'static,
    R::Response: Iterator<Item = SocketAddr> + Send + 'static,
    R::Error: Into<BoxError> + Send + 'static,
    R::Future: Send + 'static,
{
    /// The lookup of a name: the one under way, or the one that ended without anybody, or another.
    fn lookup(&self, name: Name) -> Pending {
        let mut server = lock(&self.server);
        server.pending.take_if(|pending| pending.name != name);
        let Server { is_found, begun, pending, .. } = &mut *server;
        let begin = || {
            *begun += 1;
            let lane = match *begun {
                _ if *is_found => Lane::Proven,
                1 => Lane::First,
                _ => Lane::Late,
            };
            self.begin(name, *begun, lane)
        };
        pending.get_or_insert_with(begin).clone()
    }

    /// Begins a lookup in a task of its own: its thread is free when it ends, and not when its caller gives up.
    fn begin(&self, name: Name, number: u64, lane: Lane) -> Pending {
        let (inner, turns, sought) = (self.inner.clone(), self.turns.clone(), name.clone());
        let server = Arc::downgrade(&self.server);
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let mut lookup = pin!(async {
                let _place = turns.turn(lane).await;
                let found = inner.oneshot(sought).await.map_err(Into::<BoxError>::into);
                let found = found.map(|found| found.take(MAX_ADDRESSES).collect());
                found.map_err(|error| model::error::chain(&*error).into())
            });
            let (found, is_late) = match timeout(KNOWN_AFTER, lookup.as_mut()).await {
                Ok(found) => (found, false),
                Err(_) => (lookup.await, true),
            };
            let found = match server.upgrade() {
                Some(server) => lock(&server).ended(number, found, is_late),
                None => return,
            };
            // Nobody may listen yet.
            let _ = tell.send(found);
            tokio::time::sleep(FOUND_FOR).await;
            if let Some(server) = server.upgrade() {
                lock(&server).forget(number);
            }
        });
        let found = async move { told.await.unwrap_or_else(|_| Err("the lookup panicked".into())) };
        Pending { name, number, found: found.boxed().shared() }
    }
}

impl<R> Service<Name> for Resolver<R>
where
    R: Service<Name> + Clone + Send + 'static,
    R::Response: Iterator<Item = SocketAddr> + Send + 'static,
    R::Error: Into<BoxError> + Send + 'static,
    R::Future: Send + 'static,
{
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Answer<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (reach, host) = (self.reach, name.as_str().to_owned());
        let this = self.clone();
        Box::pin(async move {
            let Pending { number, found, .. } = this.lookup(name.clone());
            let server = this.server;
            let lookup = found.inspect(|_| lock(&server).forget(number));
            let known = lock(&server).known(&name);
            let found = match known {
                Some(known) => timeout(KNOWN_AFTER, lookup).await.unwrap_or(Ok(known)),
                None => lookup.await,
            };
            let (mut within, mut refused) = (Vec::new(), None);
            for address in found.map_err(|why| BoxError::from(&*why))? {
                match reach.refuses(address.ip()) {
                    None => within.push(address),
                    Some(risk) => refused = Some((address.ip(), risk)),
                }
            }
            match refused {
                Some((address, risk)) if within.is_empty() => {
                    Err(Refused { host, address, risk }.into())
                }
                _ => Ok(within.into_iter()),
            }
        })
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Metered>;
    type Error = BoxError;
    type Future = Answer<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        // An address in the place of a name never comes to the resolver.
        let host = to.host().unwrap_or_default().trim_matches(['[', ']']);
        if let Ok(address) = host.parse::<IpAddr>()
            && let Some(risk) = self.reach.refuses(address)
        {
            let host = host.to_owned();
            return Box::pin(async move { Err(Refused { host, address, risk }.into()) });
        }
        // Which protocol it is shows only in TLS: without that, it is HTTP/1.1.
        let is_plain = to.scheme() == Some(&Scheme::HTTP);
        let limit = self.is_limited.then_some(if is_plain { HTTP1_BYTES } else { HTTP2_BYTES });
        let places = self.rations.as_ref().map(|(places, _)| Arc::clone(places));
        let place = places.map(Semaphore::try_acquire_owned).transpose();
        let connecting = self.inner.call(to);
        Box::pin(async move {
            let place = place.map_err(|_| TooMany)?;
            let stream = connecting.await?.into_inner();
            if let Some(place) = place {
                tokio::spawn(tokio::time::sleep(OPENED_WITHIN).map(|()| drop(place)));
            }
            Ok(TokioIo::new(Metered { stream, unread: Unread::default(), limit }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn addresses_of_this_host_and_of_metadata_services_are_refused_however_they_are_written() {
        for (address, expect) in [
            ("10.0.0.1", None),
            ("192.168.1.1", None),
            ("2001:db8::1", None),
            ("fd00::1", None),
            ("127.0.0.1", Some(Risk::Loopback)),
            ("127.9.9.9", Some(Risk::Loopback)),
            ("0.0.0.0", Some(Risk::Loopback)),
            ("0.1.2.3", Some(Risk::Loopback)),
            ("::", Some(Risk::Loopback)),
            ("::1", Some(Risk::Loopback)),
            ("::ffff:127.0.0.1", Some(Risk::Loopback)),
            ("::127.0.0.1", Some(Risk::Loopback)),
            ("64:ff9b::127.0.0.1", Some(Risk::Loopback)),
            ("2002:7f00:1::", Some(Risk::Loopback)),
            ("169.254.169.254", Some(Risk::LinkLocal)),
            ("::ffff:169.254.169.254", Some(Risk::LinkLocal)),
            ("64:ff9b::a9fe:a9fe", Some(Risk::LinkLocal)),
            ("fe80::1", Some(Risk::LinkLocal)),
            ("168.63.129.16", Some(Risk::LinkLocal)),
            ("fd00:ec2::254", Some(Risk::LinkLocal)),
        ] {
            let reach = Reach::default();
            assert_eq!(reach.refuses(address.parse().unwrap()), expect, "{address}");
            assert_eq!(reach.refuses_host(address), expect, "{address} as a host");
        }
    }

    #[test]
    fn a_risk_that_is_taken_is_no_other() {
        let [loopback, metadata] = ["127.0.0.1", "169.254.169.254"].map(|a| a.parse().unwrap());
        let reach = Reach { loopback: true, link_local: false };
        assert_eq!(
            (reach.refuses(loopback), reach.refuses(metadata)),
            (None, Some(Risk::LinkLocal))
        );
        assert_eq!(reach.refuses_host("LOCALHOST."), None);
        assert_eq!(Reach::default().refuses_host("[::1]"), Some(Risk::Loopback));
        assert_eq!(Reach::default().refuses_host("host.test"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_that_hangs_is_not_begun_again_until_it_has_ended() {
        let (begun, end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (count, ends) = (Arc::clone(&begun), Arc::clone(&end));
        let inner = tower::service_fn(move |_: Name| {
            count.fetch_add(1, Ordering::Relaxed);
            let ends = Arc::clone(&ends);
            async move {
                ends.acquire_owned().await.unwrap().forget();
                Ok::<_, BoxError>([SocketAddr::from(([10, 0, 0, 1], 1))].into_iter())
            }
        });
        let turns = Turns::new([1; 3]);
        let resolver = Resolver { inner, reach: Reach::default(), turns, server: Arc::default() };
        let lookup = || resolver.clone().oneshot("host.test".parse().unwrap());
        for _ in 0..20 {
            let found = tokio::time::timeout(Duration::from_secs(5), lookup()).await;
            assert!(found.is_err(), "it hangs");
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        end.add_permits(2);
        assert_eq!(lookup().await.unwrap().count(), 1);
        assert_eq!(begun.load(Ordering::Relaxed), 1, "it got what was under way");
        assert_eq!(lookup().await.unwrap().count(), 1);
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_found_is_reached_while_lookups_hang() {
        let begun = Arc::new(AtomicUsize::new(0));
        let inner = tower::service_fn(move |_: Name| {
            let is_first = begun.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if !is_first {
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>([SocketAddr::from(([10, 0, 0, 1], 1)); 100].into_iter())
            }
        });
        let turns = Turns::new([1; 3]);
        let resolver = Resolver { inner, reach: Reach::default(), turns, server: Arc::default() };
        let lookup = |name: &str| {
            let lookup = resolver.clone().oneshot(name.parse().unwrap());
            tokio::time::timeout(Duration::from_secs(5), lookup)
        };
        for _ in 0..3 {
            assert_eq!(lookup("host.test").await.expect("soon").unwrap().count(), MAX_ADDRESSES);
        }
        assert!(lookup("other.test").await.is_err(), "of another name nothing is known");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_lookup_finds_is_known_whoever_waits_for_it_and_after_one_that_fails_late() {
        let begun = Arc::new(AtomicUsize::new(0));
        let inner = tower::service_fn(move |_: Name| {
            let lookups = [(10, true), (30, false), (0, false)];
            let (seconds, finds) = lookups[begun.fetch_add(1, Ordering::Relaxed)];
            async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                let found = finds.then(|| [SocketAddr::from(([10, 0, 0, 1], 1))].into_iter());
                found.ok_or_else(|| BoxError::from("no answer"))
            }
        });
        let turns = Turns::new([1; 3]);
        let resolver = Resolver { inner, reach: Reach::default(), turns, server: Arc::default() };
        let lookup = || {
            let lookup = resolver.clone().oneshot("host.test".parse().unwrap());
            tokio::time::timeout(Duration::from_secs(5), lookup)
        };
        assert!(lookup().await.is_err(), "it is not found yet");
        // What the first finds is kept for nobody any more, but it is known.
        tokio::time::sleep(FOUND_FOR * 2).await;
        assert_eq!(lookup().await.expect("soon").unwrap().count(), 1);
        // The second has failed.
        tokio::time::sleep(FOUND_FOR / 2).await;
        assert_eq!(lookup().await.expect("at once").unwrap().count(), 1);
        assert!(lookup().await.expect("at once").is_err(), "the third fails at once");
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_hang_delay_no_server_that_was_found_and_a_new_one_gets_its_turn() {
        let hung = Duration::from_secs(10);
        let inner = tower::service_fn(move |name: Name| async move {
            if name.as_str().starts_with("hangs") {
                tokio::time::sleep(hung).await;
                return Err(BoxError::from("no answer"));
            }
            Ok([SocketAddr::from(([10, 0, 0, 1], 1))].into_iter())
        });
        let turns = Turns::new([4; 3]);
        let resolver = || Resolver {
            inner,
            reach: Reach::default(),
            turns: turns.clone(),
            server: Arc::default(),
        };
        let lookup = |of: &Resolver<_>, name: &str| {
            let lookup = of.clone().oneshot(name.parse().unwrap());
            tokio::time::timeout(Duration::from_secs(5), lookup)
        };
        let known = resolver();
        assert!(lookup(&known, "known.test").await.unwrap().is_ok());
        let hanging: Vec<_> = (0..40).map(|_| resolver()).collect();
        let all = futures::future::join_all(hanging.iter().map(|one| lookup(one, "hangs.test")));
        assert!(all.await.iter().all(Result::is_err));
        assert!(lookup(&known, "known.test").await.expect("at once").is_ok());
        // Each time, the others ask before it.
        let new = resolver();
        let mut found = false;
        for _ in 0..30 {
            let all =
                futures::future::join_all(hanging.iter().map(|one| lookup(one, "hangs.test")));
            let (_, own) = tokio::join!(all, lookup(&new, "new.test"));
            found |= own.is_ok_and(|own| own.is_ok());
        }
        assert!(found, "its lookup keeps its place when its caller gives up");
    }

    fn dialer() -> Dialer {
        Dialer::new(Reach::default(), lookups(Role::Workload))
    }

    /// Names that the system's resolver turns into addresses of this host.
    #[tokio::test]
    async fn an_address_behind_a_name_is_refused_before_it_is_connected_to() {
        for host in ["localhost", "127.1", "2130706433", "0x7f.1"] {
            let to: Uri = format!("https://{host}:1").parse().unwrap();
            let error = dialer().call(to).await.map(drop).unwrap_err();
            let text = model::error::chain(&*error);
            assert!(text.contains("is a loopback address"), "{host}: {text}");
        }
    }

    #[tokio::test]
    async fn a_server_that_ends_each_connection_gets_no_more_for_a_while() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let reach = Reach { loopback: true, link_local: false };
        let mut dialer = Dialer::new(reach, lookups(Role::Workload)).rationed(Turns::new([1; 3]));
        let places = Arc::clone(&dialer.rations.as_ref().expect("it is rationed").0);
        assert_eq!(places.available_permits(), MAX_OPENED);
        places.forget_permits(MAX_OPENED - 2);
        for _ in 0..2 {
            dialer.call(to.clone()).await.map(drop).unwrap();
        }
        let error = dialer.call(to.clone()).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("fix: see why it"), "{error}");
        dialer.without_limit().call(to).await.map(drop).unwrap();
    }

    #[tokio::test]
    async fn an_address_in_a_url_is_refused_before_it_is_connected_to() {
        for host in ["127.0.0.1", "[::1]", "169.254.169.254", "[::ffff:127.0.0.1]"] {
            let to: Uri = format!("https://{host}:1").parse().unwrap();
            let error = dialer().call(to).await.map(drop).unwrap_err();
            assert!(error.to_string().contains("that is not allowed"), "{host}: {error}");
        }
    }
}
