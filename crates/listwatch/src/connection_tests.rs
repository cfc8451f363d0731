//! Answers as a server sends them, piece by piece; time is paused.
#![expect(clippy::disallowed_methods, reason = "time is paused")]

use std::sync::Mutex;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::{Instant, timeout};

use super::*;
use crate::body::{IDLE_TIMEOUT, PAGE_TIMEOUT};
use crate::intake::{LENT_AFTER, LINES_AT_ONCE, LINES_PER_SECOND, Throttled};
use crate::lines::LARGE_LINE_BYTES;

const WATCH_SECONDS: u32 = 260;

/// The server's end of one answer.
struct Feed(UnboundedSender<Result<Frame<Bytes>, model::wire::WireError>>);

impl Feed {
    fn send(&self, text: impl Into<Bytes>) {
        // The client may have gone.
        let _ = self.0.unbounded_send(Ok(Frame::data(text.into())));
    }

    /// Sends this for ever, with a pause before each.
    async fn trickle(&self, text: &'static str, pause: Duration) {
        loop {
            tokio::time::sleep(pause).await;
            self.send(text);
        }
    }
}

/// A connection whose request is answered by the feed.
fn answered(intake: &Intake, request: Request, encoding: &'static str) -> (Connection, Feed) {
    let (sender, frames) = unbounded();
    let body = Mutex::new(Some(StreamBody::new(frames).boxed_unsync()));
    let wire = Wire::new(move |_| {
        let body = body.lock().unwrap().take().expect("one request");
        let response = Response::builder().header(CONTENT_ENCODING, encoding).body(body);
        futures::future::ready(Ok(response.unwrap())).boxed()
    });
    let kind = Kind::new("", "v1", "ConfigMap", "configmaps", true);
    let mut connection = Connection::new(wire, kind, Scope::default(), Form::Whole, intake.clone());
    connection.request(request, None, Duration::ZERO);
    (connection, Feed(sender))
}

fn watched(intake: &Intake) -> (Connection, Feed) {
    let (resource_version, timeout_seconds) = ("7".to_owned(), WATCH_SECONDS);
    answered(intake, Request::Watch { resource_version, timeout_seconds }, "identity")
}

fn streamed(intake: &Intake) -> (Connection, Feed) {
    answered(intake, Request::Stream { timeout_seconds: WATCH_SECONDS }, "identity")
}

fn listed(intake: &Intake) -> (Connection, Feed) {
    answered(intake, Request::List { continue_token: None, limit: None }, "identity")
}

fn paged(intake: &Intake) -> (Connection, Feed) {
    answered(intake, Request::List { continue_token: None, limit: Some(500) }, "identity")
}

/// The end of what comes, and after how long.
async fn end(connection: &mut Connection) -> (End, Duration) {
    let began = Instant::now();
    loop {
        if let Arrival::End(end, _) = connection.next().await {
            return (end, began.elapsed());
        }
    }
}

/// Lets connections read all that there is.
async fn read<'c>(connections: impl IntoIterator<Item = &'c mut Connection>) {
    for connection in connections {
        while timeout(Duration::from_millis(1), connection.next()).await.is_ok() {}
    }
}

