//! Certificates: a new authority for each server, and a serving certificate for the loopback.
#![expect(clippy::disallowed_methods, reason = "certificates start now")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// How long certificates are valid; they end with their server anyway.
const VALID: Duration = Duration::from_secs(365 * 24 * 3600);
/// Certificates start in the past, for clients whose clock is behind.
const SLACK: Duration = Duration::from_secs(3600);

/// Why certificates could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate library failed.
    #[error("make certificates")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library did not accept them.
    #[error("configure tls with the certificates made")]
    Config(#[from] rustls::Error),
}

/// A server's certificate, and the authority that its clients must trust.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<rustls::ServerConfig>,
    /// The authority, as PEM.
    pub(crate) authority: String,
}

/// Makes an authority and a certificate for `localhost`, the loopback and `host`.
pub(crate) fn generate(host: IpAddr) -> Result<Tls, TlsError> {
    let mut authority = params("leasehold-apiserver-ca", Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = KeyPair::generate()?;
    let authority_cert = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut serving = params("leasehold-apiserver", vec!["localhost".to_owned()])?;
    let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    if !addresses.contains(&host) && !host.is_unspecified() {
        addresses.push(host);
    }
    serving.subject_alt_names.extend(addresses.into_iter().map(SanType::IpAddress));
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    serving.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let cert = serving.signed_by(&key, &issuer)?;

    let chain = vec![CertificateDer::from(cert.der().to_vec())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls { config: Arc::new(config), authority: authority_cert.pem() })
}

fn params(name: &str, hosts: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    let now = std::time::SystemTime::now();
    params.not_before = (now - SLACK).into();
    params.not_after = (now + VALID).into();
    Ok(params)
}
