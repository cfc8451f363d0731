//! The pace at which one outside service is asked: a rate that all members share, and turns for the
//! keys that find no token. It has no clock or lock. A key is that of one controller: another controller's run
//! for the same object has a turn of its own.
//!
//! A key that finds no token does not wait: it gets a turn at a later moment, at which its reconcile
//! runs again, and no worker is held meanwhile. Turns are handed out in the order in which keys
//! first ask, one token apart, so that thousands of keys that come at once leave as an even stream.
//!
//! A turn is for as many requests as its reconcile says it will make, so that the stream is even in
//! requests too. It comes as soon as there is a token for the first of them: a turn for more than the
//! burst would never come otherwise.
//!
//! Turns that are promised are taken from the bucket when they are promised. A cluster is promised no more than come in
//! [`AHEAD`]: so the keys of another get turns soon, however many it has. Its further keys hear when their turns would
//! come if nobody else asks, and ask again then.
//!
//! # Invariants
//! - In any stretch of time, the requests of turns that come in it are at most the burst, the rate's
//!   share for its length, and those of the last turn. Requests beyond the announced number
//!   are taken from later turns; unused ones are given back.
//! - A key has at most one turn, and keeps it however often it asks before.
//! - At most [`MAX_PROMISED`] turns are promised, and to a cluster at most those of [`AHEAD`]. A key beyond them asks
//!   again when those before it have had their turns, or after [`MAX_WAIT`].

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use model::{Bucket, ClusterName, ControllerName, Moment, ObjectKey, Rate};

use super::limits::ExternalLimits;

/// Turns promised at once, of one upstream.
const MAX_PROMISED: usize = 100_000;
/// How far ahead turns are promised to one cluster.
const AHEAD: Duration = Duration::from_secs(10);
/// How many turns are promised to one cluster at least, however slowly they come.
const LEAST_PROMISED: u32 = 8;
/// The longest that a key beyond the promised turns waits before it asks again.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// A turn that nobody has taken for so long after it came is lost: its key is reconciled elsewhere,
/// or has nothing to ask any more.
const LOST_AFTER: Duration = Duration::from_secs(120);

/// When which key may ask one service.
#[derive(Debug)]
pub(crate) struct Pace {
    limits: ExternalLimits,
    bucket: Bucket,
    promised: HashMap<Asker, Turn>,
    by_moment: BTreeMap<Turn, Asker>,
    /// What the clusters have whose keys wait.
    of: BTreeMap<ClusterName, OfCluster>,
    next: u64,
}

/// What one cluster has.
#[derive(Debug, Default)]
struct OfCluster {
    promised: u32,
    /// When the last of its further keys asks again.
    last: Moment,
}

/// A controller and the key that it reconciles.
pub(crate) type Asker = (ControllerName, ObjectKey);

/// Its moment, and its number among the turns of that moment.
type Turn = (Moment, u64);

impl Pace {
    pub(crate) fn new(limits: ExternalLimits) -> Self {
        let bucket = Bucket::new(share(&limits, NonZeroU32::MIN));
        let (promised, by_moment, of) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { limits, bucket, promised, by_moment, of, next: 0 }
    }

    /// Takes the key's turn, if it has come or there is a token to spare. Otherwise returns when it comes.
    pub(crate) fn turn(
        &mut self,
        asker: &Asker,
        requests: u32,
        members: NonZeroU32,
        now: Moment,
    ) -> Result<(), Moment> {
        self.forget_lost(now);
        if let Some(turn) = self.promised.get(asker).copied() {
            if turn.0 > now {
                return Err(turn.0);
            }
            self.by_moment.remove(&turn);
            self.forget(asker);
            return Ok(());
        }
        let at = self.shared_among(members).ready_at(now);
        if at <= now {
            self.spend(requests, members, now);
            return Ok(());
        }
        let Rate { interval, .. } = share(&self.limits, members);
        let ahead = AHEAD.as_nanos() / interval.as_nanos().max(1);
        let is_full = self.promised.len() >= MAX_PROMISED;
        let of = self.of_cluster(&asker.1.cluster, now);
        if is_full || u128::from(of.promised) >= ahead.max(LEAST_PROMISED.into()) {
            of.last = at.max(of.last + interval.saturating_mul(requests)).min(now + MAX_WAIT);
            return Err(of.last);
        }
        of.promised += 1;
        self.spend(requests, members, now);
        self.next += 1;
        let turn = (at, self.next);
        self.promised.insert(asker.clone(), turn);
        self.by_moment.insert(turn, asker.clone());
        Err(at)
    }

    /// Takes tokens that may not be there yet: a reconcile that has begun is not held up.
    pub(crate) fn spend(&mut self, requests: u32, members: NonZeroU32, now: Moment) {
        self.shared_among(members).take(requests, now);
    }

