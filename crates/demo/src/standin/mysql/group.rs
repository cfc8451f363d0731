//! The servers of one cluster: who runs, what replicas receive, acknowledge and apply, and whether a rule
//! was broken. Pure: everything happens at once, and in the same order each time.

use std::collections::{BTreeMap, BTreeSet};

use super::datadir::{Change, Datadir, Gtid};
use super::server::{Link, Mysqld, Refusal};

/// The most broken rules that are kept.
const MAX_WRONG: usize = 20;

/// What a server is started with.
#[derive(Clone, Debug, Default)]
pub(super) struct Launch {
    pub(super) name: String,
    /// What its data is kept under.
    pub(super) volume: String,
    pub(super) version: String,
    pub(super) my_cnf: String,
    /// The passwords of accounts, for a data folder that is made anew.
    pub(super) passwords: BTreeMap<String, String>,
}

/// The servers of one cluster, by the names of their Pods.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) servers: BTreeMap<String, Mysqld>,
    /// Whose data is on which volume, and the data of those that do not run.
    volumes: BTreeMap<String, Datadir>,
    mounted: BTreeMap<String, String>,
    /// Those that nobody reaches.
    pub(super) cut_off: BTreeSet<String>,
    /// The commits that clients were told about.
    acknowledged: BTreeSet<Gtid>,
    /// Which rules were broken.
    pub(super) wrong: Vec<String>,
    last_run: u64,
    last_uuid: u128,
}

impl Group {
    /// Starts a server on its volume, in place of one of the same name. Says the number of its start.
    pub(super) fn start(&mut self, launch: Launch) -> u64 {
        let Launch { name, volume, version, my_cnf, passwords } = launch;
        self.halt(&name);
        let data = self.volumes.remove(&volume);
        let data = data.unwrap_or_else(|| Datadir::new(self.next_uuid(), passwords));
        let run = self.next_run();
        self.mounted.insert(name.clone(), volume);
        self.servers.insert(name, Mysqld::start(run, version, &my_cnf, data));
        self.settle();
        run
    }

    /// A server ends; whoever waits for acknowledgements never hears of it.
    pub(super) fn stop(&mut self, name: &str, start: u64) {
        if self.servers.get(name).is_some_and(|server| server.start == start) {
            self.halt(name);
            self.settle();
        }
    }

    fn halt(&mut self, name: &str) {
        if let (Some(server), Some(volume)) = (self.servers.remove(name), self.mounted.remove(name))
        {
            self.volumes.insert(volume, server.data);
        }
    }

    fn next_run(&mut self) -> u64 {
        self.last_run += 1;
        self.last_run
    }

    fn next_uuid(&mut self) -> u128 {
        self.last_uuid += 1;
        self.last_uuid
    }

    /// A client begins to commit at a server.
    pub(super) fn write(&mut self, name: &str, change: Change) -> Result<Gtid, Refusal> {
        let gone = || Refusal::new(2013, "Lost connection to MySQL server during query");
        let gtid = self.servers.get_mut(name).ok_or_else(gone)?.write(change)?;
        self.settle();
        Ok(gtid)
    }

    /// Whether a client was told that a transaction is committed.
    pub(super) fn is_acknowledged(&self, gtid: &Gtid) -> bool {
        self.acknowledged.contains(gtid)
    }

    /// The transactions of which clients were told and that a server has not committed.
    pub(super) fn lacking(&self, name: &str) -> usize {
        let has = |gtid: &&Gtid| {
            self.servers.get(name).is_some_and(|server| server.data.has_committed(gtid))
        };
        self.acknowledged.iter().filter(|gtid| !has(gtid)).count()
    }

    /// How many replicas acknowledge at a server.
    pub(super) fn clients(&self, name: &str) -> usize {
        let Some(source) = self.servers.get(name) else { return 0 };
        let link = Link { run: source.run, acknowledges: true };
        self.servers.values().filter(|server| server.link == Some(link)).count()
    }

