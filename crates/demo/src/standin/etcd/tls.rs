//! The TLS of a member, from the files that its arguments name.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::launch::Launch;

/// What accepts clients: with `--client-cert-auth` only those with a certificate of the trusted authority.
///
/// # Errors
/// etcd's last words, if a file is missing or cannot be used.
pub(super) fn acceptor(
    launch: &Launch,
    files: &BTreeMap<String, Vec<u8>>,
) -> Result<TlsAcceptor, String> {
    let file = |flag: &str| {
        let path = launch.flag(flag).unwrap_or_default();
        files.get(path).ok_or_else(|| format!("open {path}: no such file or directory"))
    };
    let failed = |error: &dyn std::fmt::Display| format!("tls: {error}");
    let certificates = |pem: &[u8]| -> Result<Vec<CertificateDer<'static>>, String> {
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| failed(&e))
    };
    let chain = certificates(file("cert-file")?)?;
    let key = PrivateKeyDer::from_pem_slice(file("key-file")?).map_err(|e| failed(&e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&e))?;
    let builder = match launch.flag("client-cert-auth") {
        Some("true") => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(file("trusted-ca-file")?)?);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|e| failed(&e))?)
        }
        _ => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(chain, key).map_err(|e| failed(&e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
