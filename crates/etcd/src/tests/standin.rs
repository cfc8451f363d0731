//! A stand-in of etcd: membership, learners, the leader, majorities and `strict-reconfig-check`, as its
//! gateway answers in JSON. It keeps what must never happen: see [`Standin::wrong`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// What a volume holds: the member whose data it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) member: Option<u64>,
    /// How many acknowledged writes it has.
    pub(crate) writes: u64,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) is_learner: bool,
    /// How often a promotion is still refused.
    pub(crate) lag: u32,
}

/// A process that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) member: u64,
    pub(crate) volume: String,
    pub(crate) version: String,
}

/// etcd, all of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standin {
    pub(crate) members: BTreeMap<u64, Member>,
    /// Those who were removed: they never come back.
    pub(crate) removed: BTreeSet<u64>,
    /// By Pod.
    pub(crate) processes: BTreeMap<String, Process>,
    /// By the volume's uid.
    pub(crate) disks: BTreeMap<String, Disk>,
    pub(crate) leader: u64,
    pub(crate) alarms: BTreeSet<u64>,
    /// Sizes of databases, allocated and in use, by member.
    pub(crate) sizes: BTreeMap<u64, (i64, i64)>,
    pub(crate) quota: i64,
    /// Acknowledged writes.
    pub(crate) writes: u64,
    /// How a learner lags at first.
    pub(crate) lag: u32,
    /// What was done, in words.
    pub(crate) log: Vec<String>,
    /// What must never happen.
    pub(crate) wrong: Vec<String>,
    pub(crate) founded: bool,
    pub(crate) next: u64,
}

type Answer = Result<Value, (u16, String)>;

fn refuse<T>(words: &str) -> Result<T, (u16, String)> {
    Err((400, format!("etcdserver: {words}")))
}

fn argument<'a>(arguments: &'a [String], name: &str) -> &'a str {
    let start = format!("--{name}=");
    arguments.iter().find_map(|argument| argument.strip_prefix(&start)).unwrap_or_default()
}

impl Standin {
    /// Starts a process with these arguments on a volume. It may exit at once.
    pub(crate) fn start(&mut self, pod: &str, arguments: &[String], volume: &str, version: &str) {
        let (name, url) =
            (argument(arguments, "name"), argument(arguments, "initial-advertise-peer-urls"));
        let disk = self.disks.entry(volume.to_owned()).or_default().clone();
        let member = match disk.member {
            Some(member) if self.removed.contains(&member) => return,
            Some(member) => member,
            None if argument(arguments, "initial-cluster-state") == "new" => {
                if self.founded {
                    self.wrong.push(format!("{pod} founded a second cluster"));
                }
                self.founded = true;
                self.next = 0x10;
                self.admit(url, false)
            }
            None => {
                let initial = argument(arguments, "initial-cluster");
                let listed: BTreeSet<_> =
                    self.members.values().map(|member| member.url.clone()).collect();
                let given: BTreeSet<_> = initial
                    .split(',')
                    .filter_map(|one| one.split_once('='))
                    .map(|(_, url)| url.to_owned())
                    .collect();
                // It asks the others, and refuses members that are not theirs.
                let others = self.members.iter().any(|(id, member)| {
                    member.url != url && given.contains(&member.url) && self.is_up(*id)
                });
                if !others || listed != given {
                    return;
                }
                let Some((id, member)) = self.members.iter().find(|(_, member)| member.url == url)
                else {
                    return;
                };
                if !member.is_learner && !member.name.is_empty() {
                    self.wrong.push(format!("{pod} votes again without its data"));
                }
                *id
            }
        };
        if self.processes.values().any(|process| process.member == member) {
            self.wrong.push(format!("{pod} runs a member that runs already"));
        }
        self.disks.insert(volume.to_owned(), Disk { member: Some(member), ..disk });
        if let Some(found) = self.members.get_mut(&member) {
            found.name = name.to_owned();
        }
        let process = Process { member, volume: volume.to_owned(), version: version.to_owned() };
        self.processes.insert(pod.to_owned(), process);
        self.elect();
        self.replicate();
    }

    pub(crate) fn stop(&mut self, pod: &str) {
        self.processes.remove(pod);
        self.elect();
    }

