//! Where credentials come from.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use kube::config::AuthInfo;
use model::Clock;
use secrecy::ExposeSecret;

use super::Credential;
use super::header::{basic, bearer};
use super::life::CredentialLife;
use super::lifecycle::Term;
use super::oidc::Issuer;
use super::program::Program;
use crate::address::Dialer;
use crate::error::Unusable;
use crate::reference;
use crate::trust::Granted;
use crate::turns::Turns;

/// How often a token file is read. A kubelet writes a new token long before the old one ends.
pub(super) const TOKEN_FILE_PERIOD: Duration = Duration::from_secs(60);

/// Where a cluster's credential comes from.
pub(crate) struct CredentialSource {
    kind: Kind,
    /// The life of the client certificate in the kubeconfig.
    certificate: Option<CredentialLife>,
}

/// What a source gave.
pub(crate) struct Obtained {
    pub credential: Credential,
    /// How long it is used.
    pub term: Term,
    /// How long it is valid, if that is known.
    pub life: Option<CredentialLife>,
}

/// The kinds of sources.
enum Kind {
    /// The kubeconfig itself. TLS handles a client certificate in it.
    Fixed(Credential),
    /// A file that is replaced in time, in the folder of the kubeconfig `within` if that is given, and a
    /// token to use while there is no file.
    File { path: PathBuf, within: Option<PathBuf>, fallback: Option<HeaderValue> },
    /// The output of a program.
    Program(Box<Program>),
    /// An OpenID Connect issuer, which gives tokens for a refresh token.
    Issuer(Box<Issuer>),
}

impl CredentialSource {
    /// The source in the user entry `info` of the cluster from `origin`. Removes from the entry what
    /// another layer would use as well.
    ///
    /// If there are several, the order is: the program, the issuer, the token file, the token, the
    /// password. client-go has the same order for each two of them that it allows together.
    ///
    /// # Errors
    /// [`Unusable`] when the entry is wrong.
    pub fn of(
        origin: &str,
        info: &mut AuthInfo,
        granted: &Granted,
        lookups: &Turns,
    ) -> Result<Self, Unusable> {
        let exec = info.exec.take();
        let provider = info.auth_provider.take();
        let token = info.token.take().map(|token| bearer(origin, token.expose_secret()));
        let token = token.transpose()?;
        let file = info.token_file.take();
        let password = info.username.take().zip(info.password.take());
        let certificate = CredentialLife::of_certificate(info);
        let kind = if let Some(exec) = exec {
            let environment = granted.environment.clone();
            Kind::Program(Box::new(Program::new(origin, exec, environment)?))
        } else if let Some(provider) = provider {
            let dialer = Dialer::new(granted.reach, lookups.clone());
            Kind::Issuer(Box::new(Issuer::new(origin, provider, dialer)?))
        } else if let Some(path) = file {
            Kind::File { path: path.into(), within: granted.within.clone(), fallback: token }
        } else if let Some((user, password)) = password.filter(|_| token.is_none()) {
            Kind::Fixed(basic(origin, &user, password.expose_secret())?.into())
        } else {
            Kind::Fixed(Credential { header: token, identity: None })
        };
        Ok(Self { kind, certificate })
    }

    /// What it gives.
    pub async fn obtain(&mut self, origin: &str, clock: &dyn Clock) -> Result<Obtained, Unusable> {
        let (credential, term, told) = self.kind.obtain(origin, clock).await?;
        let own = CredentialLife::of(&credential, self.kind.label(), told, clock.wall());
        // A program's certificate is used in place of the kubeconfig's.
        let fixed = self.certificate.filter(|_| credential.identity.is_none());
        Ok(Obtained { credential, term, life: CredentialLife::earlier(own, fixed) })
    }

    /// Whether nobody is asked for its credential: it is in the kubeconfig, or in a file.
    pub fn is_fixed(&self) -> bool {
        matches!(self.kind, Kind::Fixed(_) | Kind::File { .. })
    }

    /// Whether a program gives its credentials.
    pub fn is_program(&self) -> bool {
        matches!(self.kind, Kind::Program(_))
    }

    /// Whether it must not stand still while it is asked, now and later: a program runs on while nobody looks, and an
    /// answer that has begun takes memory.
    pub fn runs_on(&self) -> Arc<AtomicBool> {
        match &self.kind {
            Kind::Issuer(issuer) => Arc::clone(issuer.answers()),
            _ => Arc::new(self.is_program().into()),
        }
    }

    /// The error when it gave no credential within `limit`.
    pub fn timeout(&self, origin: &str, limit: Duration) -> Unusable {
        let origin = origin.to_owned();
        match &self.kind {
            Kind::Issuer(issuer) => Unusable::Issuer {
                origin,
                issuer: issuer.url().to_owned(),
                problem: format!("no answer within {} s", limit.as_secs()),
            },
            _ => Unusable::PluginTimeout { origin, limit },
        }
    }
}

impl Kind {
    /// Its label value in metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "kubeconfig",
            Self::File { .. } => "file",
            Self::Program(_) => "program",
            Self::Issuer(_) => "issuer",
        }
    }

    /// A credential, how long it is used, and the end of which it was told.
    async fn obtain(
        &mut self,
        origin: &str,
        clock: &dyn Clock,
    ) -> Result<(Credential, Term, Option<Timestamp>), Unusable> {
        match self {
            Self::Fixed(credential) => Ok((credential.clone(), Term::Unknown, None)),
            Self::File { path, within, fallback } => {
                let read = reference::read(path, within.as_deref()).and_then(|bytes| {
                    String::from_utf8(bytes)
                        .map_err(|_| std::io::Error::other("it is not a token but binary data"))
                });
                let header = match (read, fallback) {
                    (Ok(token), _) => bearer(origin, &token)?,
                    (Err(_), Some(fallback)) => fallback.clone(),
                    (Err(source), None) => {
                        let (origin, field, file) = (origin.to_owned(), "tokenFile", path.clone());
                        return Err(Unusable::Reference { origin, field, file, source });
                    }
                };
                Ok((header.into(), Term::LookedUpEvery(TOKEN_FILE_PERIOD), None))
            }
            Self::Program(program) => {
                let answer = program.run(origin).await?;
                let term = term(answer.expires, clock.wall());
                Ok((answer.credential(origin)?, term, answer.expires))
            }
            Self::Issuer(issuer) => {
                let (token, expires) = issuer.token(origin, clock.wall()).await?;
                // The answer may have waited for a turn.
                let term = term(Some(expires), clock.wall());
                Ok((bearer(origin, &token)?.into(), term, Some(expires)))
            }
        }
    }
}

impl From<HeaderValue> for Credential {
    fn from(header: HeaderValue) -> Self {
        Self { header: Some(header), identity: None }
    }
}

fn term(expires: Option<Timestamp>, wall: Timestamp) -> Term {
    expires.map_or(Term::Unknown, |expires| {
        // The next request renews a credential that has ended already.
        Term::For(Duration::try_from(expires.duration_since(wall)).unwrap_or_default())
    })
}
