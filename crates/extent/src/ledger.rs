//! What each cluster's caches take, against its budget and against that of all clusters.
//!
//! ```text
//!   informers ── Part ──▶ Account of a cluster ──▶ Ledger of all
//!                             │ the first overrun      │ too much: the largest account is overdrawn
//!                             ▼                        ▼
//!                        supervisor: quarantine of that cluster
//! ```
//!
//! # Invariants
//! - A cluster's account is what its informers have put in and not taken out: a [`Part`] that is dropped takes
//!   its own out.
//! - An account is overdrawn once and for good. After a pause the cluster begins with another one.
//! - If all clusters together take too much, the one that takes most is to blame, whoever grows last. What it
//!   has counts no more from then on, although it goes a part at a time: nobody else is blamed for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::StoreSize;
use model::{Budget, ClusterName};
use tokio::sync::Notify;

/// Objects that one list may mention, for each that may be kept: a member that holds one range of a kind gets
/// all of them from most servers.
pub const MENTIONED_FOR_EACH: usize = 16;

/// How a cluster exceeds its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// More objects than it may have.
    Objects(usize),
    /// More bytes of caches than it may have.
    CacheBytes(usize),
    /// More bytes of JSON than it may have.
    JsonBytes(usize),
    /// A list that mentions more objects than there may be.
    Mentioned(usize),
    /// It has the most of what is too much for all together.
    Total(usize),
}

impl Overrun {
    /// The word for it in metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Objects(_) => "objects",
            Self::CacheBytes(_) => "cache_bytes",
            Self::JsonBytes(_) => "json_bytes",
            Self::Mentioned(_) => "endless_list",
            Self::Total(_) => "total_cache_bytes",
        }
    }
}

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Objects(most) => {
                write!(f, "the cluster has more than {most} objects of the watched kinds")?
            }
            Self::CacheBytes(most) => {
                write!(f, "the cluster's objects take more than {most} bytes of cache")?
            }
            Self::JsonBytes(most) => {
                write!(f, "the cluster's objects have more than {most} bytes of JSON")?
            }
            Self::Mentioned(most) => {
                write!(f, "a list of the cluster goes on after {most} objects")?
            }
            Self::Total(most) => write!(
                f,
                "all clusters' objects take more than {most} bytes of cache, and this cluster's most of them"
            )?,
        }
        let key = match self {
            Self::Objects(_) | Self::Mentioned(_) => "maxObjects",
            Self::CacheBytes(_) => "maxCacheBytes",
            Self::JsonBytes(_) => "maxJsonBytes",
            Self::Total(_) => "maxTotalCacheBytes",
        };
        write!(f, "; fix: see what fills the cluster, or raise budget.{key} in the configuration")
    }
}

/// The accounts of all clusters. Clones share them.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Total>);

#[derive(Debug)]
struct Total {
    max_cache_bytes: usize,
    books: Mutex<Books>,
    overdrawn: Notify,
}

/// What is taken now.
#[derive(Debug, Default)]
struct Books {
    /// The bytes of cache of all accounts that are not overdrawn. Those of an overdrawn one are about to go,
    /// so they count no more: else a second cluster could be blamed for them.
    cache_bytes: usize,
    accounts: BTreeMap<Key, Taken>,
    opened: u64,
}

/// An account's cluster and a number, so that of equals the first by name comes first.
type Key = (ClusterName, u64);

#[derive(Debug)]
struct Taken {
    budget: Budget,
    size: StoreSize,
    overrun: Option<Overrun>,
}

/// The account of one cluster, from its engagement to its end.
#[derive(Debug)]
pub struct Account {
    key: Key,
    ledger: Ledger,
}

/// One informer's part of its cluster's account.
#[derive(Debug)]
pub struct Part {
    account: Arc<Account>,
    size: StoreSize,
}

// === impl Ledger ===

impl Ledger {
    /// One of clusters that together may take this much.
    pub fn new(max_cache_bytes: usize) -> Self {
        Self(Arc::new(Total { max_cache_bytes, books: Mutex::default(), overdrawn: Notify::new() }))
    }

    /// An account for a cluster.
    pub fn open(&self, cluster: &ClusterName, budget: Budget) -> Arc<Account> {
        let mut books = self.books();
        books.opened += 1;
        let key = (cluster.clone(), books.opened);
        let taken = Taken { budget, size: StoreSize::default(), overrun: None };
        books.accounts.insert(key.clone(), taken);
        Arc::new(Account { key, ledger: self.clone() })
    }

