//! A certificate of a server or a client, and what it should say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use rcgen::ExtendedKeyUsagePurpose::{self, ClientAuth, ServerAuth};

use super::{AUTHORITY, CERTIFICATE, PRIVATE_KEY, renewal};

/// The longest common name, in bytes (RFC 5280, `ub-common-name`).
const MAX_COMMON_NAME: usize = 64;

/// What a certificate should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafSpec {
    /// Who it is of. Longer names than 64 bytes are cut; clients go by the DNS names.
    pub common_name: String,
    /// The DNS names that a server answers to; `*.` at the front stands for any one label.
    pub dns: BTreeSet<String>,
    /// The addresses that a server answers to.
    pub ips: BTreeSet<IpAddr>,
    /// What it is good for.
    pub usage: Usage,
    /// How long it is valid, at most until the authority ends.
    pub valid: SignedDuration,
}

/// What a certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A server's.
    Server,
    /// A client's.
    Client,
    /// Of one that is both, such as a member of a database that connects to the others.
    Both,
}

/// A certificate that an authority issued, with its private key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// The certificate, as PEM.
    pub(crate) certificate: String,
    /// Its private key, as PEM in PKCS#8.
    pub(crate) key: String,
    /// The certificate of the authority, as PEM.
    pub(crate) authority: String,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl LeafSpec {
    /// The common name that fits into a certificate.
    pub(crate) fn name(&self) -> &str {
        let mut end = self.common_name.len().min(MAX_COMMON_NAME);
        while !self.common_name.is_char_boundary(end) {
            end -= 1;
        }
        &self.common_name[..end]
    }
}

impl Usage {
    pub(crate) fn purposes(self) -> Vec<ExtendedKeyUsagePurpose> {
        match self {
            Self::Server => vec![ServerAuth],
            Self::Client => vec![ClientAuth],
            Self::Both => vec![ServerAuth, ClientAuth],
        }
    }

    pub(crate) fn serves(self) -> bool {
        self != Self::Client
    }

    pub(crate) fn calls(self) -> bool {
        self != Self::Server
    }
}

impl Leaf {
    /// As the data of a Secret of type [`super::SECRET_TYPE`].
    pub(crate) fn data(&self) -> BTreeMap<String, ByteString> {
        let entries = [
            (CERTIFICATE, &self.certificate),
            (PRIVATE_KEY, &self.key),
            (AUTHORITY, &self.authority),
        ];
        let bytes = |text: &String| ByteString(text.clone().into_bytes());
        entries.into_iter().map(|(key, text)| (key.to_owned(), bytes(text))).collect()
    }

    /// When it should be issued anew: after two thirds of its validity.
    pub(crate) fn renewal(&self) -> Timestamp {
        renewal(self.not_before, self.not_after)
    }
}

/// Prints what is public.
impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut leaf = f.debug_struct("Leaf");
        leaf.field("certificate", &self.certificate).field("authority", &self.authority);
        leaf.finish_non_exhaustive()
    }
}
