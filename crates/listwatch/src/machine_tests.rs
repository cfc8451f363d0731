//! The protocol, played from scripts.

use super::*;

fn at(millis: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(millis))
}

/// Plays a script against a machine and writes down what it does.
///
/// `change N`, `bookmark N`, `end N` (initial events end) and `garbage` are lines; `page N` and
/// `page N next` are pages with an object, `empty N next` one without; `closed`, `lost`, `idle`,
/// `expired`, `large`, `endless`, `panic`, `status N` end a request; `pass MS` lets time go by; `restart` and `paged` ask for
/// a list.
fn play(script: &str) -> String {
    let mut machine = Machine::new(fastrand::Rng::with_seed(1));
    let mut now = 0;
    let mut log = Vec::new();
    let begin = |machine: &mut Machine, now: u64, log: &mut Vec<String>| {
        let (request, anew) = machine.begin(at(now));
        log.push(match request {
            Request::Stream { .. } => "stream".to_owned(),
            Request::List { continue_token, limit } => {
                let token = continue_token.unwrap_or_default();
                let limit = match limit {
                    None => "all".to_owned(),
                    Some(PAGE_LIMIT) => String::new(),
                    Some(fewer) => format!("/{fewer}"),
                };
                format!("list[{token}]{limit}")
            }
            Request::Watch { resource_version, .. } => format!("watch@{resource_version}"),
        });
        if anew {
            log.push("anew".into());
        }
    };
    begin(&mut machine, now, &mut log);
    for step in script.split(", ") {
        let mut words = step.split(' ');
        let (word, arg) = (words.next().unwrap(), words.next().unwrap_or_default());
        let verdict = match word {
            "pass" => {
                now += arg.parse::<u64>().unwrap();
                continue;
            }
            "restart" | "paged" => {
                machine.restart();
                if word == "paged" {
                    machine.page_next();
                }
                begin(&mut machine, now, &mut log);
                continue;
            }
            "change" => machine.line(Signal::Change(arg)),
            "bookmark" => {
                machine.line(Signal::Bookmark { resource_version: arg, initial_end: false })
            }
            "end" => machine.line(Signal::Bookmark { resource_version: arg, initial_end: true }),
            "garbage" => Progress::Restart(End::Garbage),
            "page" | "empty" => {
                let next = words.next().map(str::to_owned);
                match machine.page(arg, next, usize::from(word == "page")) {
                    Progress::Restart(end) => Progress::Restart(end),
                    progress => {
                        if progress == Progress::Synced {
                            log.push("synced".into());
                        }
                        Progress::Restart(End::Page)
                    }
                }
            }
            "expired" => Progress::Restart(End::Expired),
            "large" => Progress::Restart(End::TooLarge),
            "endless" => Progress::Restart(End::Endless),
            "panic" => Progress::Restart(End::Panicked),
            "closed" => Progress::Restart(End::Closed),
            "lost" => Progress::Restart(End::Lost),
            "idle" => Progress::Restart(End::Idle),
            "status" => Progress::Restart(End::Refused(arg.parse().unwrap())),
            other => panic!("{other}"),
        };
        match verdict {
            Progress::Continue => {}
            Progress::Synced => log.push("synced".into()),
            Progress::Restart(end) => {
                let wait = machine.end(end, at(now));
                if !wait.is_zero() {
                    log.push("wait".into());
                }
                begin(&mut machine, now, &mut log);
            }
        }
    }
    log.join(" ")
}

