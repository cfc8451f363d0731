//! The home cluster's client, and how its requests fare: `leasehold_home_*`. A slow home is the first thing
//! to know when Leases are renewed late.
//!
//! # Invariants
//! - Every request counts once, one too that its sender gives up, as a renewal does that takes too long.
//! - Label values are few: the methods that this program uses, and classes of answers.

use std::sync::{Arc, OnceLock};

use http::{Request, Response};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use model::{Clock, Moment, wire};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};
use tower::service_fn;

use crate::credentials::CredentialLife;
use crate::following::{self, Current, Followed};

/// Fine where a renewal is in time, and up to what no Lease outlives.
const SECONDS: [f64; 10] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0];
/// The class of a request that its sender gave up before an answer.
const GIVEN_UP: &str = "<timeout>";

/// The series of the home cluster's client. Clones share them.
#[derive(Clone, Debug)]
pub struct HomeSeries {
    credential: Used,
    seconds: HistogramVec,
    requests: IntCounterVec,
}

/// What requests carry, once there is a client.
type Used = Arc<OnceLock<Current>>;

/// From when until when the credential is valid; no series where that is not known.
struct Credential {
    used: Used,
    begins: IntGaugeVec,
    ends: IntGaugeVec,
}

impl Credential {
    fn new(used: Used) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, what: &str| {
            let name = format!("leasehold_home_credential_{name}_timestamp_seconds");
            IntGaugeVec::new(Opts::new(name, what), &["source"])
        };
        let begins = gauges("begin", "Since when the credential for the home cluster is valid.")?;
        let ends =
            gauges("end", "When the credential for the home cluster ends, if that is known.")?;
        Ok(Self { used, begins, ends })
    }
}

impl Collector for Credential {
    fn desc(&self) -> Vec<&Desc> {
        [&self.begins, &self.ends].into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let both = [&self.begins, &self.ends];
        both.iter().for_each(|gauge| gauge.reset());
        if let Some(CredentialLife { source, begins, ends }) =
            self.used.get().and_then(following::life)
        {
            self.begins.with_label_values(&[source]).set(begins.as_second());
            self.ends.with_label_values(&[source]).set(ends.as_second());
        }
        both.into_iter().flat_map(Collector::collect).collect()
    }
}

/// A request under way.
struct Begun {
    series: HomeSeries,
    clock: Arc<dyn Clock>,
    verb: &'static str,
    at: Moment,
    /// What is known of its answer.
    code: &'static str,
}

impl HomeSeries {
    /// Registers them.
    ///
    /// # Errors
    /// If the registry has series of these names.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let seconds = HistogramOpts::new(
            "leasehold_home_request_seconds",
            "Time until the home cluster's API server begins its answer, or the request is given up.",
        );
        let requests = Opts::new(
            "leasehold_home_requests_total",
            "Requests to the home cluster's API server by the class of the answer.",
        );
        let credential = Arc::default();
        registry.register(Box::new(Credential::new(Arc::clone(&credential))?))?;
        let series = Self {
            credential,
            seconds: HistogramVec::new(seconds.buckets(SECONDS.to_vec()), &["verb"])?,
            requests: IntCounterVec::new(requests, &["verb", "code"])?,
        };
        registry.register(Box::new(series.seconds.clone()))?;
        registry.register(Box::new(series.requests.clone()))?;
        Ok(series)
    }

    /// A client that sends by this one and counts; how long its credential is valid is shown too. Needs a tokio
    /// runtime.
    pub fn measure(self, followed: Followed, clock: Arc<dyn Clock>) -> Client {
        let Followed { client, current } = followed;
        // Nobody else measures with these series.
        let _ = self.credential.set(current);
        self.count(client, clock)
    }

    fn count(self, client: Client, clock: Arc<dyn Clock>) -> Client {
        let namespace = client.default_namespace().to_owned();
        let service = service_fn(move |request: Request<Body>| {
            let (client, begun) = (client.clone(), self.begin(&request, &clock));
            async move {
                let answer = client.send(request).await;
                begun.answered(answer.as_ref().ok());
                answer
            }
        });
        ClientBuilder::new(service, namespace).build()
    }

    fn begin(&self, request: &Request<Body>, clock: &Arc<dyn Clock>) -> Begun {
        let (series, clock) = (self.clone(), Arc::clone(clock));
        let at = clock.now();
        Begun { series, clock, verb: verb(request), at, code: GIVEN_UP }
    }
}

