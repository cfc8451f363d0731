//! Informers of clusters that send too much, contradict themselves, or come to no end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cache::ResourceVersion;
use listwatch::{Form, Scope, Throttled};
use model::testing::PausedClock;
use model::{Budget, Clock};
use tracing::{Level, Metadata, span};

use super::state::{ENDLESS_AFTER, FAILING_AFTER, SYNC_PATIENCE};
use super::tests::{PAGED, STREAM, settle, told};
use super::{Informer, Subscription};
use crate::testing::{PATIENCE, Server, Watch, config_map, informer, informer_with};
use extent::RangeScope;
use extent::{Account, MENTIONED_FOR_EACH, Overrun};

/// An informer of everything, with a budget of three objects.
fn small_informer() -> (Arc<Informer>, Arc<Account>, Server) {
    let budget = Budget { max_objects: 3, ..Budget::default() };
    let (informer, account, server) = informer_with(Form::Whole, Scope::default(), budget);
    std::mem::forget(informer.require(RangeScope::Whole));
    (informer, account, server)
}

/// Waits until the informer has ended.
async fn ended(events: &mut Subscription) {
    while tokio::time::timeout(PATIENCE, events.next()).await.expect("an end").is_some() {}
}

#[tokio::test(start_paused = true)]
async fn an_informer_ends_when_its_cluster_is_overdrawn() {
    for paged in [false, true] {
        let (informer, account, mut server) = small_informer();
        let mut events = informer.subscribe().await;
        let objects = ["a", "b", "c", "d", "e"].map(|name| config_map(name, 3));
        let asked = server.expect(STREAM).await;
        if paged {
            asked.refuse(422, "Invalid");
            server.expect(PAGED).await.page(5, "more", &objects);
        } else {
            asked.list(5, &objects);
        }
        ended(&mut events).await;
        assert_eq!(account.overrun(), Some(Overrun::Objects(3)), "paged: {paged}");
        assert_eq!(informer.state().store.len(), 4, "the rest was not taken in");
        server.quiet(Duration::from_secs(600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn changes_count_against_the_budget_like_lists() {
    let (informer, account, mut server) = small_informer();
    let mut events = informer.subscribe().await;
    let objects = ["a", "b", "c"].map(|name| config_map(name, 3));
    let list = server.expect(STREAM).await.list(5, &objects);
    told(&mut events, "!+a@3 !+b@3 !+c@3 synced").await;
    list.event("DELETED", &config_map("a", 6));
    list.event("ADDED", &config_map("d", 7));
    told(&mut events, "-a@6 +d@7").await;
    list.event("ADDED", &config_map("e", 8));
    ended(&mut events).await;
    assert_eq!(account.overrun(), Some(Overrun::Objects(3)));
}

#[tokio::test(start_paused = true)]
async fn deletions_of_what_nobody_knew_leave_nothing_behind() {
    let (informer, mut server) = informer();
    let mut events = informer.subscribe().await;
    let list = server.expect(STREAM).await.list(5, &[config_map("a", 3)]);
    told(&mut events, "!+a@3 synced").await;
    for number in 0..64 {
        let mut unknown = config_map(&format!("x{number}"), 6 + number);
        unknown["metadata"]["labels"]["a"] = format!("{number}{}", "x".repeat(250_000)).into();
        list.event("DELETED", &unknown);
    }
    list.event("DELETED", &config_map("a", 90));
    list.event("ADDED", &config_map("b", 91));
    told(&mut events, "-a@90 +b@91").await;
    let takes = informer.state().store.size().cache_bytes;
    assert!(takes < 16 << 10, "{takes}");
    assert_eq!(informer.state().seen(), Some(ResourceVersion::new("91")));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_repeats_itself_for_ever_is_an_overrun() {
    let (informer, account, mut server) = small_informer();
    let mut events = informer.subscribe().await;
    let stream = server.expect(STREAM).await.watch();
    for version in 0..100 {
        stream.event("MODIFIED", &config_map("a", version));
    }
    ended(&mut events).await;
    let most = 3 * MENTIONED_FOR_EACH;
    assert_eq!(account.overrun(), Some(Overrun::Mentioned(most)));
}

/// Bookmarks, deletions of what nobody knew, and one object again and again are no list.
#[tokio::test(start_paused = true)]
async fn a_stream_with_many_times_as_many_lines_as_objects_makes_no_progress() {
    let (informer, mut server) = informer();
    let state = informer.state();
    let sends: [fn(&Watch, u64); 3] = [
        |stream, version| stream.bookmark(version),
        |stream, version| stream.event("DELETED", &config_map("unknown", version)),
        |stream, version| stream.event("MODIFIED", &config_map("a", version)),
    ];
    for send in sends {
        let stream = server.expect(STREAM).await.watch();
        (1..=11_000).for_each(|version| send(&stream, version));
        stream.hung_up().await;
        let error = state.condition().error.unwrap();
        assert!(error.contains("many times as many lines as objects"), "{error}");
    }
    assert_eq!(state.intake.throttled(), [Throttled::Changes]);
    // The changes of a kind that changes so much do not come between pages.
    server.expect(PAGED).await.page(5, "", &[config_map("a", 4)]);
    settle().await;
    assert!(state.is_available() && state.condition().error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_many_objects_has_no_rate() {
    let (informer, mut server) = informer();
    let objects: Vec<_> = (0..11_000).map(|number| config_map(&format!("o{number}"), 3)).collect();
    let _list = server.expect(STREAM).await.list(5, &objects);
    settle().await;
    let state = informer.state();
    assert!(state.is_available() && state.store.len() == objects.len());
    assert_eq!(state.intake.throttled(), []);
}

/// An object that takes so many bytes of cache, at least.
fn large(name: &str, version: u64, bytes: usize) -> serde_json::Value {
    let mut rng = fastrand::Rng::with_seed(version);
    let mut map = config_map(name, version);
    map["data"]["noise"] = (0..bytes).map(|_| rng.alphanumeric()).collect::<String>().into();
    map
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_subscriber_counts_against_the_budget() {
    const MOST: usize = 1 << 20;
    for is_slow in [false, true] {
        let budget = Budget { max_cache_bytes: MOST, ..Budget::default() };
        let (informer, account, mut server) = informer_with(Form::Whole, Scope::default(), budget);
        std::mem::forget(informer.require(RangeScope::Whole));
        let mut subscriber = informer.subscribe().await;
        let list = server.expect(STREAM).await.list(5, &[]);
        told(&mut subscriber, "synced").await;
        // The store has one object at a time.
        for number in 0..40 {
            let (name, version) = (format!("o{number}"), 6 + 2 * number);
            let deleted = version + 1;
            list.event("ADDED", &large(&name, version, MOST / 20));
            list.event("DELETED", &large(&name, deleted, MOST / 20));
            if !is_slow {
                told(&mut subscriber, &format!("+{name}@{version} -{name}@{deleted}")).await;
            }
        }
        // What was taken counts no more.
        if !is_slow {
            list.event("ADDED", &large("last", 99, MOST - MOST / 20));
        }
        settle().await;
        assert_eq!(account.overrun(), is_slow.then_some(Overrun::CacheBytes(MOST)));
    }
}

/// What waits of an object counts, whatever uid the server gives it.
#[tokio::test(start_paused = true)]
async fn an_object_with_the_uid_of_another_waits_as_one_event() {
    const MOST: usize = 1 << 20;
    let budget = Budget { max_cache_bytes: MOST, ..Budget::default() };
    let (informer, account, mut server) = informer_with(Form::Whole, Scope::default(), budget);
    std::mem::forget(informer.require(RangeScope::Whole));
    let mut subscriber = informer.subscribe().await;
    let list = server.expect(STREAM).await.list(5, &[config_map("a", 3)]);
    told(&mut subscriber, "!+a@3 synced").await;
    list.event("MODIFIED", &config_map("a", 6));
    let b = |version, bytes| {
        let mut object = large("b", version, bytes);
        object["metadata"]["uid"] = config_map("a", 3)["metadata"]["uid"].clone();
        object
    };
    for version in 7..47 {
        list.event("MODIFIED", &b(version, MOST / 20));
    }
    settle().await;
    assert_eq!(account.overrun(), None);
    told(&mut subscriber, "~a@6 +b@46").await;
    // A state that only the mailbox keeps counts.
    list.event("MODIFIED", &config_map("a", 47));
    list.event("MODIFIED", &b(48, MOST / 3 * 2));
    settle().await;
    assert_eq!(account.overrun(), None);
    list.event("DELETED", &b(49, MOST / 3 * 2));
    list.event("ADDED", &large("c", 50, MOST / 3 * 2));
    settle().await;
    assert_eq!(account.overrun(), Some(Overrun::CacheBytes(MOST)));
}

#[tokio::test(start_paused = true)]
async fn what_has_come_of_a_line_or_page_counts_against_the_budget() {
    const MOST: usize = 1 << 20;
    for (bytes, overrun) in [(MOST / 2, None), (2 * MOST, Some(Overrun::CacheBytes(MOST)))] {
        for paged in [false, true] {
            let budget = Budget { max_cache_bytes: MOST, ..Budget::default() };
            let (informer, account, mut server) =
                informer_with(Form::Whole, Scope::default(), budget);
            std::mem::forget(informer.require(RangeScope::Whole));
            let mut asked = server.expect(STREAM).await;
            if paged {
                asked.refuse(422, "Invalid");
                asked = server.expect(PAGED).await;
            }
            let answer = asked.watch();
            answer.begin(&"x".repeat(bytes));
            settle().await;
            // Of a page, only what comes before its share bounds it.
            let overrun = overrun.filter(|_| !paged);
            assert_eq!(account.overrun(), overrun, "{bytes} bytes, paged: {paged}");
            if overrun.is_none() {
                // It breaks off, and what has come of it counts no more.
                answer.broken();
                let again = server.asked().await.watch();
                again.begin(&"x".repeat(MOST - (100 << 10)));
                settle().await;
                assert_eq!(account.overrun(), None, "paged: {paged}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_may_be_longer_than_what_is_kept_of_it() {
    const MOST: usize = 1 << 20;
    let budget = Budget { max_cache_bytes: MOST, ..Budget::default() };
    let (informer, account, mut server) = informer_with(Form::Whole, Scope::default(), budget);
    std::mem::forget(informer.require(RangeScope::Whole));
    server.expect(STREAM).await.refuse(422, "Invalid");
    let objects: Vec<_> = (0..20)
        .map(|number| {
            let mut map = config_map(&format!("o{number}"), 3);
            // The cache leaves that out.
            map["metadata"]["managedFields"] =
                serde_json::json!([{"manager": "m".repeat(MOST / 10)}]);
            map
        })
        .collect();
    server.expect(PAGED).await.page(5, "", &objects);
    settle().await;
    assert_eq!((account.overrun(), informer.state().store.len()), (None, objects.len()));
}

#[tokio::test(start_paused = true)]
async fn a_later_list_that_does_not_end_is_a_failure() {
    let (informer, _, mut server) = informer_with(Form::Whole, Scope::default(), Budget::default());
    let (state, clock) = (informer.state(), PausedClock::new());
    let scope = informer.require(RangeScope::Whole);
    let _list = server.expect(STREAM).await.list(5, &[config_map("a", 3)]);
    settle().await;
    assert!(state.is_available());
    // A range that is gained again is listed anew.
    drop(scope);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let _scope = informer.require(RangeScope::Whole);
    let stream = server.expect(STREAM).await.watch();
    let began = clock.now();
    for _ in 0..10 {
        assert_eq!(state.failure(began + ENDLESS_AFTER / 2), None);
        stream.bookmark(9);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let why = state.failure(began + ENDLESS_AFTER + Duration::from_secs(1)).unwrap();
    assert_eq!(why, "its list has not ended within 900s");
    stream.initial_end(9);
    settle().await;
    assert_eq!(state.failure(began + ENDLESS_AFTER * 2), None);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_contradicts_itself_fails_and_starts_over() {
    let (informer, mut server) = informer();
    server.expect(STREAM).await.refuse(422, "Invalid");
    let error = || informer.state().condition().error.unwrap_or_default();
    let mut twice = config_map("b", 3);
    twice["metadata"]["uid"] = config_map("a", 3)["metadata"]["uid"].clone();
    server.expect(PAGED).await.page(5, "", &[config_map("a", 3), twice]);
    let again = server.expect(PAGED).await;
    assert!(error().contains("twice, with uid \"uid-a\""), "{}", error());
    again.page(5, "token", &[config_map("a", 3)]);
    let next = server.asked().await;
    next.page(5, "token", &[config_map("b", 3)]);
    let again = server.expect(PAGED).await;
    assert!(error().contains("repeats a continue token"), "{}", error());
    again.page(5, "", &[config_map("a", 3), config_map("b", 3)]);
    settle().await;
    assert_eq!(error(), "");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_gives_two_objects_one_uid_fails() {
    let (informer, mut server) = informer();
    let stream = server.expect(STREAM).await.watch();
    let mut twice = config_map("b", 3);
    twice["metadata"]["uid"] = config_map("a", 3)["metadata"]["uid"].clone();
    stream.event("ADDED", &config_map("a", 3));
    stream.event("ADDED", &config_map("a", 3));
    settle().await;
    assert_eq!(informer.state().condition().error, None, "it changed meanwhile");
    stream.event("ADDED", &twice);
    settle().await;
    let error = informer.state().condition().error.unwrap();
    assert!(error.contains("twice, with uid \"uid-a\""), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_namespace_is_not_taken_in() {
    let scope = Scope { namespace: Some("ours".to_owned()), ..Scope::default() };
    let (informer, _, mut server) = informer_with(Form::Whole, scope, Budget::default());
    std::mem::forget(informer.require(RangeScope::Whole));
    server.asked().await.list(5, &[config_map("a", 3)]);
    server.asked().await;
    let state = informer.state();
    let error = state.condition().error.unwrap();
    assert!(error.contains("in namespace ours and sends one in namespace \"ns\""), "{error}");
    assert!(state.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_long_is_overdue_and_one_that_fails_for_long_is_a_failure() {
    let (informer, mut server) = informer();
    let state = informer.state();
    let clock = PausedClock::new();
    let began = clock.now();
    let stream = server.expect(STREAM).await.watch();
    stream.event("ADDED", &config_map("a", 3));
    settle().await;
    assert!(!state.is_overdue(began + SYNC_PATIENCE - Duration::from_secs(1)));
    assert!(state.is_overdue(began + SYNC_PATIENCE + Duration::from_secs(1)));
    assert_eq!(state.failure(began + SYNC_PATIENCE * 2), None, "it may be long");
    assert!(state.failure(began + ENDLESS_AFTER).unwrap().contains("has not ended within 900s"));
    stream.broken();
    server.asked().await.refuse(500, "InternalError");
    let again = server.asked().await;
    let failed = clock.now();
    assert_eq!(state.failure(failed), None, "not at once");
    // An answer that begins is no list.
    let stream = again.watch();
    settle().await;
    assert!(state.failure(failed + FAILING_AFTER).unwrap().contains("500"));
    stream.event("ADDED", &config_map("a", 3));
    stream.initial_end(5);
    settle().await;
    assert_eq!(state.failure(failed + FAILING_AFTER), None);
    assert!(!state.is_overdue(began + SYNC_PATIENCE * 2));
}

/// Else nobody would hear that its changes never come.
#[tokio::test(start_paused = true)]
async fn watches_that_end_as_soon_as_they_begin_are_a_failure() {
    for why in ["connection reset", "ends its watch as soon as it begins"] {
        let (informer, mut server) = informer();
        let (state, clock) = (informer.state(), PausedClock::new());
        let end =
            |watch: Watch| if why == "connection reset" { watch.broken() } else { drop(watch) };
        server.expect(STREAM).await.list(5, &[]).broken();
        for _ in 0..8 {
            end(server.asked().await.watch());
        }
        let again = server.asked().await;
        let error = state.failure(clock.now()).unwrap();
        assert!(error.contains(why), "{error}");
        let watch = again.watch();
        settle().await;
        assert_eq!(state.failure(clock.now()), None, "it may last");
        watch.bookmark(6);
        settle().await;
        watch.broken();
        settle().await;
        assert!(state.condition().error.is_some());
        assert_eq!(state.failure(clock.now()), None, "it brought something");
    }
}

#[tokio::test(start_paused = true)]
async fn versions_that_no_request_can_carry_are_not_watched_from() {
    let (informer, mut server) = informer();
    let list = server.expect(STREAM).await.list(5, &[]);
    let long = "7".repeat(70_000);
    let bookmark = serde_json::json!({"metadata": {"resourceVersion": long}});
    list.event("BOOKMARK", &bookmark);
    let again = server.asked().await;
    assert!(again.line.ends_with("resourceVersion=5"), "{again:?}");
    let error = || informer.state().condition().error.unwrap_or_default();
    assert!(error().contains("more than 64 KiB") || error().contains("65536"), "{}", error());
    // A version that can be asked for, and that the server does not take.
    let watch = again.watch();
    watch.event("BOOKMARK", &serde_json::json!({"metadata": {"resourceVersion": "abc"}}));
    settle().await;
    watch.broken();
    let again = server.asked().await;
    assert!(again.line.ends_with("resourceVersion=abc"), "{again:?}");
    again.refuse(400, "BadRequest");
    // One that is too long for a version, and not for a line.
    let list = server.expect(STREAM).await.list(8, &[]);
    list.event("BOOKMARK", &serde_json::json!({"metadata": {"resourceVersion": &long[..300]}}));
    let again = server.asked().await;
    assert!(again.line.ends_with("resourceVersion=8"), "{again:?}");
    assert!(error().contains("more than 253 bytes"), "{}", error());
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_after_which_everything_is_listed_again() {
    let (informer, mut server) = informer();
    let clock = PausedClock::new();
    let mut events = informer.subscribe().await;
    let objects = ["a", "b"].map(|name| config_map(name, 3));
    server.expect(STREAM).await.list(5, &objects).panic();
    told(&mut events, "!+a@3 !+b@3 synced").await;
    let asked = clock.now();
    // And again and again.
    for _ in 0..8 {
        server.expect(STREAM).await.watch().panic();
    }
    let again = server.expect(STREAM).await;
    let took = clock.now().since(asked);
    assert!(took >= Duration::from_secs(15), "{took:?}");
    let state = informer.state();
    let error = state.condition().error.unwrap();
    assert_eq!(error, "the informer panicked: as the test wants it");
    assert_eq!(state.failure(clock.now() + FAILING_AFTER), Some(error));
    let list = again.list(9, &[config_map("a", 8)]);
    told(&mut events, "~a@8 -b@3").await;
    list.event("ADDED", &config_map("c", 10));
    told(&mut events, "+c@10").await;
    assert_eq!(state.condition().error, None);
}

/// Counts what a log is told.
#[derive(Clone, Default)]
struct Told(Arc<AtomicUsize>);

impl tracing::Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_after_each_line_is_asked_for_seldom_and_fills_no_log() {
    let log = Told::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let (_informer, mut server) = informer();
    let mut watch = server.expect(STREAM).await.list(5, &[]);
    let clock = PausedClock::new();
    let began = clock.now();
    for round in 0..40_u64 {
        watch.bookmark(6 + round);
        settle().await;
        watch.broken();
        server.asked().await.refuse(500, "InternalError");
        watch = server.asked().await.watch();
        settle().await;
    }
    let took = clock.now().since(began);
    assert!(took >= Duration::from_secs(15 * 60), "80 requests within {took:?}");
    let told = log.0.load(Ordering::Relaxed);
    let most = 2 * (1 + took.as_secs() / 60);
    assert!(told as u64 <= most, "{told} in {took:?}");
}
