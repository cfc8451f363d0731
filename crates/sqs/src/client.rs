//! Requests to SQS, and what its refusals mean. Shell around AWS's library.
//!
//! The library's own retries are off: the engine decides when to retry.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::config::interceptors::BeforeDeserializationInterceptorContextMut;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::{
    BehaviorVersion, ConfigBag, Credentials, Intercept, Region, RuntimeComponents,
    SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_sdk_sqs::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_types::body::SdkBody;
use sdk::{ExternalFailure, ExternalLimits, Gathered, Verdict};

use super::desired::Desired;
use super::documents::{REDRIVE_POLICY, normalised};
use super::owner::OWNER_TAG;
use super::plan::Change;

/// What the whole fleet may ask of SQS for one account in one region. AWS publishes quotas for
/// messages and none for the requests that manage queues
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html>),
/// so the limits are modest; where SQS throttles all the same, the fleet sends less.
pub const LIMITS: ExternalLimits = ExternalLimits {
    requests: 50,
    per: Duration::from_secs(1),
    burst: 50,
    max_concurrency: 16,
    first_pause: Duration::from_secs(1),
    max_pause: Duration::from_secs(60),
};

/// Requests of a look at a queue: its attributes and its tags.
pub(super) const TO_LOOK: u32 = 2;
/// Requests to create one: a look for it, the creation, and a look at it. One more sets its dead-letter queue.
pub(super) const TO_MAKE: u32 = 4;

/// How many queues are asked for whose dead-letter queue goes: as many as SQS lists at once.
const MAX_SOURCES: i32 = 1_000;

/// How long one request may take, and its connection to be made.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The largest answer that is read, in bytes. A queue has about twenty attributes and at most fifty tags.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Bounds the answers of SQS and STS, which the library would read to their end, however small the parts are. The
/// address of SQS may come from a Queue.
#[derive(Debug)]
pub(super) struct BoundedAnswers;

impl Intercept for BoundedAnswers {
    fn name(&self) -> &'static str {
        "BoundedAnswers"
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response_mut();
        let body = response.take_body();
        *response.body_mut() = SdkBody::from_body_1_x(Gathered::new(body, MAX_ANSWER_BYTES));
        Ok(())
    }
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such queue.
    NoQueue,
    /// There is one, with other attributes.
    NameExists,
    /// One was deleted within the last minute: its name cannot be used yet.
    DeletedRecently,
    /// Too many requests.
    Throttled,
    /// The credentials are wrong, or may not do this.
    Denied,
    /// SQS refuses the request for what it asks.
    Rejected,
    /// SQS is unreachable, or fails.
    Unavailable,
    /// No answer came.
    Unanswered,
}

/// A request to AWS that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Failure {
    /// What it means.
    pub refusal: Refusal,
    /// In AWS's words.
    pub message: String,
    retry_after: Option<Duration>,
}

impl ExternalFailure for Failure {
    fn verdict(&self) -> Verdict {
        let retry_after = self.retry_after;
        match self.refusal {
            Refusal::Throttled => Verdict::Overloaded { retry_after },
            Refusal::Unavailable => Verdict::Unavailable { retry_after },
            Refusal::Unanswered => Verdict::Unanswered,
            _ => Verdict::Answered,
        }
    }
}

/// The error codes of SQS's and STS's APIs
/// (<https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html>), in
/// the spelling of either protocol: the last word counts.
fn refusal(code: &str, status: u16) -> Refusal {
    match code.rsplit(['#', '.']).next().unwrap_or_default() {
        "NonExistentQueue" | "QueueDoesNotExist" => Refusal::NoQueue,
        "QueueNameExists" | "QueueAlreadyExists" => Refusal::NameExists,
        "QueueDeletedRecently" => Refusal::DeletedRecently,
        "RequestThrottled"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "TooManyRequestsException"
        | "RequestLimitExceeded"
        | "KmsThrottled" => Refusal::Throttled,
        "SlowDown" | "ServiceUnavailable" | "InternalFailure" | "InternalError" => {
            Refusal::Unavailable
        }
        "AccessDenied"
        | "AccessDeniedException"
        | "InvalidClientTokenId"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "InvalidIdentityToken"
        | "SignatureDoesNotMatch"
        | "InvalidSignatureException"
        | "RequestExpired"
        | "NotAuthorized"
        | "UnrecognizedClientException"
        | "MissingAuthenticationToken"
        | "InvalidSecurity"
        | "IncompleteSignature"
        | "OptInRequired"
        | "InvalidAccessKeyId" => Refusal::Denied,
        _ => match status {
            429 => Refusal::Throttled,
            500.. => Refusal::Unavailable,
            401 | 403 => Refusal::Denied,
            _ => Refusal::Rejected,
        },
    }
}

