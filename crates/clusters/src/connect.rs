//! Makes the wire to a cluster from an [`Access`], and clients over it.
//!
//! Opening a connection has a deadline, reading has none: a watch may be silent for minutes, and the sender
//! of a request knows its deadline. Clients do not retry by themselves, because a retried write could
//! outlive the Lease under which it was permitted.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::ACCEPT_ENCODING;
use http_body_util::BodyExt;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use model::{Clock, Wire};
use tokio::sync::watch;
use tower::{ServiceBuilder, ServiceExt};
use tower_http::decompression::DecompressionLayer;

use crate::address::{Dialer, lookups};
use crate::bounds::WithBounds;
use crate::credentials::{
    Authenticated, Calls, CredentialLife, CredentialSource, Keeper, Renewals,
};
use crate::error::Unusable;
use crate::handshakes::MAX_HANDSHAKES;
use crate::http::{Connections, Protocol};
use crate::provider::Access;
pub use crate::role::Role;
use crate::trust::Granted;
use crate::turns::Turns;

/// How long a server may stop reading a request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The most credentials of a provider that are obtained at once: those that are renewed, those that are obtained for the
/// first time, and those after a failure, or which take long.
const MAX_RENEWALS: [usize; 3] = [32, 16, 16];

/// The life of the credential that a wire uses now.
pub(crate) type Life = watch::Receiver<Option<CredentialLife>>;

/// A client to come. It is in a box so that connections are compiled here, and not in each crate that
/// awaits one.
pub(crate) type Connecting<'a> = BoxFuture<'a, Result<kube::Client, Arc<Unusable>>>;

/// Makes clients.
#[derive(Clone, Debug)]
pub struct Connector {
    renewals: Renewals,
    /// Of names.
    lookups: Turns,
    /// Of TLS.
    handshakes: Turns,
    role: Role,
    clock: Arc<dyn Clock>,
}

impl Connector {
    /// Makes clients for clusters with this role.
    pub fn new(role: Role, clock: Arc<dyn Clock>) -> Self {
        let renewals = Renewals { turns: Turns::new(MAX_RENEWALS), calls: Calls::new() };
        let handshakes = Turns::new(MAX_HANDSHAKES);
        Self { renewals, lookups: lookups(role), handshakes, role, clock }
    }

    /// The same for the clusters of another provider: credentials, names and servers that hang in one delay none of another.
    pub(crate) fn apart(&self) -> Self {
        self.with(Turns::apart)
    }

    /// The same for clusters that have been tried before: they give way to those that come for the first time.
    pub(crate) fn again(&self) -> Self {
        self.with(Turns::again)
    }

    fn with(&self, turns: fn(&Turns) -> Turns) -> Self {
        let renewals = Renewals { turns: turns(&self.renewals.turns), ..self.renewals.clone() };
        let (lookups, handshakes) = (turns(&self.lookups), turns(&self.handshakes));
        Self { renewals, lookups, handshakes, ..self.clone() }
    }

    /// Registers what it counts.
    pub(crate) fn register(&self, registry: &prometheus::Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.renewals.calls.0.clone()))
    }

    /// A client for `access`, which comes from `origin`.
    ///
    /// # Errors
    /// [`Unusable`] when a certificate, key or credential is wrong.
    pub fn client<'a>(&'a self, origin: &'a str, access: &'a Access) -> Connecting<'a> {
        async move { Ok(self.wire(origin, access).await?.0.client()) }.boxed()
    }

    /// The wire below such a client, and the life of its credential.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub(crate) async fn wire(
        &self,
        origin: &str,
        access: &Access,
    ) -> Result<(Wire, Life), Arc<Unusable>> {
        let (mut config, granted) = match access {
            Access::InCluster => {
                let config = kube::Config::incluster().map_err(Unusable::InCluster)?;
                // The kubelet has written it.
                (config, Granted::everything().into())
            }
            Access::Kubeconfig { kubeconfig, context, granted } => {
                let options =
                    KubeConfigOptions { context: Some(context.to_string()), ..Default::default() };
                let config =
                    kube::Config::from_custom_kubeconfig(Kubeconfig::clone(kubeconfig), &options);
                (config.await.map_err(|e| refused(origin, e))?, Arc::clone(granted))
            }
        };
        config.read_timeout = None;
        config.write_timeout = Some(WRITE_TIMEOUT);
        config.default_retry = false;
        let Self { renewals, lookups, handshakes, role, clock } = self.clone();
        let source = CredentialSource::of(origin, &mut config.auth_info, &granted, &lookups)?;
        let dialer = Dialer::new(granted.reach, lookups);
        let keeper = Keeper::start(origin, source, renewals, clock).await?;
        let (protocol, dialer) = match role {
            Role::Home => (Protocol::Http1, dialer),
            Role::Workload => (Protocol::Any, dialer.rationed(handshakes)),
        };
        let life = keeper.life();
        let wire = wire(config, keeper, protocol, dialer);
        Ok((wire.map_err(|e| refused(origin, e))?, life))
    }
}

