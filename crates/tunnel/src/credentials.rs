//! How host and client authenticate: the host's key pair, whose public half the client pins, and a
//! token that the client shows. The only file of this controller that draws randomness.
//!
//! They are drawn once and stored in a Secret of the Tunnel before the first host is requested; a
//! reconcile that finds the Secret uses it. So a crash at any point leaves one set, and the host and
//! the client have the same.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use ring::rand::{SecureRandom, SystemRandom};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

/// The key of the Secret with the host's private key.
const PRIVATE_KEY: &str = "private-key";
/// The key of the Secret with the host's public key.
const PUBLIC_KEY: &str = "public-key";
/// The key of the Secret with the token.
const TOKEN: &str = "token";

/// The most bytes of each: who writes the Secret must not make what a host is told too long for its provider.
const LONGEST: usize = 64;

/// The contents of a Tunnel's Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The host's private key: the 32 bytes of X25519 (RFC 7748), in base64.
    pub private_key: String,
    /// The host's public key, likewise.
    pub public_key: String,
    /// The token that the client shows.
    pub token: String,
}

/// Prints what is public.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("public_key", &self.public_key).finish_non_exhaustive()
    }
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The machine gives no randomness.
    #[error("draw a key for the host: the machine gives no randomness")]
    Draw,
    /// The Secret was changed by others.
    #[error(
        "Secret {name} has no {key}, or one that is too long: delete it, and a new one is created"
    )]
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
        let private_key = draw()?;
        let token = HEXLOWER.encode(&draw()?);
        Ok(Self {
            private_key: STANDARD.encode(private_key),
            public_key: STANDARD.encode(x25519(private_key, X25519_BASEPOINT_BYTES)),
            token,
        })
    }

    /// As the data of a Secret.
    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let entries = [
            (PRIVATE_KEY, &self.private_key),
            (PUBLIC_KEY, &self.public_key),
            (TOKEN, &self.token),
        ];
        let bytes = |text: &String| ByteString(text.clone().into_bytes());
        entries.into_iter().map(|(key, text)| (key.to_owned(), bytes(text))).collect()
    }

    /// The credentials of a Secret.
    ///
    /// # Errors
    /// If it does not hold all of them, or one is longer than any that is drawn.
    pub fn of(secret: &Secret) -> Result<Self, CredentialsError> {
        let read = |key: &'static str| {
            let found = secret.data.as_ref().and_then(|data| data.get(key));
            let fits = found.filter(|bytes| bytes.0.len() <= LONGEST);
            let text = fits.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
            text.ok_or_else(|| CredentialsError::Incomplete {
                name: secret.metadata.name.clone().unwrap_or_default(),
                key,
            })
        };
        Ok(Self {
            private_key: read(PRIVATE_KEY)?,
            public_key: read(PUBLIC_KEY)?,
            token: read(TOKEN)?,
        })
    }
}

/// Thirty-two random bytes.
fn draw() -> Result<[u8; 32], CredentialsError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| CredentialsError::Draw)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_reads_back_and_no_two_are_alike() {
        let (one, two) = (Credentials::draw().unwrap(), Credentials::draw().unwrap());
        assert_ne!(one.token, two.token);
        assert_ne!(one.private_key, two.private_key);
        assert_ne!(one.public_key, two.public_key);
        let mut secret = Secret { data: Some(one.data()), ..Secret::default() };
        assert_eq!(Credentials::of(&secret).unwrap(), one);
        for key in [PRIVATE_KEY, PUBLIC_KEY, TOKEN] {
            let mut data = one.data();
            data.insert(key.to_owned(), ByteString(vec![b'a'; LONGEST + 1]));
            let long = Secret { data: Some(data), ..Secret::default() };
            assert!(Credentials::of(&long).unwrap_err().to_string().contains(key), "{key}");
        }
        secret.data.as_mut().unwrap().remove(TOKEN);
        assert!(Credentials::of(&secret).is_err());
    }

    /// The pair that rathole's own page on transports shows for `rathole --genkey`.
    #[test]
    fn a_public_key_is_that_of_rathole() {
        let private = STANDARD.decode("cQ/vwIqNPJZmuM/OikglzBo/+jlYGrOt9i0k5h5vn1Q=").unwrap();
        let public = x25519(private.try_into().unwrap(), X25519_BASEPOINT_BYTES);
        assert_eq!(STANDARD.encode(public), "GQYTKSbWLBUSZiGfdWPSgek9yoOuaiwGD/GIX8Z1kkE=");
    }
}
