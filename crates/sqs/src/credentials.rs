//! The credentials that SQS is asked with: from Secrets, roles, or the manager's environment. Shell.
//!
//! Secrets are read one by one when they are needed, never listed or watched, so that the manager
//! needs no right to see all of them. What was read is kept for [`KEPT`], or until SQS refuses it; a
//! role's credentials until shortly before they expire, or until then if they cannot be renewed. At most
//! [`MAX_KNOWN`] are kept.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use aws_credential_types::provider::ProvideCredentials;
use aws_sdk_sqs::config::{Credentials, SharedHttpClient};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use sdk::{ClusterName, ClusterUid, Context, External, ReconcileError};

use super::access::{Asked, Grant, OwnIdentity, Settings};
use super::client::{LIMITS, Sqs};
use super::environment::{
    AwsEnvironment, KEY, ROLE, SECRET_KEY, SESSION_TOKEN, STS_ENDPOINT, TOKEN_FILE,
};
use super::own::provider;
use super::sts::{Sts, StsError};
use sdk::refusal::refusal;

/// How long a Secret that was read is not read again.
pub(super) const KEPT: Duration = Duration::from_secs(60);
/// A role's credentials are renewed this long before they expire.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// The most credentials kept at once. Beyond it, some are read again when they are needed.
const MAX_KNOWN: usize = 1_000;
/// The longest id of an access key
/// (<https://docs.aws.amazon.com/STS/latest/APIReference/API_Credentials.html>).
const MAX_KEY_ID: usize = 128;
/// The domains of AWS's addresses
/// (<https://docs.aws.amazon.com/general/latest/gr/rande.html>).
const OF_AWS: [&str; 4] = [".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws"];

/// Where credentials come from, for the whole process. A Secret's cluster counts by its uid too: another one may get
/// its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    Secret { cluster: ClusterName, uid: Option<ClusterUid>, namespace: String, name: String },
    Role { role: String, file: String, region: String },
    Assumed { role: String, external_id: Option<String>, region: String },
    Own(OwnIdentity),
}

/// All known credentials, and the connections of all clients.
#[derive(Debug)]
pub(super) struct Sessions {
    settings: Settings,
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
    origin: Origin,
    /// Whether its credentials were read earlier, and may have been replaced since.
    is_kept: bool,
    /// What asks STS as the same identity; `None` if the address of SQS is not one of AWS, where nobody says
    /// which STS belongs to it.
    sts: Option<Sts>,
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
    /// The administrator does not permit them; why.
    NotPermitted(String),
    /// STS is out of reach; what is known of it, and the error.
    Outage(String, ReconcileError),
    /// They could not be read.
    Failed(ReconcileError),
}

impl<E: Into<ReconcileError>> From<E> for SessionError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

// === impl Origin ===

impl Origin {
    /// Who shares a budget of requests: the end of its name. A Secret's key is its author's text, so it
    /// counts in its namespace alone: nobody can name the key of another, or `own`, to use up their budget
    /// or to open their circuit breaker. There, several Secrets with one key count together. A role counts
    /// as one for all namespaces to which the administrator gives it.
    fn budget(&self, key_id: &str) -> String {
        match self {
            Self::Secret { cluster, namespace, .. } => {
                let key_id: String = key_id.chars().take(MAX_KEY_ID).collect();
                format!("key {cluster}/{namespace} {key_id}")
            }
            Self::Role { role, .. } | Self::Assumed { role, .. } => format!("role {role}"),
            Self::Own(_) => "own".to_owned(),
        }
    }
}

// === impl Sessions ===

impl Sessions {
    /// Over `http`, or over connections of its own, which are opened when they are needed.
    pub(super) fn new(
        http: Option<SharedHttpClient>,
        environment: AwsEnvironment,
        settings: Settings,
    ) -> Self {
        let http = http.map_or_else(OnceLock::new, OnceLock::from);
        Self { settings, environment, http, known: Mutex::default() }
    }

    /// The session that a Queue may have.
    pub(super) async fn open(
        &self,
        ctx: &Context,
        asked: &Asked<'_>,
        location: Location<'_>,
        requests: u32,
    ) -> Result<Session, SessionError> {
        let grant = self.settings.grant(asked);
        let grant = grant.map_err(|refused| SessionError::NotPermitted(refused.to_string()))?;
        let origin = self.origin(ctx, asked.namespace, grant, location)?;
        let is_kept = self.known(&origin, ctx.now()).is_some();
        let credentials = self.credentials(ctx, &origin).await?;
        let who = origin.budget(credentials.access_key_id());
        let name = format!("sqs {} {} {who}", location.region, location.endpoint.unwrap_or("aws"));
        let upstream = ctx.external("sqs", &name, &LIMITS).expecting(requests);
        let knows_sts =
            location.endpoint.is_none_or(is_of_aws) || self.environment.get(STS_ENDPOINT).is_some();
        let sts = knows_sts.then(|| self.sts(location.region, &who, Some(credentials.clone())));
        let sqs = Sqs::new(self.http(), credentials, location.region, location.endpoint);
        Ok(Session { sqs, upstream, origin, is_kept, sts })
    }