/// The library's error as ours.
pub(super) fn failure<E>(error: SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let answered = |response: &HttpResponse| {
        let wait = response.headers().get("retry-after");
        (response.status().as_u16(), wait.and_then(|wait| wait.trim().parse().ok()))
    };
    let (refusal, message, retry_after) = match &error {
        SdkError::ServiceError(said) => {
            let (status, wait) = answered(said.raw());
            let code = said.err().code().unwrap_or_default();
            let words = sdk::error::foreign(said.err().message().unwrap_or("no reason given"));
            (refusal(code, status), format!("{code}: {words} (HTTP {status})"), wait)
        }
        SdkError::ResponseError(said) => {
            let (status, wait) = answered(said.raw());
            let refusal = if status < 400 { Refusal::Unavailable } else { refusal("", status) };
            (refusal, format!("the answer is not one of AWS (HTTP {status})"), wait)
        }
        SdkError::ConstructionFailure(_) => (Refusal::Rejected, sdk::error::chain(&error), None),
        _ => (Refusal::Unanswered, sdk::error::chain(&error), None),
    };
    Failure { refusal, message, retry_after: retry_after.map(Duration::from_secs) }
}

/// The timeouts of every client.
pub(super) fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(REQUEST_TIMEOUT)
        .operation_timeout(REQUEST_TIMEOUT)
        .build()
}

/// One account's SQS in one region.
#[derive(Clone, Debug)]
pub(super) struct Sqs(aws_sdk_sqs::Client);

