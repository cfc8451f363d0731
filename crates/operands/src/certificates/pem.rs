//! What a Secret holds, read and bounded.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::{CERTIFICATE, CertificateError, PRIVATE_KEY};

/// The longest value of a Secret that is read, in bytes. A chain of a few certificates has 10,000.
const MAX_BYTES: usize = 64 << 10;

/// A certificate and its private key, as a Secret holds them.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) facts: Facts,
    pub(super) key_pair: KeyPair,
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) der: Vec<u8>,
    /// The whole name, in DER.
    pub(super) subject: Vec<u8>,
    /// The id of its key, as those that it signs name it.
    pub(super) key_id: Vec<u8>,
    pub(super) common_name: String,
    pub(super) dns: BTreeSet<String>,
    pub(super) ips: BTreeSet<IpAddr>,
    pub(super) server: bool,
    pub(super) client: bool,
    pub(super) is_authority: bool,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// The Secret, as messages name it.
pub(super) fn named(secret: &Secret) -> String {
    match secret.namespace() {
        Some(namespace) => format!("{namespace}/{}", secret.name_any()),
        None => secret.name_any(),
    }
}

/// The value of a key of a Secret, if it has one.
pub(super) fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a ByteString> {
    secret.data.as_ref()?.get(key).filter(|value| !value.0.is_empty())
}

/// The pair in a Secret. `fix` says what to do if there is none.
pub(super) fn read(secret: &Secret, fix: &'static str) -> Result<Pair, CertificateError> {
    let certificate = text(secret, CERTIFICATE, fix)?;
    let key = text(secret, PRIVATE_KEY, fix)?;
    let bad = |key: &'static str, problem: &'static str| CertificateError::Unreadable {
        secret: named(secret),
        key,
        problem,
        fix,
    };
    let facts = facts(&certificate).map_err(|problem| bad(CERTIFICATE, problem))?;
    let key_pair =
        KeyPair::from_pem(&key).map_err(|_| bad(PRIVATE_KEY, "it is no PKCS#8 key in PEM form"))?;
    let (_, parsed) = X509Certificate::from_der(&facts.der)
        .map_err(|_| bad(CERTIFICATE, "it is no X.509 certificate"))?;
    if parsed.public_key().raw != key_pair.subject_public_key_info() {
        return Err(CertificateError::Mismatch { secret: named(secret), fix });
    }
    Ok(Pair { certificate, key, facts, key_pair })
}

fn text(secret: &Secret, key: &'static str, fix: &'static str) -> Result<String, CertificateError> {
    let found = value(secret, key).ok_or_else(|| CertificateError::Missing {
        secret: named(secret),
        key,
        fix,
    })?;
    let bad = |problem| CertificateError::Unreadable { secret: named(secret), key, problem, fix };
    if found.0.len() > MAX_BYTES {
        return Err(bad("it is longer than 64 KiB"));
    }
    String::from_utf8(found.0.clone()).map_err(|_| bad("it is not in PEM form"))
}

/// What the first certificate of a PEM text says.
pub(super) fn facts(pem: &str) -> Result<Facts, &'static str> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| "it is no certificate in PEM form")?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| "it is no X.509 certificate")?;
    let time = |second| Timestamp::from_second(second).map_err(|_| "its validity is no time");
    let mut facts = Facts {
        subject: parsed.subject().as_raw().to_vec(),
        key_id: Vec::new(),
        common_name: (parsed.subject().iter_common_name().next())
            .and_then(|name| name.as_str().ok())
            .unwrap_or_default()
            .to_owned(),
        dns: BTreeSet::new(),
        ips: BTreeSet::new(),
        server: false,
        client: false,
        is_authority: parsed.is_ca(),
        not_before: time(parsed.validity().not_before.timestamp())?,
        not_after: time(parsed.validity().not_after.timestamp())?,
        der: der.to_vec(),
    };
    for extension in parsed.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => {
                names.general_names.iter().for_each(|name| facts.add(name));
            }
            ParsedExtension::ExtendedKeyUsage(usage) => {
                (facts.server, facts.client) = (usage.server_auth, usage.client_auth);
            }
            ParsedExtension::SubjectKeyIdentifier(id) => facts.key_id = id.0.to_vec(),
            _ => {}
        }
    }
    Ok(facts)
}

impl Facts {
    fn add(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => _ = self.dns.insert((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let short = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let long = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                self.ips.extend(short.or(long));
            }
            _ => {}
        }
    }

    /// Whether `authority` signed this certificate.
    pub(super) fn is_signed_by(&self, authority: &Self) -> bool {
        let parsed = X509Certificate::from_der(&self.der);
        let issuer = X509Certificate::from_der(&authority.der);
        let (Ok((_, parsed)), Ok((_, issuer))) = (parsed, issuer) else { return false };
        parsed.issuer().as_raw() == issuer.subject().as_raw()
            && parsed.verify_signature(Some(issuer.public_key())).is_ok()
    }
}
