//! Secrets of one namespace as clusters, listed and watched: they come, change and go with the Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use model::Prefix;
use tokio::time::timeout;

use crate::MAX_CLUSTERS;
use crate::provider::{ClusterProvider, Snapshot, Source};
use crate::secret::source;
use crate::terms::Terms;

/// Secrets of one page of a list: a page of the largest that a server stores, of 1.5 MiB and in base64, must fit
/// into [`crate::bounds::LIST_BYTES`], or nobody's Secret could be read.
const PAGE: u32 = 10;
/// The most pages of a list: sixteen Secrets for each cluster that a registry engages. Cluster API makes five.
const MAX_PAGES: usize = 16 * MAX_CLUSTERS / PAGE as usize;
/// Pages in a row that say that there is more and bring no Secret.
const MAX_EMPTY_PAGES: usize = 10;
/// How long the server may take for a page.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a watch lasts, in seconds, and how long it may be silent beyond that. Under the limit of kube.
const WATCH_SECONDS: u32 = 240;
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 30);
/// Changes that come within this time are one.
const GATHER: Duration = Duration::from_millis(300);
/// The pause before everything is listed again: beyond the quota, each Secret that is removed makes that necessary.
const RELIST_AFTER: Duration = Duration::from_secs(5);
/// The pause after a failure, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The Secrets of a namespace that a label selector selects.
pub struct Secrets {
    client: Client,
    namespace: String,
    selector: String,
    terms: Terms,
}

impl Secrets {
    /// Those of `namespace` in the client's cluster, on the default terms.
    pub fn new(client: Client, namespace: &str, selector: &str) -> Self {
        let (namespace, selector) = (namespace.to_owned(), selector.to_owned());
        Self { client, namespace, selector, terms: Terms::default() }
    }

    /// The same Secrets on these terms. Of their clusters, those that came first count, and of those that came at once,
    /// the first by name.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// As a provider that follows the Secrets' changes.
    ///
    /// Its first snapshot waits until they could be listed, so that clusters which have not been read are
    /// never mistaken for removed ones.
    pub fn provider(self) -> Box<dyn ClusterProvider> {
        Box::new(Following {
            of: self,
            known: BTreeMap::new(),
            counted: BTreeSet::new(),
            version: None,
            watch: None,
            pause: FIRST_PAUSE,
            told: None,
        })
    }
}

/// The pages of a list under way, of which each says that there is more.
#[derive(Debug, Default)]
struct Pages {
    read: usize,
    /// How many of them, in a row and at last, had no Secret.
    empty: usize,
    /// Where the last one ended.
    token: Option<String>,
}

impl Pages {
    /// One more page has been read, with so many Secrets, which ends here. Returns where the next begins.
    fn next(&mut self, secrets: usize, token: String) -> Result<String, String> {
        self.read += 1;
        self.empty = if secrets == 0 { self.empty + 1 } else { 0 };
        if self.read >= MAX_PAGES
            || self.empty > MAX_EMPTY_PAGES
            || self.token.as_ref() == Some(&token)
        {
            return Err(format!(
                "the list does not end: it repeats a continue token, has more than {MAX_EMPTY_PAGES} pages without \
                 Secrets in a row, or {MAX_PAGES} pages of {PAGE}; fix: select fewer Secrets, or see what answers in \
                 the place of the API server"
            ));
        }
        Ok(self.token.insert(token).clone())
    }
}

/// The events of a watch.
type Events = BoxStream<'static, kube::Result<WatchEvent<Secret>>>;

/// The Secrets and their present clusters.
struct Following {
    of: Secrets,
    /// By name of the Secret.
    known: BTreeMap<String, Source>,
    /// The names of those that count.
    counted: BTreeSet<String>,
    /// What is known is as of this version; without one, everything is listed.
    version: Option<String>,
    watch: Option<Events>,
    /// The next pause after a failure.
    pause: Duration,
    /// The last snapshot.
    told: Option<Snapshot>,
}

impl ClusterProvider for Following {
    fn label(&self) -> String {
        format!("Secrets {} of namespace {}", self.of.selector, self.of.namespace)
    }

    fn prefix(&self) -> Option<Prefix> {
        self.of.terms.prefix.clone()
    }

    fn next(&mut self) -> BoxFuture<'_, Snapshot> {
        async {
            loop {
                self.change().await;
                let snapshot = self.snapshot();
                if self.told.as_ref() != Some(&snapshot) {
                    self.told = Some(snapshot.clone());
                    return snapshot;
                }
            }
        }
        .boxed()
    }
}

