//! The TLS of what runs in Pods, from the files that are mounted there.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The paths of the files: certificate, private key, and the authority of clients that have to show a
/// certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paths<'a> {
    pub(super) certificate: &'a str,
    pub(super) key: &'a str,
    pub(super) clients: Option<&'a str>,
}

/// What accepts clients.
///
/// # Errors
/// The last words of a program whose file is missing or cannot be used.
pub(super) fn acceptor(
    paths: Paths<'_>,
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<TlsAcceptor, String> {
    let file = |path: &str| {
        files.get(path).ok_or_else(|| format!("open {path}: no such file or directory"))
    };
    let failed = |error: &dyn std::fmt::Display| format!("tls: {error}");
    let certificates = |pem: &[u8]| -> Result<Vec<CertificateDer<'static>>, String> {
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| failed(&e))
    };
    let chain = certificates(file(paths.certificate)?)?;
    let key = PrivateKeyDer::from_pem_slice(file(paths.key)?).map_err(|e| failed(&e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&e))?;
    let builder = match paths.clients {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(file(authority)?)?);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|e| failed(&e))?)
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(chain, key).map_err(|e| failed(&e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
