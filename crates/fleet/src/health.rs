//! What is wrong with a fleet, as far as its home cluster tells: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use model::error::split_fix;
use model::{ClusterName, MemberId};
use serde::Serialize;
use sharding::api::Phase;
use sharding::lease;
use sharding::record::Kind;

use crate::{Fleet, FleetMember, FleetShard, LeaseStanding, UnreadObject};

/// How many names a problem lists.
const MAX_NAMED: usize = 3;
/// By how much the clocks of a member and of the reader may differ, on top of two durations of its Lease, before
/// the member counts as silent.
const CLOCKS: SignedDuration = SignedDuration::from_secs(10);

/// A member attempts at least this many renewals while its Lease holds.
const RENEWALS: u32 = 3;
/// How late a renewal may come.
const LATE: Duration = Duration::from_secs(1);
/// The longest that anybody listens for one.
const MAX_LISTENED: Duration = Duration::from_secs(15);

/// For how long a shard may be handed over, by the clock of who wrote it. It takes seconds.
const MOVE: SignedDuration = SignedDuration::from_mins(15);

/// A replica with this many members is restless: it was started again, or fenced itself, three times before a coordinator
/// forgot the first of them.
const RESTLESS: usize = 4;

/// What to do about an object that cannot be read.
const UNREADABLE: &str = "correct it with kubectl edit, or delete it: then it is made anew";
/// What to do about an object that only a later release reads.
const LATER: &str = "use the leasehold of that release: what is in them is not shown here";
/// What to do to know which clusters a member fails to reach.
const WHICH: &str = "`leasehold doctor` asks the replicas, and says why, cluster by cluster";
/// What to do about shards that nobody has.
const UNOWNED: &str = "see DOWN CLUSTER in `leasehold status`; policies may rule all members out: \
                       `leasehold policies`";
/// The same, for somebody who does not see the policies.
const MAYBE_PAUSED: &str = "this user may not list FleetPolicies: ask somebody who may whether the shards are paused, or \
                            let this user read the fleet: `leasehold rbac` prints the rights";
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
    pub(crate) fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }

    /// From a text that says what to do.
    fn told(text: &str) -> Self {
        let (what, fix) = split_fix(text, LOG);
        Self::new(what, fix)
    }
}

/// Both in one line.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; fix: {}", self.what, self.fix)
    }
}

impl FleetMember {
    /// Whether it holds its Lease.
    pub fn is_alive(&self) -> bool {
        self.lease == LeaseStanding::Held
    }

    /// Whether it holds its Lease and renews it, as of `now` on the reader's clock, or as the reader saw.
    pub fn is_heard(&self, now: Timestamp) -> bool {
        let since = self.renewed.map(|renewed| now.duration_since(renewed));
        let patience = SignedDuration::from_secs(2 * i64::from(self.lease_seconds)) + CLOCKS;
        // A clock that was ahead must not make whoever died with it live on.
        let is_in_time = since.is_some_and(|since| since.abs() <= patience);
        self.is_alive() && (is_in_time || self.seen_renewing)
    }
}

impl Fleet {
    /// Whether home knows nothing of a fleet: no replica has ever run, or it is elsewhere.
    pub fn is_absent(&self) -> bool {
        self.members.is_empty() && self.shards.is_empty() && self.unread.is_empty()
    }

    /// The members that hold their Leases and renew them.
    fn heard(&self, now: Timestamp) -> impl Iterator<Item = &FleetMember> {
        self.members.iter().filter(move |member| member.is_heard(now))
    }

