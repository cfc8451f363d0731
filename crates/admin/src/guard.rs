//! Who may read metrics and debug views: whoever has a token that the cluster knows, and the right to
//! `get` the path there, as a `nonResourceURLs` rule gives it.
//!
//! The cluster is asked through a [`ReviewFn`], and each answer counts for a while. What strangers can
//! cost is bounded: reviews at once, reviews a second, answers that are kept.
//!
//! # Invariants
//! - Nothing is shown without a review that allowed it, at most a minute ago.
//! - A token is kept as its digest only.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64;
use futures::future::BoxFuture;
use model::{Clock, Moment};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long an allowed path stays allowed: a right or token that is withdrawn ends after this time.
const KEEP_ALLOWED: Duration = Duration::from_secs(60);
/// How long a refusal is kept.
const KEEP_REFUSED: Duration = Duration::from_secs(10);
/// The most answers that are kept.
const MAX_KEPT: usize = 512;
/// The most reviews at once.
const MAX_REVIEWS: usize = 4;
/// How long a review counts as under way at least, so that there are at most 20 a second, also of clients that leave.
const MIN_TURN: Duration = Duration::from_millis(200);
/// Where pages for people are. A right to this path is one to all below it.
pub(crate) const CONSOLE: &str = "/console";
/// How long a request may wait for its review.
const PATIENCE: Duration = Duration::from_secs(8);

/// What the cluster says of a token and a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its user may get the path.
    Allowed,
    /// Its user may not.
    Forbidden,
    /// The token is nobody's.
    Unknown,
}

/// Asks the cluster whether the user of a token may get a path: `Err` says why nobody knows, for the log.
pub type ReviewFn =
    Arc<dyn Fn(String, String) -> BoxFuture<'static, Result<Verdict, String>> + Send + Sync>;

/// Lets those in whom the cluster allows. Clones share their memory.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

struct Inner {
    review: ReviewFn,
    clock: Arc<dyn Clock>,
    // Locked only to look up or store, never across an await.
    kept: Mutex<Kept>,
    turns: Arc<Semaphore>,
}

/// A token and a path, as a digest.
type Key = [u8; 32];

/// The answers that still count. Pure.
#[derive(Debug, Default)]
struct Kept(HashMap<Key, (Verdict, Moment)>);

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It has no token, or one that is nobody's.
    Unauthenticated,
    /// Its user has no right to the path.
    Forbidden,
    /// Nobody could say.
    Unavailable,
}

impl Guard {
    /// A guard that asks `review`.
    pub fn new(review: ReviewFn, clock: Arc<dyn Clock>) -> Self {
        let turns = Arc::new(Semaphore::new(MAX_REVIEWS));
        Self(Arc::new(Inner { review, clock, kept: Mutex::default(), turns }))
    }

    async fn check(&self, token: Option<&str>, path: &str) -> Result<(), Refusal> {
        let token = token.ok_or(Refusal::Unauthenticated)?;
        let key = key(token, path);
        let verdict = match self.recall(&key) {
            Some(verdict) => verdict,
            None => {
                let asked = timeout(PATIENCE, self.ask(key, token, path)).await;
                asked.ok().flatten().ok_or(Refusal::Unavailable)?
            }
        };
        match verdict {
            Verdict::Allowed => Ok(()),
            Verdict::Forbidden => Err(Refusal::Forbidden),
            Verdict::Unknown => Err(Refusal::Unauthenticated),
        }
    }

    fn recall(&self, key: &Key) -> Option<Verdict> {
        let kept = self.0.kept.lock().expect("no holder of this lock panics");
        kept.get(key, self.0.clock.now())
    }

