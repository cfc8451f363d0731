//! Clusters of etcd in miniature: who is a member, who runs, who leads, and whether enough run. Pure.
//!
//! There is no log: what a majority agrees on is known to all members at once, so a learner is in sync
//! as soon as it runs. The rules for changes of members are those of etcd with its strict check.

use std::collections::{BTreeMap, BTreeSet};

use super::launch::Launch;

/// The most learners of a cluster, as etcd has it by default.
const MAX_LEARNERS: usize = 1;

/// A member, known by its cluster's id and its own.
pub(super) type Id = (u64, u64);

/// Why etcd refuses, with its code of gRPC and its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(crate) u8, pub(crate) &'static str);

pub(super) const NO_LEADER: Refusal = Refusal(14, "etcdserver: no leader");
pub(super) const UNHEALTHY: Refusal = Refusal(14, "etcdserver: unhealthy cluster");
pub(super) const NOT_LEADER: Refusal = Refusal(9, "etcdserver: not leader");
pub(super) const FOR_LEARNER: Refusal = Refusal(9, "etcdserver: rpc not supported for learner");
const URL_EXISTS: Refusal = Refusal(9, "etcdserver: Peer URLs already exists");
const BAD_URLS: Refusal = Refusal(3, "etcdserver: given member URLs are invalid");
const TOO_MANY_LEARNERS: Refusal = Refusal(9, "etcdserver: too many learner members in cluster");
const NOT_ENOUGH: Refusal =
    Refusal(9, "etcdserver: re-configuration failed due to not enough started members");
const NOT_FOUND: Refusal = Refusal(5, "etcdserver: member not found");
const NO_LEARNER: Refusal = Refusal(9, "etcdserver: can only promote a learner member");
const LAGS: Refusal =
    Refusal(9, "etcdserver: can only promote a learner member which is in sync with leader");
const BAD_TRANSFEREE: Refusal = Refusal(9, "etcdserver: bad leader transferee");

/// A member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Member {
    /// Empty until it has started.
    pub(super) name: String,
    pub(super) peer_urls: Vec<String>,
    pub(super) client_urls: Vec<String>,
    pub(super) learner: bool,
    pub(super) version: String,
    pub(super) quota: Option<i64>,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cluster {
    pub(super) id: u64,
    pub(super) members: BTreeMap<u64, Member>,
    running: BTreeSet<u64>,
    /// 0 if nobody leads.
    pub(super) leader: u64,
    pub(super) term: u64,
    /// How many changes there were.
    pub(super) index: u64,
    /// Members whose database is full.
    pub(super) full: BTreeSet<u64>,
}

/// Every cluster, and what is on the volumes.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    clusters: BTreeMap<u64, Cluster>,
    volumes: BTreeMap<String, Id>,
}

impl Clusters {
    /// Starts a member: as the one whose data its volume has, or as its arguments say.
    ///
    /// # Errors
    /// etcd's last words, if it does not start.
    pub(super) fn start(&mut self, launch: &Launch) -> Result<Id, String> {
        let known = self.volumes.get(&launch.volume).copied();
        let id = match known {
            Some(id) => id,
            None if launch.founds => self.found(launch)?,
            None => self.join(launch)?,
        };
        let Some(cluster) = self.clusters.get_mut(&id.0) else {
            return Err("the cluster of this data is gone".into());
        };
        let Some(member) = cluster.members.get_mut(&id.1) else {
            return Err("the member has been permanently removed from the cluster".into());
        };
        member.name.clone_from(&launch.name);
        member.client_urls.clone_from(&launch.client_urls);
        member.version.clone_from(&launch.version);
        member.quota = launch.quota;
        self.volumes.insert(launch.volume.clone(), id);
        cluster.running.insert(id.1);
        cluster.elect();
        Ok(id)
    }

    /// Notes that a member does not run any more.
    pub(super) fn stop(&mut self, (cluster, member): Id) {
        if let Some(cluster) = self.clusters.get_mut(&cluster) {
            cluster.running.remove(&member);
            cluster.elect();
        }
    }

    /// The cluster of a member that runs and is still one.
    pub(super) fn of(&mut self, (cluster, member): Id) -> Option<&mut Cluster> {
        let cluster = self.clusters.get_mut(&cluster)?;
        cluster.members.contains_key(&member).then_some(cluster)
    }

    fn found(&mut self, launch: &Launch) -> Result<Id, String> {
        let text = |(name, url): &(String, String)| format!("{name}={url}");
        let mut initial: Vec<String> = launch.initial.iter().map(text).collect();
        initial.sort();
        let id = hash(&format!("{} {}", launch.token, initial.join(",")));
        let cluster = self.clusters.entry(id).or_insert_with(|| {
            let members = launch.initial.iter().map(|(_, url)| {
                let member = Member { peer_urls: vec![url.clone()], ..Member::default() };
                (hash(&format!("{url} {}", launch.token)), member)
            });
            Cluster { id, members: members.collect(), term: 1, index: 1, ..Cluster::default() }
        });
        let member = cluster.unstarted(&launch.peer_urls);
        let unnamed =
            || format!("couldn't find local name {:?} in the initial cluster", launch.name);
        member.map(|member| (id, member)).ok_or_else(unnamed)
    }

