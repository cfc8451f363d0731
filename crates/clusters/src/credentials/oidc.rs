//! Tokens of an OpenID Connect issuer, for a kubeconfig's `auth-provider` named `oidc`. Shell: asks the
//! issuer.
//!
//! Requests use the token in the kubeconfig until shortly before its end. Then the refresh token gets
//! the next one from the issuer, at the endpoint that its discovery document names
//! ([OpenID Connect Discovery 1.0], section 4; [OpenID Connect Core 1.0], section 12). A new refresh
//! token in the answer stays in memory: nobody writes the kubeconfig. So an issuer that accepts a
//! refresh token only once cannot serve several replicas from one kubeconfig; a credential program or a
//! ServiceAccount's token can.
//!
//! [OpenID Connect Discovery 1.0]: https://openid.net/specs/openid-connect-discovery-1_0.html
//! [OpenID Connect Core 1.0]: https://openid.net/specs/openid-connect-core-1_0.html

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use jiff::{Timestamp, ToSpan};
use kube::client::Body;
use kube::config::AuthProviderConfig;
use model::Gathered;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::MAX_ANSWER_BYTES;
use super::header::basic_text;
use super::life;
use crate::address::Dialer;
use crate::error::Unusable;
use crate::http::{Connections, Protocol};
use crate::reference::IDP_AUTHORITY_DATA;

/// How long before its end a token of the kubeconfig counts as ended.
const EARLY_SECONDS: i64 = 10;

/// The characters to encode in a form: all that are not unreserved by RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The name of this provider in a user entry.
const NAME: &str = "oidc";

/// An issuer, and this client's identity there.
pub(crate) struct Issuer {
    url: String,
    client_id: String,
    client_secret: Option<String>,
    id_token: Option<String>,
    refresh_token: Option<String>,
    connections: Connections,
    /// The token endpoint, once the issuer has named it.
    endpoint: Option<Uri>,
    /// How this client identifies itself, once the issuer has accepted one way.
    style: Option<Style>,
    /// Whether an answer has begun to come since it was asked last.
    answers: Arc<AtomicBool>,
}

/// How a client identifies itself: RFC 6749, section 2.3.1, has both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Header,
    Parameters,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    token_endpoint: String,
}

#[derive(Deserialize)]
pub(super) struct Tokens {
    id_token: Option<String>,
    refresh_token: Option<String>,
}

impl Issuer {
    /// # Errors
    /// [`Unusable`] if the entry is wrong.
    pub fn new(
        origin: &str,
        provider: AuthProviderConfig,
        dialer: Dialer,
    ) -> Result<Self, Unusable> {
        let AuthProviderConfig { name, mut config, .. } = provider;
        if name != NAME {
            return Err(Unusable::Provider { origin: origin.to_owned(), name });
        }
        let url = config.remove("idp-issuer-url").unwrap_or_default();
        let problem = |problem: String| Unusable::Issuer {
            origin: origin.to_owned(),
            issuer: url.clone(),
            problem,
        };
        let server: Uri = url.parse().map_err(|_| problem("that is not a URL".into()))?;
        check(&server).map_err(problem)?;
        let mut trust = kube::Config::new(server);
        trust.root_cert = authorities(&mut config).map_err(problem)?;
        let connections = Connections::new(trust, Protocol::Http1, dialer)
            .map_err(|error| problem(model::error::chain(&error)))?;
        Ok(Self {
            client_id: config.remove("client-id").unwrap_or_default(),
            client_secret: config.remove("client-secret"),
            id_token: config.remove("id-token"),
            refresh_token: config.remove("refresh-token"),
            connections,
            endpoint: None,
            style: None,
            answers: Arc::default(),
            url,
        })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether an answer has begun to come since it was asked last, now and later.
    pub fn answers(&self) -> &Arc<AtomicBool> {
        &self.answers
    }

    /// A token and its end: the kubeconfig's own while it is valid, then one from the issuer.
    pub async fn token(
        &mut self,
        origin: &str,
        wall: Timestamp,
    ) -> Result<(String, Timestamp), Unusable> {
        // Takes it: a second call, before its end or after a refusal, needs another token.
        if let Some(token) = self.id_token.take()
            && let Some(expires) = expiry(&token)
            && wall + EARLY_SECONDS.seconds() < expires
        {
            return Ok((token, expires));
        }
        let refreshed = self.refresh().await;
        refreshed.map_err(|problem| Unusable::Issuer {
            origin: origin.to_owned(),
            issuer: self.url.clone(),
            // It is kept until the next attempt, and the issuer may have said much.
            problem: model::error::foreign(&problem),
        })
    }

    async fn refresh(&mut self) -> Result<(String, Timestamp), String> {
        let Some(refresh_token) = self.refresh_token.clone() else {
            return Err("its token has ended, and there is no refresh-token to get another".into());
        };
        let endpoint = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => self.endpoint.insert(self.discover().await?).clone(),
        };
        let styles = match (self.style, &self.client_secret) {
            (Some(style), _) => vec![style],
            (None, Some(_)) => vec![Style::Header, Style::Parameters],
            (None, None) => vec![Style::Parameters],
        };
        let mut refusal = String::new();
        for style in styles {
            match self.ask(&endpoint, &refresh_token, style).await? {
                Ok(tokens) => {
                    self.style = Some(style);
                    if let Some(next) = tokens.refresh_token {
                        self.refresh_token = Some(next);
                    }
                    let token = tokens.id_token.ok_or("it answers without an id_token")?;
                    let expires = expiry(&token).ok_or("its id_token is no JWT with an end")?;
                    return Ok((token, expires));
                }
                Err(status) => refusal = format!("it refuses the refresh token with {status}"),
            }
        }
        Err(refusal)
    }

