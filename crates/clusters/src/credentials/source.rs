//! Where credentials come from.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use kube::config::AuthInfo;
use secrecy::ExposeSecret;

use super::lifecycle::Term;
use super::oidc::Issuer;
use super::program::Program;
use super::{Credential, Identity};
use crate::error::Unusable;
use crate::file::read_bounded;

/// How often a token file is read; a kubelet writes a new token long before the old one's end.
pub const TOKEN_FILE_PERIOD: Duration = Duration::from_secs(60);

/// Where a cluster's credential comes from.
pub(crate) enum Source {
    /// The kubeconfig itself. A client certificate that it holds or names is TLS's affair.
    Fixed(Credential),
    /// A file that somebody replaces in time; beside it may stand a token for as long as it is not
    /// there.
    File { path: PathBuf, fallback: Option<HeaderValue> },
    /// The output of a program.
    Program(Box<Program>),
    /// An OpenID Connect issuer, who gives tokens for a refresh token.
    Issuer(Box<Issuer>),
}

impl Source {
    /// What the user entry `info`, of the cluster from `origin`, says. Takes out of it what another
    /// layer would act on as well.
    ///
    /// Where several are given: the program, then the issuer, then the token file, the token, and the
    /// password, as client-go has it for each two of them that it allows together.
    ///
    /// # Errors
    /// [`Unusable`] when it says something that cannot be.
    pub fn of(origin: &str, info: &mut AuthInfo) -> Result<Self, Unusable> {
        let exec = info.exec.take();
        let provider = info.auth_provider.take();
        let token = info.token.take().map(|token| bearer(origin, token.expose_secret()));
        let token = token.transpose()?;
        let file = info.token_file.take();
        let password = info.username.take().zip(info.password.take());
        Ok(if let Some(exec) = exec {
            Self::Program(Box::new(Program::new(origin, exec)?))
        } else if let Some(provider) = provider {
            Self::Issuer(Box::new(Issuer::new(origin, provider)?))
        } else if let Some(path) = file {
            Self::File { path: path.into(), fallback: token }
        } else if let Some((user, password)) = password.filter(|_| token.is_none()) {
            Self::Fixed(basic(origin, &user, password.expose_secret())?.into())
        } else {
            Self::Fixed(Credential { header: token, identity: None })
        })
    }

    /// A credential and how long it is good for; `wall` is the time now.
    pub async fn obtain(
        &mut self,
        origin: &str,
        wall: Timestamp,
    ) -> Result<(Credential, Term), Unusable> {
        match self {
            Self::Fixed(credential) => Ok((credential.clone(), Term::Unknown)),
            Self::File { path, fallback } => {
                let read = read_bounded(path).and_then(|bytes| {
                    String::from_utf8(bytes)
                        .map_err(|_| std::io::Error::other("it is not a token but binary data"))
                });
                let header = match (read, fallback) {
                    (Ok(token), _) => bearer(origin, &token)?,
                    (Err(_), Some(fallback)) => fallback.clone(),
                    (Err(source), None) => {
                        let (origin, file) = (origin.to_owned(), path.clone());
                        return Err(Unusable::Reference {
                            origin,
                            field: "tokenFile",
                            file,
                            source,
                        });
                    }
                };
                Ok((header.into(), Term::LookedUpEvery(TOKEN_FILE_PERIOD)))
            }
            Self::Program(program) => {
                let answer = program.run(origin).await?;
                Ok((answer.credential(origin)?, term(answer.expires, wall)))
            }
            Self::Issuer(issuer) => {
                let (token, expires) = issuer.token(origin, wall).await?;
                Ok((bearer(origin, &token)?.into(), term(Some(expires), wall)))
            }
        }
    }

    /// The reason when none was obtained within `limit`.
    pub fn timeout(&self, origin: &str, limit: Duration) -> Unusable {
        let origin = origin.to_owned();
        match self {
            Self::Issuer(issuer) => Unusable::Issuer {
                origin,
                issuer: issuer.url().to_owned(),
                problem: format!("no answer within {} s", limit.as_secs()),
            },
            _ => Unusable::PluginTimeout { origin, limit },
        }
    }
}

impl From<HeaderValue> for Credential {
    fn from(header: HeaderValue) -> Self {
        Self { header: Some(header), identity: None }
    }
}

impl From<Identity> for Credential {
    fn from(identity: Identity) -> Self {
        Self { header: None, identity: Some(identity.into()) }
    }
}

fn term(expires: Option<Timestamp>, wall: Timestamp) -> Term {
    expires.map_or(Term::Unknown, |expires| {
        // One that has ended already is renewed by the next request.
        Term::For(Duration::try_from(expires.duration_since(wall)).unwrap_or_default())
    })
}

/// `Authorization: Bearer`.
pub(super) fn bearer(origin: &str, token: &str) -> Result<HeaderValue, Unusable> {
    header(origin, format!("Bearer {}", token.trim()))
}

fn basic(origin: &str, user: &str, password: &str) -> Result<HeaderValue, Unusable> {
    header(origin, super::oidc::basic(user, password))
}

fn header(origin: &str, value: String) -> Result<HeaderValue, Unusable> {
    let mut value = HeaderValue::try_from(value).map_err(|source| Unusable::Client {
        origin: origin.to_owned(),
        source: Box::new(source),
    })?;
    value.set_sensitive(true);
    Ok(value)
}
