//! A connection to a member: HTTP/1.1 over TLS or over a plain stream, with bounds on bytes and time.
//!
//! The stream is a port-forward, cut when the reconcile ends or the shard is handed over. Nothing is
//! spawned: the connection advances while a request waits for its answer.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use http::header::{CONTENT_TYPE, HOST};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use operands::tls::{Identity, TlsClient};
use sdk::{Context, Gathered};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::calls::{Address, EtcdError, Gateway, Session, refused};
use crate::names::CLIENT_PORT;

/// The longest answer, in bytes. The largest that is asked for lists members: some 200 bytes each.
const MAX_ANSWER: usize = 1 << 20;

type Driver = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// A connection of HTTP/1.1.
pub(crate) struct Connection {
    pod: String,
    host: String,
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

/// Opens a connection over a stream to a member; with TLS it must prove to be that member.
pub(crate) async fn connect<S>(
    to: &Address,
    stream: S,
    now: Timestamp,
) -> Result<Box<dyn Session>, EtcdError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = match &to.trust {
        None => shake(to, stream).await?,
        Some(trust) => {
            let identity = Identity { certificate: &trust.certificate, key: &trust.key };
            let client = TlsClient::new(&trust.authority, Some(identity), &[], now);
            let stream = match client {
                Ok(client) => client.connect(&to.host, stream).await,
                Err(error) => Err(error),
            };
            shake(to, stream.map_err(|error| unreached(to, error))?).await?
        }
    };
    Ok(Box::new(connection))
}

async fn shake<S>(to: &Address, stream: S) -> Result<Connection, EtcdError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (sender, driver) = shaken.map_err(|error| unreached(to, error))?;
    let (pod, host) = (to.pod.clone(), to.host.clone());
    Ok(Connection { pod, host, sender, driver: Box::pin(driver) })
}

fn unreached(
    to: &Address,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> EtcdError {
    EtcdError::Unreached { pod: to.pod.clone(), source: source.into() }
}

impl Session for Connection {
    fn post<'a>(
        &'a mut self,
        path: &'static str,
        body: Value,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Value, EtcdError>> {
        let pod = self.pod.clone();
        async move {
            let slow = EtcdError::Slow { pod: pod.clone(), path, seconds: limit.as_secs() };
            let (code, answer) = match timeout(limit, self.exchange(path, &body)).await {
                Ok(answer) => {
                    answer.map_err(|source| EtcdError::Unreached { pod: pod.clone(), source })?
                }
                Err(_) => return Err(slow),
            };
            if !(200..300).contains(&code) {
                return Err(refused(&pod, path, code, &answer));
            }
            serde_json::from_slice(&answer).map_err(|error| EtcdError::Unreadable {
                pod,
                path,
                source: error.into(),
            })
        }
        .boxed()
    }

    fn pod(&self) -> &str {
        &self.pod
    }
}

impl Connection {
    /// Sends a request and reads the answer, while the connection advances.
    async fn exchange(
        &mut self,
        path: &'static str,
        body: &Value,
    ) -> Result<(u16, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let request = http::Request::post(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let Self { sender, driver, .. } = self;
        let exchange = async move {
            sender.ready().await?;
            let answer = sender.send_request(request).await?;
            let code = answer.status().as_u16();
            let body = Gathered::new(answer.into_body(), MAX_ANSWER).collect().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((code, body.to_bytes()))
        };
        match select(Box::pin(exchange), driver).await {
            Either::Left((answer, _)) => answer,
            // The connection ended: what it had received is still read.
            Either::Right((ended, exchange)) => {
                ended?;
                exchange.await
            }
        }
    }
}

/// Reaches members by port-forward through their cluster's API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodGateway;

impl Gateway for PodGateway {
    fn open<'a>(
        &'a self,
        ctx: &'a Context,
        to: &'a Address,
    ) -> BoxFuture<'a, Result<Box<dyn Session>, EtcdError>> {
        async move {
            let stream = ctx.pod(&to.namespace, &to.pod).dial(CLIENT_PORT).await;
            connect(to, stream.map_err(|error| unreached(to, error))?, ctx.now()).await
        }
        .boxed()
    }
}