impl Sqs {
    /// Speaks over `http`.
    pub(super) fn new(
        http: SharedHttpClient,
        credentials: Credentials,
        region: &str,
        endpoint: Option<&str>,
    ) -> Self {
        let mut config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http)
            .interceptor(BoundedAnswers)
            .credentials_provider(credentials)
            .region(Region::new(region.to_owned()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        config.set_endpoint_url(endpoint.map(str::to_owned));
        Self(aws_sdk_sqs::Client::from_conf(config.build()))
    }

    /// The URL of the queue of that name.
    ///
    /// # Errors
    /// What SQS says; also when there is no such queue.
    pub(super) async fn url(&self, name: &str) -> Result<String, Failure> {
        let found = self.0.get_queue_url().queue_name(name).send().await.map_err(failure)?;
        Ok(found.queue_url.unwrap_or_default())
    }

    /// The queue's attributes, its policies in one spelling.
    ///
    /// # Errors
    /// What SQS says.
    pub(super) async fn attributes(&self, url: &str) -> Result<BTreeMap<String, String>, Failure> {
        let all = QueueAttributeName::All;
        let found = self.0.get_queue_attributes().queue_url(url).attribute_names(all);
        let found = found.send().await.map_err(failure)?.attributes.unwrap_or_default();
        let spelt = |(name, value): (QueueAttributeName, String)| {
            let name = name.as_str().to_owned();
            let value = normalised(&name, value);
            (name, value)
        };
        Ok(found.into_iter().map(spelt).collect())
    }

    /// The queue's tags.
    ///
    /// # Errors
    /// What SQS says.
    pub(super) async fn tags(&self, url: &str) -> Result<BTreeMap<String, String>, Failure> {
        let found = self.0.list_queue_tags().queue_url(url).send().await.map_err(failure)?;
        Ok(found.tags.unwrap_or_default().into_iter().collect())
    }

    /// Creates the queue with this owner tag and returns its URL, also if it exists with the same attributes. It gets
    /// its dead-letter queue later: for want of that one SQS would make none.
    ///
    /// # Errors
    /// What SQS says.
    pub(super) async fn create(self, desired: Desired, mark: String) -> Result<String, Failure> {
        let given = desired.attributes.iter();
        let given = given.filter(|(name, value)| **name != REDRIVE_POLICY && !value.is_empty());
        let mut attributes: HashMap<_, _> =
            given.map(|(name, value)| (QueueAttributeName::from(*name), value.clone())).collect();
        if desired.fifo {
            attributes.insert(QueueAttributeName::FifoQueue, "true".to_owned());
        }
        let owner = (OWNER_TAG.to_owned(), mark);
        let tags = desired.tags.into_iter().chain([owner]).collect();
        let request = self.0.create_queue().queue_name(desired.name);
        let request = request.set_attributes(Some(attributes)).set_tags(Some(tags));
        Ok(request.send().await.map_err(failure)?.queue_url.unwrap_or_default())
    }

    /// Sets attributes; those changed to nothing are reset.
    ///
    /// # Errors
    /// What SQS says.
    pub(super) async fn set(self, url: String, changes: Vec<Change>) -> Result<(), Failure> {
        let attributes = changes
            .into_iter()
            .map(|change| {
                let value = change.to.unwrap_or_default();
                (QueueAttributeName::from(change.name.as_str()), value)
            })
            .collect();
        let request = self.0.set_queue_attributes().queue_url(url).set_attributes(Some(attributes));
        request.send().await.map(drop).map_err(failure)
    }

    /// Sets tags.
    ///
    /// # Errors
    /// What SQS says.
    pub(super) async fn tag(self, url: String, tags: Vec<(String, String)>) -> Result<(), Failure> {
        let tags = Some(tags.into_iter().collect());
        self.0.tag_queue().queue_url(url).set_tags(tags).send().await.map(drop).map_err(failure)
    }

    /// Removes tags.
    ///
    /// # Errors
    /// What SQS says.
    pub(super) async fn untag(self, url: String, keys: Vec<String>) -> Result<(), Failure> {
        let request = self.0.untag_queue().queue_url(url).set_tag_keys(Some(keys));
        request.send().await.map(drop).map_err(failure)
    }

    /// The URLs of queues whose dead-letter queue this is, and whether there are more.
    ///
    /// # Errors
    /// What SQS says.
    pub(super) async fn sources(&self, url: &str) -> Result<(Vec<String>, bool), Failure> {
        let request = self.0.list_dead_letter_source_queues().queue_url(url);
        let answer = request.max_results(MAX_SOURCES).send().await.map_err(failure)?;
        Ok((answer.queue_urls, answer.next_token.is_some()))
    }

    /// Deletes the queue with its messages.
    ///
    /// # Errors
    /// What SQS says.
    pub(super) async fn delete(self, url: String) -> Result<(), Failure> {
        self.0.delete_queue().queue_url(url).send().await.map(drop).map_err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_refusals_mean() {
        for (code, status, expect) in [
            ("AWS.SimpleQueueService.NonExistentQueue", 400, Refusal::NoQueue),
            ("com.amazonaws.sqs#QueueDoesNotExist", 400, Refusal::NoQueue),
            ("AWS.SimpleQueueService.QueueDeletedRecently", 400, Refusal::DeletedRecently),
            ("QueueAlreadyExists", 400, Refusal::NameExists),
            ("RequestThrottled", 403, Refusal::Throttled),
            ("ThrottlingException", 400, Refusal::Throttled),
            ("AccessDenied", 403, Refusal::Denied),
            ("InvalidClientTokenId", 403, Refusal::Denied),
            ("com.amazon.coral.service#InvalidSignatureException", 400, Refusal::Denied),
            ("RequestExpired", 400, Refusal::Denied),
            ("NotAuthorized", 400, Refusal::Denied),
            ("InvalidAttributeValue", 400, Refusal::Rejected),
            ("InternalError", 500, Refusal::Unavailable),
            ("", 429, Refusal::Throttled),
            ("", 503, Refusal::Unavailable),
            ("", 403, Refusal::Denied),
        ] {
            assert_eq!(refusal(code, status), expect, "{code} {status}");
        }
    }

    #[test]
    fn verdicts_follow_refusals() {
        let retry_after = Some(Duration::from_secs(7));
        for (refusal, expect) in [
            (Refusal::Throttled, Verdict::Overloaded { retry_after }),
            (Refusal::Unavailable, Verdict::Unavailable { retry_after }),
            (Refusal::Unanswered, Verdict::Unanswered),
            (Refusal::Denied, Verdict::Answered),
            (Refusal::NoQueue, Verdict::Answered),
        ] {
            let failure = Failure { refusal, message: String::new(), retry_after };
            assert_eq!(failure.verdict(), expect);
        }
    }
}
