//! What is on the volume of a server: its identity, accounts, binary log and relay log. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// A transaction: the identity of the server that numbered it, and its number.
pub(super) type Gtid = (u128, u64);

/// What a transaction changes, besides tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// An account gets a password and is unlocked; it may keep the one before.
    Password {
        account: String,
        password: String,
        keeps: bool,
    },
    /// An account has its newest password alone.
    Discard(String),
}

/// A transaction in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) gtid: Gtid,
    change: Change,
}

/// Who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    /// The newest first; none while it is locked.
    pub(super) passwords: Vec<String>,
}

/// Whom a server follows: the first label of its host, and the account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Upstream {
    pub(super) host: String,
    pub(super) source: String,
    pub(super) user: String,
    pub(super) password: String,
}

/// A data folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Datadir {
    pub(super) uuid: u128,
    numbered: u64,
    /// The binary log. What is beyond `committed` waits for acknowledgements.
    pub(super) log: Vec<Entry>,
    pub(super) committed: usize,
    /// How much of the log is there only as data.
    pub(super) purged: usize,
    /// Received and not applied.
    relay: Vec<Entry>,
    known: BTreeSet<Gtid>,
    pub(super) upstream: Option<Upstream>,
    pub(super) accounts: BTreeMap<String, Login>,
}

impl Datadir {
    /// As `mysqld --initialize` makes it, with these accounts besides root, which is locked.
    pub(super) fn new(uuid: u128, passwords: BTreeMap<String, String>) -> Self {
        let login = |(name, password)| (name, Login { passwords: vec![password] });
        let mut accounts: BTreeMap<_, _> = passwords.into_iter().map(login).collect();
        accounts.insert("root".to_owned(), Login { passwords: Vec::new() });
        Self { uuid, accounts, ..Self::default() }
    }

    /// The data as another server gets it that clones: what was committed, under another identity.
    pub(super) fn cloned(&self, uuid: u128) -> Self {
        let log = self.log[..self.committed].to_vec();
        Self {
            uuid,
            numbered: 0,
            committed: log.len(),
            purged: log.len(),
            relay: Vec::new(),
            known: log.iter().map(|entry| entry.gtid).collect(),
            log,
            upstream: self.upstream.clone(),
            accounts: self.accounts.clone(),
        }
    }

    /// Writes a transaction of its own into the log. It is not committed yet.
    pub(super) fn write(&mut self, change: Change) -> Gtid {
        self.numbered += 1;
        let gtid = (self.uuid, self.numbered);
        self.known.insert(gtid);
        self.log.push(Entry { gtid, change });
        gtid
    }

    /// Commits the next transaction of the log.
    pub(super) fn commit(&mut self) -> Option<Gtid> {
        let Entry { gtid, change } = self.log.get(self.committed)?.clone();
        self.committed += 1;
        match change {
            Change::Nothing => {}
            Change::Password { account, password, keeps } => {
                let login = self.accounts.entry(account).or_insert(Login { passwords: Vec::new() });
                login.passwords.truncate(usize::from(keeps));
                login.passwords.insert(0, password);
            }
            Change::Discard(account) => {
                if let Some(login) = self.accounts.get_mut(&account) {
                    login.passwords.truncate(1);
                }
            }
        }
        Some(gtid)
    }

    /// What is in the log is committed when a server starts again.
    pub(super) fn recover(&mut self) {
        while self.commit().is_some() {}
    }

    pub(super) fn receive(&mut self, entry: Entry) {
        self.known.insert(entry.gtid);
        self.relay.push(entry);
    }

    /// Applies one transaction that was received; says whether there was one.
    pub(super) fn apply(&mut self) -> bool {
        if self.relay.is_empty() {
            return false;
        }
        let entry = self.relay.remove(0);
        self.log.push(entry);
        self.commit();
        true
    }

    /// Throws away what was received and not applied.
    pub(super) fn forget_received(&mut self) {
        for entry in self.relay.drain(..) {
            self.known.remove(&entry.gtid);
        }
    }

