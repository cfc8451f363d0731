//! A bucket at a small server in the process, which fails as told.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::net::TcpListener;

use super::super::{Draft, Vault};
use super::*;

/// What the server holds, and how it fails.
#[derive(Default)]
struct Held {
    objects: BTreeMap<String, Vec<u8>>,
    parts: BTreeMap<usize, Vec<u8>>,
    /// Answers of this status come first, for requests that this text is in.
    faults: Vec<(&'static str, u16)>,
    /// Objects are sent without their second half, so often.
    torn: usize,
    requests: Vec<String>,
}

type Shared = Arc<Mutex<Held>>;

async fn serve() -> (Shared, String) {
    let held = Shared::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let shared = Arc::clone(&held);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let shared = Arc::clone(&shared);
            let service = service_fn(move |request| answer(Arc::clone(&shared), request));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move { _ = connection.await });
        }
    });
    (held, address)
}

async fn answer(
    shared: Shared,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    let query: HashMap<String, String> =
        url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    assert!(query.contains_key("X-Amz-Signature"), "{:?}", head.uri);
    let key = head.uri.path().trim_start_matches("/carts").trim_start_matches('/').to_owned();
    let mut held = shared.lock().unwrap();
    let what = format!("{} {key}?{}", head.method, {
        let mut own: Vec<_> =
            query.keys().filter(|key| !key.starts_with("X-Amz")).cloned().collect();
        own.sort();
        own.join("&")
    });
    held.requests.push(what.clone());
    if let Some(at) = held.faults.iter().position(|(text, _)| what.contains(text)) {
        let (_, status) = held.faults.remove(at);
        return Ok(respond(status, b"<Error><Code>AccessDenied</Code></Error>".to_vec()));
    }
    Ok(held.act(head.method.as_str(), key, &query, body))
}

fn respond(status: u16, body: Vec<u8>) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("ETag", "\"tag\"")
        .body(Full::new(body.into()))
        .unwrap()
}

impl Held {
    fn act(
        &mut self,
        method: &str,
        key: String,
        query: &HashMap<String, String>,
        body: Vec<u8>,
    ) -> Response<Full<Bytes>> {
        const XMLNS: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
        match (method, query.get("partNumber"), query.contains_key("uploadId")) {
            ("POST", _, false) => {
                let text = format!(
                    "<InitiateMultipartUploadResult {XMLNS}><UploadId>u</UploadId></InitiateMultipartUploadResult>"
                );
                respond(200, text.into_bytes())
            }
            ("PUT", Some(number), true) => {
                self.parts.insert(number.parse().unwrap(), body);
                respond(200, Vec::new())
            }
            ("POST", _, true) => {
                assert_eq!(
                    String::from_utf8(body).unwrap().matches("<Part>").count(),
                    self.parts.len()
                );
                let whole = std::mem::take(&mut self.parts).into_values().flatten().collect();
                self.objects.insert(key, whole);
                respond(
                    200,
                    b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>".to_vec(),
                )
            }
            ("DELETE", _, true) => {
                self.parts.clear();
                respond(204, Vec::new())
            }
            ("DELETE", ..) => {
                self.objects.remove(&key);
                respond(204, Vec::new())
            }
            ("PUT", ..) => {
                self.objects.insert(key, body);
                respond(200, Vec::new())
            }
            ("GET", ..) if key.is_empty() => respond(200, self.page(query, XMLNS).into_bytes()),
            _ => match self.objects.get(&key) {
                None => respond(404, Vec::new()),
                Some(found) if self.torn > 0 && method == "GET" => {
                    self.torn -= 1;
                    respond(200, found[..found.len() / 2].to_vec())
                }
                Some(found) => respond(200, found.clone()),
            },
        }
    }

    /// Two keys on each page.
    fn page(&self, query: &HashMap<String, String>, xmlns: &str) -> String {
        let prefix = query.get("prefix").cloned().unwrap_or_default();
        let after = query.get("continuation-token").cloned().unwrap_or_default();
        let keys: Vec<_> =
            self.objects.keys().filter(|key| key.starts_with(&prefix) && **key > after).collect();
        let entry = |key: &&String| format!("<Contents><Key>{key}</Key></Contents>");
        let entries: String = keys.iter().take(2).map(entry).collect();
        let token = match keys.get(1) {
            Some(last) if keys.len() > 2 => format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>"
            ),
            _ => "<IsTruncated>false</IsTruncated>".to_owned(),
        };
        format!("<ListBucketResult {xmlns}>{entries}{token}</ListBucketResult>")
    }
}