    async fn credentials(
        &self,
        ctx: &Context,
        origin: &Origin,
    ) -> Result<Credentials, SessionError> {
        if let Some(credentials) = self.known(origin, ctx.now()) {
            return Ok(credentials);
        }
        let credentials = match self.get(ctx, origin).await {
            Ok(credentials) => credentials,
            Err(error) => return self.unexpired(origin, ctx.now()).ok_or(error),
        };
        let now = ctx.now();
        let until = credentials.expiry().map_or(now + KEPT, renewed);
        self.keep(origin, Known { credentials: credentials.clone(), until }, now);
        Ok(credentials)
    }

    fn origin(
        &self,
        ctx: &Context,
        namespace: &str,
        grant: Grant,
        location: Location<'_>,
    ) -> Result<Origin, SessionError> {
        let own = |name| self.environment.get(name).map(str::to_owned);
        let region = location.region.to_owned();
        match grant {
            Grant::Secret(name) => Ok(Origin::Secret {
                cluster: ctx.cluster().clone(),
                uid: ctx.cluster_uid().cloned(),
                namespace: namespace.to_owned(),
                name,
            }),
            Grant::WebIdentity { role, file } => match file.or_else(|| own(TOKEN_FILE)) {
                Some(file) => Ok(Origin::Role { role, file, region }),
                None => Err(SessionError::Missing(format!(
                    "the manager's environment has no {TOKEN_FILE}: set it, or tokenFile of the role \
                     in controllers.sqs.access"
                ))),
            },
            Grant::AssumeRole { role, external_id } => {
                Ok(Origin::Assumed { role, external_id, region })
            }
            Grant::Own => Ok(self.own(region)),
        }
    }

    /// Where the manager's own identity comes from.
    fn own(&self, region: String) -> Origin {
        let value = |name| self.environment.get(name).map(str::to_owned);
        match (self.settings.identity, value(ROLE), value(TOKEN_FILE)) {
            (OwnIdentity::Environment, Some(role), Some(file)) if value(KEY).is_none() => {
                Origin::Role { role, file, region }
            }
            (identity, _, _) => Origin::Own(identity),
        }
    }

    fn sts(&self, region: &str, who: &str, credentials: Option<Credentials>) -> Sts {
        // Only the administrator may set the address of STS: tokens are sent there.
        let endpoint = self.environment.get(STS_ENDPOINT);
        Sts::new(self.http(), region, endpoint, who, credentials)
    }

    /// Drops credentials that SQS refused: they are read again when needed. Returns whether that may help
    /// at once, because they were read earlier.
    pub(super) fn forget(&self, refused: &Session) -> bool {
        self.discard(&refused.origin);
        refused.is_kept
    }

