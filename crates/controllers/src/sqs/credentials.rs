//! The credentials that SQS is asked with: from Secrets, roles, or the manager's environment. Shell.
//!
//! Secrets are read one by one when they are needed, never listed or watched, so that the manager
//! needs no right to see all of them. What was read is kept for [`KEPT`], or until SQS refuses it; a
//! role's credentials until shortly before they expire. At most [`MAX_KNOWN`] are kept.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use aws_sdk_sqs::config::{Credentials, SharedHttpClient};
use aws_sdk_sts::config::retry::RetryConfig;
use aws_sdk_sts::config::{BehaviorVersion, Region};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use sdk::ClusterName;
use sdk::{Context, External, ExternalError, ExternalLimits, ReconcileError};

use super::client::{BoundedAnswers, Failure, LIMITS, Refusal, Sqs, failure, timeouts};
use super::desired::Source;
use super::environment::{
    AwsEnvironment, KEY, ROLE, SECRET_KEY, SESSION_TOKEN, STS_ENDPOINT, TOKEN_FILE,
};
use crate::refusal::refusal;

/// How long a Secret that was read is not read again.
pub(super) const KEPT: Duration = Duration::from_secs(60);
/// A role's credentials are renewed this long before they expire.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// The most credentials kept at once. Beyond it, some are read again when they are needed.
const MAX_KNOWN: usize = 1_000;

const STS_LIMITS: ExternalLimits = ExternalLimits { requests: 10, burst: 10, ..LIMITS };
const SESSION_NAME: &str = "leasehold";

/// Where credentials come from, for the whole process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    Secret { cluster: ClusterName, namespace: String, name: String },
    Role { role: String, file: String, region: String },
    Environment,
}

/// All known credentials, and the connections of all clients.
#[derive(Debug)]
pub(super) struct Sessions {
    environment: AwsEnvironment,
    http: OnceLock<SharedHttpClient>,
    known: Mutex<HashMap<Origin, Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    credentials: Credentials,
    until: Timestamp,
}

/// The SQS of one account in one region, for one reconcile.
pub(super) struct Session {
    pub(super) sqs: Sqs,
    pub(super) upstream: External,
    pub(super) origin: Origin,
}

/// The region, and the address if it is not AWS's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location<'a> {
    pub(super) region: &'a str,
    pub(super) endpoint: Option<&'a str>,
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum SessionError {
    /// There are no credentials; why.
    Missing(String),
    /// They could not be read.
    Failed(ReconcileError),
}

impl<E: Into<ReconcileError>> From<E> for SessionError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

// === impl Sessions ===

impl Sessions {
    /// Over `http`, or over connections of its own, which are opened when they are needed.
    pub(super) fn new(http: Option<SharedHttpClient>, environment: AwsEnvironment) -> Self {
        let http = http.map_or_else(OnceLock::new, OnceLock::from);
        Self { environment, http, known: Mutex::default() }
    }

    /// The session for credentials from `source`.
    pub(super) async fn open(
        &self,
        ctx: &Context,
        namespace: &str,
        source: Source,
        location: Location<'_>,
        requests: u32,
    ) -> Result<Session, SessionError> {
        let origin = self.origin(ctx, namespace, source, location)?;
        let credentials = match self.known(&origin, ctx.now()) {
            Some(credentials) => credentials,
            None => {
                let known = self.get(ctx, &origin).await?;
                self.keep(&origin, known.clone(), ctx.now());
                known.credentials
            }
        };
        let who = match &origin {
            // Several Secrets may hold one key: its requests count together.
            Origin::Secret { .. } => credentials.access_key_id(),
            Origin::Role { role, .. } => role.as_str(),
            Origin::Environment => "environment",
        };
        let name = format!("sqs {who} {} {}", location.region, location.endpoint.unwrap_or("aws"));
        let upstream = ctx.external("sqs", &name, &LIMITS).expecting(requests);
        let sqs = Sqs::new(self.http(), credentials, location.region, location.endpoint);
        Ok(Session { sqs, upstream, origin })
    }

    fn origin(
        &self,
        ctx: &Context,
        namespace: &str,
        source: Source,
        location: Location<'_>,
    ) -> Result<Origin, SessionError> {
        let own = |name| self.environment.get(name).map(str::to_owned);
        let as_role = |role: String, file: String| Origin::Role {
            role,
            file,
            region: location.region.to_owned(),
        };
        match source {
            Source::Secret(name) => Ok(Origin::Secret {
                cluster: ctx.cluster().clone(),
                namespace: namespace.to_owned(),
                name,
            }),
            Source::WebIdentity { role, file } => match file.or_else(|| own(TOKEN_FILE)) {
                Some(file) => Ok(as_role(role, file)),
                None => Err(SessionError::Missing(format!(
                    "the manager's environment has no {TOKEN_FILE}: set \
                     spec.credentials.webIdentity.serviceAccountTokenFile"
                ))),
            },
            Source::Environment => match (own(ROLE), own(TOKEN_FILE)) {
                (Some(role), Some(file)) if own(KEY).is_none() => Ok(as_role(role, file)),
                _ => Ok(Origin::Environment),
            },
        }
    }