fn open(address: &str, part: u64) -> BucketStore {
    let keys = Keys { id: "id".to_owned(), secret: "secret".to_owned(), token: None };
    let settings = S3Settings {
        bucket: "carts".to_owned(),
        prefix: Some("/etcd/".to_owned()),
        endpoint: Some(address.to_owned()),
        keys: Some(keys),
        ..S3Settings::default()
    };
    BucketStore {
        part,
        pause: Duration::from_millis(1),
        ..BucketStore::open(&settings, now).unwrap()
    }
}

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn draft(name: &str) -> Draft {
    let text = str::to_owned;
    Draft {
        name: text(name),
        kind: text("etcd-snapshot"),
        version: text("3.6.5"),
        owner: text("uid"),
    }
}

fn file(content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, content).unwrap();
    (folder, file)
}

#[tokio::test]
async fn small_and_large_files_come_back_as_they_were() {
    let (held, address) = serve().await;
    let content: Vec<u8> = (0..1_000_u32).flat_map(u32::to_le_bytes).collect();
    let (folder, file) = file(&content);
    // In one piece, in parts, in parts of which the last is full.
    for (name, part) in [("a", 1 << 20), ("b", 999), ("c", 1000)] {
        let bucket = open(&address, part);
        let vault = Vault::new(&bucket);
        let stored = vault.store(&file, draft(&format!("shop/{name}")), now()).await.unwrap();
        let back = folder.path().join(name);
        assert_eq!(vault.fetch(&stored.name, None, &back).await.unwrap(), stored);
        assert_eq!(std::fs::read(back).unwrap(), content);
    }
    assert_eq!(held.lock().unwrap().objects.len(), 6);
    let bucket = open(&address, 1000);
    let vault = Vault::new(&bucket);
    let names: Vec<_> = vault.list("shop/").await.unwrap().into_iter().map(|m| m.name).collect();
    assert_eq!(names, ["shop/a", "shop/b", "shop/c"]);
    for name in names {
        vault.delete(&name, "uid").await.unwrap();
    }
    assert!(held.lock().unwrap().objects.is_empty());
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_does_not_is_said_at_once() {
    let (held, address) = serve().await;
    let (_folder, file) = file(&[1; 2500]);
    let bucket = open(&address, 1000);
    let vault = Vault::new(&bucket);
    held.lock().unwrap().faults =
        vec![("PUT etcd/a?partNumber", 503), ("PUT etcd/a?partNumber", 500), ("HEAD", 500)];
    vault.store(&file, draft("a"), now()).await.unwrap();

    held.lock().unwrap().faults = vec![("PUT etcd/b?partNumber", 403)];
    let error = vault.store(&file, draft("b"), now()).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("DestinationRefused", false), "{error}");
    let held = held.lock().unwrap();
    assert!(held.requests.last().unwrap().starts_with("DELETE etcd/b?uploadId"), "aborted");
    assert!(held.parts.is_empty() && !held.objects.contains_key("etcd/b.manifest.json"));
}

#[tokio::test]
async fn a_service_that_fails_forever_is_given_up() {
    let (held, address) = serve().await;
    held.lock().unwrap().faults = vec![("GET", 503); 100];
    let error = open(&address, 1000).read("a", 10).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(held.lock().unwrap().requests.len(), ATTEMPTS as usize);
    let error = open("http://127.0.0.1:1", 1000).read("a", 10).await.unwrap_err();
    assert!(error.is_transient() && !error.to_string().contains("Signature"), "{error}");
}

#[tokio::test]
async fn a_short_object_is_damaged_and_a_long_one_is_not_read_to_its_end() {
    let (held, address) = serve().await;
    let (folder, file) = file(&[1; 2500]);
    let bucket = open(&address, 1 << 20);
    let vault = Vault::new(&bucket);
    vault.store(&file, draft("a"), now()).await.unwrap();
    let back = folder.path().join("back");
    held.lock().unwrap().torn = 2;
    // The manifest is torn first, then the object.
    assert_eq!(vault.fetch("a", None, &back).await.unwrap_err().reason(), "Damaged");
    held.lock().unwrap().torn = 0;
    held.lock().unwrap().objects.insert("etcd/a".to_owned(), vec![1; 5000]);
    assert_eq!(vault.fetch("a", None, &back).await.unwrap_err().reason(), "Damaged");
    assert!(!back.exists());
    assert_eq!(bucket.named("a"), "s3://carts/etcd/a");
}

#[test]
fn an_endpoint_that_is_none_is_named() {
    let settings = S3Settings {
        bucket: "carts".to_owned(),
        endpoint: Some("minio".to_owned()),
        ..S3Settings::default()
    };
    let error = BucketStore::open(&settings, now).err().unwrap();
    assert!(error.to_string().contains("\"minio\""), "{error}");
    let keys = Keys { id: "id".to_owned(), secret: "hidden".to_owned(), token: None };
    assert!(!format!("{keys:?}").contains("hidden"));
}
