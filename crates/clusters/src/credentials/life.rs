//! From when until when a credential is valid, as far as it says itself: the client certificate, the token if
//! it is a JWT, and what a program or an issuer said of it. Pure.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::config::AuthInfo;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Credential;

/// From when until when a credential is valid. Of several in use, the one that ends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialLife {
    /// Who renews it: `program` and `issuer` do so in time by themselves, somebody else replaces a `file`, and
    /// a person what is in the `kubeconfig`.
    pub source: &'static str,
    /// Since when it is valid; if it does not tell, since this process has it.
    pub begins: Timestamp,
    /// Its end.
    pub ends: Timestamp,
}

#[derive(Deserialize)]
struct Claims {
    exp: f64,
    #[serde(default)]
    iat: Option<f64>,
}

/// A beginning, if it is known, and an end.
type Span = (Option<Timestamp>, Timestamp);

impl CredentialLife {
    /// That of the client certificate in a kubeconfig.
    pub(super) fn of_certificate(info: &AuthInfo) -> Option<Self> {
        let pem = STANDARD.decode(info.client_certificate_data.as_ref()?).ok()?;
        let (begins, ends) = certificate(&pem)?;
        Some(Self { source: "kubeconfig", begins: begins?, ends })
    }

    /// That of a credential from `source`, which this process got at `now` and of which the source told an end.
    pub(super) fn of(
        credential: &Credential,
        source: &'static str,
        told: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Self> {
        let header = credential.header.as_ref().and_then(|header| header.to_str().ok());
        let token = header.and_then(|header| header.strip_prefix("Bearer ")).and_then(token);
        let identity = credential.identity.as_ref();
        let identity = identity.and_then(|identity| certificate(identity.certificate.as_bytes()));
        let told = told.map(|ends| (None, ends));
        let spans = [token, identity, told].into_iter().flatten();
        let (begins, ends) = spans.min_by_key(|(_, ends)| *ends)?;
        Some(Self { source, begins: begins.unwrap_or(now), ends })
    }

    /// The one of the two that ends first.
    pub(super) fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|life| life.ends)
    }
}

/// The life of a JWT. The server checks its signature.
pub(super) fn token(token: &str) -> Option<Span> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let Claims { exp, iat } = serde_json::from_slice(&claims).ok()?;
    Some((iat.and_then(time), time(exp)?))
}

#[expect(clippy::cast_possible_truncation, reason = "a number out of range is no time")]
fn time(seconds: f64) -> Option<Timestamp> {
    Timestamp::from_second(seconds as i64).ok()
}

/// The life of the first certificate of a PEM text.
fn certificate(text: &[u8]) -> Option<Span> {
    let parsed = pem::parse(text).ok()?;
    let (_, parsed) = X509Certificate::from_der(parsed.contents()).ok()?;
    let time = |second| Timestamp::from_second(second).ok();
    let validity = parsed.validity();
    Some((time(validity.not_before.timestamp()), time(validity.not_after.timestamp())?))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::http::Identity;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn jwt(claims: &str) -> String {
        format!("e30.{}.s", URL_SAFE_NO_PAD.encode(claims))
    }

    /// A certificate, valid from one second since 1970 to another.
    fn pem_of(from: i64, to: i64) -> String {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        let time =
            |second: i64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(second as u64);
        params.not_before = time(from).into();
        params.not_after = time(to).into();
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_end_of_a_token_is_read_and_nonsense_has_none() {
        let seconds = |token_: &str| token(token_).map(|(_, ends)| ends.as_second());
        assert_eq!(seconds(&jwt(r#"{"exp":1700000000}"#)), Some(1_700_000_000));
        assert_eq!(seconds(&jwt(r#"{"exp":1.7e9}"#)), Some(1_700_000_000));
        assert_eq!(seconds(&jwt(r#"{"exp":"soon"}"#)), None);
        assert_eq!(seconds(&jwt("{}")), None);
        assert_eq!(seconds(&jwt(r#"{"exp":1e300}"#)), None);
        assert_eq!(seconds("sesame"), None);
        assert_eq!(seconds("a.?.c"), None);
    }

    #[test]
    fn of_what_is_in_use_the_first_end_counts() {
        let header = |text: &str| Some(HeaderValue::from_str(text).unwrap());
        let identity = |from, to| {
            let certificate = pem_of(from, to);
            Some(Identity { certificate, key: String::new() }.into())
        };
        let check = |credential: &Credential, told: Option<i64>, expect: Option<(i64, i64)>| {
            let found = CredentialLife::of(credential, "file", told.map(at), at(500));
            let found = found.map(|life| (life.begins.as_second(), life.ends.as_second()));
            assert_eq!(found, expect);
        };
        let bearer = header(&format!("Bearer {}", jwt(r#"{"iat":100,"exp":900}"#)));
        let token = Credential { header: bearer.clone(), identity: None };
        check(&token, None, Some((100, 900)));
        check(&token, Some(800), Some((500, 800)));
        let both = Credential { header: bearer, identity: identity(200, 700) };
        check(&both, None, Some((200, 700)));
        check(&Credential { header: header("Bearer opaque"), identity: None }, None, None);
        check(
            &Credential { header: header("Basic YTpi"), identity: None },
            Some(600),
            Some((500, 600)),
        );
    }

    #[test]
    fn the_certificate_of_a_kubeconfig_is_read() {
        let mut info = AuthInfo::default();
        assert_eq!(CredentialLife::of_certificate(&info), None);
        info.client_certificate_data = Some(STANDARD.encode(pem_of(300, 400)));
        let own = CredentialLife { source: "kubeconfig", begins: at(300), ends: at(400) };
        assert_eq!(CredentialLife::of_certificate(&info), Some(own));
        let other = CredentialLife { source: "file", begins: at(0), ends: at(350) };
        assert_eq!(CredentialLife::earlier(Some(own), Some(other)), Some(other));
        assert_eq!(CredentialLife::earlier(Some(own), None), Some(own));
        info.client_certificate_data = Some(STANDARD.encode("nonsense"));
        assert_eq!(CredentialLife::of_certificate(&info), None);
    }
}
