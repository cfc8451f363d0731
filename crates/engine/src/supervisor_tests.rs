//! Whose turn it is in the supervisor.

use cache::DecodedCache;
use jiff::Timestamp;
use model::Budgets;
use model::testing::PausedClock;
use upstream::UpstreamLimits;

use super::*;
use crate::dispatch::Unobserved;
use crate::engagements::EngagementParts;
use crate::idle::Idle;

/// A clock at each look at which the clusters have changed: they change faster than they are followed.
#[derive(Debug)]
struct Restless(Arc<PausedClock>, watch::Sender<Arc<ClusterSet>>);

impl Clock for Restless {
    fn now(&self) -> Moment {
        self.1.send_modify(|_| ());
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }
}

/// One without controllers.
fn supervisor() -> Supervisor {
    let (changes, clusters) = watch::channel(Arc::default());
    let clock: Arc<dyn Clock> = Arc::new(Restless(PausedClock::new(), changes));
    let ownership: Arc<dyn Ownership> = Arc::new(Idle);
    let metrics = Metrics::new(&prometheus::Registry::new(), Arc::default()).unwrap();
    let meter = Meter::new(Arc::clone(&clock));
    let board = Board::new(Arc::clone(&clock), Arc::clone(&ownership), std::iter::empty(), &meter);
    let (board, rng) = (Arc::new(board), fastrand::Rng::with_seed(1));
    let informers = Informers::new(
        Arc::clone(&clock),
        metrics.clone(),
        Arc::clone(&board),
        rng.clone(),
        BTreeMap::new(),
        Arc::new(DecodedCache::new(0)),
    );
    let engagements = Engagements::new(EngagementParts {
        clock: Arc::clone(&clock),
        metrics: metrics.clone(),
        board: Arc::clone(&board),
        quarantines: meter.quarantines().clone(),
        upstream: UpstreamLimits::default(),
        budgets: Budgets::default(),
        rng: rng.clone(),
        stamps: false,
    });
    let singles = Singles::new(
        Arc::clone(&ownership),
        Arc::new(Unobserved),
        Arc::clone(&clock),
        metrics.fence_rejected.clone(),
    );
    let parts = Parts {
        ownership,
        clusters,
        clock,
        informers,
        meter,
        metrics,
        board,
        engagements,
        rng,
        singles,
    };
    Supervisor::new(std::iter::empty(), parts)
}

#[tokio::test(start_paused = true)]
async fn clusters_that_change_without_end_hold_up_no_report() {
    let supervisor = supervisor();
    let reports = supervisor.reports.clone();
    for _ in 0..REPORTS {
        let (controller, cluster) = ("c".parse().unwrap(), "east".parse().unwrap());
        let synced = Synced { controller, cluster, context: 1, source: 0, met: 1 };
        assert!(reports.try_send(synced).is_ok());
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn(supervisor.run(stop.clone()));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reports.capacity(), REPORTS, "each was heard");
    stop.cancel();
    running.await.unwrap();
}
