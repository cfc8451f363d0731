//! By what host and client know each other: the host's key, whose fingerprint the client insists on,
//! and a password that the client shows. The one place of this controller that draws randomness.
//!
//! They are drawn once and kept in a Secret of the Tunnel's before the first host is asked for; who
//! finds the Secret there uses what it holds. So a crash at any point leaves one pair, and the host
//! and the client have the same.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use sha2::{Digest, Sha256};

/// The key of the Secret with the host's private key, in PEM.
const KEY: &str = "host-key";
/// The key of the Secret with `user:password`. The client's Pod reads it.
pub const AUTH: &str = "auth";
/// The key of the Secret with the fingerprint of the host's key.
const FINGERPRINT: &str = "fingerprint";

/// What a Secret of a Tunnel's holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The host's private key, in PEM.
    pub host_key: String,
    /// `user:password`.
    pub auth: String,
    /// The fingerprint of the host's key, as chisel writes it.
    pub fingerprint: String,
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The machine gives no randomness.
    #[error("draw a key for the host")]
    Draw(#[source] rcgen::Error),
    /// The Secret was changed by others.
    #[error("Secret {name} has no {key}: delete it, and the Tunnel")]
    Incomplete {
        /// The Secret.
        name: String,
        /// What it lacks.
        key: &'static str,
    },
}

impl Credentials {
    /// Draws new ones.
    ///
    /// # Errors
    /// If the machine gives no randomness.
    pub fn draw() -> Result<Self, CredentialsError> {
        let draw = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        let key = draw().map_err(CredentialsError::Draw)?;
        // A second key, of which nobody needs the public half, is as random as a password can be.
        let password = draw().map_err(CredentialsError::Draw)?.serialize_der();
        let password: String =
            Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            fingerprint: fingerprint(key.der_bytes()),
            host_key: key.serialize_pem(),
            auth: format!("tunnel:{password}"),
        })
    }

    /// As the data of a Secret.
    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let entries = [(KEY, &self.host_key), (AUTH, &self.auth), (FINGERPRINT, &self.fingerprint)];
        let bytes = |text: &String| ByteString(text.clone().into_bytes());
        entries.into_iter().map(|(key, text)| (key.to_owned(), bytes(text))).collect()
    }

    /// Those that a Secret holds.
    ///
    /// # Errors
    /// If it does not hold all of them.
    pub fn of(secret: &Secret) -> Result<Self, CredentialsError> {
        let read = |key: &'static str| {
            let found = secret.data.as_ref().and_then(|data| data.get(key));
            let text = found.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
            text.ok_or_else(|| CredentialsError::Incomplete {
                name: secret.metadata.name.clone().unwrap_or_default(),
                key,
            })
        };
        Ok(Self { host_key: read(KEY)?, auth: read(AUTH)?, fingerprint: read(FINGERPRINT)? })
    }
}

/// The fingerprint of an ECDSA key on P-256, given its public point: SHA-256 over the key as SSH
/// writes it (RFC 5656, section 3.1), in base64 with padding.
fn fingerprint(point: &[u8]) -> String {
    const CURVE: &[u8] = b"nistp256";
    let mut hash = Sha256::new();
    for part in [b"ecdsa-sha2-nistp256".as_slice(), CURVE, point] {
        hash.update((part.len() as u32).to_be_bytes());
        hash.update(part);
    }
    STANDARD.encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_reads_back_and_no_two_are_alike() {
        let (one, two) = (Credentials::draw().unwrap(), Credentials::draw().unwrap());
        assert_ne!((&one.auth, &one.host_key), (&two.auth, &two.host_key));
        assert_ne!(one.fingerprint, two.fingerprint);
        assert_eq!(one.fingerprint.len(), 44, "as chisel wants it");
        let mut secret = Secret { data: Some(one.data()), ..Secret::default() };
        assert_eq!(Credentials::of(&secret).unwrap(), one);
        secret.data.as_mut().unwrap().remove(AUTH);
        assert!(Credentials::of(&secret).is_err());
    }

    /// The key and fingerprint of a key made by `ssh-keygen -t ecdsa`, as `ssh-keygen -l` shows it.
    #[test]
    fn a_fingerprint_is_that_of_ssh() {
        let line = include_str!("testdata/host.pub");
        let blob = STANDARD.decode(line.split(' ').nth(1).unwrap()).unwrap();
        let expect = include_str!("testdata/host.fingerprint").trim();
        // The point is the last 65 bytes; ssh-keygen leaves the padding out.
        let found = fingerprint(&blob[blob.len() - 65..]);
        assert_eq!(found.trim_end_matches('='), expect);
    }
}
