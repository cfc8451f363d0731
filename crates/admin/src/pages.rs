//! Large pages, which are those of metrics and the views: rendered apart from the threads that work, and compressed
//! for whoever asks for it.
//!
//! With a thousand clusters they have megabytes, so a few are rendered at a time and the others wait. Pages that are
//! taken slowly are kept up to a bound in bytes: then the oldest is broken off, so that nobody who reads quickly waits
//! for those who do not.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{StreamExt, stream};
use tokio::sync::Semaphore;

/// How many pages are rendered at once: one for each of two Prometheus servers. Others wait, and connections
/// are bounded.
const MAX_RENDERED: usize = 2;
/// The most bytes of pages that wait for their clients: two or three of those with a thousand clusters, or a few
/// dozen compressed ones.
const MAX_KEPT_BYTES: usize = 32 << 20;
/// A client gets so many bytes of a page at once. They are copied, so that the page itself can be given up.
const PART_BYTES: usize = 64 << 10;

/// Renders pages. Clones share the places and the room.
#[derive(Clone, Debug)]
pub(crate) struct LargePages {
    places: Arc<Semaphore>,
    kept: Kept,
}

impl Default for LargePages {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_RENDERED)), kept: Kept::default() }
    }
}

/// The pages that clients have yet to take, the oldest first. Clones share them.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<VecDeque<Weak<Page>>>>);

/// A page while a client takes it; empty once others have its room.
#[derive(Debug)]
struct Page(Mutex<Vec<u8>>);

/// A page that its client took too slowly.
#[derive(Debug, thiserror::Error)]
#[error(
    "the page was taken so slowly that others needed its room; fix: ask for it compressed, or again"
)]
struct TooSlow;

impl Kept {
    /// Keeps a page until its client has taken it, or others need its room.
    fn keep(&self, text: Vec<u8>) -> Arc<Page> {
        let page = Arc::new(Page(Mutex::new(text)));
        let mut pages = self.0.lock().expect("no holder of this lock panics");
        pages.retain(|page| page.strong_count() > 0);
        pages.push_back(Arc::downgrade(&page));
        let sizes = pages.iter().filter_map(Weak::upgrade).map(|page| page.text().capacity());
        let mut bytes: usize = sizes.sum();
        // The newest stays, whatever its size.
        while bytes > MAX_KEPT_BYTES && pages.len() > 1 {
            let oldest = pages.pop_front().and_then(|oldest| oldest.upgrade());
            let given_up = oldest.map(|oldest| std::mem::take(&mut *oldest.text()));
            bytes -= given_up.map_or(0, |text| text.capacity());
        }
        page
    }
}

impl Page {
    fn text(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no holder of this lock panics")
    }

    fn part(&self, from: usize) -> Result<Bytes, TooSlow> {
        let text = self.text();
        let to = text.len().min(from + PART_BYTES);
        text.get(from..to).map(Bytes::copy_from_slice).ok_or(TooSlow)
    }

    /// The body of an answer, and its length.
    fn body(self: Arc<Self>) -> (Body, usize) {
        let length = self.text().len();
        let parts = stream::iter((0..length).step_by(PART_BYTES));
        (Body::from_stream(parts.map(move |from| self.part(from))), length)
    }
}

impl LargePages {
    /// Answers a request with these headers.
    pub(crate) async fn answer(
        self,
        headers: &HeaderMap,
        media_type: &'static str,
        render: impl FnOnce() -> String + Send + 'static,
    ) -> Response {
        let is_compressed = accepts_gzip(headers);
        let place = self.places.acquire_owned().await.expect("it is never closed");
        let page = tokio::task::spawn_blocking(move || {
            // Kept until it is rendered, even if nobody waits for the page any more.
            let _place = place;
            let text = render();
            if is_compressed { gzip(text.as_bytes()) } else { Ok(text.into_bytes()) }
        });
        let Ok(Ok(page)) = page.await else {
            let text = "the page cannot be rendered, a defect of the manager: see the log\n";
            return (StatusCode::INTERNAL_SERVER_ERROR, text).into_response();
        };
        let (body, length) = self.kept.keep(page).body();
        let headers = [(CONTENT_TYPE, media_type), (VARY, "accept, accept-encoding")];
        let mut response = (headers, body).into_response();
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        if is_compressed {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// Whether the client takes gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = parts.filter_map(|part| part.split_once('=')).any(|(name, weight)| {
            name.eq_ignore_ascii_case("q") && weight.parse::<f32>() == Ok(0.0)
        });
        is_gzip && !is_refused
    })
}