    /// Waits until some account is overdrawn that was not before.
    pub async fn overdrawn(&self) {
        self.0.overdrawn.notified().await;
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Overdraws those that take most until the others fit.
    fn balance(&self, books: &mut Books) {
        let most = self.0.max_cache_bytes;
        while books.cache_bytes > most
            && let Some(largest) = books.largest()
        {
            self.overdraw(books, &largest, Overrun::Total(most));
        }
    }

    fn overdraw(&self, books: &mut Books, key: &Key, overrun: Overrun) {
        let Books { cache_bytes, accounts, .. } = books;
        let Some(taken) = accounts.get_mut(key) else { return };
        if taken.overrun.is_none() {
            taken.overrun = Some(overrun);
            *cache_bytes -= taken.size.cache_bytes;
            self.0.overdrawn.notify_one();
        }
    }
}

// === impl Books ===

impl Books {
    /// The account that takes most and is not overdrawn; of equals, that of the first name.
    fn largest(&self) -> Option<Key> {
        let open = self.accounts.iter().rev().filter(|(_, taken)| taken.overrun.is_none());
        Some(open.max_by_key(|(_, taken)| taken.size.cache_bytes)?.0.clone())
    }

    /// A part of an account has another size.
    fn replace(&mut self, key: &Key, before: StoreSize, now: StoreSize) {
        let Some(taken) = self.accounts.get_mut(key) else { return };
        if taken.overrun.is_none() {
            self.cache_bytes = self.cache_bytes - before.cache_bytes + now.cache_bytes;
        }
        let size = &mut taken.size;
        size.objects = size.objects - before.objects + now.objects;
        size.cache_bytes = size.cache_bytes - before.cache_bytes + now.cache_bytes;
        size.json_bytes = size.json_bytes - before.json_bytes + now.json_bytes;
    }

    fn overrun(&self, key: &Key) -> Option<Overrun> {
        self.accounts.get(key)?.overrun
    }
}

// === impl Taken ===

impl Taken {
    /// How the cluster stands against its own budget.
    fn check(&self) -> Option<Overrun> {
        let Budget { max_objects, max_cache_bytes, max_json_bytes } = self.budget;
        if self.size.objects > max_objects {
            Some(Overrun::Objects(max_objects))
        } else if self.size.cache_bytes > max_cache_bytes {
            Some(Overrun::CacheBytes(max_cache_bytes))
        } else if self.size.json_bytes > max_json_bytes {
            Some(Overrun::JsonBytes(max_json_bytes))
        } else {
            None
        }
    }
}

// === impl Account ===

impl Account {
    /// An informer's part of it, empty.
    pub fn part(self: &Arc<Self>) -> Part {
        Part { account: Arc::clone(self), size: StoreSize::default() }
    }

    /// How the cluster exceeds its budget, if it has.
    pub fn overrun(&self) -> Option<Overrun> {
        self.ledger.books().overrun(&self.key)
    }

    /// The cluster may have so much from now on. It is overdrawn if it has more.
    pub fn allow(&self, budget: Budget) {
        let mut books = self.ledger.books();
        let Some(taken) = books.accounts.get_mut(&self.key) else { return };
        taken.budget = budget;
        if let Some(overrun) = taken.check() {
            self.ledger.overdraw(&mut books, &self.key, overrun);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // Its parts hold it, so they are gone, with what they took.
        self.ledger.books().accounts.remove(&self.key);
    }
}

// === impl Part ===

impl Part {
    /// The informer's store has this size now.
    ///
    /// # Errors
    /// If the cluster is overdrawn, by this or before.
    pub fn takes(&mut self, size: StoreSize) -> Result<(), Overrun> {
        let before = std::mem::replace(&mut self.size, size);
        let Account { key, ledger } = &*self.account;
        let mut books = ledger.books();
        books.replace(key, before, size);
        let own = books.accounts.get(key).and_then(Taken::check);
        if let Some(overrun) = own {
            ledger.overdraw(&mut books, key, overrun);
        }
        ledger.balance(&mut books);
        books.overrun(key).map_or(Ok(()), Err)
    }