#[test]
fn the_protocol() {
    for (script, expect) in [
        // The ordinary course: a streamed list, a watch that ends by its timeout and resumes.
        ("change 3, end 5, change 7, pass 5000, closed", "stream anew synced watch@7"),
        ("end 5, bookmark 9, pass 5000, closed", "stream anew synced watch@9"),
        ("end 5, change 6, lost, change 8, lost", "stream anew synced wait watch@6 wait watch@8"),
        ("end 5, pass 200000, idle", "stream anew synced wait watch@5"),
        // Nothing is heard again and again: the server may be a restored one, which has no such version yet.
        (
            "end 9, idle, idle, end 5, idle, idle, end 6, idle, idle, idle",
            "stream anew synced wait watch@9 wait stream anew synced wait watch@5 wait stream anew synced \
             wait watch@6 wait watch@6 wait watch@6",
        ),
        (
            "end 9, idle, bookmark 9, idle, idle, end 5",
            "stream anew synced wait watch@9 wait watch@9 wait stream anew synced",
        ),
        // A watch that the server closes at once is not asked for in a hot loop.
        ("end 5, closed, closed", "stream anew synced wait watch@5 wait watch@5"),
        // Too old: list again at once; too old again: with a pause.
        ("end 5, change 6, expired, expired", "stream anew synced stream anew wait stream anew"),
        (
            "end 5, pass 5000, closed, expired, end 9",
            "stream anew synced watch@5 stream anew synced",
        ),
        // The server refuses to stream: pages, then a watch; later lists are paged at once.
        (
            "status 422, page 4 tok, page 4, expired",
            "stream anew list[] anew list[tok] synced watch@4 list[] anew",
        ),
        // A stream that breaks starts over; one that always breaks gives way to pages.
        (
            "change 3, lost, change 3, closed, idle",
            "stream anew wait stream anew wait stream anew wait list[] anew",
        ),
        (
            "change 3, lost, change 3, lost, end 3, pass 5000, expired, lost, lost",
            "stream anew wait stream anew wait stream anew synced wait stream anew wait stream anew \
             wait stream anew",
        ),
        // So does one that makes no progress.
        (
            "bookmark 3, endless, bookmark 3, endless, bookmark 3, endless, page 4",
            "stream anew wait stream anew wait stream anew wait list[] anew synced watch@4",
        ),
        // The kind is not known yet, or no more.
        (
            "status 404, status 404, status 404, status 404",
            "stream anew wait stream anew wait stream anew wait stream anew wait stream anew",
        ),
        ("end 5, status 404", "stream anew synced wait stream anew"),
        // Overload and refusal keep the place.
        (
            "end 5, status 429, status 500, status 403",
            "stream anew synced wait watch@5 wait watch@5 wait watch@5",
        ),
        ("end 5, status 504, lost", "stream anew synced wait watch@5 wait watch@5"),
        // What says nothing about streams does not end them.
        (
            "status 429, status 503, status 504, lost, status 500, end 5",
            "stream anew wait stream anew wait stream anew wait stream anew wait stream anew wait \
             stream anew synced",
        ),
        // A page that has to wait is asked for again.
        (
            "paged, page 4 tok, status 429, page 4",
            "stream anew list[] anew list[tok] wait list[tok] synced watch@4",
        ),
        ("paged, page 4 tok, lost", "stream anew list[] anew list[tok] wait stream anew"),
        // A page that is too large is asked for in parts.
        (
            "paged, large, page 4 tok, large, page 4 tak, page 4",
            "stream anew list[] anew wait list[]/125 anew list[tok]/250 wait list[tok]/62 \
             list[tak]/124 synced watch@4",
        ),
        (
            "paged, large, large, large, large, large",
            "stream anew list[] anew wait list[]/125 anew wait list[]/31 anew wait list[]/7 anew wait \
             list[]/1 anew wait stream anew",
        ),
        (
            "paged, page 4 tok, expired, large, page 4",
            "stream anew list[] anew list[tok] list[]all anew wait list[] anew synced watch@4",
        ),
        // A list that leads nowhere starts over.
        ("paged, page 4 a, page 4 a", "stream anew list[] anew list[a] wait stream anew"),
        (
            "paged, empty 4 a, page 4 b, empty 4 c, page 4",
            "stream anew list[] anew list[a] list[b] list[c] synced watch@4",
        ),
        // Something else is wanted: a list starts over at once, whatever was under way.
        (
            "end 5, change 6, restart, change 3, restart, end 9, closed",
            "stream anew synced stream anew stream anew synced wait watch@9",
        ),
        (
            "end 5, paged, page 6 tok, restart, end 7, paged, page 8",
            "stream anew synced list[] anew list[tok] stream anew synced list[] anew synced watch@8",
        ),
        ("status 422, page 4 tok, restart", "stream anew list[] anew list[tok] list[] anew"),
        // A version that the server does not take: another list, not the same request again.
        (
            "end 5, change abc, status 400, end 9, status 422, end 11, panic",
            "stream anew synced wait stream anew synced wait stream anew synced wait stream anew",
        ),
        // Garbage: resume; garbage at the same place: list again.
        ("end 5, garbage, garbage", "stream anew synced wait watch@5 wait stream anew"),
        ("end 5, garbage, change 6, garbage", "stream anew synced wait watch@5 wait watch@6"),
    ] {
        assert_eq!(play(script), expect, "{script}");
    }
}