    /// Finds the token endpoint of the issuer.
    async fn discover(&self) -> Result<Uri, String> {
        let place = format!("{}/.well-known/openid-configuration", self.url.trim_end_matches('/'));
        let request = Request::get(&place).header(ACCEPT, "application/json");
        let request = request.body(Body::empty()).map_err(|error| error.to_string())?;
        let (status, body) = self.send(request).await?;
        if !status.is_success() {
            return Err(format!("it answers {status} to GET {place}"));
        }
        let found: Discovery = json(&body, "its discovery document")?;
        if found.issuer.trim_end_matches('/') != self.url.trim_end_matches('/') {
            return Err(format!("its discovery document is of another issuer, {:?}", found.issuer));
        }
        let endpoint: Uri = found
            .token_endpoint
            .parse()
            .map_err(|_| format!("its token endpoint {:?} is not a URL", found.token_endpoint))?;
        check(&endpoint)?;
        Ok(endpoint)
    }

    /// The issuer's answer to the refresh token, or the status of its refusal.
    async fn ask(
        &self,
        endpoint: &Uri,
        refresh_token: &str,
        style: Style,
    ) -> Result<Result<Tokens, StatusCode>, String> {
        let mut fields = vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        let secret = self.client_secret.as_deref();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(endpoint)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match style {
            Style::Header => {
                let (user, password) =
                    (encode(&self.client_id), encode(secret.unwrap_or_default()));
                request = request.header(AUTHORIZATION, basic_text(&user, &password));
            }
            Style::Parameters => {
                fields.push(("client_id", &self.client_id));
                fields.extend(secret.map(|secret| ("client_secret", secret)));
            }
        }
        let request =
            request.body(form(&fields).into_bytes().into()).map_err(|error| error.to_string())?;
        let (status, body) = self.send(request).await?;
        match status {
            status if status.is_success() => Ok(Ok(json(&body, "its answer")?)),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED => Ok(Err(status)),
            status => Err(format!("it answers {status} to POST {endpoint}")),
        }
    }

    async fn send(&self, request: Request<Body>) -> Result<(StatusCode, Bytes), String> {
        self.answers.store(false, Ordering::Relaxed);
        let response = self.connections.send(request, None).await;
        self.answers.store(true, Ordering::Relaxed);
        let response = response.map_err(|error| model::error::chain(&*error))?;
        let status = response.status();
        let limit = usize::try_from(MAX_ANSWER_BYTES).unwrap_or(usize::MAX);
        let body = Gathered::new(response.into_body(), limit).collect().await;
        let body = body.map_err(|error| format!("its answer broke off: {error}"))?;
        Ok((status, body.to_bytes()))
    }
}

/// Secrets go over TLS, or stay on the machine.
fn check(url: &Uri) -> Result<(), String> {
    let local = matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match url.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if local => Ok(()),
        _ => Err(format!("{url} is not an https URL")),
    }
}

/// The certificates that the entry trusts, if it names any.
fn authorities(config: &mut HashMap<String, String>) -> Result<Option<Vec<Vec<u8>>>, String> {
    // A file that it named has been read into this.
    let Some(data) = config.remove(IDP_AUTHORITY_DATA) else { return Ok(None) };
    let pem =
        STANDARD.decode(data).map_err(|_| format!("its {IDP_AUTHORITY_DATA} is no base64"))?;
    let parsed = pem::parse_many(pem).map_err(|_| "its certificate authority is not in PEM")?;
    let certificates = parsed.into_iter().filter(|block| block.tag() == "CERTIFICATE");
    Ok(Some(certificates.map(pem::Pem::into_contents).collect()))
}

pub(super) fn json<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, String> {
    // The library's message may repeat a token.
    serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("{what} is not what it should be (line {line}, column {column})")
    })
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<_> =
        fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    pairs.join("&")
}

/// The end of a token.
pub(super) fn expiry(token: &str) -> Option<Timestamp> {
    life::token(token).map(|(_, ends)| ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_over_tls_or_stay_on_the_machine() {
        let good = |url: &str| check(&url.parse().unwrap()).is_ok();
        assert!(good("https://issuer.test/dex"));
        assert!(good("http://127.0.0.1:5556"));
        assert!(!good("http://issuer.test"));
        assert!(!good("/dex"));
    }

    #[test]
    fn a_form_is_encoded() {
        assert_eq!(form(&[("a", "1 2"), ("b", "&=é")]), "a=1%202&b=%26%3D%C3%A9");
    }
}