/// A wire whose requests carry the credential of `keeper`.
fn wire(
    config: kube::Config,
    keeper: Keeper,
    protocol: Protocol,
    dialer: Dialer,
) -> Result<Wire, kube::Error> {
    let base = config.base_uri_layer();
    let unfolds = !config.disable_compression;
    let headers = config.extra_headers_layer()?;
    let namespace = config.default_namespace.clone();
    let connections = Connections::new(config, protocol, dialer)?;
    let connections = Authenticated { keeper, connections };
    let service = |gzip: bool| {
        let gzip = DecompressionLayer::new().no_br().no_deflate().no_zstd().gzip(gzip);
        ServiceBuilder::new()
            // Above decompression: it counts what reaches memory.
            .layer_fn(WithBounds)
            .layer(base.clone())
            .layer(gzip)
            .layer(headers.clone())
            .service(connections.clone())
    };
    let (service, plain) = (service(unfolds), service(false));
    let wire = Wire::new(move |request| {
        // Whoever asks for an answer as it is refuses another.
        let is_plain =
            request.headers().get(ACCEPT_ENCODING).is_some_and(|as_is| as_is == "identity");
        let answer = if is_plain { plain.clone() } else { service.clone() }.oneshot(request);
        async { Ok(answer.await?.map(BodyExt::boxed_unsync)) }.boxed()
    });
    Ok(wire.within(&namespace))
}

fn refused(origin: &str, source: impl std::error::Error + Send + Sync + 'static) -> Unusable {
    Unusable::Client { origin: origin.to_owned(), source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{Trust, client_from_kubeconfig};

    async fn connect(user: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k.yaml");
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             users: [{{name: u, user: {user}}}]\n\
             contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n\
             current-context: east\n"
        );
        fs::write(&path, text).unwrap();
        let clock = Arc::new(model::ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        match client_from_kubeconfig(&path, None, Trust::own(), clock).await {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.reason().replace(&dir.path().display().to_string(), "DIR"),
        }
    }

    async fn check(user: &str, expect: &str) {
        let found = connect(user).await;
        assert!(found.contains(expect), "{found}");
    }

    #[tokio::test]
    async fn a_gzip_that_unfolds_to_nothing_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n",
            listener.local_addr().unwrap()
        );
        let access = Access::own(Arc::new(Kubeconfig::from_yaml(&text).unwrap()), "east");
        let clock = Arc::new(model::ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let client = Connector::new(Role::Workload, clock).client("k", &access).await.unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
            let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n";
            let begins = [0x1f_u8, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
            stream.write_all(&[&head[..], &begins].concat()).await.unwrap();
            // Blocks of nothing, none of which is the last, for as long as anybody reads.
            let blocks = [0_u8, 0, 0, 0xff, 0xff].repeat(10_000);
            while stream.write_all(&blocks).await.is_ok() {}
        };
        let (answer, ()) = tokio::join!(client.apiserver_version(), server);
        let why = model::error::chain(&answer.unwrap_err());
        assert!(why.contains("GET /version has 1048576 bytes that unfold to nothing"), "{why}");
    }

    #[tokio::test]
    async fn credentials_good_and_bad() {
        check("{token: sesame}", "ok").await;
        check("{tokenFile: missing}", "DIR/missing").await;
        check(
            "{client-certificate-data: aGVsbG8=, client-key: k.pem}",
            "kubeconfig DIR/k.yaml, context \"east\": cannot read its client-key DIR/k.pem: \
             No such file or directory (os error 2); fix: put the file there, or embed it as \
             client-key-data",
        )
        .await;
        check("{client-certificate-data: '?'}", "cannot make a client").await;
    }

    #[tokio::test]
    async fn plugins_good_and_bad() {
        let exec = |rest: &str| {
            format!("{{exec: {{apiVersion: client.authentication.k8s.io/v1, {rest}}}}}")
        };
        check(
            &exec("command: no-such-plugin, installHint: brew install it"),
            "credential plugin \"no-such-plugin\" not found; fix: brew install it",
        )
        .await;
        check(&exec("command: /nowhere/p"), "\"/nowhere/p\" not found; fix: install it").await;
        check(
            &exec("command: sh, args: ['-c', 'echo sesame; echo log in first >&2; exit 3']"),
            "credential plugin \"sh\" failed with exit status: 3: log in first; fix: run it by hand",
        )
        .await;
        check(
            &exec("command: 'true'"),
            "credential plugin \"true\" gave no credential: it is not an ExecCredential in JSON",
        )
        .await;
        let answer = r#"{"kind":"ExecCredential","status":{"token":"t"}}"#;
        check(&exec(&format!("command: echo, args: ['{answer}']")), "ok").await;
    }
}
