//! How many hosts of Tunnels an account has over all clusters, because each costs money. Shell.
//!
//! The provider counts: its list has the hosts of all clusters, replicas and fleets that use the account. It is
//! asked again after [`FRESH`], and what this replica has requested since counts at once. What other replicas
//! request meanwhile does not, so the number can exceed the bound by what they request within [`FRESH`] and the
//! time by which the provider's lists lag: with `n` replicas by `n - 1` times the room that was left, at most.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use sdk::{Context, ExternalError};

use crate::account::ProviderClient;
use crate::plan::{GRACE, is_within};
use crate::provider::{Failure, State};

/// How long a list is used.
const FRESH: Duration = Duration::from_secs(30);

/// The hosts of each account.
#[derive(Debug, Default)]
pub(super) struct Number {
    accounts: Mutex<HashMap<String, Account>>,
    /// The Tunnels that were let request a host, and when: the cache may not show it yet.
    admitted: Mutex<HashMap<String, Timestamp>>,
}

#[derive(Debug, Default)]
struct Account {
    /// When it was listed.
    at: Option<Timestamp>,
    /// The Tunnels of the hosts in the list.
    listed: Vec<String>,
    /// The Tunnels whose hosts this replica has requested, and when: they may not be in a list yet.
    requested: HashMap<String, Timestamp>,
}

impl Account {
    /// Counts a Tunnel's request, if there is room for it among `max` hosts.
    fn request(&mut self, tunnel: &str, max: usize, now: Timestamp) -> bool {
        self.requested.retain(|_, at| is_within(*at, GRACE, now));
        let listed = self.listed.iter().filter(|found| *found != tunnel).count();
        let unlisted = self.requested.keys().filter(|other| !self.listed.contains(other));
        let fits = listed + unlisted.filter(|other| *other != tunnel).count() < max;
        if fits {
            self.requested.insert(tunnel.to_owned(), now);
        }
        fits
    }
}

impl Number {
    /// Lets a Tunnel request a host of its cluster's number if `check` allows it, which is told who else was let do so
    /// a moment ago. One at a time: so no two get the last place.
    ///
    /// # Errors
    /// What `check` says.
    pub(super) fn admit<E>(
        &self,
        tunnel: &str,
        now: Timestamp,
        check: impl FnOnce(&HashMap<String, Timestamp>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut admitted = self.admitted.lock().expect("no holder of this lock panics");
        admitted.retain(|_, at| is_within(*at, FRESH, now));
        check(&admitted)?;
        admitted.insert(tunnel.to_owned(), now);
        Ok(())
    }

    /// Whether a Tunnel may request a host: if so, it counts from now on.
    ///
    /// # Errors
    /// What the provider says.
    pub(super) async fn request(
        &self,
        ctx: &Context,
        provider: &ProviderClient,
        tunnel: &str,
        max: usize,
    ) -> Result<bool, ExternalError<Failure>> {
        let (name, now) = (&provider.account.upstream, ctx.now());
        let is_fresh = |account: &Account| account.at.is_some_and(|at| is_within(at, FRESH, now));
        let known = self.lock().get(name).is_some_and(is_fresh);
        let listed = if known { None } else { Some(provider.all().await?) };
        let mut accounts = self.lock();
        accounts.retain(|_, account| account.at.is_some_and(|at| is_within(at, GRACE, now)));
        let account = accounts.entry(name.clone()).or_default();
        if let Some(hosts) = listed {
            let present = hosts.into_iter().filter(|host| host.state != State::Leaving);
            account.listed = present.filter_map(|host| host.tunnel).collect();
            account.at = Some(now);
        }
        Ok(account.request(tunnel, max, now))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Account>> {
        self.accounts.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_admitted_counts_until_the_cache_shows_it() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let number = Number::default();
        let one_place = |others: &HashMap<String, Timestamp>| match others.len() {
            0 => Ok(()),
            taken => Err(taken),
        };
        assert_eq!(number.admit("a", at(0), one_place), Ok(()));
        assert_eq!(number.admit("b", at(29), one_place), Err(1));
        assert_eq!(number.admit("b", at(30), one_place), Ok(()));
    }

    #[test]
    fn what_is_listed_and_what_was_requested_count_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut account = Account { listed: vec!["a".to_owned()], ..Account::default() };
        assert!(account.request("b", 3, at(0)));
        assert!(account.request("b", 3, at(1)), "its own request is no obstacle");
        assert!(account.request("c", 3, at(2)));
        assert!(!account.request("d", 3, at(3)));
        assert!(
            account.request("a", 3, at(3)),
            "a Tunnel whose host is listed gets no second place"
        );
        account.listed.push("b".to_owned());
        assert!(!account.request("d", 3, at(4)), "now listed, and counted once");
        assert!(account.request("d", 4, at(4)));
        // What was requested long ago is in the list, or was never made.
        assert!(account.request("e", 3, at(200)));
        assert!(!account.request("f", 3, at(200)));
    }
}
