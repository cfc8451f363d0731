//! A cloud that sells hosts, for tests and demos: the APIs of DigitalOcean and Hetzner, as far as a
//! controller of hosts needs them, with faults on demand.
//!
//! [`state`] is the cloud: pure, it takes `now`. `wire` implements the two APIs on it: pure too.
//! [`Cloud`] is the shell: it answers in the same process, or over HTTP on a loopback address.

pub mod state;
mod wire;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::Clock;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use state::{Machine, Machines, Reserved};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is answered.
    None,
    /// It is answered after this long.
    Delay(Duration),
    /// It is refused with this HTTP status, and nothing is done.
    Refuse(u16),
    /// It never arrives.
    Unsent,
    /// It is carried out, and its answer is lost.
    Unheard,
}

/// Why no answer came.
pub type Lost = Box<dyn std::error::Error + Send + Sync>;

type Hook = Arc<dyn Fn(&Request<Bytes>) -> Trouble + Send + Sync>;

/// A cloud. Clones are the same one.
#[derive(Clone)]
pub struct Cloud {
    machines: Arc<Mutex<Machines>>,
    clock: Arc<dyn Clock>,
    trouble: Arc<Mutex<Option<Hook>>>,
}

/// A cloud that is served over HTTP, until this is dropped.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Cloud {
    /// A cloud on whose clock machines boot.
    pub fn new(machines: Machines, clock: Arc<dyn Clock>) -> Self {
        Self { machines: Arc::new(Mutex::new(machines)), clock, trouble: Arc::default() }
    }

    /// Reads the machines, or changes them without a request.
    ///
    /// # Panics
    /// If an earlier look did.
    pub fn machines<T>(&self, look: impl FnOnce(&mut Machines) -> T) -> T {
        look(&mut self.machines.lock().expect("no look panics"))
    }

    /// Sets a hook that decides what happens to each request.
    pub fn set_trouble(&self, hook: impl Fn(&Request<Bytes>) -> Trouble + Send + Sync + 'static) {
        *self.trouble.lock().expect("no holder panics") = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn end_trouble(&self) {
        *self.trouble.lock().expect("no holder panics") = None;
    }

    /// Sends a request within the process. It works on paused time, as nothing waits outside of
    /// tokio.
    pub fn send(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<Bytes>, Lost>> {
        let cloud = self.clone();
        async move { cloud.answer(request).await.ok_or_else(|| "connection reset".into()) }.boxed()
    }

    /// Serves it on a loopback address, for other processes.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn serve(&self) -> std::io::Result<Serving> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let cloud = self.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(cloud.clone().serve_connection(TokioIo::new(stream)));
            }
        });
        Ok(Serving { address, task })
    }

    async fn serve_connection(self, stream: TokioIo<tokio::net::TcpStream>) {
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let cloud = self.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                let answer = cloud.answer(Request::from_parts(head, body)).await;
                let lost = || std::io::Error::other("the answer is lost");
                answer.map(|answer| answer.map(Full::new)).ok_or_else(lost)
            }
        });
        let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        // The client may have gone.
        let _ = builder.serve_connection(stream, service).await;
    }

    /// The answer to a request; `None` if none is sent.
    async fn answer(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let hook = self.trouble.lock().expect("no holder panics").clone();
        let trouble = hook.map_or(Trouble::None, |hook| hook(&request));
        match trouble {
            Trouble::Unsent => return None,
            Trouble::Refuse(status) => return Some(wire::refusal(status)),
            Trouble::Delay(delay) => tokio::time::sleep(delay).await,
            Trouble::None | Trouble::Unheard => {}
        }
        let now = self.clock.wall();
        let answer = self.machines(|machines| wire::answer(machines, &request, now));
        (trouble != Trouble::Unheard).then_some(answer)
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").finish_non_exhaustive()
    }
}

impl Serving {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}