    /// A client's write: acknowledged if a majority has it.
    pub(crate) fn write(&mut self) -> bool {
        if !self.has_quorum() || !self.alarms.is_empty() {
            return false;
        }
        self.writes += 1;
        self.replicate();
        true
    }

    pub(crate) fn voters(&self) -> Vec<u64> {
        self.members.iter().filter(|(_, member)| !member.is_learner).map(|(id, _)| *id).collect()
    }

    pub(crate) fn is_up(&self, id: u64) -> bool {
        self.processes.values().any(|process| process.member == id)
    }

    pub(crate) fn has_quorum(&self) -> bool {
        let voters = self.voters();
        voters.iter().filter(|id| self.is_up(**id)).count() > voters.len() / 2
    }

    /// Whether a Pod's `/readyz` is good.
    pub(crate) fn is_ready(&self, pod: &str) -> bool {
        let process = self.processes.get(pod);
        process.is_some_and(|process| self.voters().contains(&process.member)) && self.has_quorum()
    }

    fn admit(&mut self, url: &str, is_learner: bool) -> u64 {
        self.next += 1;
        let (name, url, lag) = (String::new(), url.to_owned(), self.lag);
        self.members.insert(self.next, Member { name, url, is_learner, lag });
        self.sizes.insert(self.next, (20_480, 20_480));
        self.next
    }

    /// Every process that runs gets all that a majority has; with a majority that has not got every
    /// acknowledged write, something was lost.
    fn replicate(&mut self) {
        if !self.has_quorum() {
            return;
        }
        let voters = self.voters();
        let up: Vec<_> = self
            .processes
            .values()
            .filter(|process| voters.contains(&process.member))
            .cloned()
            .collect();
        let best = up.iter().map(|process| self.disks[&process.volume].writes).max();
        // The new write is on its way: one less is what was acknowledged before.
        if best.is_some_and(|best| best + 1 < self.writes) {
            self.wrong.push("an acknowledged write is lost".to_owned());
        }
        for process in self.processes.values() {
            if let Some(disk) = self.disks.get_mut(&process.volume) {
                disk.writes = self.writes;
            }
        }
    }

    fn elect(&mut self) {
        if !self.has_quorum() {
            self.leader = 0;
        } else if !self.is_up(self.leader) || !self.voters().contains(&self.leader) {
            self.leader = self.voters().into_iter().find(|id| self.is_up(*id)).unwrap_or(0);
        }
    }

    fn header(&self, id: u64) -> Value {
        json!({"cluster_id": "171", "member_id": id.to_string()})
    }

    /// The gateway's answer of a Pod, or nothing if it does not run.
    pub(crate) fn post(&mut self, pod: &str, path: &str, body: &Value) -> Option<Answer> {
        let process = self.processes.get(pod)?.clone();
        let is_learner = self.members.get(&process.member).is_some_and(|member| member.is_learner);
        if is_learner && path != "/v3/maintenance/status" {
            return Some(refuse("rpc not supported for learner"));
        }
        let id = |key: &str| body[key].as_str().and_then(|id| id.parse().ok()).unwrap_or(0);
        if path != "/v3/maintenance/status"
            && path != "/v3/maintenance/defragment"
            && !self.has_quorum()
        {
            return Some(Err((503, "etcdserver: no leader".to_owned())));
        }
        Some(match path {
            "/v3/maintenance/status" => Ok(self.status(&process)),
            "/v3/cluster/member/list" => {
                assert_eq!(body["linearizable"], true, "a stale list decides nothing");
                Ok(self.listed(process.member))
            }
            "/v3/cluster/member/add" => self.add(body, process.member),
            "/v3/cluster/member/promote" => self.promote(id("ID"), process.member),
            "/v3/cluster/member/remove" => self.remove(id("ID"), process.member),
            "/v3/maintenance/transfer-leadership" => self.transfer(id("targetID"), process.member),
            "/v3/maintenance/defragment" => {
                self.log.push(format!("defragment {pod}"));
                let size = self.sizes.entry(process.member).or_default();
                size.0 = size.1;
                Ok(json!({}))
            }
            "/v3/maintenance/alarm" => Ok(self.alarm(body, id("memberID"))),
            _ => Err((404, "Not Found".to_owned())),
        })
    }