    /// Whether the fleet is as it should be, as of `now` on the reader's clock: a member renews its Lease, there are
    /// shards if members have clusters, each shard is owned by a member that renews, or by nobody if it is paused,
    /// nobody is refused, and every object can be read.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let heard: BTreeMap<&MemberId, &FleetMember> =
            self.heard(now).map(|member| (&member.member, member)).collect();
        let owned = |shard: &FleetShard| match shard.paused_by {
            Some(_) => shard.phase == Phase::Unowned,
            None => {
                let owner = shard.owner.as_ref();
                shard.phase == Phase::Owned && owner.is_some_and(|owner| heard.contains_key(owner))
            }
        };
        let waits_for_shards = self.shards.is_empty()
            && heard.values().any(|member| member.clusters.is_some_and(|clusters| clusters > 0));
        !heard.is_empty()
            && !waits_for_shards
            && self.shards.iter().all(owned)
            && self.refused.is_empty()
            && self.unread.is_empty()
    }

    /// How long to listen before a member counts as silent: longer than it takes to renew a Lease. Its clock or the
    /// reader's may be wrong. Nothing if all are heard.
    pub(crate) fn doubt(&self, now: Timestamp) -> Option<Duration> {
        let silent = self.alive().filter(|member| !member.is_heard(now));
        let longest = silent.map(|member| member.lease_seconds).max()?;
        Some((Duration::from_secs(longest.into()) / RENEWALS + LATE).min(MAX_LISTENED))
    }

    /// Takes in the Leases as they are after that.
    pub(crate) fn hear(&mut self, leases: &[Lease]) {
        let renewed: BTreeMap<String, Option<Timestamp>> =
            leases.iter().map(|lease| (lease.name_any(), crate::renewed(lease))).collect();
        for member in self.members.iter_mut().filter(|member| member.is_alive()) {
            let now = renewed.get(&lease::member_lease_name(&member.member));
            member.seen_renewing = now.is_some_and(|now| now.is_some() && *now != member.renewed);
        }
    }

    /// What is wrong with it, the worst first. A fleet that moves shards is well while each move ends, and so is one
    /// that people have paused.
    pub fn problems(&self, now: Timestamp) -> Vec<Problem> {
        let mut found = Vec::new();
        found.extend(self.nobody_coordinates(now));
        found.extend(self.no_cluster(now));
        found.extend(self.ruled_out());
        found.extend(self.shards_without_service(now));
        let refused = |refused: &crate::Refused| {
            let Problem { what, fix } = Problem::told(&refused.reason);
            Problem::new(format!("member {} cannot take part: {what}", refused.member), fix)
        };
        found.extend(self.refused.iter().map(refused));
        let policies = self.policy_problems.iter().map(|text| Problem::told(text));
        found.extend(policies);
        found.extend(self.held_up());
        found.extend(self.unread());
        found.extend(self.restless());
        found.extend(self.unnamed());
        let lost = self.down();
        found.extend(lost.iter().map(|((cluster, reason), by)| down(cluster, reason, by)));
        found
    }

    /// Why the ShardMap of a cluster cannot be read, if there is one that cannot.
    pub fn unread_map(&self, cluster: &str) -> Option<Problem> {
        let is = |unread: &&UnreadObject| {
            unread.resource == Kind::Map.resource() && unread.name == cluster
        };
        self.unread.iter().find(is).map(unread)
    }

    /// The objects that cannot be read; those of a later release together.
    fn unread(&self) -> Vec<Problem> {
        let mut later: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for object in &self.unread {
            if let Some(version) = object.later {
                let name = format!("{} {}", object.resource, object.name);
                later.entry(version).or_default().push(name);
            }
        }
        let together = later.into_iter().map(|(version, all)| {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let objects = if all.len() == 1 { "object" } else { "objects" };
            let are = if all.len() == 1 { "is" } else { "are" };
            let (count, names) = (all.len(), names(&all));
            Problem::new(
                format!("{count} {objects} ({names}) {are} of protocol version {version}, of a later release"),
                LATER,
            )
        });
        let broken = self.unread.iter().filter(|object| object.later.is_none()).map(unread);
        together.chain(broken).collect()
    }

    /// The members that fail to reach more clusters than they can name.
    fn unnamed(&self) -> Vec<Problem> {
        let failing = self.alive().filter_map(|member| Some((&member.member, member.failing?)));
        let problem = |(member, count): (&MemberId, u32)| {
            let what = format!(
                "member {member} fails to reach {count} clusters, and cannot name all of them"
            );
            Problem::new(what, WHICH)
        };
        failing.map(problem).collect()
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

    /// The problem that no member renews its Lease, or that none coordinates.
    pub fn nobody_coordinates(&self, now: Timestamp) -> Option<Problem> {
        if self.is_absent() {
            return Some(Problem::new(
                "there is no fleet here: home has neither Members nor ShardMaps in this namespace",
                "name its namespace with --namespace, or its home cluster with --context or --kubeconfig; if it was \
                 just installed, see why no replica runs: kubectl get pods, and their logs",
            ));
        }
        let mut heard = self.heard(now).peekable();
        if heard.peek().is_none() {
            return Some(Problem::new(
                "no member renews its Lease: nothing is served",
                "start replicas, or see why theirs do not run: kubectl get pods, and their logs",
            ));
        }
        let coordinator = self.coordinator.as_ref();
        let leads = heard.any(|member| Some(&member.member) == coordinator);
        (!leads).then(|| {
            Problem::new(
                "nobody coordinates: no shard changes its owner",
                "wait for one duration of a Lease; if it stays, see what hinders the replicas: their logs, and `leasehold events`",
            )
        })
    }

    /// The problem that no live member has a cluster configured for its controllers.
    fn no_cluster(&self, now: Timestamp) -> Option<Problem> {
        let configured: Vec<u32> = self.heard(now).filter_map(|member| member.clusters).collect();
        let is_none = !configured.is_empty() && configured.iter().all(|clusters| *clusters == 0);
        is_none.then(|| {
            Problem::new(
                "no cluster is configured: the controllers of this fleet have nothing to do",
                "`leasehold clusters add`, which needs clusters.secrets with the selector leasehold.dev/cluster in their \
                 configuration; if there were some, see whether a Secret, a folder or a kubeconfig was emptied",
            )
        })
    }

    fn shards_without_service(&self, now: Timestamp) -> Vec<Problem> {
        let heard: BTreeSet<&MemberId> = self.heard(now).map(|member| &member.member).collect();
        let waits = |shard: &&FleetShard| shard.paused_by.is_none();
        let silent = |shard: &&FleetShard| {
            let owner = shard.owner.as_ref();
            owner.is_some_and(|owner| !heard.contains(owner))
        };
        let of = |which: &dyn Fn(&&FleetShard) -> bool| -> Vec<&FleetShard> {
            self.shards.iter().filter(which).collect()
        };
        let problem = |shards: Vec<&FleetShard>, say: &str, fix: &str| {
            (!shards.is_empty()).then(|| Problem::new(format!("{}{say}", counted(&shards)), fix))
        };
        let is_told = |shard: &&FleetShard| !shard.ruled_out_by.is_empty();
        let unowned = of(&|shard| shard.phase == Phase::Unowned && waits(shard) && !is_told(shard));
        let orphaned = of(&silent);
        let unserved = of(&|shard| shard.unserved && !silent(shard) && waits(shard));
        let stuck = of(&|shard| {
            let since = shard.moved.as_ref().and_then(|moved| moved.at.as_ref());
            let is_long = since.is_some_and(|since| now.duration_since(since.0) > MOVE);
            shard.phase == Phase::Draining && is_long && !silent(shard)
        });
        let in_doubt = of(&|shard| shard.in_doubt && !silent(shard) && waits(shard));
        let found = [
            problem(
                unowned,
                " without an owner",
                if self.policies_hidden { MAYBE_PAUSED } else { UNOWNED },
            ),
            problem(
                orphaned,
                " with an owner that is silent",
                "others take over when its Lease has run out; if they do not, see the coordinator's log",
            ),
            problem(
                unserved,
                " not served: their owners do not have the cluster configured or fail to reach it",
                WHICH,
            ),
            problem(
                stuck,
                " handed over for more than 15 minutes",
                "`leasehold top` shows what runs longest there, and `leasehold doctor` whether the next owner is ready; \
                 deleting the Pod of the owner ends it",
            ),
            problem(
                in_doubt,
                " perhaps not served: their owners fail to reach more clusters than they can name",
                WHICH,
            ),
        ];
        found.into_iter().flatten().collect()
    }

    /// The clusters that live members cannot use: each with a reason and those who give it.
    pub fn down(&self) -> BTreeMap<(&ClusterName, &str), Vec<&MemberId>> {
        let mut seen: BTreeMap<_, Vec<&MemberId>> = BTreeMap::new();
        for member in self.alive() {
            for down in &member.down_clusters {
                seen.entry((&down.cluster, down.reason.as_str())).or_default().push(&member.member);
            }
        }
        seen
    }
}

