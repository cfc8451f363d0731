//! The admin server of one replica, for commands that ask it: through the API server of home to the port of its
//! Pod, as `kubectl port-forward` does, or at an address.
//!
//! # Invariants
//! - A token goes to the Pod through home's API server, or to this machine, and nowhere else.
//! - An answer has a bound in bytes and in time.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use kube::Client;
use portforward::PodPort;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

/// How long a replica may take to answer, the way to it included.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of an answer: metrics and views of a replica with a thousand clusters are a few megabytes.
const MAX_ANSWER: usize = 32 << 20;
/// The most bytes of a refusal that are shown.
const MAX_SHOWN: usize = 300;
/// The name in the request, and in TLS: that of the Pod's own end of the way.
const LOCALHOST: &str = "localhost";

/// The way to a replica's admin server.
#[derive(Clone, Debug)]
pub enum Way {
    /// To a port of its Pod, through home's API server.
    Pod {
        /// The Pod.
        port: PodPort,
        /// Whether the server speaks TLS.
        tls: bool,
    },
    /// To an address.
    Address {
        /// The address.
        address: SocketAddr,
        /// Whether the server there speaks TLS.
        tls: bool,
    },
}

impl Way {
    /// Whether a token may go this way.
    fn admits(&self, token: Option<&str>) -> Result<(), AskError> {
        match self {
            Self::Address { address, .. } if token.is_some() && !address.ip().is_loopback() => {
                Err(AskError::Token(*address))
            }
            Self::Address { .. } | Self::Pod { .. } => Ok(()),
        }
    }
}

/// A replica that was not asked, or gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A token could be seen on the way: there is no TLS, or nobody checks the certificate.
    #[error("a token is sent only to an address of this machine, and not to {0}")]
    Token(SocketAddr),
    /// It has no port at the end of the way.
    #[error("reach its Pod through the home cluster")]
    Dial(#[from] portforward::DialError),
    /// The connection broke.
    #[error("talk to it")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// It speaks no TLS.
    #[error("speak TLS with its admin server")]
    Tls(#[source] std::io::Error),
    /// It took too long.
    #[error("it gave no answer within {}s", TIMEOUT.as_secs())]
    Late,
    /// It asks for a token.
    #[error("it asks for a token")]
    Unauthorized,
    /// It does not know the path.
    #[error("its release does not know {0}: upgrade it")]
    Unknown(String),
    /// It answers otherwise.
    #[error("it answers {0}: {1}")]
    Refused(StatusCode, String),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What a replica answers at a path.
///
/// # Errors
/// See [`AskError`].
pub async fn get(
    home: Client,
    way: &Way,
    path: &str,
    token: Option<&str>,
) -> Result<Bytes, AskError> {
    way.admits(token)?;
    let exchange = async { exchange(reach(home, way).await?, path, token).await };
    tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or(Err(AskError::Late))
}

/// A connection to the admin server.
async fn reach(home: Client, way: &Way) -> Result<Box<dyn Stream>, AskError> {
    let (stream, tls): (Box<dyn Stream>, bool) = match way {
        Way::Address { address, tls } => {
            (Box::new(TcpStream::connect(address).await.map_err(broken)?), *tls)
        }
        Way::Pod { port, tls } => (Box::new(to_pod(home, port.clone()).await?), *tls),
    };
    if !tls {
        return Ok(stream);
    }
    let name = ServerName::try_from(LOCALHOST).map_err(broken)?;
    let connector = TlsConnector::from(Arc::new(unchecked().map_err(broken)?));
    Ok(Box::new(connector.connect(name, stream).await.map_err(AskError::Tls)?))
}

/// A connection to a port of a Pod.
async fn to_pod(home: Client, port: PodPort) -> Result<impl Stream, AskError> {
    let send = |request| async move {
        let answer = home.send(request).await?;
        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
    };
    let (slots, may_pass) = (Arc::new(Semaphore::new(1)), Arc::new(|_: &PodPort| Ok(())));
    Ok(portforward::dial(port, slots, may_pass, send).await?)
}

fn broken(error: impl Into<Box<dyn Error + Send + Sync>>) -> AskError {
    AskError::Broken(error.into())
}

/// Sends one request and reads its answer.
async fn exchange(
    stream: Box<dyn Stream>,
    path: &str,
    token: Option<&str>,
) -> Result<Bytes, AskError> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(broken)?;
    let connection = tokio::spawn(connection);
    let mut request = Request::get(path).header(HOST, LOCALHOST);
    if let Some(token) = token {
        let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(broken)?;
        header.set_sensitive(true);
        request = request.header(AUTHORIZATION, header);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(broken)?;
    let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(AskError::Broken)?.to_bytes();
    connection.abort();
    match head.status {
        StatusCode::OK => Ok(body),
        StatusCode::UNAUTHORIZED => Err(AskError::Unauthorized),
        StatusCode::NOT_FOUND => Err(AskError::Unknown(path.to_owned())),
        status => {
            let said = String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN)]);
            Err(AskError::Refused(status, model::error::foreign(said.trim())))
        }
    }
}

