//! A TLS client over any stream. It trusts one authority, may show a certificate of its own, and judges
//! validity at a given time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The most certificates that are read of one text.
const MAX_CERTIFICATES: usize = 16;

/// Why there is no TLS connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The authority or the identity cannot be read.
    #[error("the {what} is not in PEM form: store it anew")]
    Pem {
        /// What.
        what: &'static str,
    },
    /// The authority or the identity cannot be used.
    #[error("configure tls with the {what}")]
    Unusable {
        /// What.
        what: &'static str,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// The server's name is none.
    #[error("{name:?} is neither a DNS name nor an address")]
    Name {
        /// The name.
        name: String,
    },
    /// The handshake failed.
    #[error("shake hands with {name}")]
    Handshake {
        /// The server's name.
        name: String,
        /// Why: the stream broke, or one side does not trust the other.
        #[source]
        source: io::Error,
    },
    /// The handshake took too long.
    #[error("shake hands with {name}: no end after {} s", HANDSHAKE.as_secs())]
    Slow {
        /// The server's name.
        name: String,
    },
}

/// A client. Clones share its configuration.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<ClientConfig>);

/// A certificate of one's own and its private key, as PEM.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// The certificate.
    pub certificate: &'a str,
    /// Its private key.
    pub key: &'a str,
}

/// The time at which certificates are judged.
#[derive(Debug)]
struct At(Duration);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0))
    }
}

impl TlsClient {
    /// A client that trusts the authority (PEM), shows the identity if asked for one, and judges
    /// certificates at `now`. `protocols` are offered to the server (ALPN): gRPC needs `h2`.
    ///
    /// # Errors
    /// If the authority or the identity cannot be used.
    pub fn new(
        authority: &str,
        identity: Option<Identity<'_>>,
        protocols: &[&str],
        now: Timestamp,
    ) -> Result<Self, TlsError> {
        let unusable = |what| move |source| TlsError::Unusable { what, source };
        let mut roots = RootCertStore::empty();
        for certificate in certificates("authority", authority)? {
            roots.add(certificate).map_err(unusable("authority"))?;
        }
        // Before 1970 no certificate is valid.
        let now = At(Duration::try_from(now.as_duration()).unwrap_or_default());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_details(provider, Arc::new(now))
            .with_safe_default_protocol_versions()
            .map_err(unusable("protocol versions"))?
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = certificates("client's certificate", identity.certificate)?;
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
                let key = key.map_err(|_| TlsError::Pem { what: "client's private key" })?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(unusable("client's certificate and key"))?
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands over a stream, with the server of this name.
    ///
    /// # Errors
    /// If the server's certificate is not trusted or not for this name, if the server does not trust the
    /// identity, or if the stream breaks or is slow.
    pub async fn connect<S>(&self, name: &str, stream: S) -> Result<TlsStream<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let server = ServerName::try_from(name.to_owned());
        let server = server.map_err(|_| TlsError::Name { name: name.to_owned() })?;
        let handshake = TlsConnector::from(Arc::clone(&self.0)).connect(server, stream);
        match timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(source)) => Err(TlsError::Handshake { name: name.to_owned(), source }),
            Err(_) => Err(TlsError::Slow { name: name.to_owned() }),
        }
    }
}

/// A configuration of clients that trust an authority (PEM) and judge certificates by the machine's clock,
/// for programs that run beside a database.
pub(crate) fn trusting(authority: &str) -> Result<Arc<ClientConfig>, TlsError> {
    let unusable = |source| TlsError::Unusable { what: "authority", source };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("authority", authority)? {
        roots.add(certificate).map_err(unusable)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The certificates of a text; at least one.
fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).take(MAX_CERTIFICATES);
    let found: Result<Vec<_>, _> = found.collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(TlsError::Pem { what })
}

#[cfg(test)]
mod tests;