    /// A list has mentioned so many objects, kept or not.
    ///
    /// # Errors
    /// As [`Self::takes`].
    pub fn mentions(&self, objects: usize) -> Result<(), Overrun> {
        let Account { key, ledger } = &*self.account;
        let mut books = ledger.books();
        let most = books.accounts.get(key).map_or(usize::MAX, |taken| {
            taken.budget.max_objects.saturating_mul(MENTIONED_FOR_EACH)
        });
        if objects > most {
            ledger.overdraw(&mut books, key, Overrun::Mentioned(most));
        }
        books.overrun(key).map_or(Ok(()), Err)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // What it says of others does not matter here.
        let _ = self.takes(StoreSize::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { max_objects: 10, max_cache_bytes: 1000, max_json_bytes: 5000 };

    fn size(objects: usize, cache_bytes: usize, json_bytes: usize) -> StoreSize {
        StoreSize { objects, cache_bytes, json_bytes }
    }

    fn open(ledger: &Ledger, name: &str) -> Arc<Account> {
        ledger.open(&name.parse().unwrap(), BUDGET)
    }

    #[test]
    fn each_bound_counts_over_all_informers_of_a_cluster() {
        for (first, second, expect) in [
            (size(5, 500, 2500), size(5, 500, 2500), None),
            (size(5, 1, 1), size(6, 1, 1), Some(Overrun::Objects(10))),
            (size(1, 1000, 1), size(1, 1, 1), Some(Overrun::CacheBytes(1000))),
            (size(1, 1, 1), size(1, 1, 5000), Some(Overrun::JsonBytes(5000))),
        ] {
            let account = open(&Ledger::new(usize::MAX), "east");
            let (mut one, mut other) = (account.part(), account.part());
            assert_eq!(one.takes(first), Ok(()));
            assert_eq!(other.takes(second).err(), expect);
            assert_eq!(account.overrun(), expect);
        }
    }

    #[test]
    fn what_is_taken_out_does_not_count_and_an_overrun_stays() {
        let account = open(&Ledger::new(usize::MAX), "east");
        let (mut one, mut other) = (account.part(), account.part());
        for _ in 0..100 {
            assert_eq!(one.takes(size(9, 9, 9)), Ok(()));
            assert_eq!(one.takes(size(1, 1, 1)), Ok(()));
        }
        assert_eq!(one.takes(size(10, 1, 1)), Ok(()));
        drop(one);
        assert_eq!(other.takes(size(10, 1, 1)), Ok(()));
        assert_eq!(other.takes(size(11, 1, 1)), Err(Overrun::Objects(10)));
        assert_eq!(other.takes(size(0, 0, 0)), Err(Overrun::Objects(10)));
    }

    #[test]
    fn another_budget_holds_at_once() {
        let account = open(&Ledger::new(usize::MAX), "east");
        let mut part = account.part();
        account.allow(Budget { max_objects: 20, ..BUDGET });
        assert_eq!(part.takes(size(20, 1, 1)), Ok(()));
        assert_eq!(part.mentions(320), Ok(()));
        account.allow(Budget { max_objects: 20, ..BUDGET });
        assert_eq!(account.overrun(), None);
        account.allow(BUDGET);
        assert_eq!(account.overrun(), Some(Overrun::Objects(10)), "it has more already");
    }

    #[test]
    fn a_list_may_mention_more_than_is_kept_but_not_for_ever() {
        let account = open(&Ledger::new(usize::MAX), "east");
        let part = account.part();
        assert_eq!(part.mentions(160), Ok(()));
        assert_eq!(part.mentions(161), Err(Overrun::Mentioned(160)));
    }

    #[tokio::test]
    async fn of_too_much_for_all_the_largest_is_to_blame() {
        let ledger = Ledger::new(1500);
        let accounts = ["a", "b", "c"].map(|name| open(&ledger, name));
        let [mut a, mut b, mut c] = accounts.each_ref().map(|account| account.part());
        assert_eq!(a.takes(size(1, 400, 1)), Ok(()));
        assert_eq!(b.takes(size(1, 800, 1)), Ok(()));
        assert_eq!(c.takes(size(1, 301, 1)), Ok(()), "another is larger");
        let overruns = accounts.each_ref().map(|account| account.overrun());
        assert_eq!(overruns, [None, Some(Overrun::Total(1500)), None]);
        ledger.overdrawn().await;
        assert_eq!(b.takes(size(1, 1, 1)), Err(Overrun::Total(1500)));
    }

    #[test]
    fn nobody_else_is_blamed_while_the_largest_gives_back_what_it_has() {
        let ledger = Ledger::new(1500);
        let accounts = ["a", "b", "c"].map(|name| open(&ledger, name));
        let [mut a, mut b, mut c] = accounts.each_ref().map(|account| account.part());
        let mut more = accounts[1].part();
        assert_eq!(a.takes(size(1, 400, 1)), Ok(()));
        assert_eq!(b.takes(size(1, 400, 1)), Ok(()));
        assert_eq!(more.takes(size(1, 400, 1)), Ok(()));
        assert_eq!(c.takes(size(1, 301, 1)), Ok(()), "b is to blame");
        // It still holds 800, and goes on to grow before it notices.
        assert!(more.takes(size(1, 600, 1)).is_err());
        assert_eq!(c.takes(size(1, 900, 1)), Ok(()));
        assert_eq!(a.takes(size(1, 500, 1)), Ok(()));
        drop((b, more));
        assert_eq!(c.takes(size(1, 1000, 1)), Ok(()), "what b took out was counted once");
        assert_eq!(a.takes(size(1, 501, 1)), Ok(()));
        assert_eq!(accounts[2].overrun(), Some(Overrun::Total(1500)), "now c has most");
    }

    #[test]
    fn an_account_that_is_gone_takes_nothing() {
        let ledger = Ledger::new(1500);
        for _ in 0..3 {
            let account = open(&ledger, "a");
            assert_eq!(account.part().takes(size(1, 900, 1)), Ok(()));
        }
        let account = open(&ledger, "a");
        assert_eq!(account.part().takes(size(1, 1000, 1)), Ok(()));
        assert_eq!(ledger.books().accounts.len(), 1);
    }

    #[test]
    fn an_overrun_names_its_key() {
        let text = Overrun::CacheBytes(1000).to_string();
        let fix =
            "; fix: see what fills the cluster, or raise budget.maxCacheBytes in the configuration";
        assert_eq!(text, format!("the cluster's objects take more than 1000 bytes of cache{fix}"));
    }
}