/// TLS without a check of the certificate: the way ends in the Pod that home's API server and the kubelet name, or
/// on this machine if a token goes it, and a certificate for `localhost` would prove no more.
fn unchecked() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(PodItself(Arc::clone(&provider)));
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Accepts the certificate of whoever is at the end of the way.
#[derive(Debug)]
struct PodItself(Arc<CryptoProvider>);

impl ServerCertVerifier for PodItself {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What comes of an answer with this status and so many bytes, and the request as it was sent.
    async fn answered(status: &str, bytes: usize) -> (Result<Bytes, AskError>, String) {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\n\r\n");
        let server = tokio::spawn(async move {
            let mut request = vec![0; 4096];
            let length = far.read(&mut request).await.unwrap();
            far.write_all(head.as_bytes()).await.unwrap();
            // The client may have enough.
            let _ = far.write_all(&vec![b'x'; bytes]).await;
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let answer = exchange(Box::new(near), "/debug/explain", Some("sesame")).await;
        (answer, server.await.unwrap())
    }

    #[tokio::test]
    async fn an_answer_is_read_within_its_bound() {
        let (answer, request) = answered("200 OK", MAX_ANSWER).await;
        assert_eq!(answer.unwrap().len(), MAX_ANSWER);
        assert!(request.starts_with("GET /debug/explain HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("authorization: Bearer sesame\r\n"), "{request}");
        let (answer, _) = answered("200 OK", MAX_ANSWER + 1).await;
        assert!(matches!(answer, Err(AskError::Broken(_))));
    }

    #[tokio::test]
    async fn refusals_say_what_to_do() {
        let (answer, _) = answered("401 Unauthorized", 3).await;
        assert!(matches!(answer, Err(AskError::Unauthorized)));
        let (answer, _) = answered("404 Not Found", 3).await;
        assert_eq!(
            answer.unwrap_err().to_string(),
            "its release does not know /debug/explain: upgrade it"
        );
        let (answer, _) = answered("403 Forbidden", MAX_SHOWN + 1).await;
        let text = answer.unwrap_err().to_string();
        assert_eq!(text, format!("it answers 403 Forbidden: {}", "x".repeat(MAX_SHOWN)));
    }

    #[tokio::test]
    async fn whoever_forwards_a_port_with_tls_speaks_it_there() {
        // The first byte of a handshake of TLS, and of `GET`.
        for (tls, expect) in [(true, 0x16), (false, b'G')] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let way = Way::Address { address: listener.local_addr().unwrap(), tls };
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_u8().await.unwrap()
            };
            let nobody = tower::service_fn(|_: Request<kube::client::Body>| {
                std::future::ready(Err::<http::Response<kube::client::Body>, _>("nobody asks home"))
            });
            let home = Client::new(nobody, "default");
            let (answer, first) = tokio::join!(get(home, &way, "/metrics", None), server);
            assert_eq!(first, expect);
            assert!(answer.is_err());
        }
    }

    #[test]
    fn a_token_goes_to_no_other_machine() {
        let to = |ip: [u8; 4]| Way::Address { address: SocketAddr::from((ip, 8443)), tls: true };
        assert!(matches!(to([192, 0, 2, 1]).admits(Some("sesame")), Err(AskError::Token(_))));
        assert!(to([192, 0, 2, 1]).admits(None).is_ok());
        assert!(to([127, 0, 0, 1]).admits(Some("sesame")).is_ok());
    }
}
