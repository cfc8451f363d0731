//! An authority: created, read from its Secret, renewed with the same key; and what it issues.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, SerialNumber,
};
use ring::digest::{Context, SHA256};

use super::pem::{self, Facts, Pair};
use super::{
    AUTHORITY, CERTIFICATE, CertificateError, Leaf, LeafSpec, PRIVATE_KEY, SLACK, renewal,
};

/// How long an authority is valid. It is renewed after two thirds of this.
const VALID: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// What to do about an authority's Secret that cannot be read.
const FIX: &str = "restore the Secret from a backup; if nothing uses the authority, delete it and its \
                   certificates, and all are created anew";

/// An authority with its private key.
pub(crate) struct Authority {
    certificate: String,
    key: String,
    facts: Facts,
    issuer: Issuer<'static, KeyPair>,
}

/// The authority of a database: as its Secret holds it, or `None` if one should be created.
///
/// `secret` is where it is or will be, as `namespace/name`; `found` is that Secret, and `leaves` are the
/// Secrets with certificates of it.
///
/// # Errors
/// If the Secret cannot be read, if the authority has expired, or if the Secret is gone and certificates
/// of it are in use. None of these is cured without a person.
pub(crate) fn authority_of<'a>(
    secret: &str,
    found: Option<&Secret>,
    leaves: impl IntoIterator<Item = &'a Secret>,
    now: Timestamp,
) -> Result<Option<Authority>, CertificateError> {
    let Some(found) = found else {
        let mut issued = leaves.into_iter().filter(|leaf| pem::value(leaf, CERTIFICATE).is_some());
        return match issued.next() {
            None => Ok(None),
            Some(leaf) => {
                Err(CertificateError::Lost { secret: secret.to_owned(), leaf: pem::named(leaf) })
            }
        };
    };
    let authority = Authority::read(found)?;
    if authority.facts.not_after <= now {
        let at = authority.facts.not_after;
        return Err(CertificateError::Expired { secret: pem::named(found), at });
    }
    Ok(Some(authority))
}

impl Authority {
    /// Creates one with a new key, valid for ten years.
    ///
    /// # Errors
    /// If the machine gives no randomness.
    pub(crate) fn create(name: &str, now: Timestamp) -> Result<Self, CertificateError> {
        let key = KeyPair::generate().map_err(made(name))?;
        Self::with_key(name, key, now)
    }

    /// The same authority with the same key, valid for another ten years.
    ///
    /// # Errors
    /// If somebody else made the authority, in a form that would not come out the same.
    pub(crate) fn renew(&self, now: Timestamp) -> Result<Self, CertificateError> {
        let name = &self.facts.common_name;
        let key = KeyPair::from_pem(&self.key).map_err(made(name))?;
        let renewed = Self::with_key(name, key, now)?;
        let is_same = renewed.facts.subject == self.facts.subject
            && renewed.facts.key_id == self.facts.key_id;
        let foreign = || CertificateError::Foreign { name: name.clone() };
        if is_same { Ok(renewed) } else { Err(foreign()) }
    }

    /// The authority in a Secret.
    fn read(secret: &Secret) -> Result<Self, CertificateError> {
        let Pair { certificate, key, facts, key_pair } = pem::read(secret, FIX)?;
        if !facts.is_authority {
            return Err(CertificateError::NoAuthority { secret: pem::named(secret) });
        }
        let issuer = Issuer::from_ca_cert_der(&facts.der.as_slice().into(), key_pair);
        let issuer = issuer.map_err(|_| CertificateError::Unreadable {
            secret: pem::named(secret),
            key: CERTIFICATE,
            problem: "it is no certificate of an authority",
            fix: FIX,
        })?;
        Ok(Self { certificate, key, facts, issuer })
    }

    fn with_key(name: &str, key: KeyPair, now: Timestamp) -> Result<Self, CertificateError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.serial_number = Some(serial(&key, now));
        params.not_before = time(now - SLACK);
        params.not_after = time(end(name, now, VALID)?);
        Self::signed(name, &params, key)
    }

    fn signed(
        name: &str,
        params: &CertificateParams,
        key: KeyPair,
    ) -> Result<Self, CertificateError> {
        let certificate = params.self_signed(&key).map_err(made(name))?;
        let facts = pem::facts(&certificate.pem()).map_err(|_| CertificateError::Make {
            name: name.to_owned(),
            source: rcgen::Error::CouldNotParseCertificate,
        })?;
        let text = key.serialize_pem();
        let issuer = Issuer::from_ca_cert_der(certificate.der(), key).map_err(made(name))?;
        Ok(Self { certificate: certificate.pem(), key: text, facts, issuer })
    }

    /// Issues a certificate with a new key.
    ///
    /// # Errors
    /// If a name cannot be in a certificate, or the machine gives no randomness.
    pub(crate) fn issue(&self, spec: &LeafSpec, now: Timestamp) -> Result<Leaf, CertificateError> {
        let name = spec.name();
        let key = KeyPair::generate().map_err(made(name))?;
        let not_before = now - SLACK;
        let not_after = end(name, now, spec.valid)?.min(self.facts.not_after);
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = names(spec)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = spec.usage.purposes();
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(serial(&key, now));
        params.not_before = time(not_before);
        params.not_after = time(not_after);
        let certificate = params.signed_by(&key, &self.issuer).map_err(made(name))?;
        Ok(Leaf {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            authority: self.certificate.clone(),
            not_before,
            not_after,
        })
    }

    /// Its certificate, as PEM: what clients and servers trust.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// When [`Self::renew`] should be called: after two thirds of its validity.
    pub(crate) fn renewal(&self) -> Timestamp {
        renewal(self.facts.not_before, self.facts.not_after)
    }

    /// As the data of a Secret of type [`super::SECRET_TYPE`].
    pub(crate) fn data(&self) -> BTreeMap<String, ByteString> {
        let entries = [
            (CERTIFICATE, &self.certificate),
            (PRIVATE_KEY, &self.key),
            (AUTHORITY, &self.certificate),
        ];
        let bytes = |text: &String| ByteString(text.clone().into_bytes());
        entries.into_iter().map(|(key, text)| (key.to_owned(), bytes(text))).collect()
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// Prints what is public.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

fn names(spec: &LeafSpec) -> Result<Vec<SanType>, CertificateError> {
    let dns = spec.dns.iter().map(|name| {
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_*".contains(&byte));
        let text = Ia5String::try_from(name.clone()).ok().filter(|_| is_name);
        text.map(SanType::DnsName).ok_or_else(|| CertificateError::Name { name: name.clone() })
    });
    dns.chain(spec.ips.iter().map(|ip| Ok(SanType::IpAddress(*ip)))).collect()
}

/// No two certificates of an authority have one number, not even two of the same key.
fn serial(key: &KeyPair, now: Timestamp) -> SerialNumber {
    let mut digest = Context::new(&SHA256);
    digest.update(&key.subject_public_key_info());
    digest.update(&now.as_nanosecond().to_be_bytes());
    let mut bytes = digest.finish().as_ref()[..16].to_vec();
    // A positive number, whose first byte is not zero.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from(bytes)
}

fn end(name: &str, now: Timestamp, valid: SignedDuration) -> Result<Timestamp, CertificateError> {
    now.checked_add(valid).map_err(|_| CertificateError::Validity { name: name.to_owned() })
}

fn time<T: From<std::time::SystemTime>>(at: Timestamp) -> T {
    std::time::SystemTime::from(at).into()
}

fn made(name: &str) -> impl Fn(rcgen::Error) -> CertificateError {
    move |source| CertificateError::Make { name: name.to_owned(), source }
}
