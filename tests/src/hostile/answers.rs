//! What a hostile cluster answers. Bodies are made as they are sent, so that they cost this process nothing.

use std::time::Duration;

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};

use super::mode::Mode;

/// How much of a body is made at once.
const PIECE_BYTES: usize = 64 << 10;
/// Objects in each page of an endless list.
const PAGE_OBJECTS: usize = 500;
/// Objects that change in a flooded watch.
const FLOODED: usize = 1_000;
/// The head of a gzip.
const GZIP: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// The head of an answer in chunks, and the head of a chunk up to its extensions.
const CHUNK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;";
/// The head of an answer in chunks, and the last chunk up to the trailers.
const LAST_CHUNK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n";
/// Stands for a text that takes its place.
const NESTED: &str = "NESTED";
/// The namespaces of [`Mode::ManyNamespaces`].
const NAMESPACES: usize = 100_000;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) takes_gzip: bool,
    /// Of lower-case names, as they came.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// An answer. Its body ends the connection if it ends before it should.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: BoxStream<'static, Bytes>,
    pub(super) form: Form,
}

/// How an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Each piece of its body is a chunk.
    Chunks,
    /// Each byte is one.
    Bytes,
    /// Its body is all of it, with its head.
    Raw,
}

impl Asked {
    fn has(&self, parameter: &str) -> bool {
        self.query.split('&').any(|pair| pair.starts_with(parameter))
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    }

    /// Which page of a list it asks for, where tokens are numbers.
    fn page(&self) -> usize {
        self.value("continue").and_then(|page| page.parse().ok()).unwrap_or(0)
    }

    /// Whether it is about the ConfigMaps that the replica's controller watches.
    fn is_of_maps(&self) -> bool {
        self.method == "GET" && self.path == "/api/v1/configmaps"
    }

    fn is_stream(&self) -> bool {
        self.is_of_maps() && self.has("sendInitialEvents=true")
    }

    fn is_watch(&self) -> bool {
        self.is_of_maps() && self.has("watch=") && !self.is_stream()
    }

    fn is_list(&self) -> bool {
        self.is_of_maps() && !self.has("watch=")
    }
}