    /// Whether it has a transaction, applied or not.
    pub(super) fn knows(&self, gtid: &Gtid) -> bool {
        self.known.contains(gtid)
    }

    /// The first transaction of the log that another server lacks, and its position.
    pub(super) fn next_for(&self, other: &Self) -> Option<(usize, Entry)> {
        let found = self.log.iter().enumerate().find(|(_, entry)| !other.knows(&entry.gtid));
        found.map(|(position, entry)| (position, entry.clone()))
    }

    /// Whether it numbered transactions of another one that this one does not have.
    pub(super) fn lacks_own(&self, other: &Self) -> bool {
        let own = other.known.range((self.uuid, 0)..=(self.uuid, u64::MAX));
        own.into_iter().any(|gtid| !self.knows(gtid))
    }

    /// `gtid_executed`.
    pub(super) fn executed(&self) -> String {
        text(self.log[..self.committed].iter().map(|entry| entry.gtid))
    }

    /// `gtid_owned`: each with the thread that commits it.
    pub(super) fn owned(&self) -> String {
        let waiting = self.log[self.committed..].iter();
        let one = |entry: &Entry| format!("{}:{}#9", hyphenated(entry.gtid.0), entry.gtid.1);
        waiting.map(one).collect::<Vec<_>>().join(",")
    }

    /// `Retrieved_Gtid_Set`, of what is not applied yet.
    pub(super) fn retrieved(&self) -> String {
        text(self.relay.iter().map(|entry| entry.gtid))
    }

    /// How many transactions wait for acknowledgements.
    pub(super) fn waiting(&self) -> usize {
        self.log.len() - self.committed
    }

    /// Whether it has committed a transaction.
    pub(super) fn has_committed(&self, gtid: &Gtid) -> bool {
        self.knows(gtid) && self.log[..self.committed].iter().any(|entry| entry.gtid == *gtid)
    }
}

/// Transactions as MySQL prints a set of them.
fn text(gtids: impl Iterator<Item = Gtid>) -> String {
    let mut intervals: BTreeMap<u128, Vec<(u64, u64)>> = BTreeMap::new();
    for (uuid, number) in gtids.collect::<BTreeSet<_>>() {
        let known = intervals.entry(uuid).or_default();
        match known.last_mut() {
            Some((_, to)) if *to + 1 == number => *to = number,
            _ => known.push((number, number)),
        }
    }
    let interval = |(from, to): &(u64, u64)| match from == to {
        true => format!(":{from}"),
        false => format!(":{from}-{to}"),
    };
    let one = |(uuid, all): (&u128, &Vec<_>)| {
        format!("{}{}", hyphenated(*uuid), all.iter().map(interval).collect::<String>())
    };
    intervals.iter().map(one).collect::<Vec<_>>().join(",\n")
}

/// A uuid as MySQL prints it.
pub(super) fn hyphenated(uuid: u128) -> String {
    let digits = format!("{uuid:032x}");
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_printed_with_intervals() {
        let all = [(1, 1), (1, 2), (1, 4), (2, 7)];
        let one = "00000000-0000-0000-0000-000000000001:1-2:4";
        let two = "00000000-0000-0000-0000-000000000002:7";
        assert_eq!(text(all.into_iter()), format!("{one},\n{two}"));
    }

    #[test]
    fn a_clone_has_what_was_committed_and_numbers_anew() {
        let mut data = Datadir::new(1, BTreeMap::new());
        data.write(Change::Nothing);
        data.commit();
        data.write(Change::Nothing);
        let mut clone = data.cloned(2);
        assert_eq!((clone.log.len(), clone.committed, clone.purged), (1, 1, 1));
        assert_eq!(clone.write(Change::Nothing), (2, 1));
        assert_eq!(data.owned(), "00000000-0000-0000-0000-000000000001:2#9");
    }
}