impl Begun {
    fn answered<B>(mut self, answer: Option<&Response<B>>) {
        self.code = wire::class(answer.map(|answer| answer.status().as_u16()));
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let took = self.clock.now().since(self.at);
        self.series.seconds.with_label_values(&[self.verb]).observe(took.as_secs_f64());
        self.series.requests.with_label_values(&[self.verb, self.code]).inc();
    }
}

/// The method of a request, and `WATCH` for the GET of a watch.
fn verb(request: &Request<Body>) -> &'static str {
    if wire::is_watch(request.uri()) {
        return "WATCH";
    }
    let known = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    known.into_iter().find(|verb| request.method().as_str() == *verb).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use model::ManualClock;
    use model::testing::PausedClock;
    use prometheus::TextEncoder;

    use super::*;
    use crate::{Trust, client_from_kubeconfig};

    /// A server that answers each path in its own way.
    fn server() -> Client {
        let service = service_fn(async |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            tokio::time::sleep(Duration::from_secs(if path.ends_with("slow") { 9 } else { 1 }))
                .await;
            match path {
                path if path.ends_with("gone") => Err("connection refused"),
                path if path.ends_with("broken") => {
                    Ok(Response::builder().status(500).body(Body::empty()).expect("a status"))
                }
                _ => Ok(Response::new(Body::from(b"{}".to_vec()))),
            }
        });
        Client::new(service, "ns")
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_counts_once_one_too_that_is_given_up() {
        let registry = Registry::new();
        let series = HomeSeries::register(&registry).unwrap();
        let client = series.count(server(), PausedClock::new());
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        api.get("good").await.unwrap();
        api.get("broken").await.unwrap_err();
        api.get("gone").await.unwrap_err();
        let slow = tokio::time::timeout(Duration::from_secs(2), api.get("slow")).await;
        assert!(slow.is_err(), "given up");
        api.delete("good", &Default::default()).await.unwrap();
        let _watch = api.watch(&Default::default(), "0").await.unwrap();
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for (verb, code) in [
            ("GET", "2xx"),
            ("GET", "5xx"),
            ("GET", "<error>"),
            ("GET", "<timeout>"),
            ("DELETE", "2xx"),
            ("WATCH", "2xx"),
        ] {
            let line = format!(r#"leasehold_home_requests_total{{code="{code}",verb="{verb}"}} 1"#);
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let line = r#"leasehold_home_request_seconds_bucket{verb="GET",le="1"} 3"#;
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
        let line = r#"leasehold_home_request_seconds_bucket{verb="GET",le="2"} 4"#;
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }

    #[tokio::test]
    async fn how_long_its_credential_is_valid_is_shown_once_there_is_a_client() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("home");
        let token = [r#"{"alg":"none"}"#, r#"{"iat":100,"exp":3700}"#, "s"]
            .map(|part| URL_SAFE_NO_PAD.encode(part));
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             users: [{{name: u, user: {{token: {}}}}}]\n\
             contexts: [{{name: home, context: {{cluster: c, user: u}}}}]\n\
             current-context: home\n",
            token.join(".")
        );
        std::fs::write(&path, text).unwrap();
        let registry = Registry::new();
        let series = HomeSeries::register(&registry).unwrap();
        let shown = || {
            let families = registry.gather().into_iter();
            let families = families.filter(|family| family.name().contains("credential"));
            families.map(|f| f.get_metric()[0].get_gauge().get_value()).collect::<Vec<_>>()
        };
        assert_eq!(shown(), [0.0; 0]);
        let clock = Arc::new(ManualClock::new(jiff::Timestamp::from_second(200).unwrap()));
        let client = client_from_kubeconfig(&path, None, Trust::own(), Arc::clone(&clock) as _);
        let _client = series.measure(client.await.unwrap(), clock);
        assert_eq!(shown(), [100.0, 3700.0]);
    }
}