    /// Drops credentials that SQS refused: they are read again when needed.
    pub(super) fn forget(&self, origin: &Origin) {
        self.known.lock().expect("no holder of this lock panics").remove(origin);
    }

    fn http(&self) -> SharedHttpClient {
        let made = || Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        self.http.get_or_init(made).clone()
    }

    fn known(&self, origin: &Origin, now: Timestamp) -> Option<Credentials> {
        let known = self.known.lock().expect("no holder of this lock panics");
        known.get(origin).filter(|known| now < known.until).map(|known| known.credentials.clone())
    }

    fn keep(&self, origin: &Origin, new: Known, now: Timestamp) {
        let mut known = self.known.lock().expect("no holder of this lock panics");
        if known.len() >= MAX_KNOWN {
            known.retain(|_, known| now < known.until);
            if known.len() >= MAX_KNOWN
                && let Some(first) = known.iter().min_by_key(|(_, known)| known.until)
            {
                let first = first.0.clone();
                known.remove(&first);
            }
        }
        known.insert(origin.clone(), new);
    }

    async fn get(&self, ctx: &Context, origin: &Origin) -> Result<Known, SessionError> {
        let for_a_while = |credentials| Known { credentials, until: ctx.now() + KEPT };
        match origin {
            Origin::Secret { namespace, name, .. } => {
                from_secret(ctx, namespace, name).await.map(for_a_while)
            }
            Origin::Role { role, file, region } => self.assume(ctx, role, file, region).await,
            Origin::Environment => from_environment(&self.environment).map(for_a_while),
        }
    }

    /// Exchanges the manager's token for a role's credentials.
    async fn assume(
        &self,
        ctx: &Context,
        role: &str,
        file: &str,
        region: &str,
    ) -> Result<Known, SessionError> {
        // A small file in memory, which the kubelet renews.
        let token = std::fs::read_to_string(file)
            .map_err(|error| SessionError::Missing(format!("the token file {file}: {error}")))?;
        let mut config = aws_sdk_sts::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(self.http())
            .interceptor(BoundedAnswers)
            .region(Region::new(region.to_owned()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts());
        // Only the operator of the manager may set the address of STS: the token is sent there.
        config.set_endpoint_url(self.environment.get(STS_ENDPOINT).map(str::to_owned));
        let request = aws_sdk_sts::Client::from_conf(config.build())
            .assume_role_with_web_identity()
            .role_arn(role)
            .role_session_name(SESSION_NAME)
            .web_identity_token(token.trim());
        let sts = ctx.external("sts", &format!("sts {role} {region}"), &STS_LIMITS);
        let answer =
            sts.read("AssumeRoleWithWebIdentity", async { request.send().await.map_err(failure) });
        let answer = answer.await.map_err(|error| refused(role, error))?;
        let none = || SessionError::Missing(format!("STS gave no credentials for role {role}"));
        let given = answer.credentials.ok_or_else(none)?;
        let expires = Timestamp::from_second(given.expiration.secs())
            .map_err(|error| SessionError::Failed(ReconcileError::transient(error)))?;
        let credentials = Credentials::new(
            given.access_key_id,
            given.secret_access_key,
            Some(given.session_token),
            None,
            "web identity",
        );
        Ok(Known { credentials, until: expires - RENEWED_BEFORE })
    }
}

async fn from_secret(
    ctx: &Context,
    namespace: &str,
    name: &str,
) -> Result<Credentials, SessionError> {
    let secrets: Api<Secret> = Api::namespaced(ctx.client(), namespace);
    let secret = match secrets.get_opt(name).await {
        Err(error) => match refusal(&error) {
            Some(words) => return Err(SessionError::Missing(format!("Secret {name}: {words}"))),
            None => return Err(error.into()),
        },
        Ok(found) => found,
    };
    let missing =
        || format!("Secret {name} does not exist: create it, with {KEY} and {SECRET_KEY}");
    let data = secret.ok_or_else(|| SessionError::Missing(missing()))?.data.unwrap_or_default();
    let value = |key: &str| {
        let value = data.get(key).map(|value| String::from_utf8_lossy(&value.0).trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let must = |key: &str| {
        let missing = || SessionError::Missing(format!("Secret {name} has no {key}: add it"));
        value(key).ok_or_else(missing)
    };
    Ok(Credentials::new(must(KEY)?, must(SECRET_KEY)?, value(SESSION_TOKEN), None, "secret"))
}

fn from_environment(environment: &AwsEnvironment) -> Result<Credentials, SessionError> {
    let value = |name| environment.get(name).map(str::to_owned);
    match (value(KEY), value(SECRET_KEY)) {
        (Some(key), Some(secret)) => {
            Ok(Credentials::new(key, secret, value(SESSION_TOKEN), None, "environment"))
        }
        _ => Err(SessionError::Missing(format!(
            "the manager's environment has neither {KEY} and {SECRET_KEY} nor {ROLE} and \
             {TOKEN_FILE}: set spec.credentials, or the manager's environment"
        ))),
    }
}

fn refused(role: &str, error: ExternalError<Failure>) -> SessionError {
    match error.failure() {
        Some(said) if matches!(said.refusal, Refusal::Denied | Refusal::Rejected) => {
            SessionError::Missing(format!("role {role} was refused: {said}"))
        }
        _ => SessionError::Failed(error.into()),
    }
}
