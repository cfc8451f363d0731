//! A store in a bucket with S3's protocol.
//!
//! Requests carry their signature in the URL (`rusty-s3`), so that bodies are streamed from files and
//! read once. A file of more than one part is uploaded in parts, one after the other; an upload that
//! fails is aborted. What a killed process leaves is invisible and costs space until the bucket's own
//! rule for incomplete uploads (`AbortIncompleteMultipartUpload`) removes it.

mod answer;
mod http;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use ::http::header::{CONTENT_LENGTH, ETAG};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use rusty_s3::actions::{CreateMultipartUpload, ListObjectsV2};
use rusty_s3::{Bucket as Signer, Credentials, Method, S3Action, UrlStyle};
use url::Url;

use self::http::{Answer, Http, Payload};
use super::{Digest, Store, StoreError};

/// How long a signature is valid. Uploads of one part must begin within it.
const VALID: Duration = Duration::from_secs(3600);
/// The size of a part, in bytes, unless the file would have too many.
const PART: u64 = 64 << 20;
/// The most parts of an upload, by S3's rules.
const MAX_PARTS: u64 = 10_000;
/// How often a request is sent before it is given up.
const ATTEMPTS: u32 = 5;
/// The pause after the first attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// The most answers of a list.
const MAX_PAGES: usize = 200;

/// How a bucket is reached.
#[derive(Clone, Debug, Default)]
pub struct S3Settings {
    /// The bucket's name.
    pub bucket: String,
    /// What the keys in it begin with, without slashes around it.
    pub prefix: Option<String>,
    /// Its region; without it `us-east-1`.
    pub region: Option<String>,
    /// The address of the service; without it AWS's own of the region.
    pub endpoint: Option<String>,
    /// The keys; without them requests are not signed.
    pub keys: Option<Keys>,
    /// The authority of the service's certificate, as PEM; without it the public web's.
    pub authority: Option<String>,
}

/// Keys of an account.
#[derive(Clone)]
pub struct Keys {
    /// Its public part.
    pub id: String,
    /// Its secret part.
    pub secret: String,
    /// The token of a session.
    pub token: Option<String>,
}

/// Prints what is public.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A store in a bucket.
pub struct BucketStore {
    signer: Signer,
    credentials: Option<Credentials>,
    prefix: String,
    http: Http,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    part: u64,
    /// The pause after the first attempt.
    pause: Duration,
}

