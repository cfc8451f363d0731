//! What is wrong with a fleet, as far as its home cluster tells: pure.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use model::{ClusterName, MemberId};
use serde::Serialize;
use sharding::api::Phase;

use crate::{Fleet, FleetMember, FleetShard, LeaseStanding};

/// How many names a problem lists.
const MAX_NAMED: usize = 3;
/// By how much the clocks of a member and of the reader may differ, on top of two durations of its Lease, before
/// the member counts as silent.
const CLOCKS: SignedDuration = SignedDuration::from_secs(10);

/// From how many members of one identity on its replica is restless: one that was started again, or fenced itself,
/// three times before a coordinator forgot the first of them.
const RESTLESS: usize = 4;

/// What to do about an object that cannot be read.
const UNREADABLE: &str = "correct it with kubectl edit, or delete it: then it is made anew";
/// What to do when a reason does not say it.
const LOG: &str = "see the log of a replica that says so";

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What it is, and of what.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl Problem {
    fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }
}

/// Both in one line.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; fix: {}", self.what, self.fix)
    }
}

impl FleetMember {
    /// Whether it holds its Lease and renews it, as of `now` on the reader's clock.
    pub fn is_heard(&self, now: Timestamp) -> bool {
        let since = self.renewed.map(|renewed| now.duration_since(renewed));
        let patience = SignedDuration::from_secs(2 * i64::from(self.lease_seconds)) + CLOCKS;
        self.lease == LeaseStanding::Held && since.is_some_and(|since| since <= patience)
    }
}

impl Fleet {
    /// What is wrong with it, the worst first. A fleet that moves shards is well, and so is one that people have
    /// paused.
    pub fn problems(&self, now: Timestamp) -> Vec<Problem> {
        let mut found = Vec::new();
        found.extend(self.nobody(now));
        found.extend(self.no_cluster(now));
        found.extend(self.shards_without_service(now));
        let refused = |refused: &crate::Refused| {
            // Sharding says what to do last.
            let (what, fix) = refused.reason.rsplit_once("; ").unwrap_or((&refused.reason, LOG));
            let fix = fix.trim_start_matches("fix: ");
            Problem::new(format!("member {} cannot take part: {what}", refused.member), fix)
        };
        found.extend(self.refused.iter().map(refused));
        found.extend(self.unreadable.iter().map(|what| Problem::new(what, UNREADABLE)));
        found.extend(self.restless());
        let lost = self.down();
        found.extend(lost.iter().map(|((cluster, reason), by)| down(cluster, reason, by)));
        found
    }

    /// The replicas that begin anew again and again.
    fn restless(&self) -> Vec<Problem> {
        let mut incarnations: BTreeMap<&str, usize> = BTreeMap::new();
        for member in &self.members {
            *incarnations.entry(&member.identity).or_default() += 1;
        }
        let restless = incarnations.into_iter().filter(|(_, times)| *times >= RESTLESS);
        let problem = |(identity, times): (&str, usize)| {
            Problem::new(
                format!(
                    "replica {identity} begins anew again and again: {times} members were or are it"
                ),
                "see why in its log, or in that of the process before (kubectl logs --previous)",
            )
        };
        restless.map(problem).collect()
    }

    /// That nobody is there, or nobody leads.
    fn nobody(&self, now: Timestamp) -> Option<Problem> {
        let heard: Vec<&FleetMember> =
            self.members.iter().filter(|member| member.is_heard(now)).collect();
        if heard.is_empty() {
            return Some(Problem::new(
                "no member renews its Lease: nothing is served",
                "start replicas, or see why theirs do not run: kubectl get pods, and their logs",
            ));
        }
        let coordinator = self.coordinator.as_ref();
        let leads = heard.iter().any(|member| Some(&member.member) == coordinator);
        (!leads).then(|| {
            Problem::new(
                "nobody coordinates: no shard changes its owner",
                "wait for one duration of a Lease; if it stays, see what hinders the replicas: their logs, and `leasehold events`",
            )
        })
    }

