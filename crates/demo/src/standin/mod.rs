//! Stand-ins for the services that the built-in controllers manage: enough of each to show and test a
//! controller on a laptop. Some are services outside of Kubernetes, others run in Pods.
//!
//! The part that decides is pure: requests and `now` in, answers out. A shell serves it on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{Builder, Matcher};
use model::Clock;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::cloud::{Cloud, Machines, Serving};

mod etcd;
mod http;
pub mod mysql;
pub mod sqs;
mod tls;
mod volume;

/// What runs in Pods: stand-ins for databases. Each API server has its own.
pub(crate) fn programs(server: Builder) -> Builder {
    let container = |name: &str| Matcher::Container(name.to_owned());
    server
        .program(container("etcd"), Arc::new(etcd::Etcd::default()))
        .program(container("mysql"), Arc::new(mysql::MySql::default()))
}

/// The token of the account at the cloud.
pub(crate) const TOKEN: &str = "demo";
/// How long its hosts take to boot.
const BOOT: Duration = Duration::from_secs(3);

/// The stand-ins of a demo, running. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct StandIns {
    sqs: SocketAddr,
    cloud: Serving,
    _tasks: Vec<AbortOnDropHandle<std::io::Result<()>>>,
}

impl StandIns {
    /// Starts them on free ports of loopback.
    ///
    /// # Errors
    /// There is no free port.
    pub(crate) async fn start(clock: &Arc<dyn Clock>) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let sqs = listener.local_addr()?;
        let state = Arc::new(Mutex::new(sqs::Sqs::default()));
        let serve = http::serve(listener, state, Arc::clone(clock), std::future::pending());
        let mut machines = Machines::default();
        (machines.token, machines.boot) = (TOKEN.to_owned(), BOOT);
        let cloud = Cloud::new(machines, Arc::clone(clock)).serve().await?;
        Ok(Self { sqs, cloud, _tasks: vec![AbortOnDropHandle::new(tokio::spawn(serve))] })
    }

    /// The address of the stand-in for SQS.
    pub(crate) fn sqs(&self) -> String {
        format!("http://{}", self.sqs)
    }

    /// The address of the stand-in for a cloud that sells hosts: its API in DigitalOcean's form.
    pub(crate) fn cloud(&self) -> String {
        format!("http://{}/v2", self.cloud.address())
    }

    /// The variables that a replica needs for them.
    pub(crate) fn environment(&self) -> [(&'static str, &'static str); 2] {
        // Any values: the stand-in does not check signatures.
        [("AWS_ACCESS_KEY_ID", "demo"), ("AWS_SECRET_ACCESS_KEY", "demo")]
    }
}