fn gzip(text: &[u8]) -> std::io::Result<Vec<u8>> {
    // The fastest level already leaves a twentieth.
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 16), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Condvar;
    use std::time::Duration;

    use flate2::read::GzDecoder;
    use futures::future::join_all;
    use http_body_util::BodyExt;

    use super::*;

    async fn ask(
        pages: &LargePages,
        accepts: &str,
        render: impl FnOnce() -> String + Send + 'static,
    ) -> (Option<String>, Vec<u8>) {
        let accepts = HeaderValue::from_str(accepts).unwrap();
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, accepts)]);
        let answer = pages.clone().answer(&headers, "text/plain", render).await;
        let coding = answer.headers().get(CONTENT_ENCODING).map(|c| c.to_str().unwrap().to_owned());
        assert_eq!(answer.headers()[VARY], "accept, accept-encoding");
        (coding, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_page_is_compressed_for_whoever_asks_and_has_the_same_text() {
        let pages = LargePages::default();
        let render = || "leasehold_gauge 0\n".repeat(200);
        let (coding, plain) = ask(&pages, "identity", render).await;
        assert_eq!((coding, plain.as_slice()), (None, render().as_bytes()));
        for accepts in ["gzip", "deflate, GZIP;q=0.5", "br, gzip;q=1.0"] {
            let (coding, packed) = ask(&pages, accepts, render).await;
            assert_eq!(coding.as_deref(), Some("gzip"), "{accepts}");
            assert!(packed.len() * 5 < plain.len(), "{} of {}", packed.len(), plain.len());
            let mut text = Vec::new();
            GzDecoder::new(&*packed).read_to_end(&mut text).unwrap();
            assert_eq!(text, plain, "{accepts}");
        }
        for accepts in [
            "",
            "br",
            "gzip;q=0",
            "gzip; q=0.0, br",
            "GZIP ;Q=0.000",
            "gzip;q=0;x=1",
            "*, gzip;q=0",
        ] {
            assert_eq!(ask(&pages, accepts, render).await, (None, plain.clone()), "{accepts}");
        }
    }

    #[tokio::test]
    async fn who_takes_a_page_slowly_loses_it_once_others_need_the_room() {
        let kept = Kept::default();
        let take = |bytes: usize| kept.keep(vec![b'x'; bytes]).body().0;
        let third = MAX_KEPT_BYTES / 3;
        let mut pages: Vec<_> = [MAX_KEPT_BYTES + 1, third, third].map(take).into();
        let first = pages.remove(0).collect().await.unwrap_err();
        assert!(first.to_string().contains("others needed its room; fix: "), "{first}");
        drop(pages.remove(0));
        pages.extend([third, third].map(take));
        for page in pages {
            assert_eq!(page.collect().await.unwrap().to_bytes().len(), third, "there is room");
        }
        assert!(kept.0.lock().unwrap().iter().all(|page| page.strong_count() == 0));
    }

    #[tokio::test]
    async fn a_few_pages_are_rendered_at_once_and_all_in_the_end() {
        let pages = LargePages::default();
        // How many are being rendered, and how many ever were at once.
        let inside = Arc::new((Mutex::new((0_usize, 0_usize)), Condvar::new()));
        // It takes as long as somebody needs to come in beside as many as are allowed.
        let render = || {
            let inside = Arc::clone(&inside);
            move || {
                let (inside, changed) = &*inside;
                let mut counts = inside.lock().unwrap();
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
                changed.notify_all();
                let too_many = |counts: &mut (usize, usize)| counts.1 <= MAX_RENDERED;
                let waited =
                    changed.wait_timeout_while(counts, Duration::from_millis(200), too_many);
                waited.unwrap().0.0 -= 1;
                "slow".to_owned()
            }
        };
        let found = join_all((0..MAX_RENDERED + 2).map(|_| ask(&pages, "gzip", render()))).await;
        assert!(found.iter().all(|page| *page == found[0]));
        // This test has one thread: had they been rendered there, it would have been one at a time.
        assert_eq!(inside.0.lock().unwrap().1, MAX_RENDERED);
    }
}