/// The answer of a cluster in this mode; none if it answers as it should.
pub(super) fn of(mode: Mode, asked: &Asked) -> Option<Reply> {
    let list = |body: BoxStream<'static, Bytes>| {
        if asked.is_stream() {
            Some(status(422, "Invalid", &[]))
        } else {
            asked.is_list().then(|| ok(body))
        }
    };
    // Else nothing would be listed again.
    if mode.lies_in_lists() && asked.is_watch() {
        return Some(status(410, "Expired", &[]));
    }
    match mode {
        Mode::Behaves
        | Mode::WrongClock
        | Mode::HangingCredentials
        | Mode::SlowHandshake
        | Mode::Http2Frames
        | Mode::Http2InterimAnswers
        | Mode::Http2EndlessHead
        | Mode::Http2SmallFrames
        | Mode::Http2Resets => None,
        Mode::TinyChunks => match asked.path.as_str() {
            "/version" => Some(Reply { form: Form::Bytes, ..ok(padded_version()) }),
            "/api/v1/namespaces/kube-system" => Some(status(403, "Forbidden", &[])),
            _ => None,
        },
        Mode::VersionBomb => match asked.path.as_str() {
            "/version" => Some(bomb(asked, "{\"gitVersion\":\"v1\",\"platform\":\"", " ", 3 << 10)),
            "/api/v1/namespaces/kube-system" => Some(status(403, "Forbidden", &[])),
            _ => None,
        },
        Mode::EmptyGzip => match asked.path.as_str() {
            "/version" => Some(empty_gzip()),
            "/api/v1/namespaces/kube-system" => Some(status(403, "Forbidden", &[])),
            _ if asked.is_stream() => Some(status(422, "Invalid", &[])),
            _ => asked.is_list().then(empty_gzip),
        },
        Mode::PageBomb if asked.is_stream() => Some(status(422, "Invalid", &[])),
        Mode::PageBomb => {
            let begins = r#"{"metadata":{"resourceVersion":"1"},"items":[{}"#;
            asked.is_list().then(|| bomb(asked, begins, ",{}", 1 << 10))
        }
        Mode::EndlessList => {
            let page = asked.page();
            let objects = (0..PAGE_OBJECTS).map(|n| map("default", &format!("map-{page}-{n}")));
            list(page_of(objects, &(page + 1).to_string()))
        }
        Mode::EndlessStream => asked
            .is_stream()
            .then(|| ok(lines((0..).map(|n| added(&map("default", &format!("map-{n}"))))))),
        Mode::EndlessLine => (asked.is_stream() || asked.is_watch()).then(|| ok(endless_line())),
        Mode::RepeatedToken => {
            let page = asked.value("continue").map_or(0, str::len);
            list(page_of([map("default", &format!("map-{page}"))].into_iter(), "again"))
        }
        Mode::LongToken => {
            list(page_of([map("default", "token")].into_iter(), &"t".repeat(1 << 20)))
        }
        Mode::OneByOne => {
            let page = asked.page();
            let object = map("default", &format!("one-{page}"));
            list(page_of([object].into_iter(), &(page + 1).to_string()))
        }
        Mode::BookmarkStream if asked.is_stream() => {
            let bookmarks = Bytes::from(bookmark("9").repeat(500));
            Some(ok(stream::repeat(bookmarks).boxed()))
        }
        Mode::EmptyPages | Mode::BookmarkStream => {
            let page = asked.page();
            list(page_of(std::iter::empty(), &(page + 1).to_string()))
        }
        // What follows a list is asked for by itself.
        Mode::WatchGone
        | Mode::FloodedWatch
        | Mode::LongVersion
        | Mode::BookmarkAndEnd
        | Mode::UnknownDeletes
        | Mode::EmptyWatches
        | Mode::BlankLines
        | Mode::SlowLine
            if asked.is_stream() =>
        {
            Some(status(422, "Invalid", &[]))
        }
        Mode::SlowStream => asked.is_stream().then(|| {
            let objects = stream::iter(0..).then(async |n: u32| {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Bytes::from(added(&map("default", &format!("map-{n}"))))
            });
            ok(objects.boxed())
        }),
        Mode::FloodedWatch => asked.is_watch().then(|| {
            // One that it knows, so that it goes on from there when it behaves again.
            let version = asked.value("resourceVersion").unwrap_or("1").to_owned();
            let change = move |n: usize| {
                let mut object = map("default", &format!("flood-{}", n % FLOODED));
                object["metadata"]["resourceVersion"] = version.as_str().into();
                object["data"]["text"] = n.to_string().into();
                format!("{}\n", json!({"type": "MODIFIED", "object": object}))
            };
            ok(lines((0..).map(change)))
        }),
        Mode::LongVersion => asked.is_watch().then(|| {
            let line = whole(bookmark(&"7".repeat(70_000)).into_bytes());
            ok(line.chain(stream::pending()).boxed())
        }),
        Mode::BookmarkAndEnd => {
            let line = || bookmark(asked.value("resourceVersion").unwrap_or("1"));
            asked.is_watch().then(|| ok(whole(line().into_bytes())))
        }
        Mode::UnknownDeletes => asked.is_watch().then(|| {
            let version = asked.value("resourceVersion").unwrap_or("1").to_owned();
            let pair = move |n: usize| {
                let mut object = map("default", &format!("unknown-{n}"));
                object["metadata"]["resourceVersion"] = version.as_str().into();
                let delete = json!({"type": "DELETED", "object": object});
                format!("{delete}\n{}", bookmark(&version))
            };
            ok(lines((0..).map(pair)))
        }),
        Mode::EmptyWatches => asked.is_watch().then(|| ok(stream::empty().boxed())),
        Mode::BlankLines => asked.is_watch().then(|| {
            let blank = Bytes::from("\n".repeat(PIECE_BYTES));
            ok(stream::repeat(blank).boxed())
        }),
        Mode::SlowLine => asked.is_watch().then(|| {
            let begins = stream::repeat(filler()).take((5 << 20) / 4 / PIECE_BYTES);
            ok(begins.chain(trickle()).boxed())
        }),
        Mode::WatchGone => asked.is_watch().then(|| status(410, "Expired", &[])),
        Mode::Refusals if asked.is_stream() => Some(status(422, "Invalid", &[])),
        Mode::Refusals if asked.is_watch() => {
            Some(status(504, "Timeout", &[("retry-after", "-1".to_owned())]))
        }
        Mode::Refusals => {
            let later = [("retry-after", "1".to_owned())];
            asked.is_list().then(|| status(429, "TooManyRequests", &later))
        }
        Mode::LongRefusal => asked.is_of_maps().then(|| {
            let message = "x".repeat(4 << 20);
            let body = whole(format!("{{\"message\":\"{message}\"}}").into_bytes());
            Reply { status: 500, ..ok(body) }
        }),
        Mode::SlowBody => list(trickle()),
        Mode::HugeObject => list(huge_page()),
        Mode::DeepObject => {
            const LEVELS: usize = 100_000;
            let mut object = map("default", "deep");
            object["spec"] = NESTED.into();
            let lists = format!("{}{}", "[".repeat(LEVELS), "]".repeat(LEVELS));
            list(page_beside(object, &lists))
        }
        Mode::BadText => {
            let mut page = page_text([map("default", "bad")].into_iter(), "").into_bytes();
            let at = page.windows(3).position(|part| part == b"bad").expect("it is in it");
            page[at] = 0xff;
            list(whole(page))
        }
        Mode::LongNames => list(page_of([map("default", &"n".repeat(300))].into_iter(), "")),
        Mode::ForgedName => {
            let name = "a\n2026-01-01T00:00:00Z ERROR the disk is full";
            list(page_of([map("default", name)].into_iter(), ""))
        }
        Mode::ManyLabels => {
            let mut object = map("default", "labels");
            object["metadata"]["labels"] = (0..100_000)
                .map(|n| (n.to_string(), Value::from("")))
                .collect::<serde_json::Map<_, _>>()
                .into();
            list(page_of([object].into_iter(), ""))
        }
        Mode::ManagedFields => {
            let mut object = map("default", "managed");
            object["metadata"]["managedFields"] = NESTED.into();
            list(page_beside(object, &format!("[{}{{}}]", "{},".repeat(1_000_000))))
        }
        Mode::DenseObject => {
            let mut object = map("default", "dense");
            object["metadata"]["finalizers"] = vec![""; 1_000_000].into();
            list(page_of([object].into_iter(), ""))
        }
        Mode::ManyObjects => {
            let mut object = map("default", "many");
            object["spec"] =
                serde_json::json!({"containers": vec![serde_json::json!({}); 200_000]});
            list(page_of([object].into_iter(), ""))
        }
        Mode::StrangeVersions => {
            let versions = ["-7", "abc", "18446744073709551616", "007"];
            let objects = versions.iter().enumerate().map(|(n, version)| {
                let mut object = map("default", &format!("strange-{n}"));
                object["metadata"]["resourceVersion"] = (*version).into();
                object
            });
            list(page_of(objects, ""))
        }
        Mode::TwiceTheUid => {
            let (one, mut other) = (map("default", "one"), map("default", "other"));
            other["metadata"]["uid"] = one["metadata"]["uid"].clone();
            list(page_of([one, other].into_iter(), ""))
        }
        Mode::ManyNamespaces => asked.is_stream().then(|| ok(many_namespaces())),
        Mode::InterimAnswers => asked.is_of_maps().then(|| raw("", "HTTP/1.1 103 X\r\n\r\n")),
        Mode::EndlessHead => asked.is_of_maps().then(|| raw("HTTP/1.1 200 OK\r\n", "x: y\r\n")),
        Mode::EndlessExtension => asked.is_of_maps().then(|| raw(CHUNK, "x")),
        Mode::EndlessTrailers => asked.is_of_maps().then(|| raw(LAST_CHUNK, "x")),
        Mode::ShortBody => asked.is_of_maps().then(|| {
            let begins = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{".to_vec();
            Reply { form: Form::Raw, ..ok(whole(begins)) }
        }),
        Mode::TwiceFolded if asked.is_stream() => Some(status(422, "Invalid", &[])),
        Mode::TwiceFolded => asked.is_list().then(|| {
            let headers = vec![("content-encoding", "gzip, gzip".to_owned())];
            Reply { headers, ..empty_gzip() }
        }),
        Mode::Redirects => {
            let itself = [("location", format!("{}?{}", asked.path, asked.query))];
            asked.is_of_maps().then(|| status(302, "Found", &itself))
        }
    }
}