    /// Asks the cluster, in turn.
    async fn ask(&self, key: Key, token: &str, path: &str) -> Option<Verdict> {
        let turn = Arc::new(Arc::clone(&self.0.turns).acquire_owned().await.ok()?);
        // Another request may have asked meanwhile.
        if let Some(verdict) = self.recall(&key) {
            return Some(verdict);
        }
        // The turn lasts until both are dropped: a client that leaves takes this future along, but not that task.
        let least = Arc::clone(&turn);
        tokio::spawn(async move {
            tokio::time::sleep(MIN_TURN).await;
            drop(least);
        });
        let answer = (self.0.review)(token.to_owned(), path.to_owned()).await;
        drop(turn);
        match answer {
            Ok(verdict) => {
                let mut kept = self.0.kept.lock().expect("no holder of this lock panics");
                kept.put(key, verdict, self.0.clock.now());
                Some(verdict)
            }
            Err(reason) => {
                tracing::warn!(path, "nobody reviews tokens for the admin server: {reason}");
                None
            }
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Kept {
    fn get(&self, key: &Key, now: Moment) -> Option<Verdict> {
        let (verdict, until) = self.0.get(key)?;
        (now < *until).then_some(*verdict)
    }

    /// Keeps an answer; if there are too many, those that ended, or else the one that ends first, goes.
    fn put(&mut self, key: Key, verdict: Verdict, now: Moment) {
        if self.0.len() >= MAX_KEPT {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() >= MAX_KEPT {
            let first = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key);
            first.and_then(|key| self.0.remove(&key));
        }
        let keep = if verdict == Verdict::Allowed { KEEP_ALLOWED } else { KEEP_REFUSED };
        self.0.insert(key, (verdict, now + keep));
    }
}

fn key(token: &str, path: &str) -> Key {
    // A token has no line break, so no two pairs have one digest.
    Sha256::new().chain_update(token).chain_update("\n").chain_update(path).finalize().into()
}

/// Lets a request through if its token allows it.
pub(crate) async fn guarded(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let path = request.uri().path();
    let of_console =
        path.strip_prefix(CONSOLE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let token = header.and_then(|header| {
        let bearer = bearer(header).map(Cow::Borrowed);
        bearer.or_else(|| password(header).filter(|_| of_console).map(Cow::Owned))
    });
    match guard.check(token.as_deref(), if of_console { CONSOLE } else { path }).await {
        Ok(()) => next.run(request).await,
        // A browser asks its user then.
        Err(Refusal::Unauthenticated) if of_console => {
            let text = "the password is a token of this cluster: kubectl create token NAME\n";
            let asks =
                [(WWW_AUTHENTICATE, "Basic realm=\"Leasehold: any name, a token as password\"")];
            (StatusCode::UNAUTHORIZED, asks, text).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// The token of an `Authorization` header. The scheme's case does not matter.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The password of an `Authorization` header, which is all that a browser's user can show.
fn password(header: &str) -> Option<String> {
    let (scheme, pair) = header.split_once(' ')?;
    let pair = BASE64.decode(pair.trim().as_bytes()).ok()?;
    let (_, password) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
    (scheme.eq_ignore_ascii_case("basic") && !password.is_empty()).then(|| password.to_owned())
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::Unauthenticated => {
                let text = "show a bearer token of this cluster\n";
                (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], text).into_response()
            }
            Refusal::Forbidden => {
                let text = "this token's user may not get this path: a ClusterRole with the path \
                            under nonResourceURLs allows it\n";
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Refusal::Unavailable => {
                let text = "the cluster that reviews tokens did not answer in time\n";
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use model::ManualClock;

    use super::*;

    fn guard(clock: &Arc<ManualClock>, asked: &Arc<AtomicUsize>) -> Guard {
        let asked = Arc::clone(asked);
        let review: ReviewFn = Arc::new(move |token, path| {
            asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                match (token.as_str(), path.as_str()) {
                    ("prometheus", "/metrics") | ("human", _) => Ok(Verdict::Allowed),
                    ("prometheus", _) => Ok(Verdict::Forbidden),
                    ("unlucky", _) => Err("connection refused".to_owned()),
                    _ => Ok(Verdict::Unknown),
                }
            })
        });
        Guard::new(review, Arc::clone(clock) as Arc<dyn Clock>)
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_reviewed_for_its_path_and_the_answer_counts_for_a_while() {
        let clock = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let asked = Arc::new(AtomicUsize::new(0));
        let guard = guard(&clock, &asked);
        for (token, path, expect) in [
            (None, "/metrics", Err(Refusal::Unauthenticated)),
            (Some("prometheus"), "/metrics", Ok(())),
            (Some("prometheus"), "/debug/shards", Err(Refusal::Forbidden)),
            (Some("human"), "/debug/shards", Ok(())),
            (Some("stranger"), "/metrics", Err(Refusal::Unauthenticated)),
            (Some("unlucky"), "/metrics", Err(Refusal::Unavailable)),
        ] {
            assert_eq!(guard.check(token, path).await, expect, "{token:?} {path}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 5, "no token, no review");

        guard.check(Some("prometheus"), "/metrics").await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 5);
        clock.advance(KEEP_REFUSED);
        guard.check(Some("stranger"), "/metrics").await.unwrap_err();
        guard.check(Some("prometheus"), "/metrics").await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 6);
        clock.advance(KEEP_ALLOWED);
        guard.check(Some("prometheus"), "/metrics").await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_cause_few_reviews_and_are_kept_within_a_bound() {
        let clock = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let asked = Arc::new(AtomicUsize::new(0));
        let guard = guard(&clock, &asked);
        let strangers = (0..2 * MAX_KEPT).map(|n| {
            let guard = guard.clone();
            tokio::spawn(
                async move { guard.check(Some(&format!("stranger-{n}")), "/metrics").await },
            )
        });
        for refused in futures::future::join_all(strangers).await {
            refused.unwrap().unwrap_err();
        }
        let most = PATIENCE.as_millis() / MIN_TURN.as_millis() * MAX_REVIEWS as u128;
        let asked = asked.load(Ordering::Relaxed) as u128;
        assert!(asked <= most + MAX_REVIEWS as u128, "{asked} reviews in {PATIENCE:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_that_leave_before_the_answer_cause_no_more_reviews() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let review: ReviewFn = Arc::new(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        });
        let clock = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let guard = Guard::new(review, clock);
        for n in 0..4 * MAX_REVIEWS {
            let token = format!("stranger-{n}");
            assert!(guard.check(Some(&token), "/metrics").now_or_never().is_none());
        }
        assert_eq!(asked.load(Ordering::Relaxed), MAX_REVIEWS);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::default();
        let now = Moment::default();
        for n in 0..2 * MAX_KEPT {
            let verdict = if n == 0 { Verdict::Allowed } else { Verdict::Unknown };
            kept.put(key(&n.to_string(), "/metrics"), verdict, now);
        }
        assert_eq!(kept.0.len(), MAX_KEPT);
        // Strangers do not push out whom the cluster allowed.
        assert_eq!(kept.get(&key("0", "/metrics"), now), Some(Verdict::Allowed));
        kept.put(key("late", "/metrics"), Verdict::Unknown, now + KEEP_ALLOWED);
        assert_eq!(kept.0.len(), 1, "what has ended goes");
    }

    #[test]
    fn passwords() {
        for (header, expect) in [
            ("Basic bWU6YWJj", Some("abc")),
            ("basic bWU6YTpi", Some("a:b")),
            ("Basic bWU6", None),
            ("Basic bWU=", None),
            ("Basic not base64", None),
            ("Bearer bWU6YWJj", None),
        ] {
            assert_eq!(password(header).as_deref(), expect, "{header:?}");
        }
    }

    #[test]
    fn bearer_tokens() {
        for (header, expect) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            assert_eq!(bearer(header), expect, "{header:?}");
        }
    }
}
