//! Requests to STS: a role's credentials, and whose credentials some are. Shell around AWS's library.

use aws_sdk_sqs::config::{Credentials, SharedHttpClient};
use aws_sdk_sts::config::retry::RetryConfig;
use aws_sdk_sts::config::{BehaviorVersion, Region};
use aws_sdk_sts::types;
use sdk::{Context, External, ExternalError, ExternalLimits, ReconcileError};

use super::client::{BoundedAnswers, Failure, LIMITS, Refusal, failure, timeouts};

const STS_LIMITS: ExternalLimits = ExternalLimits { requests: 10, burst: 10, ..LIMITS };
const SESSION_NAME: &str = "leasehold";

/// STS in one region, asked with some credentials or none.
#[derive(Debug)]
pub(super) struct Sts {
    client: aws_sdk_sts::Client,
    /// What shares a budget of requests: those of one identity in one region.
    name: String,
}

/// Why STS gave nothing.
#[derive(Debug)]
pub(super) enum StsError {
    /// It refused, in its own words.
    Refused(String),
    /// It is out of reach; what is known of it, and the error.
    Outage(String, ReconcileError),
    /// It could not be asked.
    Failed(ReconcileError),
}

impl From<ExternalError<Failure>> for StsError {
    fn from(error: ExternalError<Failure>) -> Self {
        if let Some(said) = error.outage() {
            return Self::Outage(format!("STS does not answer: {said}"), error.into());
        }
        match error.failure() {
            Some(said) if matches!(said.refusal, Refusal::Denied | Refusal::Rejected) => {
                Self::Refused(said.to_string())
            }
            _ => Self::Failed(error.into()),
        }
    }
}

impl Sts {
    pub(super) fn new(
        http: SharedHttpClient,
        region: &str,
        endpoint: Option<&str>,
        who: &str,
        credentials: Option<Credentials>,
    ) -> Self {
        let name = format!("sts {region} {who}");
        let mut config = aws_sdk_sts::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http)
            .interceptor(BoundedAnswers)
            .region(Region::new(region.to_owned()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts());
        config.set_endpoint_url(endpoint.map(str::to_owned));
        if let Some(credentials) = credentials {
            config = config.credentials_provider(credentials);
        }
        Self { client: aws_sdk_sts::Client::from_conf(config.build()), name }
    }

    /// Exchanges a service account's token for a role's credentials.
    ///
    /// # Errors
    /// What STS says.
    pub(super) async fn with_token(
        &self,
        ctx: &Context,
        role: &str,
        token: &str,
    ) -> Result<Credentials, StsError> {
        let request = self.client.assume_role_with_web_identity().role_arn(role);
        let request = request.role_session_name(SESSION_NAME).web_identity_token(token);
        let asked = async { request.send().await.map_err(failure) };
        let answer = self.upstream(ctx).read("AssumeRoleWithWebIdentity", asked).await?;
        given(answer.credentials, "web identity")
    }

    /// Exchanges the client's credentials for a role's.
    ///
    /// # Errors
    /// What STS says.
    pub(super) async fn assume(
        &self,
        ctx: &Context,
        role: &str,
        external_id: Option<&str>,
    ) -> Result<Credentials, StsError> {
        let request = self.client.assume_role().role_arn(role).role_session_name(SESSION_NAME);
        let request = request.set_external_id(external_id.map(str::to_owned));
        let asked = async { request.send().await.map_err(failure) };
        let answer = self.upstream(ctx).read("AssumeRole", asked).await?;
        given(answer.credentials, "assumed role")
    }

    /// The account of the client's credentials. It needs no right.
    ///
    /// # Errors
    /// What STS says.
    pub(super) async fn account(&self, ctx: &Context) -> Result<String, StsError> {
        let asked = async { self.client.get_caller_identity().send().await.map_err(failure) };
        let answer = self.upstream(ctx).read("GetCallerIdentity", asked).await?;
        answer.account.ok_or_else(|| StsError::Refused("STS named no account".to_owned()))
    }

    fn upstream(&self, ctx: &Context) -> External {
        ctx.external("sts", &self.name, &STS_LIMITS)
    }
}

fn given(
    answer: Option<types::Credentials>,
    provider: &'static str,
) -> Result<Credentials, StsError> {
    let given = answer.ok_or_else(|| StsError::Refused("STS gave no credentials".to_owned()))?;
    let expiry = given.expiration.try_into().ok();
    let (key, secret) = (given.access_key_id, given.secret_access_key);
    Ok(Credentials::new(key, secret, Some(given.session_token), expiry, provider))
}