#[test]
fn pages_without_objects_end_a_list() {
    let empty = |pages: u32| (0..pages).map(|page| format!(", empty 4 {page}")).collect::<String>();
    let bound = play(&format!("paged{}, page 4", empty(MAX_EMPTY_PAGES)));
    assert!(bound.ends_with("synced watch@4"), "{bound}");
    let beyond = play(&format!("paged{}, end 5", empty(MAX_EMPTY_PAGES + 1)));
    assert!(beyond.ends_with("wait stream anew synced"), "{beyond}");
}

/// How many objects a server puts into a page, and the seconds that 100,000 of them take by its reader's waits.
#[test]
fn a_list_of_thin_pages_is_slowed_down_and_one_with_its_own_limit_is_not() {
    for (each, seconds) in [(500, 0..1), (50, 0..1), (10, 200..300), (1, 9_000..11_000)] {
        let mut machine = Machine::new(fastrand::Rng::with_seed(1));
        let mut now = Duration::ZERO;
        machine.page_next();
        for page in 0..100_000 / each {
            machine.begin(Moment::from_origin(now));
            machine.page("4", Some(page.to_string()), each);
            now += machine.end(End::Page, Moment::from_origin(now));
        }
        assert!(seconds.contains(&now.as_secs()), "{each} objects a page: {now:?}");
        machine.page("4", None, each);
        assert_eq!(machine.end(End::Page, Moment::from_origin(now)), Duration::ZERO);
    }
}

#[test]
fn a_server_that_cannot_stream_is_asked_again_later() {
    let later = STREAM_AGAIN.as_millis();
    for (script, expect) in [
        (format!("status 422, page 4, pass {}, expired", later - 1), "list[] anew"),
        (format!("status 422, page 4, pass {later}, expired"), "stream anew"),
        (format!("idle, idle, idle, page 4, pass {later}, expired"), "stream anew"),
    ] {
        let played = play(&script);
        assert!(played.ends_with(&format!("watch@4 {expect}")), "{script}: {played}");
    }
}

/// Whatever a server does after it has answered a list, it is not asked in a hot loop.
#[test]
fn watches_that_always_end_at_once_are_asked_for_more_and_more_seldom() {
    for (paged, ends) in [
        (false, &[End::Expired][..]),
        (true, &[End::Expired]),
        (false, &[End::Refused(410), End::Refused(404)]),
        (true, &[End::Garbage, End::Garbage]),
        (true, &[End::Refused(400)]),
        (false, &[End::Panicked]),
        (false, &[End::Closed]),
    ] {
        let mut machine = Machine::new(fastrand::Rng::with_seed(3));
        let (mut now, mut requests) = (Duration::ZERO, 0);
        while now < Duration::from_secs(600) {
            if paged && machine.position().is_none() {
                machine.page_next();
            }
            let (request, _) = machine.begin(Moment::from_origin(now));
            requests += 1;
            match request {
                Request::List { .. } => {
                    machine.page("1", None, 1);
                    now += machine.end(End::Page, Moment::from_origin(now));
                    continue;
                }
                Request::Stream { .. } => {
                    let (resource_version, initial_end) = ("1", true);
                    machine.line(Signal::Change("1"));
                    machine.line(Signal::Bookmark { resource_version, initial_end });
                }
                Request::Watch { .. } => {}
            }
            now += machine.end(ends[requests % ends.len()], Moment::from_origin(now));
        }
        assert!(requests <= 130, "{ends:?}: {requests} requests in ten minutes");
    }
}

