//! Who coordinates: leader election on one Lease, in client-go's fields.
//!
//! Safety does not depend on a single coordinator: each of its writes is bound to the version it was
//! computed from (S4). The election only prevents two coordinators from working against each other.

use model::{Epoch, MemberId, Moment};

use crate::config::LeaseTimings;
use crate::lease::{COORDINATOR, LeaseRecord, ObservedLease};
use crate::record::{Object, Write};

/// This member's part in the election.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Election {
    lead: Option<Lead>,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Lead {
    since: Moment,
    renewed: Moment,
    valid_until: Moment,
}

/// What a coordinator's Lease carries for all who coordinate after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<'a> {
    /// The least epoch floor.
    pub(crate) floor: Epoch,
    /// The installation to which the namespace belongs.
    pub(crate) installation: &'a str,
    /// Whether maps stay because they went with a mass of others.
    pub(crate) mass: bool,
}

/// What to do about the coordinator's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is used at once")]
pub(crate) enum ElectionStep {
    /// Write this now.
    Write(Write),
    /// Do nothing before that moment, unless the Lease changes.
    Wait(Moment),
}

impl Election {
    pub(crate) fn leading_since(&self, now: Moment) -> Option<Moment> {
        self.lead.filter(|lead| now < lead.valid_until).map(|lead| lead.since)
    }

    /// What a member that may coordinate should do. The Lease that it writes carries this. If the holder
    /// `is_dead`, nobody waits for its silence.
    pub(crate) fn step(
        &self,
        me: &MemberId,
        observed: Option<&ObservedLease>,
        Carried { floor, installation, mass }: Carried<'_>,
        is_dead: bool,
        timings: LeaseTimings,
        now: Moment,
    ) -> ElectionStep {
        let raised = |lease: LeaseRecord| {
            let installation = Some(installation.to_owned());
            let floor = lease.floor.raised(floor);
            Object::Lease(LeaseRecord { floor, installation, mass, ..lease })
        };
        let Some(observed) = observed else {
            let record = LeaseRecord::new(COORDINATOR.to_owned(), me, timings.duration);
            return ElectionStep::Write(Write::Create(raised(record)));
        };
        let replace = |record| ElectionStep::Write(Write::Replace(raised(record)));
        let rises = observed.record.floor.raised(floor) != observed.record.floor;
        match &observed.record.holder {
            None => replace(observed.record.taken_by(me, timings.duration)),
            Some(holder) if holder == me.as_str() => {
                let due = self.lead.map(|lead| lead.renewed + timings.renew_interval);
                match due {
                    Some(due) if now < due && !rises => ElectionStep::Wait(due),
                    _ => replace(observed.record.renewed(timings.duration)),
                }
            }
            Some(_) => {
                let expires = observed.changed + observed.lasts(timings);
                if now < expires && !is_dead {
                    ElectionStep::Wait(expires)
                } else {
                    replace(observed.record.taken_by(me, timings.duration))
                }
            }
        }
    }

    /// A write sent at `sent` succeeded, which made or kept this member coordinator.
    pub(crate) fn won(&mut self, sent: Moment, timings: LeaseTimings) {
        let since = self.leading_since(sent).unwrap_or(sent);
        self.lead = Some(Lead { since, renewed: sent, valid_until: sent + timings.validity() });
    }

    /// Another member has the Lease, or this one gives it up.
    pub(crate) fn lost(&mut self) {
        self.lead = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::floor::Floor;

    const FLOOR: Epoch = Epoch(5);

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn id(name: &str) -> MemberId {
        name.parse().unwrap()
    }

    fn held_by(holder: Option<&str>) -> ObservedLease {
        let mut record =
            LeaseRecord::new(COORDINATOR.to_owned(), &id("x"), LeaseTimings::default().duration);
        record.holder = holder.map(str::to_owned);
        record.transitions = 4;
        record.floor = Floor::Known(FLOOR);
        ObservedLease::seen(record, None, at(1_000))
    }

    /// What member `a` does: `create`, `take`, `renew` or `wait <ms>`.
    fn check(election: &Election, lease: Option<&ObservedLease>, now_ms: u64, expect: &str) {
        check_after(election, lease, false, now_ms, expect);
    }

    fn check_after(
        election: &Election,
        lease: Option<&ObservedLease>,
        is_dead: bool,
        now_ms: u64,
        expect: &str,
    ) {
        let timings = LeaseTimings::default();
        let carried = Carried { floor: FLOOR, installation: "i", mass: true };
        let step = election.step(&id("a"), lease, carried, is_dead, timings, at(now_ms));
        let text = match step {
            ElectionStep::Write(Write::Create(Object::Lease(record))) => {
                assert_eq!(record.floor, Floor::Known(FLOOR));
                assert_eq!(record.installation.as_deref(), Some("i"));
                "create".to_owned()
            }
            ElectionStep::Write(Write::Replace(Object::Lease(record))) => {
                assert_eq!(record.floor, Floor::Known(FLOOR));
                assert_eq!((record.holder.as_deref(), record.mass), (Some("a"), true));
                (if record.transitions == 5 { "take" } else { "renew" }).to_owned()
            }
            ElectionStep::Wait(until) => format!("wait {}", until.since_origin().as_millis()),
            ElectionStep::Write(other) => format!("{other:?}"),
        };
        assert_eq!(text, expect, "at {now_ms} ms");
    }

    #[test]
    fn the_lease_is_taken_when_free_or_silent_and_not_before() {
        let election = Election::default();
        check(&election, None, 0, "create");
        check(&election, Some(&held_by(None)), 1_001, "take");
        check(&election, Some(&held_by(Some("b"))), 8_999, "wait 9000");
        check(&election, Some(&held_by(Some("b"))), 9_000, "take");
    }

    #[test]
    fn the_lease_of_a_dead_coordinator_is_taken_at_once() {
        let election = Election::default();
        check_after(&election, Some(&held_by(Some("b"))), true, 1_001, "take");
        check_after(&election, Some(&held_by(Some("a"))), true, 1_001, "renew");
    }

    #[test]
    fn a_leader_renews_and_one_that_lost_its_answer_finds_out() {
        let mut election = Election::default();
        let mine = held_by(Some("a"));
        check(&election, Some(&mine), 1_500, "renew");
        election.won(at(1_500), LeaseTimings::default());
        check(&election, Some(&mine), 3_499, "wait 3500");
        check(&election, Some(&mine), 3_500, "renew");
        let low = LeaseRecord { floor: Floor::Known(Epoch(4)), ..mine.record.clone() };
        check(&election, Some(&ObservedLease { record: low, ..mine }), 1_501, "renew");
        assert_eq!(election.leading_since(at(8_999)), Some(at(1_500)));
        assert_eq!(election.leading_since(at(9_000)), None);
    }
}