    fn discard(&self, origin: &Origin) {
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

    /// What should be renewed and is valid all the same.
    fn unexpired(&self, origin: &Origin, now: Timestamp) -> Option<Credentials> {
        let known = self.known.lock().expect("no holder of this lock panics");
        let credentials = &known.get(origin)?.credentials;
        let expiry = Timestamp::try_from(credentials.expiry()?).ok()?;
        (now < expiry).then(|| credentials.clone())
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

    async fn get(&self, ctx: &Context, origin: &Origin) -> Result<Credentials, SessionError> {
        match origin {
            Origin::Secret { namespace, name, .. } => from_secret(ctx, namespace, name).await,
            Origin::Role { role, file, region } => {
                // A small file in memory, which the kubelet renews.
                let token = std::fs::read_to_string(file).map_err(|error| {
                    SessionError::Missing(format!("the token file {file}: {error}"))
                })?;
                let sts = self.sts(region, &origin.budget(""), None);
                given(role, sts.with_token(ctx, role, token.trim()).await)
            }
            Origin::Assumed { role, external_id, region } => {
                // The manager's own identity is never an assumed one, so this goes one level deep.
                let own = self.own(region.clone());
                let credentials = Box::pin(self.credentials(ctx, &own)).await?;
                let sts = self.sts(region, &origin.budget(""), Some(credentials));
                let answer = sts.assume(ctx, role, external_id.as_deref()).await;
                if matches!(answer, Err(StsError::Refused(_))) {
                    // The manager may have got another identity since.
                    self.discard(&own);
                }
                given(role, answer)
            }
            Origin::Own(OwnIdentity::Environment) => from_environment(&self.environment),
            Origin::Own(identity) => self.provided(*identity).await,
        }
    }

    /// The identity that the place where the manager runs gives it.
    async fn provided(&self, identity: OwnIdentity) -> Result<Credentials, SessionError> {
        let credentials = provider(identity, self.http()).provide_credentials().await;
        credentials.map_err(|error| {
            let why = sdk::error::chain(&error);
            SessionError::Missing(format!(
                "the manager gets no identity by {identity:?}: {why}; see controllers.sqs.identity"
            ))
        })
    }
}

/// When credentials with this end are renewed.
fn renewed(expiry: SystemTime) -> Timestamp {
    Timestamp::try_from(expiry).map_or(Timestamp::MAX, |expiry| expiry - RENEWED_BEFORE)
}

/// A role's credentials, as STS gave them.
fn given(role: &str, answer: Result<Credentials, StsError>) -> Result<Credentials, SessionError> {
    answer.map_err(|error| match error {
        StsError::Refused(said) => {
            SessionError::Missing(format!("role {role} was refused: {said}"))
        }
        StsError::Outage(said, error) => SessionError::Outage(said, error),
        StsError::Failed(error) => SessionError::Failed(error),
    })
}

impl Session {
    /// The account of the session's identity; `None` if there is nobody to ask.
    ///
    /// # Errors
    /// What STS says.
    pub(super) async fn account(&self, ctx: &Context) -> Result<Option<String>, StsError> {
        match &self.sts {
            Some(sts) => sts.account(ctx).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Whether an address is one of AWS, such as that of a VPC: its STS then knows the credentials.
fn is_of_aws(endpoint: &str) -> bool {
    let address = endpoint.split_once("://").map_or(endpoint, |(_, address)| address);
    let host = address.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let name = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
    OF_AWS.iter().any(|domain| name.ends_with(domain))
}

/// What is said of a Secret that does not exist.
pub(super) fn missing(name: &str) -> String {
    format!("Secret {name} does not exist: create it, with {KEY} and {SECRET_KEY}")
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
    let data = secret.ok_or_else(|| SessionError::Missing(missing(name)))?.data.unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_aws_s_own_domains_are_aws_s() {
        for (endpoint, expect) in [
            ("https://vpce-1a2b.sqs.eu-west-1.vpce.amazonaws.com", true),
            ("https://sqs.eu-west-1.amazonaws.com:443/", true),
            ("https://SQS.eu-west-1.AmazonAWS.com", true),
            ("https://sqs.cn-north-1.amazonaws.com.cn", true),
            ("https://sqs.eu-west-1.api.aws", true),
            ("https://vpce-1a2b.sqs.eusc-de-east-1.vpce.amazonaws.eu", true),
            ("http://moto:5000", false),
            ("http://[::1]:5000", false),
            ("https://amazonaws.com.example.com", false),
            ("https://example.com/.amazonaws.com", false),
            ("https://sqs.amazonaws.com@example.com", false),
            ("https://example.com?sqs.amazonaws.com", false),
            ("https://myamazonaws.com", false),
        ] {
            assert_eq!(is_of_aws(endpoint), expect, "{endpoint}");
        }
    }

    #[test]
    fn no_key_of_a_secret_has_the_budget_of_others() {
        let role = "arn:aws:iam::1:role/shop";
        let assumed = Origin::Assumed {
            role: role.to_owned(),
            external_id: None,
            region: "eu-west-1".to_owned(),
        };
        let secret = |namespace: &str, name: &str| Origin::Secret {
            cluster: "east".parse().unwrap(),
            uid: None,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let theirs = [
            Origin::Own(OwnIdentity::Environment).budget("AKIDOWN"),
            assumed.budget("ASIA"),
            secret("shop", "aws").budget("AKIDSHOP"),
        ];
        let role = format!("role {role}");
        for key_id in
            ["own", "AKIDOWN", &role, "AKIDSHOP", "shop AKIDSHOP", "key east/shop AKIDSHOP"]
        {
            let budget = secret("other", "aws").budget(key_id);
            assert!(!theirs.contains(&budget), "{budget}");
        }
        assert_eq!(theirs[2], secret("shop", "same-key").budget("AKIDSHOP"));
        let long = secret("shop", "aws").budget(&"k".repeat(MAX_KEY_ID + 1));
        assert_eq!(long, secret("shop", "aws").budget(&"k".repeat(MAX_KEY_ID)));
    }
}
