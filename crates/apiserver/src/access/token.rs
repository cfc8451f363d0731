//! Tokens of ServiceAccounts: signed, read back, and checked against the time. Pure, except for the
//! making of a key.
//!
//! A token is a JSON Web Token: header, claims and signature, each base64url, joined by dots.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// Who issues the tokens; also the audience of the server itself.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// Longest token that is read, in bytes.
pub const MAX_TOKEN: usize = 16 << 10;
/// The most audiences of a token.
pub const MAX_AUDIENCES: usize = 32;
/// Longest audience, in bytes.
pub const MAX_AUDIENCE: usize = 256;
/// How far clocks may differ, in seconds.
pub const LEEWAY_SECONDS: i64 = 60;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// For whom it is.
    pub aud: Vec<String>,
    /// When it expires, in seconds since 1970.
    pub exp: i64,
    /// When it was issued.
    pub iat: i64,
    /// Who issued it.
    pub iss: String,
    /// Its own id.
    pub jti: String,
    /// What it stands for.
    #[serde(rename = "kubernetes.io")]
    pub bound: BoundObjects,
    /// From when on it is valid.
    pub nbf: i64,
    /// The user name.
    pub sub: String,
}

/// The objects that must exist for a token to be valid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundObjects {
    /// Namespace of the ServiceAccount, and of Pod and Secret.
    pub namespace: String,
    /// The node, or that of the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The Pod it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The Secret it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The ServiceAccount.
    pub serviceaccount: Reference,
    /// When a client should have replaced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// An object by name and uid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// Its uid; empty for the absent node of a Pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is no token of this server.
    #[error("invalid bearer token")]
    Foreign,
    /// Its signature is not that of its text.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// It is too old.
    #[error("service account token has expired")]
    Expired,
    /// It begins later.
    #[error("service account token is not valid yet")]
    NotYet,
    /// It is for others.
    #[error("token audiences {token:?} is invalid for the target audiences {wanted:?}")]
    Audience {
        /// For whom it is.
        token: Texts,
        /// For whom it should be.
        wanted: Texts,
    },
    /// An object that it needs is gone or another one; the text says which.
    #[error("{0}")]
    Unbound(String),
}

/// Texts that are shown as Go shows them: `["a" "b"]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Texts(pub Vec<String>);

impl std::fmt::Debug for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let quoted: Vec<String> = self.0.iter().map(|text| format!("{text:?}")).collect();
        write!(f, "[{}]", quoted.join(" "))
    }
}

/// Signs tokens and reads them back.
#[derive(Debug)]
pub struct Signer {
    key: hmac::Key,
}

// === impl Signer ===

impl Signer {
    /// A signer with a key from the system, or a repeatable one.
    pub fn new(seed: Option<u64>) -> Self {
        let mut key = [0; 32];
        match seed {
            // Another sequence than the one that names are drawn from.
            Some(seed) => fastrand::Rng::with_seed(!seed).fill(&mut key),
            None => SystemRandom::new().fill(&mut key).expect("the system gives random bytes"),
        }
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key) }
    }

    /// The token of some claims.
    pub fn sign(&self, claims: &Claims) -> String {
        let claims = serde_json::to_vec(claims).expect("claims are texts and numbers");
        let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = hmac::sign(&self.key, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// What a token says, if its signature is right.
    ///
    /// # Errors
    /// It is no token of this server, or was changed.
    pub fn read(&self, token: &str) -> Result<Claims, TokenError> {
        let claims = issued(token).ok_or(TokenError::Foreign)?;
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Foreign)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Foreign)?;
        hmac::verify(&self.key, signed.as_bytes(), &signature)
            .map_err(|_| TokenError::Signature)?;
        serde_json::from_slice(&claims).map_err(|_| TokenError::Foreign)
    }
}

/// The claims of what looks like a token of this server, not verified.
fn issued(token: &str) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Issued {
        iss: String,
    }
    let parts: Vec<&str> = token.splitn(4, '.').collect();
    let [_, claims, _] = parts.as_slice() else { return None };
    if token.len() > MAX_TOKEN {
        return None;
    }
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let issued: Issued = serde_json::from_slice(&claims).ok()?;
    (issued.iss == ISSUER).then_some(claims)
}

// === impl Claims ===

impl Claims {
    /// The audiences that the token and `wanted` share.
    ///
    /// # Errors
    /// There are none.
    pub fn check_audiences(&self, wanted: &[String]) -> Result<Vec<String>, TokenError> {
        let shared: Vec<String> = self.aud.iter().filter(|a| wanted.contains(a)).cloned().collect();
        if shared.is_empty() {
            let (token, wanted) = (Texts(self.aud.clone()), Texts(wanted.to_vec()));
            return Err(TokenError::Audience { token, wanted });
        }
        Ok(shared)
    }

    /// Checks that the token is valid now.
    ///
    /// # Errors
    /// It is not.
    pub fn check_time(&self, now: Timestamp) -> Result<(), TokenError> {
        let now = now.as_second();
        if now - LEEWAY_SECONDS > self.exp {
            return Err(TokenError::Expired);
        }
        if now + LEEWAY_SECONDS < self.nbf { Err(TokenError::NotYet) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            aud: vec!["x".into(), "y".into()],
            exp: 4200,
            iat: 600,
            iss: ISSUER.into(),
            jti: "id".into(),
            bound: BoundObjects::default(),
            nbf: 600,
            sub: "system:serviceaccount:a:b".into(),
        }
    }

    #[test]
    fn a_token_says_what_was_signed() {
        let signer = Signer::new(Some(1));
        let token = signer.sign(&claims());
        assert_eq!(signer.read(&token), Ok(claims()));
        assert_eq!(Signer::new(Some(2)).read(&token), Err(TokenError::Signature));
        assert_ne!(Signer::new(None).sign(&claims()), Signer::new(None).sign(&claims()));
    }

    #[test]
    fn changed_tokens_are_refused() {
        let signer = Signer::new(Some(1));
        let token = signer.sign(&claims());
        let parts: Vec<&str> = token.split('.').collect();
        let other = Claims { sub: "system:admin".into(), ..claims() };
        let other = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&other).unwrap());
        let changed = format!("{}.{other}.{}", parts[0], parts[2]);
        assert_eq!(signer.read(&changed), Err(TokenError::Signature));
        let foreign = Claims { iss: "https://example.test".into(), ..claims() };
        let long = Claims { jti: "x".repeat(MAX_TOKEN), ..claims() };
        for token in [
            "",
            "nonsense",
            "a.b.c",
            &format!("{token}.x"),
            &signer.sign(&foreign),
            &signer.sign(&long),
        ] {
            assert_eq!(signer.read(token), Err(TokenError::Foreign));
        }
    }

    #[test]
    fn a_token_has_its_time() {
        let at = |second| claims().check_time(Timestamp::from_second(second).unwrap());
        assert_eq!((at(540), at(600), at(4260)), (Ok(()), Ok(()), Ok(())));
        assert_eq!((at(539), at(4261)), (Err(TokenError::NotYet), Err(TokenError::Expired)));
    }

    #[test]
    fn a_token_has_its_audiences() {
        let check = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|w| (*w).into()).collect();
            claims().check_audiences(&wanted).map_err(|e| e.to_string())
        };
        assert_eq!(check(&["y", "z"]), Ok(vec!["y".into()]));
        assert_eq!(
            check(&["a", "b"]).unwrap_err(),
            r#"token audiences ["x" "y"] is invalid for the target audiences ["a" "b"]"#
        );
    }
}
