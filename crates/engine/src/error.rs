//! Failed reconciles: what was tried, how to retry, and the cause.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use cache::{DecodeError, NoIndex};
use portforward::DialError;

use crate::view::NotWatched;

/// How a failed reconcile is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// Retried with backoff.
    Transient,
    /// Not retried until the object or something it depends on changes.
    Terminal,
    /// The object changed meanwhile: retried with backoff, and not counted as an error.
    Conflict,
}

/// A failed reconcile: what was tried, how to retry, and the cause.
pub struct ReconcileError {
    class: RetryClass,
    retry_after: Option<Duration>,
    source: Box<dyn StdError + Send + Sync>,
}

impl ReconcileError {
    /// A failure that may pass: retried with backoff.
    pub fn transient(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(RetryClass::Transient, source.into())
    }

    /// A failure that stays until something changes: not retried.
    pub fn terminal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(RetryClass::Terminal, source.into())
    }

    /// A lost race with another writer: retried with backoff.
    pub fn conflict(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(RetryClass::Conflict, source.into())
    }

    /// Retries after this delay instead of the rate limiter's. It holds for this retry only: if the next
    /// run fails as well, the rate limiter counts both failures. A change of the object may run it
    /// earlier. A terminal error is not retried, even with a delay.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use leasehold_engine::ReconcileError;
    /// # fn quota_left() -> bool { false }
    /// fn reconcile() -> Result<(), ReconcileError> {
    ///     if !quota_left() {
    ///         let error = ReconcileError::transient("the provider's quota is used up");
    ///         return Err(error.retry_after(Duration::from_secs(60)));
    ///     }
    ///     Ok(())
    /// }
    /// assert_eq!(reconcile().unwrap_err().retry_delay(), Some(Duration::from_secs(60)));
    /// ```
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// How it is retried.
    pub fn class(&self) -> RetryClass {
        self.class
    }

    /// The delay of its retry, if [`Self::retry_after`] set one.
    pub fn retry_delay(&self) -> Option<Duration> {
        self.retry_after
    }

    fn new(class: RetryClass, source: Box<dyn StdError + Send + Sync>) -> Self {
        Self { class, retry_after: None, source }
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.class {
            RetryClass::Transient => "reconcile failed",
            RetryClass::Terminal => "reconcile failed for good",
            RetryClass::Conflict => "reconcile met a conflicting write",
        })
    }
}

impl fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.class, model::error::chain(self))
    }
}

impl StdError for ReconcileError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

impl From<kube::Error> for ReconcileError {
    /// Classifies by the server's answer: a lost compare-and-swap is a conflict, everything else is
    /// transient. That includes refusals as invalid or malformed: an admission policy that refuses with
    /// 422 may be changed, and a server that lags behind a new CRD answers 400. Only the author knows
    /// that a request can never succeed, and says so with [`Self::terminal`].
    fn from(error: kube::Error) -> Self {
        let class = match &error {
            kube::Error::Api(status) => match status.code {
                409 if status.reason == "Conflict" => RetryClass::Conflict,
                _ => RetryClass::Transient,
            },
            _ => RetryClass::Transient,
        };
        Self::new(class, Box::new(error))
    }
}

impl From<DialError> for ReconcileError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Name { .. } => Self::terminal(error),
            _ => Self::transient(error),
        }
    }
}

impl From<DecodeError> for ReconcileError {
    fn from(error: DecodeError) -> Self {
        Self::terminal(error)
    }
}

impl From<NoIndex> for ReconcileError {
    fn from(error: NoIndex) -> Self {
        Self::terminal(error)
    }
}

impl From<NotWatched> for ReconcileError {
    fn from(error: NotWatched) -> Self {
        Self::terminal(error)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn answers_of_the_server_fall_into_classes() {
        for (code, reason, class) in [
            (409, "Conflict", RetryClass::Conflict),
            (409, "AlreadyExists", RetryClass::Transient),
            (422, "Invalid", RetryClass::Transient),
            (400, "BadRequest", RetryClass::Transient),
            (403, "Forbidden", RetryClass::Transient),
            (404, "NotFound", RetryClass::Transient),
            (429, "TooManyRequests", RetryClass::Transient),
            (500, "InternalError", RetryClass::Transient),
        ] {
            let status = Status::failure("why", reason).with_code(code).boxed();
            assert_eq!(ReconcileError::from(kube::Error::Api(status)).class(), class, "{code}");
        }
    }

    #[test]
    fn an_error_shows_its_causes_once() {
        let error = ReconcileError::terminal(std::io::Error::other("disk full"));
        assert_eq!(format!("{error:?}"), "Terminal: reconcile failed for good: disk full");
    }
}
