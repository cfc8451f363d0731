//! One server that runs: its settings, sessions and locks, how it follows and who acknowledges. Pure.

use std::collections::BTreeMap;

use super::datadir::{Change, Datadir, Gtid};

/// An error as clients get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) u16, pub(super) String);

impl Refusal {
    pub(super) fn new(code: u16, text: impl Into<String>) -> Self {
        Self(code, text.into())
    }
}

/// Settings that a server has without a file, of those that are asked for.
const SETTINGS: [(&str, &str); 10] = [
    ("read_only", "0"),
    ("super_read_only", "0"),
    ("offline_mode", "0"),
    ("clone_valid_donor_list", ""),
    ("rpl_semi_sync_source_enabled", "0"),
    ("rpl_semi_sync_source_wait_for_replica_count", "1"),
    ("rpl_semi_sync_source_timeout", "10000"),
    ("rpl_semi_sync_source_wait_no_replica", "1"),
    ("rpl_semi_sync_source_wait_point", "AFTER_SYNC"),
    ("rpl_semi_sync_replica_enabled", "0"),
];

/// The connection of a replica to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Which run of the source.
    pub(super) run: u64,
    /// Whether it acknowledges in it.
    pub(super) acknowledges: bool,
}

/// A server that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Mysqld {
    /// The number of its start.
    pub(super) start: u64,
    /// The number of its run: it also runs anew when it takes other data.
    pub(super) run: u64,
    pub(super) version: String,
    /// What its file says.
    file: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    pub(super) data: Datadir,
    pub(super) receives: bool,
    pub(super) applies: bool,
    pub(super) trouble: String,
    pub(super) link: Option<Link>,
    /// Up to where in its log each replica has acknowledged.
    pub(super) acks: BTreeMap<String, usize>,
    sessions: BTreeMap<u64, String>,
    locks: BTreeMap<String, u64>,
    last_session: u64,
}

impl Mysqld {
    pub(super) fn start(run: u64, version: String, my_cnf: &str, mut data: Datadir) -> Self {
        data.recover();
        let mut server =
            Self { start: run, run, version, file: file(my_cnf), data, ..Self::default() };
        server.restart(run);
        server
    }

    /// Ends all sessions and begins with the settings of the file.
    pub(super) fn restart(&mut self, run: u64) {
        self.run = run;
        let defaults = SETTINGS.iter().map(|(name, value)| (*name, *value));
        self.settings = defaults.map(|(name, value)| (name.into(), value.into())).collect();
        for (name, value) in self.file.clone() {
            drop(self.set(&name, &value));
        }
        (self.receives, self.applies, self.link) = (false, false, None);
        if self.data.upstream.is_some() && !self.file.contains_key("skip_replica_start") {
            (self.receives, self.applies) = (true, true);
        }
        self.trouble.clear();
        self.acks.clear();
        self.sessions.clear();
        self.locks.clear();
    }

    // === settings ===

    pub(super) fn get(&self, name: &str) -> Option<String> {
        match name {
            "server_uuid" => Some(super::datadir::hyphenated(self.data.uuid)),
            "version" => Some(self.version.clone()),
            "gtid_executed" => Some(self.data.executed()),
            "gtid_owned" => Some(self.data.owned()),
            name => self.settings.get(name).cloned(),
        }
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.settings.get(name).is_some_and(|value| value == "1")
    }