/// What a mode adds to the head of every answer.
pub(super) fn headers(mode: Mode) -> Vec<(&'static str, String)> {
    match mode {
        Mode::WrongClock => vec![
            ("date", "Thu, 01 Jan 1970 00:00:00 GMT".to_owned()),
            ("retry-after", "99999999".to_owned()),
        ],
        _ => Vec::new(),
    }
}

fn ok(body: BoxStream<'static, Bytes>) -> Reply {
    let headers = vec![("content-type", "application/json".to_owned())];
    Reply { status: 200, headers, body, form: Form::Chunks }
}

/// These bytes as they are, and others without an end.
fn raw(begins: &'static str, goes_on: &str) -> Reply {
    let goes_on = Bytes::from(goes_on.repeat(PIECE_BYTES / goes_on.len()));
    let begins = stream::once(async move { Bytes::from_static(begins.as_bytes()) });
    Reply { form: Form::Raw, ..ok(begins.chain(stream::repeat(goes_on)).boxed()) }
}

fn status(code: u16, reason: &str, headers: &[(&'static str, String)]) -> Reply {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": format!("the cluster says {code}")});
    let body = whole(body.to_string().into_bytes());
    Reply { status: code, headers: headers.to_vec(), body, form: Form::Chunks }
}

fn whole(body: Vec<u8>) -> BoxStream<'static, Bytes> {
    stream::once(async { Bytes::from(body) }).boxed()
}

/// A gzip that unfolds to so many MiB of `fill` after `begins`; unfolded for a client that takes no gzip.
fn bomb(asked: &Asked, begins: &'static str, fill: &str, mebibytes: usize) -> Reply {
    let fill = fill.repeat((1 << 20) / fill.len());
    let (mut first, mut rest) = (begins.as_bytes().to_vec(), fill.into_bytes());
    if asked.takes_gzip {
        // A full flush forgets what came before: the same piece can follow any number of times.
        let mut deflate = Compress::new(Compression::best(), false);
        first = [&GZIP[..], &deflated(&mut deflate, &first)].concat();
        rest = deflated(&mut deflate, &rest);
    }
    let (first, rest) = (Bytes::from(first), Bytes::from(rest));
    let body = stream::once(async { first }).chain(stream::repeat(rest).take(mebibytes)).boxed();
    let mut reply = ok(body);
    if asked.takes_gzip {
        reply.headers.push(("content-encoding", "gzip".to_owned()));
    }
    reply
}

/// A gzip of empty blocks, none of which is the last.
fn empty_gzip() -> Reply {
    let blocks = Bytes::from([0_u8, 0, 0, 0xff, 0xff].repeat(PIECE_BYTES / 5));
    let begins = stream::once(async { Bytes::from_static(&GZIP) });
    let mut reply = ok(begins.chain(stream::repeat(blocks)).boxed());
    reply.headers.push(("content-encoding", "gzip".to_owned()));
    reply
}

fn deflated(deflate: &mut Compress, bytes: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(bytes.len() + 1024);
    deflate
        .compress_vec(bytes, &mut found, FlushCompress::Full)
        .expect("the buffer is large enough");
    found
}

fn map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}"),
            "resourceVersion": "7"},
        "data": {"text": format!("{name} has some text of its own")}})
}