    /// That no live member has a cluster configured for its controllers: they have nothing to do.
    fn no_cluster(&self, now: Timestamp) -> Option<Problem> {
        let heard = self.members.iter().filter(|member| member.is_heard(now));
        let configured: Vec<u32> = heard.filter_map(|member| member.clusters).collect();
        let is_none = !configured.is_empty() && configured.iter().all(|clusters| *clusters == 0);
        is_none.then(|| {
            Problem::new(
                "no cluster is configured: the controllers of this fleet have nothing to do",
                "`leasehold clusters add`; if there were some, see whether a Secret, a folder or a kubeconfig was emptied",
            )
        })
    }

    fn shards_without_service(&self, now: Timestamp) -> Vec<Problem> {
        let heard: BTreeMap<&MemberId, bool> =
            self.members.iter().map(|member| (&member.member, member.is_heard(now))).collect();
        let waits = |shard: &&FleetShard| shard.paused_by.is_none();
        let silent = |shard: &&FleetShard| {
            let owner = shard.owner.as_ref();
            owner.is_some_and(|owner| !heard.get(owner).copied().unwrap_or(false))
        };
        let of = |which: &dyn Fn(&&FleetShard) -> bool| -> Vec<&FleetShard> {
            self.shards.iter().filter(which).collect()
        };
        let problem = |shards: Vec<&FleetShard>, say: &str, fix: &str| {
            (!shards.is_empty()).then(|| Problem::new(format!("{}{say}", counted(&shards)), fix))
        };
        let unowned = of(&|shard| shard.phase == Phase::Unowned && waits(shard));
        let orphaned = of(&silent);
        let unserved = of(&|shard| shard.unserved && !silent(shard) && waits(shard));
        let found = [
            problem(
                unowned,
                " without an owner",
                "see DOWN CLUSTER in `leasehold status`; policies may rule all members out: `leasehold policies`",
            ),
            problem(
                orphaned,
                " with an owner that is silent",
                "others take over when its Lease has run out; if they do not, see the coordinator's log",
            ),
            problem(
                unserved,
                " not served: their owners do not have the cluster configured or fail to reach it",
                "`leasehold doctor` says why, cluster by cluster",
            ),
        ];
        found.into_iter().flatten().collect()
    }

    /// The clusters that members cannot use: each with a reason and those who give it.
    pub fn down(&self) -> BTreeMap<(&ClusterName, &str), Vec<&MemberId>> {
        let mut seen: BTreeMap<_, Vec<&MemberId>> = BTreeMap::new();
        for member in &self.members {
            for down in &member.down_clusters {
                seen.entry((&down.cluster, down.reason.as_str())).or_default().push(&member.member);
            }
        }
        seen
    }
}

/// A cluster that members cannot use, for one reason.
fn down(cluster: &ClusterName, reason: &str, members: &[&MemberId]) -> Problem {
    let (what, fix) = split(reason);
    let members: Vec<&str> = members.iter().map(|member| member.as_str()).collect();
    Problem::new(format!("cluster {cluster} is down for {}: {what}", names(&members)), fix)
}

/// How many shards, and the names of the first.
fn counted(shards: &[&FleetShard]) -> String {
    let shown: Vec<String> = shards.iter().map(|shard| shard.shard.to_string()).collect();
    let plural = if shards.len() == 1 { "shard" } else { "shards" };
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    format!("{} {plural} ({})", shards.len(), names(&shown))
}