    fn join(&mut self, launch: &Launch) -> Result<Id, String> {
        let others: Vec<&String> = launch
            .initial
            .iter()
            .map(|(_, url)| url)
            .filter(|url| !launch.peer_urls.contains(url))
            .collect();
        let has = |cluster: &Cluster, url: &String| {
            cluster.members.values().any(|member| member.peer_urls.contains(url))
        };
        let reached =
            |cluster: &&Cluster| cluster.leader != 0 && others.iter().any(|url| has(cluster, url));
        let cluster = self.clusters.values().find(reached).ok_or(
            "cannot fetch cluster info from peer urls: could not retrieve cluster information from \
             the given URLs",
        )?;
        if cluster.members.len() != launch.initial.len() {
            return Err("error validating peerURLs: member count is unequal".into());
        }
        let member = cluster.unstarted(&launch.peer_urls);
        let started = || format!("member {:?} has already been bootstrapped", launch.name);
        member.map(|member| (cluster.id, member)).ok_or_else(started)
    }
}

impl Cluster {
    /// Adds a member, which has not started.
    pub(super) fn add(&mut self, urls: Vec<String>, learner: bool) -> Result<u64, Refusal> {
        self.check_leader()?;
        if urls.is_empty() || urls.iter().any(|url| !url.contains("://")) {
            return Err(BAD_URLS);
        }
        if self.members.values().any(|member| member.peer_urls.iter().any(|url| urls.contains(url)))
        {
            return Err(URL_EXISTS);
        }
        let learners = self.members.values().filter(|member| member.learner).count();
        if learner && learners >= MAX_LEARNERS {
            return Err(TOO_MANY_LEARNERS);
        }
        if !learner {
            let (started, voters) = self.voters(None);
            let alone = started == 1 && voters == 1;
            let with_it = voters + 1;
            if !alone && started < with_it / 2 + 1 {
                return Err(NOT_ENOUGH);
            }
            if !self.all_run() {
                return Err(UNHEALTHY);
            }
        }
        self.index += 1;
        let id = hash(&format!("{} {} {}", urls.join(","), self.id, self.index));
        self.members.insert(id, Member { peer_urls: urls, learner, ..Member::default() });
        self.elect();
        Ok(id)
    }

    /// Removes a member.
    pub(super) fn remove(&mut self, id: u64) -> Result<(), Refusal> {
        self.check_leader()?;
        let member = self.members.get(&id).ok_or(NOT_FOUND)?;
        if !member.learner {
            let (started, voters) = self.voters(Some(id));
            if started < voters / 2 + 1 {
                return Err(NOT_ENOUGH);
            }
            // Whoever does not run may go; of those that run a majority of the rest must stay.
            let rest = self.voters_running() - usize::from(self.running.contains(&id));
            if self.running.contains(&id) && rest < voters / 2 + 1 {
                return Err(UNHEALTHY);
            }
        }
        self.index += 1;
        self.members.remove(&id);
        self.running.remove(&id);
        self.full.remove(&id);
        self.elect();
        Ok(())
    }

    /// Gives a learner a vote.
    pub(super) fn promote(&mut self, id: u64) -> Result<(), Refusal> {
        self.check_leader()?;
        let member = self.members.get_mut(&id).ok_or(NOT_FOUND)?;
        if !member.learner {
            return Err(NO_LEARNER);
        }
        if !self.running.contains(&id) {
            return Err(LAGS);
        }
        member.learner = false;
        self.index += 1;
        self.elect();
        Ok(())
    }

    /// Makes another member lead.
    pub(super) fn move_leader(&mut self, from: u64, to: u64) -> Result<(), Refusal> {
        if from != self.leader {
            return Err(NOT_LEADER);
        }
        let voter = self.members.get(&to).is_some_and(|member| !member.learner);
        if !voter || !self.running.contains(&to) {
            return Err(BAD_TRANSFEREE);
        }
        if to != from {
            (self.leader, self.term) = (to, self.term + 1);
        }
        Ok(())
    }

    /// Refuses if nobody leads.
    pub(super) fn check_leader(&self) -> Result<(), Refusal> {
        if self.leader == 0 { Err(NO_LEADER) } else { Ok(()) }
    }

    fn unstarted(&self, urls: &[String]) -> Option<u64> {
        let mut members = self.members.iter();
        let found = members.find(|(_, m)| m.name.is_empty() && m.peer_urls == urls);
        found.map(|(id, _)| *id)
    }

    /// How many members with a vote have started ever, and how many there are, without one of them.
    fn voters(&self, without: Option<u64>) -> (usize, usize) {
        let voters = || {
            let others = self.members.iter().filter(move |(id, _)| Some(**id) != without);
            others.filter(|(_, member)| !member.learner)
        };
        (voters().filter(|(_, member)| !member.name.is_empty()).count(), voters().count())
    }

    fn voters_running(&self) -> usize {
        let runs = |id: &u64| self.running.contains(id);
        self.members.iter().filter(|(id, member)| !member.learner && runs(id)).count()
    }

    fn all_run(&self) -> bool {
        self.voters_running() == self.voters(None).1
    }

    /// The leader stays as long as it runs and enough others do.
    fn elect(&mut self) {
        let quorum = self.voters(None).1 / 2 + 1;
        let voter = |id: &u64| self.members.get(id).is_some_and(|member| !member.learner);
        let leads = self.running.contains(&self.leader) && voter(&self.leader);
        let next = match self.voters_running() >= quorum {
            false => 0,
            true if leads => self.leader,
            true => self.running.iter().copied().find(voter).unwrap_or(0),
        };
        if next != self.leader {
            self.leader = next;
            self.term += u64::from(next != 0);
        }
    }
}

/// FNV-1a: ids look random and stay the same. Never 0.
fn hash(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.max(1)
}