    /// Returns tokens back that were taken and not used.
    pub(crate) fn give_back(&mut self, requests: u32, members: NonZeroU32) {
        self.shared_among(members).give_back(requests);
    }

    /// Whether a turn is promised that may still be taken.
    pub(crate) fn is_promised(&mut self, now: Moment) -> bool {
        self.forget_lost(now);
        !self.promised.is_empty()
    }

    /// The bucket, at this member's share of the rate.
    fn shared_among(&mut self, members: NonZeroU32) -> &mut Bucket {
        self.bucket.set_rate(share(&self.limits, members));
        &mut self.bucket
    }

    fn forget_lost(&mut self, now: Moment) {
        while let Some(first) = self.by_moment.first_entry()
            && now.since(first.key().0) >= LOST_AFTER
        {
            let asker = first.remove();
            self.forget(&asker);
        }
    }

    /// A key has its turn no more.
    fn forget(&mut self, asker: &Asker) {
        self.promised.remove(asker);
        if let Some(of) = self.of.get_mut(&asker.1.cluster) {
            of.promised -= 1;
        }
    }

    /// What a cluster has. Clusters whose keys wait no more are forgotten when others come.
    fn of_cluster(&mut self, cluster: &ClusterName, now: Moment) -> &mut OfCluster {
        if !self.of.contains_key(cluster) {
            self.of.retain(|_, of| of.promised > 0 || of.last > now);
        }
        self.of.entry(cluster.clone()).or_default()
    }
}