/// The first of some names, and how many there are besides.
fn names(all: &[&str]) -> String {
    let shown = all[..all.len().min(MAX_NAMED)].join(", ");
    match all.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A reason that names its fix, as ours do, and the fix by itself.
fn split(reason: &str) -> (&str, &str) {
    let split = reason.rsplit_once("; fix: ");
    split.unwrap_or((reason, LOG))
}

#[cfg(test)]
mod tests {
    use model::Epoch;
    use sharding::api::DownCluster;

    use super::*;
    use crate::Refused;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn member(name: &str, renewed: i64) -> FleetMember {
        FleetMember { renewed: Some(at(renewed)), ..FleetMember::example(name) }
    }

    fn shard(cluster: &str, owner: Option<&str>) -> FleetShard {
        FleetShard {
            shard: format!("{cluster}/g/0/1").parse().unwrap(),
            owner: owner.map(|owner| owner.parse().unwrap()),
            epoch: Epoch(1),
            phase: if owner.is_some() { Phase::Owned } else { Phase::Unowned },
            unserved: false,
            target: None,
            moved: None,
            paused_by: None,
        }
    }

    fn healthy() -> Fleet {
        Fleet {
            coordinator: Some("m-0".parse().unwrap()),
            members: vec![member("m-0", 100), member("m-1", 100)],
            shards: vec![shard("east", Some("m-0")), shard("west", Some("m-1"))],
            ..Fleet::default()
        }
    }

    fn found(fleet: &Fleet, now: i64) -> Vec<String> {
        fleet.problems(at(now)).into_iter().map(|problem| problem.what).collect()
    }

    #[test]
    fn a_replica_that_begins_anew_again_and_again_is_named_once() {
        let mut fleet = healthy();
        let of_one = |n: usize| {
            let mut lives = member(&format!("m-1-{n}"), 50);
            lives.identity = "lh-1".to_owned();
            lives
        };
        fleet.members.extend((1..RESTLESS).map(of_one));
        assert_eq!(found(&fleet, 101), [""; 0]);
        fleet.members.push(of_one(RESTLESS));
        let expect = "replica lh-1 begins anew again and again: 4 members were or are it";
        assert_eq!(found(&fleet, 101), [expect]);
    }

    #[test]
    fn a_fleet_that_serves_moves_or_is_paused_is_well() {
        let mut fleet = healthy();
        assert_eq!(found(&fleet, 105), [""; 0]);
        fleet.members[0].clusters = Some(0);
        fleet.members[1].clusters = Some(2);
        fleet.shards[0].phase = Phase::Draining;
        fleet.shards.push(FleetShard { paused_by: Some("p".into()), ..shard("north", None) });
        assert_eq!(found(&fleet, 105), [""; 0]);
        assert_eq!(found(&fleet, 130), [""; 0], "twice its duration, and clocks that differ");
    }

    #[test]
    fn each_trouble_is_named_with_what_it_is_about() {
        type Spoil = fn(&mut Fleet);
        let cases: [(Spoil, &str); 8] = [
            (|fleet| fleet.members.clear(), "no member renews its Lease"),
            (|fleet| fleet.coordinator = None, "nobody coordinates"),
            (
                |fleet| fleet.coordinator = Some("m-9".parse().unwrap()),
                "nobody coordinates: no shard changes its owner",
            ),
            (
                |fleet| fleet.members[1].lease = LeaseStanding::Taken,
                "1 shard (west/g/0/1) with an owner that is silent",
            ),
            (
                |fleet| {
                    for number in 0..5 {
                        fleet.shards.push(shard(&format!("c{number}"), None));
                    }
                },
                "5 shards (c0/g/0/1, c1/g/0/1, c2/g/0/1 and 2 more) without an owner",
            ),
            (
                |fleet| fleet.members.iter_mut().for_each(|member| member.clusters = Some(0)),
                "no cluster is configured",
            ),
            (|fleet| fleet.shards[0].unserved = true, "1 shard (east/g/0/1) not served"),
            (
                |fleet| {
                    let reason = "protocol version 2; fix: roll back".into();
                    fleet.refused.push(Refused { member: "m-1".parse().unwrap(), reason });
                },
                "member m-1 cannot take part: protocol version 2",
            ),
        ];
        for (spoil, expect) in cases {
            let mut fleet = healthy();
            spoil(&mut fleet);
            let found = found(&fleet, 105);
            assert!(found.iter().any(|what| what.starts_with(expect)), "{expect}: {found:?}");
        }
    }

    #[test]
    fn leases_that_nobody_renews_count_as_silence_although_nobody_took_them() {
        let fleet = healthy();
        let found = found(&fleet, 131);
        assert!(found[0].starts_with("no member renews its Lease"), "{found:?}");
        assert!(found[1].starts_with("2 shards"), "{found:?}");
    }

    #[test]
    fn members_that_give_the_same_reason_share_a_problem() {
        let mut fleet = healthy();
        for member in &mut fleet.members {
            member.down_clusters.push(DownCluster {
                cluster: "north".parse().unwrap(),
                reason: "kubeconfig north has no contexts; fix: add a context".into(),
            });
        }
        let problems = fleet.problems(at(105));
        assert_eq!(
            problems,
            [Problem::new(
                "cluster north is down for m-0, m-1: kubeconfig north has no contexts",
                "add a context"
            )]
        );
    }
}