    /// Sets a global variable.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        let value = match value.to_ascii_uppercase().as_str() {
            "ON" => "1".to_owned(),
            "OFF" => "0".to_owned(),
            _ => value.to_owned(),
        };
        if name == "super_read_only" && value == "1" && self.data.waiting() > 0 {
            let text = "Lock wait timeout exceeded; try restarting transaction";
            return Err(Refusal::new(1205, text));
        }
        match (name, value.as_str()) {
            ("super_read_only", "1") => self.put("read_only", "1"),
            ("read_only", "0") => self.put("super_read_only", "0"),
            _ => {}
        }
        let known = self.settings.get_mut(name);
        let unknown = || Refusal::new(1193, format!("Unknown system variable '{name}'"));
        *known.ok_or_else(unknown)? = value;
        Ok(())
    }

    fn put(&mut self, name: &str, value: &str) {
        self.settings.insert(name.to_owned(), value.to_owned());
    }

    // === commits ===

    /// For how many replicas a commit waits.
    pub(super) fn waits_for(&self) -> usize {
        let count = self.get("rpl_semi_sync_source_wait_for_replica_count");
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(1);
        if self.is_on("rpl_semi_sync_source_enabled") { count } else { 0 }
    }

    /// Whether clients may commit.
    pub(super) fn is_open(&self) -> bool {
        !self.is_on("read_only") && !self.is_on("super_read_only") && !self.is_on("offline_mode")
    }

    /// A client begins to commit.
    pub(super) fn write(&mut self, change: Change) -> Result<Gtid, Refusal> {
        if self.is_on("super_read_only") {
            let text = "The MySQL server is running with the --super-read-only option so it cannot \
                        execute this statement";
            return Err(Refusal::new(1290, text));
        }
        Ok(self.data.write(change))
    }

    /// Commits what enough replicas have acknowledged: those of which clients are told.
    pub(super) fn release(&mut self) -> Vec<Gtid> {
        let mut released = Vec::new();
        while self.data.waiting() > 0 {
            let given = self.acks.values().filter(|upto| **upto > self.data.committed).count();
            if given < self.waits_for() {
                break;
            }
            released.extend(self.data.commit());
        }
        released
    }

    // === sessions ===

    /// Whether an account has a password.
    pub(super) fn login(&self, user: &str, password: &str) -> Result<(), Refusal> {
        let of = format!("Access denied for user '{user}'@'127.0.0.1'");
        match self.data.accounts.get(user).map(|login| &login.passwords[..]) {
            // It has no password. Who says another one does not learn that it is locked.
            Some([]) if password.is_empty() => {
                Err(Refusal::new(3118, format!("{of}. Account is locked.")))
            }
            Some(known) if known.iter().any(|known| known == password) => Ok(()),
            _ => Err(Refusal::new(1045, format!("{of} (using password: YES)"))),
        }
    }

    /// A client logs in. Says the number of its session.
    pub(super) fn log_in(&mut self, user: &str, password: &str) -> Result<u64, Refusal> {
        self.login(user, password)?;
        self.last_session += 1;
        self.sessions.insert(self.last_session, user.to_owned());
        Ok(self.last_session)
    }

    /// The account of a session, if it goes on.
    pub(super) fn user_of(&self, session: u64) -> Option<&str> {
        self.sessions.get(&session).map(String::as_str)
    }

    /// A session ends, and its locks with it; says whether there was one.
    pub(super) fn end(&mut self, session: u64) -> bool {
        self.locks.retain(|_, holder| *holder != session);
        self.sessions.remove(&session).is_some()
    }

    /// Whether a session has a lock now that it wants.
    pub(super) fn lock(&mut self, name: &str, session: u64) -> bool {
        *self.locks.entry(name.to_owned()).or_insert(session) == session
    }

    pub(super) fn unlock(&mut self, name: &str, session: u64) {
        self.locks.retain(|known, holder| known != name || *holder != session);
    }

    /// The session that has a lock.
    pub(super) fn holder(&self, name: &str) -> Option<u64> {
        self.locks.get(name).copied()
    }

    // === replication ===

    /// `Replica_IO_Running`.
    pub(super) fn receiving(&self) -> &'static str {
        match (self.receives, self.link) {
            (false, _) => "No",
            (true, None) => "Connecting",
            (true, Some(_)) => "Yes",
        }
    }

    /// What the probe says: it takes writes, or it follows and applies.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_on("super_read_only") || (self.applies && self.receives)
    }
}

/// The settings of a file: `name = value`, or a name alone.
fn file(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '[']));
    let setting = |line: &str| {
        let (name, value) = line.split_once('=').unwrap_or((line, "ON"));
        let name = name.trim().to_ascii_lowercase().replace('-', "_");
        let name = name.trim_start_matches("loose_").to_owned();
        (name, value.trim().to_owned())
    };
    lines.filter(|line| !line.is_empty()).map(setting).collect()
}
