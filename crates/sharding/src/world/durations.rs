//! For how long a member may still act whose Lease nobody sees any more: as long as any Lease may last whose member
//! is not known to have ended. While the setting is rolled out, members differ in it, so a longer one than this
//! process has is kept by id, until that id can act no more. Whose Lease is gone cannot renew it.

use std::collections::BTreeMap;
use std::time::Duration;

use model::Moment;

use crate::config::{LeaseTimings, MAX_LEASE};
use crate::lease::{self, LeaseRecord, ObservedLease};

/// The durations of Leases that were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Durations {
    /// The one of this process.
    own: Duration,
    /// The longer ones, by the names of the Leases.
    longer: BTreeMap<String, Longer>,
}

#[derive(Clone, Copy, Debug)]
struct Longer {
    duration: Duration,
    /// Since when its member has it no more, as far as that is known.
    lost: Option<Moment>,
}

impl Longer {
    /// Whether its member can act no more.
    fn is_over(self, timings: LeaseTimings, now: Moment) -> bool {
        self.lost.is_some_and(|lost| now >= lost + self.duration + timings.margin)
    }
}

impl Durations {
    /// None yet, by a process whose own Lease lasts so long.
    pub(super) fn beside(own: Duration) -> Self {
        Self { own, ..Self::default() }
    }

    /// Takes in a version of a Lease. `known` is the version before.
    pub(super) fn see(&mut self, record: &LeaseRecord, known: Option<&ObservedLease>, now: Moment) {
        let duration = record.duration.min(MAX_LEASE);
        let is_held = lease::is_held(record);
        if is_held && lease::is_usual(record, known) && duration > self.own {
            self.longer.retain(|_, longer| {
                longer.lost.is_none_or(|lost| now < lost + longer.duration * 2)
            });
            let fresh = Longer { duration, lost: None };
            let longer = self.longer.entry(record.name.clone()).or_insert(fresh);
            longer.duration = longer.duration.max(duration);
        }
        if let Some(longer) = self.longer.get_mut(&record.name) {
            longer.lost = if is_held { None } else { longer.lost.or(Some(now)) };
        }
    }

    /// This process took a Lease from its member.
    pub(super) fn took(&mut self, name: &str) {
        self.longer.remove(name);
    }

    /// All Leases are known: who has none at `now` renews none any more.
    pub(super) fn see_all<T>(&mut self, leases: &BTreeMap<String, T>, now: Moment) {
        for (_, longer) in self.longer.iter_mut().filter(|(name, _)| !leases.contains_key(*name)) {
            longer.lost.get_or_insert(now);
        }
    }

    /// The longest that counts at `now`.
    pub(super) fn longest(&self, timings: LeaseTimings, now: Moment) -> Duration {
        let longer = self.longer.values().filter(|longer| !longer.is_over(timings, now));
        longer.map(|longer| longer.duration).max().unwrap_or_default().max(timings.duration)
    }

    /// From when on no decision depends any more on how long ago that moment was.
    pub(super) fn after(&self, moment: Moment) -> Moment {
        let longer = self.longer.values().map(|longer| longer.duration);
        moment + longer.max().unwrap_or_default().max(self.own) * 2
    }

    /// What decisions depend on.
    pub(super) fn essence(&self) -> impl Iterator<Item = (&String, Duration, Option<Moment>)> {
        // Any moment after which no decision depends on when it was lost does.
        self.longer.iter().map(|(name, longer)| {
            (name, longer.duration, longer.lost.map(|lost| lost + longer.duration * 2))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectVersion;
    use crate::record::{Kind, Object, Observation};
    use crate::world::World;

    fn at(s: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(s))
    }

    fn held(member: &str, holder: Option<&str>, duration_s: u64, resource: u64) -> Object {
        let id = member.parse().unwrap();
        let name = lease::member_lease_name(&id);
        let record = LeaseRecord::new(name, &id, Duration::from_secs(duration_s));
        let version = ObjectVersion::numbered(resource);
        Object::Lease(LeaseRecord { holder: holder.map(str::to_owned), version, ..record })
    }

    /// After `lease.duration` was lowered, a change of home's history costs what the present one costs.
    #[test]
    fn a_longer_lease_counts_until_its_member_can_act_no_more() {
        let timings = LeaseTimings::default();
        let duration = |world: &World, s: u64| world.silence(timings, at(s)) - timings.margin;
        let (own, long) = (timings.duration, Duration::from_secs(60));
        let mut world = World::default().of_lease(own);
        world.apply(held("m-1", Some("m-1"), 60, 5), at(1));
        world.forget();
        assert_eq!(duration(&world, 500), long, "nobody knows that it has ended");
        world.apply(held("m-1", None, 60, 6), at(1_000));
        world.forget();
        assert_eq!((duration(&world, 1_060), duration(&world, 1_061)), (long, own));
        // It was given back its Lease, and then this process took it.
        world.apply(held("m-1", Some("m-1"), 60, 7), at(2_000));
        assert_eq!(duration(&world, 3_000), long);
        world.took(&lease::member_lease_name(&"m-1".parse().unwrap()));
        assert_eq!(duration(&world, 3_000), own);
        // Whatever somebody writes into the Lease of one that has left.
        for resource in 8..11 {
            world.apply(held("m-2", None, 600, resource), at(3_000));
        }
        assert_eq!(duration(&world, 3_000), own);
    }

    /// Whoever watched the coordinator's Lease only has missed how they ended.
    #[test]
    fn a_longer_lease_that_is_gone_when_all_are_listed_counts_for_its_time_only() {
        let timings = LeaseTimings::default();
        let silence = |world: &World, s: u64| world.silence(timings, at(s));
        let list = |version: &str| Observation::Listed(Kind::Lease, version.into(), Vec::new());
        let mut world = World::default().of_lease(timings.duration);
        world.apply(held("m-1", Some("m-1"), 60, 5), at(1));
        world.see_coordinators_lease(&"m-2".parse().unwrap());
        world.observe(list("8"), at(50));
        assert_eq!(silence(&world, 500), Duration::from_secs(60) + timings.margin);
        world.see_all_leases();
        world.observe(list("9"), at(100));
        for (s, is_over) in [(160, false), (161, true)] {
            assert_eq!(silence(&world, s) == timings.silence(), is_over, "{s}");
        }
        // Its deletion is seen.
        world.observe(Observation::Applied(held("m-1", Some("m-1"), 60, 10)), at(200));
        assert_ne!(silence(&world, 500), timings.silence());
        world.observe(Observation::Deleted(held("m-1", Some("m-1"), 60, 11)), at(300));
        for (s, is_over) in [(360, false), (361, true)] {
            assert_eq!(silence(&world, s) == timings.silence(), is_over, "{s}");
        }
    }

    #[test]
    fn only_members_that_have_their_lease_are_counted() {
        let mut world = World::default();
        let leases = vec![
            held("m-1", Some("m-1"), 8, 5),
            held("m-2", Some("m-1"), 8, 6),
            held("m-3", None, 8, 7),
        ];
        world.observe(Observation::Listed(Kind::Lease, "9".into(), leases), at(1));
        assert_eq!(world.holders(), 1);
    }
}
