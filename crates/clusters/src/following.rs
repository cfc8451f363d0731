//! A client that stays while what it is made of changes: the home cluster's. Its owner keeps it for as
//! long as the process runs, and nobody engages it anew.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use model::{Clock, ClusterName, Wire};
use tokio_util::sync::CancellationToken;

use crate::connect::{Connector, Life};
use crate::credentials::CredentialLife;
use crate::error::Unusable;
use crate::file::WatchedFile;
use crate::in_cluster::InCluster;
use crate::kubeconfig::{Contexts, Origin};
use crate::polled::Polled;
use crate::provider::{Access, ClusterProvider, Source};
use crate::role::Role;
use crate::trust::Trust;

/// The pause before a changed source is tried again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Where requests go now, and how long its credential is valid.
pub(crate) type Current = Arc<Mutex<(Wire, Life)>>;

/// A client, and the life of the credential that it uses.
pub struct Followed {
    /// The client.
    pub client: kube::Client,
    /// The life of what it uses now.
    pub(crate) current: Current,
}

/// A client to come, as `Connecting`.
pub type Following<'a> = BoxFuture<'a, Result<Followed, Arc<Unusable>>>;

/// The life of the credential that requests carry now, if it is known.
pub(crate) fn life(current: &Current) -> Option<CredentialLife> {
    *current.lock().unwrap_or_else(PoisonError::into_inner).1.borrow()
}

/// A client for one context of a kubeconfig file, or for its current one: for the home cluster and for
/// tools. It may do what `trust` allows. It follows changes of the file and of the files that it names, but
/// for another server. Needs a tokio runtime, and stops following when its last clone is dropped.
///
/// # Errors
/// [`Unusable`], which names file, cause and fix.
pub fn client_from_kubeconfig(
    path: &Path,
    context: Option<&str>,
    trust: Trust,
    clock: Arc<dyn Clock>,
) -> Following<'static> {
    let wanted = context.map_or(Contexts::Current, |name| Contexts::Chosen(vec![name.to_owned()]));
    let origin = Origin { path: path.to_owned(), prefix: None, trust };
    let file = Polled::new(WatchedFile::new(origin, wanted));
    client(Box::new(file), clock).boxed()
}

/// A client for the cluster in which this process runs. It follows renewed tokens and certificates.
///
/// # Errors
/// [`Unusable::InCluster`] outside a Pod.
pub fn client_in_cluster(clock: Arc<dyn Clock>) -> Following<'static> {
    let here = InCluster::new(ClusterName::from_context("home"));
    client(here.provider(), clock).boxed()
}

/// A client for the one cluster of `provider`. Later requests go the way that `provider` says by then;
/// those under way end as they began. What cannot be used, or leads to another server, is logged, and
/// changes nothing.
///
/// # Errors
/// [`Unusable`] when the first way cannot be used.
pub(crate) async fn client(
    mut provider: Box<dyn ClusterProvider>,
    clock: Arc<dyn Clock>,
) -> Result<Followed, Arc<Unusable>> {
    let connector = Connector::new(Role::Home, clock);
    let Source { origin, access, .. } = only(&mut *provider).await;
    let access = access?;
    let (wire, life) = connector.wire(&origin, &access).await?;
    let namespace = wire.namespace().to_owned();
    let current = Arc::new(Mutex::new((wire, life)));
    let used = Arc::clone(&current);
    let unused = CancellationToken::new();
    let following = follow(provider, connector, access, Arc::clone(&current));
    tokio::spawn(unused.clone().run_until_cancelled_owned(following));
    let guard = Arc::new(unused.drop_guard());
    let wire = Wire::new(move |request| {
        let _used = &guard;
        let wire = current.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        wire.send(request)
    });
    Ok(Followed { client: wire.within(&namespace).client(), current: used })
}

async fn only(provider: &mut dyn ClusterProvider) -> Source {
    loop {
        let mut snapshot = provider.next().await;
        if !snapshot.sources.is_empty() {
            return snapshot.sources.swap_remove(0);
        }
    }
}

async fn follow(
    mut provider: Box<dyn ClusterProvider>,
    connector: Connector,
    first: Access,
    current: Current,
) {
    let mut source = only(&mut *provider).await;
    loop {
        // A provider's answer is waited for to its end.
        let mut newer = std::pin::pin!(only(&mut *provider));
        let mut pause = FIRST_PAUSE;
        source = loop {
            if switch(&source, &connector, &first, &current).await {
                break newer.await;
            }
            // What it asks, such as a credential program, may answer later.
            tokio::select! {
                source = &mut newer => break source,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(MAX_PAUSE),
            }
        };
    }
}

/// Uses a source from now on, if it can be used. Returns whether it is used or will never be: else it may be later.
async fn switch(
    Source { origin, access, .. }: &Source,
    connector: &Connector,
    first: &Access,
    current: &Current,
) -> bool {
    let until_then = "until then requests go on with what was read before";
    let access = match access {
        Ok(access) if access.server() != first.server() => {
            tracing::warn!(
                "{origin} names another server ({} instead of {}), which may be another cluster: it is not \
                 used before this process restarts; stop all replicas before you start them with another \
                 home",
                access.server().unwrap_or_default(),
                first.server().unwrap_or_default()
            );
            return true;
        }
        Ok(access) => access,
        Err(error) => {
            tracing::warn!("{}; {until_then}", error.reason());
            return true;
        }
    };
    match connector.wire(origin, access).await {
        Ok(new) => {
            *current.lock().unwrap_or_else(PoisonError::into_inner) = new;
            tracing::info!("{origin} has changed: further requests use what it says now");
            true
        }
        Err(error) => {
            tracing::warn!("{}; it is tried again, and {until_then}", error.reason());
            false
        }
    }
}