#[tokio::test(start_paused = true)]
async fn lines_that_do_not_come_to_their_end_hold_up_no_other_cluster() {
    let intake = Intake::default();
    let one = intake.of_another_cluster();
    // Five of one cluster, and as many clusters with one each.
    for clusters in [vec![one; 5], (0..5).map(|_| intake.of_another_cluster()).collect()] {
        let (mut connections, feeds): (Vec<_>, Vec<_>) = clusters.iter().map(watched).unzip();
        for feed in &feeds {
            feed.send(vec![b'x'; LARGE_LINE_BYTES + 1]);
        }
        let hostile = async {
            futures::join!(
                futures::future::join_all(connections.iter_mut().map(end)),
                futures::future::join_all(
                    feeds.iter().map(|feed| feed.trickle("x", Duration::from_millis(400)))
                ),
            )
        };
        let healthy = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let (mut healthy, feed) = watched(&intake.of_another_cluster());
            assert!(matches!(healthy.next().await, Arrival::Opened));
            let began = Instant::now();
            for _ in 0..3 {
                feed.send(vec![b'y'; 400_000]);
            }
            feed.send("\n");
            let line = loop {
                match healthy.next().await {
                    Arrival::Line(line) => break line,
                    Arrival::More => {}
                    _ => panic!("a line"),
                }
            };
            assert_eq!(line.len(), 1_200_000);
            began.elapsed()
        };
        let took = tokio::select! {
            took = healthy => took,
            _ = hostile => panic!("they have no end"),
        };
        assert!(took <= 2 * LENT_AFTER, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_that_stall_hold_the_share_that_they_fill_but_not_for_long() {
    const STALLED: usize = 31 << 20;
    let intake = Intake::default();
    let all = intake.free_kib();
    let cluster = intake.of_another_cluster();
    let (mut connections, feeds): (Vec<_>, Vec<_>) = (0..5).map(|_| listed(&cluster)).unzip();
    for feed in &feeds {
        feed.send(vec![b'x'; STALLED]);
    }
    read(&mut connections).await;
    let come = |connection: &Connection| match &connection.state {
        State::Listing(page) => page.held_bytes(),
        _ => 0,
    };
    let buffered: usize = connections.iter().map(come).sum();
    let held = all - intake.free_kib();
    assert_eq!(buffered, STALLED);
    assert!(buffered <= held << 10, "{buffered} bytes in shares of {held} KiB");
    // Another cluster is listed meanwhile.
    let (mut other, feed) = paged(&intake.of_another_cluster());
    feed.send("{}");
    drop(feed);
    assert!(matches!(other.next().await, Arrival::Page(_)));
    let (ended, after) = end(&mut connections[0]).await;
    assert_eq!(ended, End::Idle);
    assert!(after <= LENT_AFTER * 5, "{after:?}");
    drop((connections, other));
    assert_eq!(intake.free_kib(), all);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_comes_slowly_and_goes_on_has_its_time() {
    let (mut connection, feed) = paged(&Intake::default());
    let goes_on = async {
        loop {
            feed.send(vec![b'x'; 70_000]);
            tokio::time::sleep(LENT_AFTER * 4).await;
        }
    };
    let (ended, after) = tokio::select! {
        ended = end(&mut connection) => ended,
        () = goes_on => unreachable!("it has no end"),
    };
    assert_eq!((ended, after), (End::Idle, PAGE_TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_pages_unfold_to_much_is_taken_in_at_a_bounded_rate() {
    let flooded = Intake::default();
    let own = async || {
        let began = Instant::now();
        let (mut connection, feed) = paged(&flooded);
        feed.send(vec![b'x'; 8 << 20]);
        drop(feed);
        loop {
            match connection.next().await {
                Arrival::Page(_) => return began.elapsed(),
                Arrival::More => {}
                other => panic!("a page, not {other:?}"),
            }
        }
    };
    (0..31).for_each(|_| flooded.page(8 << 20));
    let took = [own().await, own().await, own().await];
    assert_eq!(took[..2], [Duration::ZERO; 2], "what comes at once");
    assert!(took[2] >= Duration::from_millis(200), "{took:?}");
    assert_eq!(page_after(&flooded).await, Duration::ZERO, "of another cluster");
}

/// So many clusters, each with so many connections.
fn of_clusters(
    clusters: &[Intake],
    each: usize,
    answered: fn(&Intake) -> (Connection, Feed),
) -> (Vec<Connection>, Vec<Feed>) {
    clusters.iter().flat_map(|cluster| (0..each).map(move |_| answered(cluster))).unzip()
}

/// How long a page takes that comes at once.
async fn page_after(intake: &Intake) -> Duration {
    let began = Instant::now();
    let (mut connection, feed) = paged(&intake.of_another_cluster());
    feed.send("{}");
    drop(feed);
    assert!(matches!(connection.next().await, Arrival::Page(_)));
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn pages_that_come_slowly_hold_up_those_of_other_clusters_once_and_not_for_long() {
    let intake = Intake::default();
    let clusters: Vec<_> = (0..6).map(|_| intake.of_another_cluster()).collect();
    for most in [Duration::from_secs(11), LENT_AFTER] {
        let (mut connections, feeds) = of_clusters(&clusters, 2, paged);
        let goes_on = async |feed: &Feed| {
            feed.send(vec![b'x'; 600_000]);
            loop {
                tokio::time::sleep(LENT_AFTER * 4).await;
                feed.send(vec![b'x'; 70_000]);
            }
        };
        let healthy = async {
            tokio::time::sleep(LENT_AFTER).await;
            page_after(&intake).await
        };
        let took = tokio::select! {
            took = healthy => took,
            _ = futures::future::join_all(connections.iter_mut().map(end)) => panic!("some go on"),
            _ = futures::future::join_all(feeds.iter().map(goes_on)) => panic!("they have no end"),
        };
        assert!(took <= most, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_trickle_hold_up_no_other_cluster() {
    for (text, pause) in [("line\n", 900), ("line\n", 40), ("l", 900)] {
        let intake = Intake::default();
        let clusters: Vec<_> = (0..12).map(|_| intake.of_another_cluster()).collect();
        let (mut connections, feeds) = of_clusters(&clusters, 16, streamed);
        let hostile = async {
            let pause = Duration::from_millis(pause);
            futures::join!(
                futures::future::join_all(connections.iter_mut().map(end)),
                futures::future::join_all(feeds.iter().map(|feed| feed.trickle(text, pause)))
            )
        };
        let healthy = async {
            tokio::time::sleep(LENT_AFTER * 5).await;
            let (mut connection, feed) = streamed(&intake.of_another_cluster());
            let began = Instant::now();
            feed.send("line\n");
            while !matches!(connection.next().await, Arrival::Line(_)) {}
            began.elapsed()
        };
        let took = tokio::select! {
            took = healthy => took,
            _ = hostile => panic!("they have no end"),
        };
        assert!(took <= LENT_AFTER * 3, "{text:?} each {pause} ms: {took:?}");
    }
}

/// Two connections of a cluster, whose lines are changes, or bring a list nothing new.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_flooded_with_changes_is_taken_in_at_a_bounded_rate() {
    for ask in [watched, streamed] {
        let intake = Intake::default();
        let flooded = intake.of_another_cluster();
        let (mut connections, feeds): (Vec<_>, Vec<_>) = (0..2).map(|_| ask(&flooded)).unzip();
        for _ in 0..1000 {
            feeds.iter().for_each(|feed| feed.send("line\n".repeat(50)));
        }
        let mut come = 0;
        let began = Instant::now();
        while let Some(left) = (LENT_AFTER * 10).checked_sub(began.elapsed()) {
            let [one, other] = &mut connections[..] else { unreachable!("there are two") };
            let next = async {
                tokio::select! {
                    arrival = one.next() => (arrival, 0),
                    arrival = other.next() => (arrival, 1),
                }
            };
            let Ok((arrival, number)) = timeout(left, next).await else { break };
            if matches!(arrival, Arrival::Line(_)) {
                come += 1;
                // Of a watch each line counts anyhow.
                if connections[number].share.is_some() {
                    connections[number].repeats();
                }
            }
        }
        let expect = (LINES_AT_ONCE + 10 * LINES_PER_SECOND) as usize;
        assert!((expect - 200..expect + 200).contains(&come), "{come}");
        assert_eq!(flooded.throttled(), [Throttled::Changes]);
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(flooded.throttled(), []);
        let (mut other, feed) = ask(&intake.of_another_cluster());
        feed.send("line\n");
        assert!(matches!(other.next().await, Arrival::Opened));
        assert!(matches!(other.next().now_or_never(), Some(Arrival::Line(_))));
        assert_eq!(intake.throttled(), []);
    }
}

/// The objects of a list are no changes, and wait for none.
#[tokio::test(start_paused = true)]
async fn a_list_that_brings_objects_has_no_rate() {
    let flooded = Intake::default();
    (0..100 * LINES_AT_ONCE).for_each(|_| flooded.line(0));
    let (mut connection, feed) = streamed(&flooded);
    feed.send("line\n".repeat(50_000));
    assert!(matches!(connection.next().await, Arrival::Opened));
    let began = Instant::now();
    let mut come = 0;
    while come < 50_000 {
        come += usize::from(matches!(connection.next().await, Arrival::Line(_)));
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn only_lines_keep_a_watch_alive() {
    let (mut connection, feed) = watched(&Intake::default());
    let pause = Duration::from_secs(10);
    let (ended, after) = tokio::select! {
        ended = end(&mut connection) => ended,
        () = feed.trickle("\n", pause) => unreachable!("it has no end"),
    };
    assert_eq!((ended, after), (End::Idle, IDLE_TIMEOUT));
    let (mut connection, feed) = watched(&Intake::default());
    feed.send("\n".repeat(200 << 10));
    assert_eq!(end(&mut connection).await.0, End::Garbage);
    // One that goes on and on has had its time; it is asked for again.
    let (mut connection, feed) = watched(&Intake::default());
    let (ended, after) = tokio::select! {
        ended = end(&mut connection) => ended,
        () = feed.trickle("line\n", pause) => unreachable!("it has no end"),
    };
    assert_eq!(ended, End::Closed);
    let most = Duration::from_secs(WATCH_SECONDS.into()) + Duration::from_secs(60);
    assert!(after >= most && after <= most + pause, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn an_encoding_that_nobody_asked_for_is_garbage() {
    let request = Request::Stream { timeout_seconds: WATCH_SECONDS };
    let (mut connection, _feed) = answered(&Intake::default(), request, "gzip");
    let Arrival::End(End::Garbage, Some(why)) = connection.next().await else { panic!("an end") };
    assert!(why.contains("in the encoding \"gzip\""), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_made_is_refused() {
    let version = "7".repeat(70_000);
    let (mut connection, _feed) = watched(&Intake::default());
    let watch = |resource_version: &str| Request::Watch {
        resource_version: resource_version.to_owned(),
        timeout_seconds: WATCH_SECONDS,
    };
    for (request, selector) in [(watch(&version), None), (watch("7"), Some(version.clone()))] {
        connection.request(request, selector, Duration::ZERO);
        let Arrival::End(end, Some(why)) = connection.next().await else { panic!("an end") };
        assert_eq!(end, End::Refused(400));
        assert!(why.contains("uri too long"), "{why}");
    }
}
