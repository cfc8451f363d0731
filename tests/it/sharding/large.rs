//! A fleet so large that most members watch the coordinator's Lease only.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const TWELVE: [&str; 12] =
    ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11"];
/// All but the coordinator and seven heirs; if the coordinator is an heir, one more.
const NARROW: std::ops::RangeInclusive<usize> = 4..=5;

#[tokio::test(start_paused = true)]
async fn most_members_watch_one_lease_and_the_coordinator_is_replaced_in_the_usual_time() {
    let home = Home::start(&TWELVE).await;
    // Whoever reads home anew lists both; who watches other Leases than before lists Leases only.
    let lists = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counted = Arc::clone(&lists);
    home.server.set_faults(Some(Arc::new(move |request: &Request| {
        match (request.verb, &*request.resource) {
            ("list", "leases") => counted[0].fetch_add(1, Ordering::Relaxed),
            ("list", "members") => counted[1].fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        Fault::None
    })));
    let mut replicas: Vec<Replica> = (0..12).map(|number| home.replica(number)).collect();
    until_active(&replicas.iter().collect::<Vec<_>>(), &[1; 12]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let [leases, members] = [0, 1].map(|of: usize| lists[of].load(Ordering::Relaxed));
    assert!(NARROW.contains(&(leases - members)), "{lists:?}");
    assert!(replicas.iter().all(|replica| replica.active() == 1));

    let coordinates = |replica: &Replica| replica.sharding.status().is_coordinator;
    let coordinator = replicas.iter().position(coordinates).expect("one coordinates");
    let crashed = home.now();
    replicas.remove(coordinator).crash(&home.active).await;
    let all = || replicas.iter().map(Replica::active).sum::<usize>() == 12;
    until(&replicas.iter().collect::<Vec<_>>(), "all served", all).await;
    let gap = home.now() - crashed;
    let silence = LeaseTimings::default().silence();
    assert!(gap < silence + Duration::from_millis(500), "taken over after {gap:?}");
}