impl Following {
    /// Waits until something may have changed, and takes it over.
    async fn change(&mut self) {
        loop {
            if self.version.is_none() {
                if self.told.is_some() {
                    tokio::time::sleep(RELIST_AFTER).await;
                }
                match self.list().await {
                    Ok(()) => return,
                    Err(error) => self.complain(&error),
                }
            } else if self.watch.is_none() {
                self.open().await;
            }
            match self.event().await {
                Some(event) => {
                    self.pause = FIRST_PAUSE;
                    self.take(event);
                    return self.gather().await;
                }
                // After the end of a watch, or a failure, nothing is requested at once.
                None => tokio::time::sleep(self.pause).await,
            }
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
    }

    /// The next event of the watch; nothing if there is none or it has ended.
    async fn event(&mut self) -> Option<WatchEvent<Secret>> {
        let event = timeout(SILENCE, self.watch.as_mut()?.next()).await;
        match event {
            // Its version may be forgotten.
            Ok(Some(Ok(WatchEvent::Error(_)) | Err(_))) | Err(_) => self.version = None,
            Ok(Some(Ok(event))) => return Some(event),
            // It lasted as long as it should, which is no failure.
            Ok(None) => self.pause = FIRST_PAUSE,
        }
        self.watch = None;
        None
    }

    /// Takes over what comes within a moment: changes often come together.
    async fn gather(&mut self) {
        let mut end = std::pin::pin!(tokio::time::sleep(GATHER));
        while self.watch.is_some() {
            tokio::select! {
                event = self.event() => match event {
                    Some(event) => self.take(event),
                    None => return,
                },
                () = &mut end => return,
            }
        }
    }

    /// Reads all Secrets.
    async fn list(&mut self) -> Result<(), String> {
        let mut known = BTreeMap::new();
        let mut params = ListParams::default().labels(&self.of.selector).limit(PAGE);
        let mut pages = Pages::default();
        let version = loop {
            let page = match timeout(LIST_TIMEOUT, self.of.api().list(&params)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => {
                    let why = model::error::chain(&error);
                    return Err(format!(
                        "{why}; fix: let this user get, list and watch Secrets there"
                    ));
                }
                Err(_) => return Err(format!("no answer within {}s", LIST_TIMEOUT.as_secs())),
            };
            let is_full = |known: &BTreeMap<_, _>| known.len() > self.of.terms.quota;
            let mut is_before = true;
            for secret in &page.items {
                let name = secret.name_any();
                if !is_full(&known) || self.counted.contains(&name) {
                    known.extend(self.of.source(secret));
                }
                is_before = self.counted.last().is_some_and(|last| name < *last);
            }
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            match next {
                // What is beyond the quota does not count, and need not be read. They come in the order of their names.
                Some(token) if !is_full(&known) || is_before => {
                    params.continue_token = Some(pages.next(page.items.len(), token)?);
                }
                _ => break page.metadata.resource_version,
            }
        };
        let version = version.ok_or("the list has no resourceVersion")?;
        (self.known, self.version, self.watch) = (known, Some(version), None);
        Ok(())
    }

    /// Watches from the present version. A server that refuses that is asked for everything.
    async fn open(&mut self) {
        let params = WatchParams::default().labels(&self.of.selector).timeout(WATCH_SECONDS);
        let (api, version) = (self.of.api(), self.version.clone().unwrap_or_default());
        match timeout(LIST_TIMEOUT, api.watch(&params, &version)).await {
            Ok(Ok(events)) => self.watch = Some(events.boxed()),
            _ => self.version = None,
        }
    }

    fn take(&mut self, event: WatchEvent<Secret>) {
        let full = self.known.len() > self.of.terms.quota;
        match event {
            WatchEvent::Added(secret) | WatchEvent::Modified(secret) => {
                self.version = secret.resource_version();
                self.known.remove(&secret.name_any());
                // One more than the quota shows that there are too many.
                if self.known.len() <= self.of.terms.quota {
                    self.known.extend(self.of.source(&secret));
                }
            }
            WatchEvent::Deleted(secret) => {
                // One of those that were left out may count now.
                self.version = secret.resource_version().filter(|_| !full);
                self.known.remove(&secret.name_any());
            }
            WatchEvent::Bookmark(bookmark) => {
                self.version = Some(bookmark.metadata.resource_version);
            }
            WatchEvent::Error(_) => {}
        }
        if self.version.is_none() {
            self.watch = None;
        }
    }

    /// Those that count: the ones that did before, and of the others the first by name. Of the others one more is kept.
    fn snapshot(&mut self) -> Snapshot {
        let quota = self.of.terms.quota;
        let mut names: Vec<_> = self.known.keys().cloned().collect();
        names.sort_by_key(|name| !self.counted.contains(name));
        for beyond in names.drain((quota + 1).min(names.len())..) {
            self.known.remove(&beyond);
        }
        self.counted = names.into_iter().take(quota).collect();
        let known = self.known.iter().filter(|(name, _)| self.counted.contains(*name));
        let sources = known.map(|(_, source)| source.clone()).collect();
        let problem = (self.known.len() > quota).then(|| -> Arc<str> {
            format!(
                "{} have more than {quota} clusters, those that came first count; fix: remove Secrets, or \
                 raise maxClusters of these Secrets in the configuration",
                self.label()
            )
            .into()
        });
        Snapshot { sources, problems: problem.into_iter().collect(), is_partial: false }
    }

    fn complain(&self, error: &str) {
        tracing::warn!(
            "{} cannot be listed: {error}; the next try is in {}s",
            self.label(),
            self.pause.as_secs()
        );
    }
}

impl Secrets {
    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The name of a Secret and its cluster.
    fn source(&self, secret: &Secret) -> Option<(String, Source)> {
        Some((secret.name_any(), source(secret, &self.terms)?))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::client::Body;
    use model::Clock;
    use model::testing::PausedClock;
    use serde_json::json;

    use super::*;
    use crate::error::Unusable;
    use crate::provider::Fingerprint;

    #[test]
    fn a_list_that_brings_nothing_new_or_has_no_end_is_given_up() {
        fn ends_at(pages: impl Iterator<Item = (usize, String)>) -> Option<usize> {
            let (mut all, mut read) = (pages, Pages::default());
            all.position(|(secrets, token)| read.next(secrets, token).is_err())
        }
        let all = |secrets| (0..=MAX_PAGES).map(move |page| (secrets, page.to_string()));
        assert_eq!(ends_at(all(1)), Some(MAX_PAGES - 1));
        assert_eq!(ends_at(all(0)), Some(MAX_EMPTY_PAGES));
        assert_eq!(ends_at(all(1).map(|(secrets, _)| (secrets, "a".to_owned()))), Some(1));
        let sparse = all(1).map(|(_, token)| (usize::from(token.ends_with('0')), token));
        assert_eq!(ends_at(sparse.take(100)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_removes_secrets_beyond_the_quota_has_all_listed_now_and_then() {
        let home = tower::service_fn(|request: http::Request<Body>| {
            let secret = |name: &str| json!({"metadata": {"namespace": "home", "name": name, "resourceVersion": "8"}});
            let list = json!({"apiVersion": "v1", "kind": "SecretList",
                "metadata": {"resourceVersion": "7"}, "items": [secret("a"), secret("b")]});
            let gone = json!({"type": "DELETED", "object": secret("b")});
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let answer = if is_watch { gone } else { list };
            let answer = Body::from(format!("{answer}\n").into_bytes());
            std::future::ready(Ok::<_, std::io::Error>(http::Response::new(answer)))
        });
        let of = Secrets::new(Client::new(home, "home"), "home", "is=cluster");
        let mut secrets = of.terms(Terms { quota: 1, ..Terms::default() }).provider();
        let clock = PausedClock::new();
        let began = clock.now();
        for _ in 0..10 {
            assert_eq!(secrets.next().await.problems.len(), 1, "after a list");
            assert_eq!(secrets.next().await.problems.len(), 0, "after a Secret is gone");
        }
        assert!(clock.now().since(began) >= 9 * RELIST_AFTER);
    }

    #[tokio::test]
    async fn who_adds_a_secret_takes_nothing_from_a_cluster_in_use() {
        let nobody = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("nobody is asked"))
        });
        let terms = Terms { quota: 2, ..Terms::default() };
        let of = Secrets::new(Client::new(nobody, "home"), "home", "is=cluster").terms(terms);
        let mut following = Following {
            of,
            known: BTreeMap::new(),
            counted: BTreeSet::new(),
            version: Some("7".to_owned()),
            watch: None,
            pause: FIRST_PAUSE,
            told: None,
        };
        let source = |name: &str| Source {
            name: name.parse().unwrap(),
            origin: name.into(),
            fingerprint: Fingerprint::of([name.as_bytes()]),
            access: Err(Unusable::NoContexts { path: name.into() }.into()),
            asked: None,
        };
        let mut with = |names: &[&str]| {
            following.known.extend(names.iter().map(|name| ((*name).to_owned(), source(name))));
            let snapshot = following.snapshot();
            let names: Vec<_> = snapshot.sources.iter().map(|it| it.name.to_string()).collect();
            (names.join(" "), snapshot.problems.len())
        };
        assert_eq!(with(&["z"]), ("z".to_owned(), 0));
        assert_eq!(with(&["a", "b", "c"]), ("a z".to_owned(), 1));
        let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
        following.take(WatchEvent::Deleted(Secret { metadata, ..Secret::default() }));
        assert!(following.version.is_none(), "it lists those that were left out");
    }
}