/// The problem that an object cannot be read.
fn unread(object: &UnreadObject) -> Problem {
    Problem::new(&object.why, if object.later.is_some() { LATER } else { UNREADABLE })
}

/// A cluster that members cannot use, for one reason.
fn down(cluster: &ClusterName, reason: &str, members: &[&MemberId]) -> Problem {
    let Problem { what, fix } = Problem::told(reason);
    let members: Vec<&str> = members.iter().map(|member| member.as_str()).collect();
    Problem::new(format!("cluster {cluster} is down for {}: {what}", names(&members)), fix)
}

/// How many shards, and the names of the first.
pub(crate) fn counted(shards: &[&FleetShard]) -> String {
    let shown: Vec<String> = shards.iter().map(|shard| shard.shard.to_string()).collect();
    let plural = if shards.len() == 1 { "shard" } else { "shards" };
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    format!("{} {plural} ({})", shards.len(), names(&shown))
}

/// The first of some names, and how many there are besides.
pub(crate) fn names(all: &[&str]) -> String {
    let shown = all[..all.len().min(MAX_NAMED)].join(", ");
    match all.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use sharding::api::{DownCluster, MoveCause, Moved};

    use super::*;
    use crate::Refused;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn member(name: &str, renewed: i64) -> FleetMember {
        FleetMember { renewed: Some(at(renewed)), ..FleetMember::example(name) }
    }

    fn shard(cluster: &str, owner: Option<&str>) -> FleetShard {
        let phase = if owner.is_some() { Phase::Owned } else { Phase::Unowned };
        FleetShard::example(&format!("{cluster}/g/0/1"), owner, phase)
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
    fn a_move_that_does_not_end_is_named() {
        let mut fleet = healthy();
        let moved = |second| Some(Moved { why: MoveCause::Balance, at: Some(Time(at(second))) });
        let stuck = "1 shard (east/g/0/1) handed over for more than 15 minutes";
        for (phase, since, expect) in [
            (Phase::Draining, 100, vec![]),
            (Phase::Owned, -900, vec![]),
            (Phase::Draining, -900, vec![stuck]),
        ] {
            (fleet.shards[0].phase, fleet.shards[0].moved) = (phase, moved(since));
            assert_eq!(found(&fleet, 105), expect, "{since}");
        }
    }

    #[test]
    fn each_trouble_is_named_with_what_it_is_about() {
        type Spoil = fn(&mut Fleet);
        let cases: [(Spoil, &str); 11] = [
            (|fleet| fleet.members.clear(), "no member renews its Lease"),
            (|fleet| *fleet = Fleet::default(), "there is no fleet here: home has neither"),
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
            (|fleet| fleet.shards[0].in_doubt = true, "1 shard (east/g/0/1) perhaps not served"),
            (
                |fleet| fleet.members[0].failing = Some(300),
                "member m-0 fails to reach 300 clusters, and cannot name all of them",
            ),
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
    fn a_fleet_whose_members_renew_no_lease_or_that_waits_for_its_shards_has_not_settled() {
        let mut fleet = healthy();
        assert!(fleet.is_settled(at(105)));
        assert!(!fleet.is_settled(at(1000)), "all died without giving back their Leases");
        fleet.members[1].renewed = Some(at(990));
        assert!(!fleet.is_settled(at(1000)), "the owner of one shard is silent");
        fleet.members[0].renewed = Some(at(990));
        assert!(fleet.is_settled(at(1000)));
        fleet.shards.clear();
        assert!(fleet.is_settled(at(1000)), "its controllers may be for no cluster");
        fleet.members[0].clusters = Some(2);
        assert!(!fleet.is_settled(at(1000)), "its clusters have no shard yet");
        assert!(!Fleet::default().is_settled(at(1000)));
        assert!(Fleet::default().is_absent() && !fleet.is_absent());
    }

    #[test]
    fn a_member_whose_clock_is_wrong_is_heard_by_what_it_does() {
        let lease = |member: &FleetMember, renewed: i64| -> Lease {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": lease::member_lease_name(&member.member)},
                "spec": {"renewTime": format!("{}.000000Z", at(renewed).to_string().trim_end_matches('Z'))},
            }))
            .unwrap()
        };
        let mut fleet = healthy();
        assert_eq!(fleet.doubt(at(105)), None, "whoever is heard costs no second look");
        // The clock of one is five minutes slow; the other is dead.
        fleet.members[0].renewed = Some(at(700));
        fleet.members[1].renewed = Some(at(990 - 60));
        let wait = fleet.doubt(at(1000)).unwrap();
        assert!((3..=6).contains(&wait.as_secs()), "{wait:?}");
        let leases = [lease(&fleet.members[0], 703), lease(&fleet.members[1], 930)];
        fleet.hear(&leases);
        assert!(fleet.members[0].is_heard(at(1000)) && !fleet.members[1].is_heard(at(1000)));
        let told = found(&fleet, 1000);
        assert_eq!(told, ["1 shard (west/g/0/1) with an owner that is silent"]);
        fleet.members[0].lease = LeaseStanding::Taken;
        assert!(!fleet.members[0].is_heard(at(1000)), "another has its Lease");
    }

    #[test]
    fn whoever_died_with_a_clock_that_was_ahead_is_dead() {
        let mut fleet = healthy();
        for member in &mut fleet.members {
            member.renewed = Some(at(3700));
        }
        assert!(fleet.doubt(at(100)).is_some(), "it is listened for whether they renew");
        assert!(found(&fleet, 100)[0].starts_with("no member renews its Lease"));
        assert!(!fleet.is_settled(at(100)));
        fleet.members[1].seen_renewing = true;
        assert!(fleet.members[1].is_heard(at(100)), "only its clock is wrong");
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
        fleet.members[1].lease = LeaseStanding::Taken;
        let of_the_living: Vec<_> = fleet.down().into_values().collect();
        assert_eq!(of_the_living, [[&fleet.members[0].member]], "the dead say nothing any more");
    }
}