impl BucketStore {
    /// The store in a bucket. `now` is the time at which requests are signed.
    ///
    /// # Errors
    /// If the endpoint is no URL, or the authority is none.
    pub fn open(
        settings: &S3Settings,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        let region = settings.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        let public = || format!("https://s3.{region}.amazonaws.com");
        let endpoint = settings.endpoint.clone().unwrap_or_else(public);
        let invalid = |_| StoreError::Invalid {
            what: format!("the endpoint {endpoint:?}"),
            problem: "write it like https://minio.shop.svc:9000",
        };
        let url: Url = endpoint.parse().map_err(|_| invalid(()))?;
        // Services of one's own seldom have a host for each bucket, and names with dots have no certificate.
        let is_path = settings.endpoint.is_some() || settings.bucket.contains('.');
        let style = if is_path { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let signer = Signer::new(url, style, settings.bucket.clone(), region.clone())
            .map_err(|_| invalid(()))?;
        let credentials = settings.keys.as_ref().map(|keys| match &keys.token {
            Some(token) => Credentials::new_with_token(&keys.id, &keys.secret, token),
            None => Credentials::new(&keys.id, &keys.secret),
        });
        let prefix = settings.prefix.as_deref().map(|prefix| prefix.trim_matches('/'));
        let prefix = prefix.filter(|prefix| !prefix.is_empty());
        Ok(Self {
            signer,
            credentials,
            prefix: prefix.map(|prefix| format!("{prefix}/")).unwrap_or_default(),
            http: Http::new(settings.authority.as_deref())?,
            now: Box::new(now),
            part: PART,
            pause: PAUSE,
        })
    }

    /// Waits after an attempt, longer after each.
    async fn rest(&self, attempt: u32) {
        tokio::time::sleep(self.pause * 2_u32.pow(attempt - 1)).await;
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn signed<'a, A: S3Action<'a>>(&self, action: &A) -> (Method, Url) {
        (A::METHOD, action.sign_with_time(VALID, &(self.now)()))
    }

    /// Sends a request until it is answered, or refused, or was sent often enough. Each attempt has its
    /// own signature.
    async fn sent<'a, A: S3Action<'a> + Sync>(
        &self,
        what: (&'static str, &str),
        action: &A,
        payload: &Payload<'_>,
    ) -> Result<Answer, StoreError> {
        let mut attempt = 1;
        loop {
            let (method, url) = self.signed(action);
            match self.http.send(what, method, &url, payload).await {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    self.rest(attempt).await
                }
                other => return other,
            }
            attempt += 1;
        }
    }

    async fn upload(&self, key: &str, file: &Path, size: u64) -> Result<(), StoreError> {
        let (full, named) = (self.key(key), self.named(key));
        let keys = self.credentials.as_ref();
        let create = self.signer.create_multipart_upload(keys, &full);
        let answer = self.sent(("begin the upload of", &named), &create, &Payload::Empty).await?;
        let begun = CreateMultipartUpload::parse_response(&answer.text(("read", &named)).await?)
            .map_err(|_| unreadable("begin the upload of", &named))?;
        let upload = begun.upload_id();
        let done = self.parts(key, file, size, upload).await;
        if done.is_err() {
            let abort = self.signer.abort_multipart_upload(keys, &full, upload);
            let (method, url) = self.signed(&abort);
            // The bucket's own rule removes what this does not.
            let _ = self.http.send(("abort", &named), method, &url, &Payload::Empty).await;
        }
        done
    }

    async fn parts(
        &self,
        key: &str,
        file: &Path,
        size: u64,
        upload: &str,
    ) -> Result<(), StoreError> {
        let (full, named) = (self.key(key), self.named(key));
        let keys = self.credentials.as_ref();
        let length = self.part.max(size.div_ceil(MAX_PARTS));
        let offsets = (0..).map(|part| part * length).take_while(|offset| *offset < size);
        let mut tags = Vec::new();
        for (number, offset) in (1_u16..).zip(offsets) {
            let payload = Payload::File { file, offset, length: length.min(size - offset) };
            let action = self.signer.upload_part(keys, &full, number, upload);
            let answer = self.sent(("upload a part of", &named), &action, &payload).await?;
            let tag = answer.header(&ETAG).ok_or_else(|| unreadable("upload a part of", &named))?;
            tags.push(tag);
        }
        let listed = tags.iter().map(String::as_str);
        let body = self.signer.complete_multipart_upload(keys, &full, upload, listed).body();
        // The signature is not about the body.
        let none = std::iter::empty::<&str>();
        let action = self.signer.complete_multipart_upload(keys, &full, upload, none);
        let payload = Payload::Bytes(Bytes::from(body));
        let answer = self.sent(("finish the upload of", &named), &action, &payload).await?;
        // The service may find an obstacle after it has begun to answer.
        let text = answer.text(("finish the upload of", &named)).await?;
        answer::completed(("finish the upload of", &named), &text)
    }

    async fn head(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let (full, named) = (self.key(key), self.named(key));
        let action = self.signer.head_object(self.credentials.as_ref(), &full);
        match self.sent(("look at", &named), &action, &Payload::Empty).await {
            Ok(answer) => {
                let size = answer.header(&CONTENT_LENGTH).and_then(|text| text.parse().ok());
                size.map(Some).ok_or_else(|| unreadable("look at", &named))
            }
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn pages(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let (full, named) = (self.key(prefix), self.named(prefix));
        let (mut found, mut token) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let mut action = self.signer.list_objects_v2(self.credentials.as_ref());
            action.with_prefix(full.as_str());
            if let Some(token) = &token {
                action.with_continuation_token(token.as_str());
            }
            let answer = self.sent(("list", &named), &action, &Payload::Empty).await?;
            let text = answer.text(("list", &named)).await?;
            let page =
                ListObjectsV2::parse_response(&text).map_err(|_| unreadable("list", &named))?;
            let keys = page.contents.into_iter().map(|object| object.key);
            found.extend(keys.filter_map(|key| Some(key.strip_prefix(&self.prefix)?.to_owned())));
            token = page.next_continuation_token;
            if token.is_none() {
                found.sort();
                return Ok(found);
            }
        }
        Err(StoreError::Invalid {
            what: named,
            problem: "it has more than 200,000 objects: use a prefix for backups alone",
        })
    }
}

fn unreadable(operation: &'static str, named: &str) -> StoreError {
    let problem = "the service's answer cannot be read".to_owned();
    StoreError::Unanswered { operation, object: named.to_owned(), problem }
}

impl Store for BucketStore {
    fn put<'a>(
        &'a self,
        key: &'a str,
        file: &'a Path,
        digest: &'a Digest,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            if digest.size > self.part {
                return self.upload(key, file, digest.size).await;
            }
            let (full, named) = (self.key(key), self.named(key));
            let action = self.signer.put_object(self.credentials.as_ref(), &full);
            let payload = Payload::File { file, offset: 0, length: digest.size };
            self.sent(("store", &named), &action, &payload).await.map(drop)
        }
        .boxed()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let (full, named) = (self.key(key), self.named(key));
            let action = self.signer.put_object(self.credentials.as_ref(), &full);
            let payload = Payload::Bytes(Bytes::from(bytes));
            self.sent(("store", &named), &action, &payload).await.map(drop)
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        file: &'a Path,
        limit: u64,
    ) -> BoxFuture<'a, Result<Digest, StoreError>> {
        async move {
            let (full, named) = (self.key(key), self.named(key));
            let action = self.signer.get_object(self.credentials.as_ref(), &full);
            let mut attempt = 1;
            loop {
                // A body that breaks off is fetched again from its beginning.
                let fetched = async {
                    let (method, url) = self.signed(&action);
                    let what = ("fetch", named.as_str());
                    let answer = self.http.send(what, method, &url, &Payload::Empty).await?;
                    answer.save(what, file, limit).await
                };
                match fetched.await {
                    Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                        self.rest(attempt).await;
                    }
                    other => return other,
                }
                attempt += 1;
            }
        }
        .boxed()
    }

    fn read<'a>(
        &'a self,
        key: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        async move {
            let (full, named) = (self.key(key), self.named(key));
            let action = self.signer.get_object(self.credentials.as_ref(), &full);
            match self.sent(("read", &named), &action, &Payload::Empty).await {
                Ok(answer) => answer.bytes(("read", &named), limit).await.map(Some),
                Err(StoreError::Missing { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn size<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, StoreError>> {
        self.head(key).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        self.pages(prefix).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let (full, named) = (self.key(key), self.named(key));
            let action = self.signer.delete_object(self.credentials.as_ref(), &full);
            match self.sent(("delete", &named), &action, &Payload::Empty).await {
                Ok(_) | Err(StoreError::Missing { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn named(&self, key: &str) -> String {
        format!("s3://{}/{}", self.signer.name(), self.key(key))
    }
}