/// A version as servers tell it, and blanks up to half of what one may be long.
fn padded_version() -> BoxStream<'static, Bytes> {
    let version = json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "c",
        "gitTreeState": "clean", "buildDate": "d", "goVersion": "g", "compiler": "gc",
        "platform": "linux/amd64"});
    whole(format!("{:32768}", version.to_string()).into_bytes())
}

/// The line of a bookmark at this version.
fn bookmark(version: &str) -> String {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"resourceVersion": version}});
    format!("{}\n", json!({"type": "BOOKMARK", "object": object}))
}

fn added(object: &Value) -> String {
    format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n")
}

fn page_text(objects: impl Iterator<Item = Value>, token: &str) -> String {
    let items: Vec<String> = objects.map(|object| object.to_string()).collect();
    let metadata = json!({"resourceVersion": "9", "continue": token});
    format!(
        "{{\"kind\":\"ConfigMapList\",\"metadata\":{metadata},\"items\":[{}]}}",
        items.join(",")
    )
}

fn page_of(objects: impl Iterator<Item = Value>, token: &str) -> BoxStream<'static, Bytes> {
    whole(page_text(objects, token).into_bytes())
}

/// Lines in pieces.
fn lines(lines: impl Iterator<Item = String> + Send + 'static) -> BoxStream<'static, Bytes> {
    stream::unfold(lines, |mut lines| async move {
        let mut piece = String::new();
        while piece.len() < PIECE_BYTES {
            let Some(line) = lines.next() else { break };
            piece += &line;
        }
        (!piece.is_empty()).then(|| (Bytes::from(piece), lines))
    })
    .boxed()
}

fn endless_line() -> BoxStream<'static, Bytes> {
    let begins = Bytes::from_static(br#"{"type":"ADDED","object":{"data":{"text":""#);
    stream::once(async { begins }).chain(stream::repeat(filler())).boxed()
}

fn huge_page() -> BoxStream<'static, Bytes> {
    let begins = concat!(
        r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"huge","namespace":"default","#,
        r#""uid":"huge","resourceVersion":"7"},"data":{"text":""#
    );
    let pieces = (100 << 20) / PIECE_BYTES;
    let ends = Bytes::from_static(br#""}}]}"#);
    stream::once(async { Bytes::from_static(begins.as_bytes()) })
        .chain(stream::repeat(filler()).take(pieces))
        .chain(stream::once(async { ends }))
        .boxed()
}

fn filler() -> Bytes {
    Bytes::from(vec![b'x'; PIECE_BYTES])
}

fn trickle() -> BoxStream<'static, Bytes> {
    let pieces = stream::repeat(Bytes::from_static(b" "));
    pieces
        .then(|piece| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            piece
        })
        .boxed()
}

/// A page with an object that has this text in place of [`NESTED`], and one beside it. It is text, because a value may
/// be so deep that it could not be dropped.
fn page_beside(object: Value, nested: &str) -> BoxStream<'static, Bytes> {
    let page = page_text([object, map("default", "beside")].into_iter(), "");
    whole(page.replace(&format!("{NESTED:?}"), nested).into_bytes())
}

fn many_namespaces() -> BoxStream<'static, Bytes> {
    let objects = (0..NAMESPACES).map(|n| added(&map(&format!("namespace-{n}"), "map")));
    let end = json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"resourceVersion": "9",
            "annotations": {"k8s.io/initial-events-end": "true"}}}});
    lines(objects.chain([format!("{end}\n")])).chain(stream::pending()).boxed()
}