/// One member's share of what the fleet may ask.
fn share(limits: &ExternalLimits, members: NonZeroU32) -> Rate {
    let interval = limits.per.saturating_mul(members.get()) / limits.requests.max(1);
    Rate { interval, burst: (limits.burst / members).max(1) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALONE: NonZeroU32 = NonZeroU32::MIN;

    fn limits(requests: u32, burst: u32) -> ExternalLimits {
        ExternalLimits { requests, per: Duration::from_secs(1), burst, ..ExternalLimits::default() }
    }

    fn at(millis: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(millis))
    }

    fn key(number: usize) -> Asker {
        of("sqs", number)
    }

    fn of(controller: &str, number: usize) -> Asker {
        (controller.parse().unwrap(), in_cluster("east", number).1)
    }

    fn in_cluster(cluster: &str, number: usize) -> Asker {
        let name = format!("queue-{number}");
        let key = ObjectKey::new(cluster.parse().unwrap(), Some("ns"), &name);
        ("sqs".parse().unwrap(), key)
    }

    #[test]
    fn those_who_find_no_token_get_turns_one_token_apart_and_keep_them() {
        let mut pace = Pace::new(limits(10, 2));
        for (number, now, expect) in [
            (0, 0, Ok(())),
            (1, 0, Ok(())),
            (2, 0, Err(at(100))),
            (3, 0, Err(at(200))),
            // Asking again neither loses the turn nor takes another.
            (2, 50, Err(at(100))),
            // One who comes later comes later.
            (4, 150, Err(at(300))),
            // The turn waits for the key that has it.
            (3, 250, Ok(())),
            (2, 250, Ok(())),
            (2, 250, Err(at(400))),
        ] {
            assert_eq!(pace.turn(&key(number), 1, ALONE, at(now)), expect, "{number} at {now}");
        }
    }

    #[test]
    fn members_share_the_rate() {
        let four = NonZeroU32::new(4).unwrap();
        let mut pace = Pace::new(limits(10, 8));
        let taken = (0..100).filter(|n| pace.turn(&key(*n), 1, four, at(0)).is_ok()).count();
        assert_eq!(taken, 2, "its share of the burst");
        assert_eq!(pace.turn(&key(100), 1, four, at(0)), Err(at(99 * 400)));
    }

    #[test]
    fn what_a_reconcile_asks_beyond_its_first_request_is_taken_from_the_next() {
        let mut pace = Pace::new(limits(10, 1));
        assert_eq!(pace.turn(&key(0), 1, ALONE, at(0)), Ok(()));
        pace.spend(3, ALONE, at(0));
        assert_eq!(pace.turn(&key(1), 1, ALONE, at(0)), Err(at(400)));
    }

    #[test]
    fn a_turn_is_for_as_many_requests_as_it_says_and_what_is_left_is_given_back() {
        let mut pace = Pace::new(limits(10, 2));
        assert_eq!(pace.turn(&key(0), 4, ALONE, at(0)), Ok(()));
        assert_eq!(pace.turn(&key(1), 3, ALONE, at(0)), Err(at(300)));
        assert_eq!(pace.turn(&key(2), 1, ALONE, at(0)), Err(at(600)));
        pace.give_back(2, ALONE);
        assert_eq!(pace.turn(&key(3), 1, ALONE, at(0)), Err(at(500)));
    }

    #[test]
    fn a_turn_is_one_controllers_and_no_other_takes_it_for_more_than_was_paid() {
        let mut pace = Pace::new(limits(10, 1));
        assert_eq!(pace.turn(&of("a", 0), 1, ALONE, at(0)), Ok(()));
        assert_eq!(pace.turn(&of("b", 0), 1, ALONE, at(0)), Err(at(100)));
        assert_eq!(pace.turn(&of("c", 0), 8, ALONE, at(0)), Err(at(200)));
        assert_eq!(pace.turn(&of("c", 0), 8, ALONE, at(150)), Err(at(200)));
        assert_eq!(pace.turn(&of("b", 0), 1, ALONE, at(150)), Ok(()));
        assert_eq!(pace.turn(&of("a", 0), 1, ALONE, at(150)), Err(at(1000)));
    }

    #[test]
    fn a_cluster_takes_few_turns_ahead_and_another_is_soon_among_them() {
        let mut pace = Pace::new(limits(10, 1));
        for number in 0..5000 {
            let turn = pace.turn(&key(number), 1, ALONE, at(0));
            let moment = (number as u64 * 100).min(300_000);
            assert_eq!(turn, if number == 0 { Ok(()) } else { Err(at(moment)) });
        }
        assert_eq!(pace.promised.len(), 100, "those of ten seconds");
        let other = in_cluster("west", 0);
        assert_eq!(pace.turn(&other, 1, ALONE, at(0)), Err(at(10_100)));
        for number in 1..=100 {
            assert_eq!(pace.turn(&key(number), 1, ALONE, at(10_000)), Ok(()));
        }
        assert_eq!(pace.turn(&other, 1, ALONE, at(10_100)), Ok(()));
        // One of the further keys asks again.
        assert_eq!(pace.turn(&key(101), 1, ALONE, at(10_100)), Err(at(10_200)));
        assert_eq!(pace.turn(&key(101), 1, ALONE, at(10_200)), Ok(()));
        pace.turn(&in_cluster("north", 0), 1, ALONE, at(900_000)).unwrap();
        pace.turn(&in_cluster("north", 1), 1, ALONE, at(900_000)).unwrap_err();
        assert_eq!(pace.of.len(), 1, "those who wait no more are forgotten");
    }

    #[test]
    fn one_beyond_the_promised_turns_waits_as_long_as_the_last_and_is_not_kept() {
        let mut pace = Pace::new(limits(1000, 1));
        let key = |number: usize| in_cluster(&format!("c{}", number % 10), number);
        for number in 0..=MAX_PROMISED {
            let turn = pace.turn(&key(number), 1, ALONE, at(0));
            assert_eq!(turn, if number == 0 { Ok(()) } else { Err(at(number as u64)) });
        }
        for number in 1..3 {
            let last = Err(at(MAX_PROMISED as u64 + 1));
            assert_eq!(pace.turn(&key(MAX_PROMISED + number), 1, ALONE, at(0)), last);
        }
        assert_eq!((pace.promised.len(), pace.by_moment.len()), (MAX_PROMISED, MAX_PROMISED));
    }

    #[test]
    fn a_turn_nobody_takes_is_forgotten() {
        let mut pace = Pace::new(limits(1, 1));
        pace.turn(&key(0), 1, ALONE, at(0)).unwrap();
        assert_eq!(pace.turn(&key(1), 1, ALONE, at(0)), Err(at(1_000)));
        pace.turn(&key(2), 1, ALONE, at(200_000)).unwrap();
        assert!(pace.promised.is_empty() && pace.by_moment.is_empty());
    }

    proptest! {
        #[test]
        fn turns_never_come_faster_than_the_rate(
            requests in 1_u32..50, burst in 1_u32..10,
            asks in prop::collection::vec((0_usize..40, 0_u64..300), 1..200),
        ) {
            let mut pace = Pace::new(limits(requests, burst));
            let mut now = 0;
            // When each turn came, whether it was taken then or later.
            let mut came: Vec<Moment> = Vec::new();
            let mut waiting: HashMap<usize, Moment> = HashMap::new();
            for (number, step) in asks {
                now += step;
                // None has more keys than it may have turns.
                let asker = in_cluster(&format!("c{}", number % 5), number);
                match pace.turn(&asker, 1, ALONE, at(now)) {
                    Ok(()) => came.push(waiting.remove(&number).unwrap_or(at(now))),
                    Err(turn) => {
                        prop_assert!(turn > at(now));
                        prop_assert_eq!(*waiting.entry(number).or_insert(turn), turn);
                    }
                }
            }
            came.extend(waiting.into_values());
            came.sort();
            for (first, from) in came.iter().enumerate() {
                for (last, until) in came.iter().enumerate().skip(first) {
                    let allowed = f64::from(burst)
                        + until.since(*from).as_secs_f64() * f64::from(requests);
                    prop_assert!((last - first + 1) as f64 <= allowed + 1e-6);
                }
            }
        }
    }
}
