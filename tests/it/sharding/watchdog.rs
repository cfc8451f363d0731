//! Whoever runs a member learns that its loop has ended, whatever ended it; and the loop turns whatever
//! home does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use apiserver::faults::Hook;
use bytes::Bytes;
use futures::stream::poll_fn;
use http::{Request as HttpRequest, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::Client;
use kube::client::Body;
use model::{ClusterName, Sleep, TaskEnd, Work, Workload};
use tower::{BoxError, service_fn};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A workload with a defect: measuring it panics, once it is told to.
#[derive(Debug, Default)]
struct Defective(AtomicBool);

impl Workload for Defective {
    fn measure(&self) -> BTreeMap<ShardId, Work> {
        assert!(!self.0.load(Ordering::SeqCst), "the test wants it");
        BTreeMap::new()
    }

    fn failing(&self) -> BTreeMap<ClusterName, Arc<str>> {
        BTreeMap::new()
    }
}

/// Tokio's paused clock on a machine that sleeps now and then.
#[derive(Debug)]
struct Laptop {
    origin: Instant,
    slept_ms: Arc<AtomicU64>,
}

impl Laptop {
    fn at(origin: Instant, slept_ms: &AtomicU64) -> Moment {
        let slept = Duration::from_millis(slept_ms.load(Ordering::SeqCst));
        Moment::from_origin(origin.elapsed() + slept)
    }
}

impl Clock for Laptop {
    fn now(&self) -> Moment {
        Self::at(self.origin, &self.slept_ms)
    }

    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.now().since_origin()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let (origin, slept_ms) = (self.origin, Arc::clone(&self.slept_ms));
        Box::pin(async move {
            while Self::at(origin, &slept_ms) < moment {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
    }
}

impl Home {
    fn member(&self, client: Client, workload: Arc<dyn Workload>) -> Sharding {
        self.member_at(client, workload, self.clock.clone())
    }

    fn member_at(
        &self,
        client: Client,
        workload: Arc<dyn Workload>,
        clock: Arc<dyn Clock>,
    ) -> Sharding {
        let config = Config::new("watched", BTreeSet::from(["tdset".parse().unwrap()]), 7);
        let metrics = prometheus::Registry::new();
        Sharding::spawn(client, config, self.clusters.subscribe(), workload, clock, &metrics)
            .unwrap()
    }
}

/// A client whose watches of Leases break in the decoder of this process.
fn decoding_panics(client: Client) -> Client {
    let service = service_fn(move |request: HttpRequest<Body>| {
        let client = client.clone();
        async move {
            let uri = request.uri().to_string();
            let breaks = uri.contains("/leases") && uri.contains("watch=true");
            let answer: Response<Body> = client.send(request).await?;
            let (parts, body) = answer.into_parts();
            if !breaks {
                let body = body.map_err(BoxError::from).boxed_unsync();
                return Ok::<_, BoxError>(Response::from_parts(parts, body));
            }
            let defect = poll_fn(|_| -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
                panic!("the test wants it")
            });
            Ok(Response::from_parts(parts, StreamBody::new(defect).boxed_unsync()))
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_loop_is_told_and_the_fence_closes_when_the_lease_is_over() {
    let home = Home::start(&["east"]).await;
    let workload = Arc::new(Defective::default());
    let sharding = home.member(home.server.client(), workload.clone());
    let is_active = || sharding.status().shards.iter().any(|shard| shard.hold == "active");
    poll_until(async || is_active()).await;
    assert_eq!(sharding.end(), None);
    workload.0.store(true, Ordering::SeqCst);
    let end = tokio::time::timeout(SECOND * 6, sharding.ended()).await.expect("its end is told");
    assert_eq!(end, TaskEnd::Panicked("the test wants it".to_owned()));
    assert_eq!(sharding.end(), Some(end));
    assert_eq!(sharding.leave().await, Departure::Abandoned);
    tokio::time::sleep(LeaseTimings::default().validity()).await;
    for held in sharding.status().shards {
        assert!(sharding.permit(&held.shard, held.epoch, Purpose::Dispatch).is_err());
    }
    tokio::time::sleep(SECOND).await;
    assert!(sharding.turns().await.is_err(), "nothing turns");
    // Others go on without it.
    let other = home.replica(1);
    until_active(&[&other], &[1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_ends_the_loop_which_would_be_blind() {
    let home = Home::start(&["east"]).await;
    let sharding = home.member(decoding_panics(home.server.client()), Arc::new(Unmeasured));
    let end = tokio::time::timeout(SECOND * 6, sharding.ended()).await.expect("its end is told");
    assert_eq!(end, TaskEnd::Panicked("the test wants it".to_owned()));
}

/// Home accepts requests and answers none.
fn silent() -> Option<Hook> {
    Some(Arc::new(|_: &Request| Fault::Delay(SECOND * 1_000)))
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_lease_rises_until_it_is_renewed_though_the_member_is_fenced() {
    let home = Home::start(&["east"]).await;
    let config = Config::new("watched", BTreeSet::from(["tdset".parse().unwrap()]), 7);
    let (metrics, clusters) = (prometheus::Registry::new(), home.clusters.subscribe());
    let client = home.server.client();
    let clock = home.clock.clone();
    let sharding =
        Sharding::spawn(client, config, clusters, Arc::new(Unmeasured), clock, &metrics).unwrap();
    let age = || {
        let families = metrics.gather();
        let mut of_age =
            families.iter().filter(|f| f.name() == "leasehold_member_lease_age_seconds");
        of_age.next().expect("it is there").get_metric()[0].get_gauge().get_value()
    };
    poll_until(async || sharding.status().shards.iter().any(|shard| shard.hold == "active")).await;
    assert!(age() < 3.0, "{}", age());
    home.server.set_faults(silent());
    tokio::time::sleep(SECOND * 60).await;
    assert!(age() > 55.0, "{}", age());
    home.server.set_faults(None);
    poll_until(async || age() < 3.0).await;
}

#[tokio::test(start_paused = true)]
async fn the_loop_turns_whatever_home_does() {
    let home = Home::start(&["east"]).await;
    let turns = async |sharding: &Sharding, what: &str| {
        for _ in 0..100 {
            tokio::time::sleep(SECOND).await;
            assert_eq!(sharding.turns().await, Ok(()), "{what}");
        }
    };
    // From the beginning: not even its definitions are known.
    home.server.set_faults(silent());
    let sharding = home.member(home.server.client(), Arc::new(Unmeasured));
    turns(&sharding, "home was never there").await;
    drop(sharding);
    home.server.set_faults(None);
    let other = home.replica(1);
    until_active(&[&other], &[1]).await;
    turns(&other.sharding, "all is well").await;
    home.server.set_faults(silent());
    home.server.close_watches();
    turns(&other.sharding, "home was there").await;
    home.server.set_faults(None);
    other.sharding.leave().await;
    turns(&other.sharding, "it has left").await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_wakes_has_a_loop_that_turns() {
    let home = Home::start(&["east"]).await;
    let slept_ms = Arc::new(AtomicU64::new(0));
    let laptop = Laptop { origin: home.clock.0, slept_ms: slept_ms.clone() };
    let workload = Arc::new(Unmeasured);
    let sharding = home.member_at(home.server.client(), workload, Arc::new(laptop));
    poll_until(async || !sharding.status().shards.is_empty()).await;
    for _ in 0..10 {
        slept_ms.fetch_add(3_600_000, Ordering::SeqCst);
        assert_eq!(sharding.turns().await, Ok(()), "asked at the very moment at which it wakes");
        tokio::time::sleep(SECOND).await;
    }
}