    fn status(&self, process: &Process) -> Value {
        let (size, in_use) = self.sizes.get(&process.member).copied().unwrap_or_default();
        let errors: Vec<_> =
            self.alarms.iter().map(|id| format!("memberID:{id} alarm:NOSPACE")).collect();
        json!({
            "header": self.header(process.member), "version": process.version,
            "dbSize": size.to_string(), "dbSizeInUse": in_use.to_string(),
            "dbSizeQuota": self.quota.to_string(), "leader": self.leader.to_string(),
            "isLearner": self.members.get(&process.member).is_some_and(|member| member.is_learner),
            "errors": errors,
        })
    }

    fn listed(&self, by: u64) -> Value {
        let members = self.members.iter().map(|(id, member)| {
            json!({
                "ID": id.to_string(), "name": member.name, "peerURLs": [member.url],
                "isLearner": member.is_learner,
            })
        });
        json!({"header": self.header(by), "members": members.collect::<Vec<_>>()})
    }

    fn add(&mut self, body: &Value, by: u64) -> Answer {
        let url = body["peerURLs"][0].as_str().unwrap_or_default();
        if self.members.values().any(|member| member.url == url) {
            return refuse("Peer URLs already exists");
        }
        if body["isLearner"] != true {
            self.wrong.push(format!("{url} was added with a vote"));
        }
        if self.members.values().any(|member| member.is_learner) {
            return refuse("too many learner members in cluster");
        }
        if self.voters().iter().any(|id| !self.is_up(*id)) {
            self.wrong.push("a member was added while another was away".to_owned());
        }
        let id = self.admit(url, true);
        self.log.push(format!("add {id:x}"));
        Ok(json!({"header": self.header(by), "member": {"ID": id.to_string()}}))
    }

    fn promote(&mut self, id: u64, by: u64) -> Answer {
        let up = self.is_up(id);
        let Some(member) = self.members.get_mut(&id) else { return refuse("member not found") };
        if !member.is_learner {
            return refuse("can only promote a learner member");
        }
        if !up || member.lag > 0 {
            member.lag = member.lag.saturating_sub(1);
            return refuse("can only promote a learner member which is in sync with leader");
        }
        member.is_learner = false;
        self.log.push(format!("promote {id:x}"));
        Ok(self.listed(by))
    }

    fn remove(&mut self, id: u64, by: u64) -> Answer {
        let Some(member) = self.members.get(&id) else { return refuse("member not found") };
        if !member.is_learner {
            let rest: Vec<_> = self.voters().into_iter().filter(|voter| *voter != id).collect();
            let up = rest.iter().filter(|voter| self.is_up(**voter)).count();
            if up < rest.len() / 2 + 1 {
                self.wrong.push("a removal was asked for that ends the majority".to_owned());
                return refuse("unhealthy cluster");
            }
            if self.leader == id {
                self.wrong.push("the leader was removed while it led".to_owned());
            }
        }
        self.members.remove(&id);
        self.removed.insert(id);
        self.processes.retain(|_, process| process.member != id);
        self.alarms.remove(&id);
        self.elect();
        self.log.push(format!("remove {id:x}"));
        Ok(self.listed(by))
    }

    fn transfer(&mut self, to: u64, by: u64) -> Answer {
        if by != self.leader {
            return refuse("not leader");
        }
        if !self.voters().contains(&to) || !self.is_up(to) {
            return refuse("bad leader transferee");
        }
        self.leader = to;
        self.log.push(format!("lead {to:x}"));
        Ok(json!({}))
    }

    fn alarm(&mut self, body: &Value, id: u64) -> Value {
        if body["action"] == "DEACTIVATE" {
            self.log.push(format!("disarm {id:x}"));
            self.alarms.remove(&id);
        }
        let alarms = self.alarms.iter();
        let alarms = alarms.map(|id| json!({"memberID": id.to_string(), "alarm": "NOSPACE"}));
        json!({"header": {}, "alarms": alarms.collect::<Vec<_>>()})
    }
}
