//! Whether a certificate in a Secret is still the right one.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use super::pem::{self, Facts};
use super::{AUTHORITY, Authority, CERTIFICATE, CertificateError, LeafSpec, renewal};
use crate::children::Obstacle;

/// What to do about a leaf's Secret that cannot be read.
const FIX: &str = "delete the Secret, and a new certificate is issued";

/// What to do with a leaf's Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is right until this time, when it is due for renewal.
    Keep(Timestamp),
    /// A certificate should be issued.
    Issue(Reason),
}

/// Why a certificate should be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// There is none.
    Absent,
    /// It has expired, or is not valid yet.
    Expired,
    /// Two thirds of its validity are over.
    Due,
    /// Another authority issued it, or this one before its renewal.
    OtherAuthority,
    /// It says other names or usages.
    OtherNames,
}

impl Reason {
    /// Whether to go on without another certificate that the server does not take: the present one is good for a
    /// while, or, unless it is the last, whoever lacks it waits alone.
    pub(super) fn is_spared(self, obstacle: &Obstacle, is_last: bool) -> bool {
        match self {
            Self::Due | Self::OtherAuthority | Self::OtherNames => true,
            Self::Absent => !is_last && matches!(obstacle, Obstacle::Refused(_)),
            Self::Expired => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "there is no certificate yet",
            Self::Expired => "the certificate is not valid now",
            Self::Due => "two thirds of the certificate's validity are over",
            Self::OtherAuthority => "the certificate is of another authority",
            Self::OtherNames => "the certificate is for other names",
        })
    }
}

/// Whether the certificate in a Secret is the one that `spec` asks for, issued by `authority` and valid
/// now. A Secret that has neither certificate nor key is like none at all.
///
/// # Errors
/// If the Secret holds something that cannot be read.
pub(super) fn judge(
    secret: Option<&Secret>,
    authority: &Authority,
    spec: &LeafSpec,
    now: Timestamp,
) -> Result<Verdict, CertificateError> {
    let keys = [CERTIFICATE, super::PRIVATE_KEY];
    let held = |secret: &&Secret| keys.iter().any(|key| pem::value(secret, key).is_some());
    let Some(secret) = secret.filter(held) else {
        return Ok(Verdict::Issue(Reason::Absent));
    };
    let facts = pem::read(secret, FIX)?.facts;
    let is_same = pem::value(secret, AUTHORITY)
        .is_some_and(|trusted| trusted.0 == authority.certificate().as_bytes());
    let due = renewal(facts.not_before, facts.not_after);
    let reason = if now >= facts.not_after || now < facts.not_before {
        Reason::Expired
    } else if !is_same || !facts.is_signed_by(authority.facts()) {
        Reason::OtherAuthority
    } else if !says(&facts, spec) {
        Reason::OtherNames
    } else if now >= due {
        Reason::Due
    } else {
        return Ok(Verdict::Keep(due));
    };
    Ok(Verdict::Issue(reason))
}

fn says(facts: &Facts, spec: &LeafSpec) -> bool {
    facts.common_name == spec.name()
        && facts.dns == spec.dns
        && facts.ips == spec.ips
        && facts.server == spec.usage.serves()
        && facts.client == spec.usage.calls()
}