#[test]
fn versions_and_tokens_that_no_request_can_carry_are_garbage() {
    let (garbage, go_on) = (Progress::Restart(End::Garbage), Progress::Continue);
    let long = |bytes: usize| "7".repeat(bytes);
    fn bookmark(resource_version: &str) -> Signal<'_> {
        Signal::Bookmark { resource_version, initial_end: false }
    }
    let mut machine = Machine::new(fastrand::Rng::with_seed(1));
    machine.begin(at(0));
    let initial_end = |resource_version| Signal::Bookmark { resource_version, initial_end: true };
    assert_eq!(machine.line(initial_end("")), garbage);
    assert_eq!(machine.line(initial_end("5")), Progress::Synced);
    for version in ["", &long(MAX_VERSION_BYTES + 1), &long(70_000)] {
        assert_eq!(machine.line(bookmark(version)), garbage);
        assert_eq!(machine.line(Signal::Change(version)), garbage);
        assert_eq!(machine.position(), Some("5"));
    }
    assert_eq!(machine.line(bookmark(&long(MAX_VERSION_BYTES))), go_on);
    machine.restart();
    machine.page_next();
    machine.begin(at(0));
    assert_eq!(machine.page("", None, 1), garbage);
    assert_eq!(machine.page("7", Some(long(MAX_TOKEN_BYTES + 1)), 1), garbage);
    assert_eq!(machine.page("7", Some(long(MAX_TOKEN_BYTES)), 1), go_on);
}

/// Nor is a cluster that always has something to say before it fails.
#[test]
fn a_line_before_each_failure_does_not_take_the_wait_away() {
    let mut machine = Machine::new(fastrand::Rng::with_seed(5));
    machine.begin(at(0));
    machine.line(Signal::Bookmark { resource_version: "1", initial_end: true });
    let mut wait = Duration::ZERO;
    for _ in 0..20 {
        machine.line(Signal::Bookmark { resource_version: "2", initial_end: false });
        wait = machine.end(End::Refused(500), at(0));
        machine.begin(at(0));
    }
    assert!(wait >= MAX_WAIT / 2, "{wait:?}");
    // One that was followed for a while begins anew.
    machine.line(Signal::Change("3"));
    assert!(machine.end(End::Lost, Moment::from_origin(MAX_WAIT)) <= FIRST_WAIT);
}

#[test]
fn an_expired_token_asks_for_everything_in_one_piece() {
    assert_eq!(
        play("status 422, page 4 tok, expired, page 6"),
        "stream anew list[] anew list[tok] list[]all anew synced watch@6"
    );
}

#[test]
fn waits_double_with_jitter_up_to_their_limit() {
    let mut machine = Machine::new(fastrand::Rng::with_seed(7));
    for attempt in 0..12_u32 {
        machine.begin(at(0));
        let wait = machine.end(End::Lost, at(0));
        let full = FIRST_WAIT.saturating_mul(1 << attempt).min(MAX_WAIT);
        assert!(wait >= full / 2 && wait <= full, "{attempt}: {wait:?}");
    }
    for _ in 0..3 {
        assert!(machine.end(End::Refused(404), at(0)) <= MAX_UNKNOWN_WAIT);
    }
    machine.page("1", None, 1);
    machine.begin(at(0));
    assert!(machine.end(End::Lost, at(0)) <= FIRST_WAIT, "progress forgets the failures");
}