    /// Throws the data of a server away and takes that of another one. It starts again with that.
    pub(super) fn clone_from(
        &mut self,
        name: &str,
        donor: &str,
        (user, password): (&str, &str),
    ) -> Result<(), Refusal> {
        let failed = |why: &str| Refusal::new(3862, format!("Clone Donor Error: {why}"));
        let reached = !self.cut_off.contains(donor) && !self.cut_off.contains(name);
        let found = self.servers.get(donor).filter(|_| reached && donor != name);
        let donor = found.ok_or_else(|| failed("2003 : Can't connect to MySQL server"))?;
        if donor.login(user, password).is_err() {
            return Err(failed("1045 : Access denied"));
        }
        let data = donor.data.clone();
        let (run, uuid) = (self.next_run(), self.next_uuid());
        if let Some(server) = self.servers.get_mut(name) {
            server.data = data.cloned(uuid);
            server.restart(run);
        }
        self.settle();
        Ok(())
    }

    /// Lets everything happen that can, and sees whether a rule is broken.
    pub(super) fn settle(&mut self) {
        let names: Vec<String> = self.servers.keys().cloned().collect();
        loop {
            let mut moved = false;
            for name in &names {
                let Some(mut server) = self.servers.remove(name) else { continue };
                moved |= self.receive(name, &mut server);
                while server.applies && server.waits_for() == 0 && server.data.apply() {
                    moved = true;
                }
                let released = server.release();
                moved |= !released.is_empty();
                self.acknowledged.extend(released);
                self.servers.insert(name.clone(), server);
            }
            if !moved {
                break;
            }
        }
        self.check();
    }

    /// A replica receives one transaction of its source; says whether there was one.
    fn receive(&mut self, name: &str, server: &mut Mysqld) -> bool {
        let upstream = server.data.upstream.clone();
        let Some(upstream) = upstream.filter(|_| server.receives) else {
            server.link = None;
            return false;
        };
        let unreached =
            [name, upstream.source.as_str()].iter().any(|at| self.cut_off.contains(*at));
        let source = self.servers.get_mut(&upstream.source).filter(|_| !unreached);
        let refused = match &source {
            None => Some("error connecting to source: Can't connect to MySQL server"),
            Some(source) if source.login(&upstream.user, &upstream.password).is_err() => {
                Some("error connecting to source: Access denied")
            }
            Some(_) => None,
        };
        let Some(source) = source.filter(|_| refused.is_none()) else {
            server.link = None;
            server.trouble = refused.unwrap_or_default().to_owned();
            return false;
        };
        let is_connected = server.link.is_some_and(|link| link.run == source.run);
        if !is_connected && source.data.lacks_own(&server.data) {
            return end(server, "Replica has more GTIDs than the source has");
        }
        if !is_connected {
            let acknowledges = server.is_on("rpl_semi_sync_replica_enabled");
            server.link = Some(Link { run: source.run, acknowledges });
            server.trouble.clear();
        }
        let Some((position, entry)) = source.data.next_for(&server.data) else { return false };
        if position < source.data.purged {
            return end(server, "the source has purged binary logs that the replica requires");
        }
        server.data.receive(entry);
        if server.link.is_some_and(|link| link.acknowledges) {
            source.acks.insert(name.to_owned(), position + 1);
        }
        true
    }

    /// Only one server may acknowledge commits, and whoever is open has all that were acknowledged.
    fn check(&mut self) {
        let open = self.servers.iter().filter(|(_, server)| server.is_open());
        let able = open.filter(|(name, server)| self.clients(name) >= server.waits_for());
        let able: Vec<&String> = able.map(|(name, _)| name).collect();
        let mut wrong = Vec::new();
        if able.len() > 1 {
            wrong.push(format!("{able:?} can acknowledge commits at once"));
        }
        for name in able {
            let data = &self.servers[name].data;
            if let Some(gtid) = self.acknowledged.iter().find(|gtid| !data.has_committed(gtid)) {
                wrong.push(format!("{name} is open and lacks {gtid:?}, which was acknowledged"));
            }
        }
        let room = MAX_WRONG.saturating_sub(self.wrong.len());
        self.wrong.extend(wrong.into_iter().take(room));
    }
}

/// The thread that receives ends with an error.
fn end(server: &mut Mysqld, why: &str) -> bool {
    (server.receives, server.link) = (false, None);
    server.trouble = format!("Got fatal error 1236 from source: {why}");
    false
}
