//! How many connections may be open: in all, and from one address. Who has all of its places gives one for the next, so
//! that nobody keeps out whoever has the same address, as clients of a mesh and those of one node. Where all places are
//! taken, the address that has most of them gives one, so that strangers of many addresses keep nobody out. It is the
//! connection that has asked for nothing for the longest time.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio_util::sync::CancellationToken;

/// The most open connections of one listener.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// The most open connections from one address.
pub const MAX_FROM_ONE_ADDRESS: usize = 8;

/// The open connections of one listener. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    all: usize,
    /// Those of each address, with numbers; that with the latest request last.
    of: HashMap<IpAddr, VecDeque<(u64, CancellationToken)>>,
}

/// One open connection: dropped, its place is free again.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    peer: IpAddr,
    number: u64,
    /// Cancelled when another connection gets the place.
    pub(crate) given_away: CancellationToken,
}

impl Places {
    /// A place for a connection from `peer`.
    pub(crate) fn take(&self, peer: IpAddr) -> Place {
        // An IPv4 client of a listener for both is the same client.
        let peer = peer.to_canonical();
        let mut open = self.open();
        open.make_room(peer);
        open.last += 1;
        open.all += 1;
        let (number, given_away) = (open.last, CancellationToken::new());
        open.of.entry(peer).or_default().push_back((number, given_away.clone()));
        Place { places: self.clone(), peer, number, given_away }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

impl Place {
    /// A request comes over the connection.
    pub(crate) fn asks(&self) {
        let mut open = self.places.open();
        let Some(own) = open.of.get_mut(&self.peer) else { return };
        let at = own.iter().position(|(number, _)| *number == self.number);
        if let Some(place) = at.and_then(|at| own.remove(at)) {
            own.push_back(place);
        }
    }
}

impl Open {
    /// Ends the connection that has been silent for longest: of `peer`, if that has as many as it may; else, if all
    /// places are taken, of the address that has most. Of several such addresses, that where it is oldest gives it.
    fn make_room(&mut self, peer: IpAddr) {
        let full = if self.of.get(&peer).map_or(0, VecDeque::len) >= MAX_FROM_ONE_ADDRESS {
            Some(peer)
        } else if self.all >= MAX_CONNECTIONS {
            let most = self.of.iter().max_by_key(|(_, of)| {
                (of.len(), std::cmp::Reverse(of.front().map_or(u64::MAX, |(number, _)| *number)))
            });
            most.map(|(address, _)| *address)
        } else {
            None
        };
        let silent = full.and_then(|address| self.of.get_mut(&address)?.pop_front());
        if let Some((_, silent)) = silent {
            silent.cancel();
            self.all -= 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open();
        let Open { all, of, .. } = &mut *open;
        let Some(own) = of.get_mut(&self.peer) else { return };
        let before = own.len();
        own.retain(|(number, _)| *number != self.number);
        // One that made room has been taken out.
        *all -= before - own.len();
        if own.is_empty() {
            of.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, n as u8])
    }

    fn gone(held: &[Place]) -> usize {
        held.iter().filter(|place| place.given_away.is_cancelled()).count()
    }

    #[test]
    fn who_has_all_of_its_places_gives_the_one_that_is_silent_for_longest() {
        let places = Places::default();
        let mut held: Vec<_> = (0..MAX_FROM_ONE_ADDRESS).map(|_| places.take(peer(1))).collect();
        assert_eq!(gone(&held), 0);
        held[0].asks();
        held.push(places.take("::ffff:10.0.0.1".parse().unwrap()));
        assert!(held[1].given_away.is_cancelled());
        held[1].asks();
        assert_eq!((gone(&held), places.open().all), (1, MAX_FROM_ONE_ADDRESS));
        held.clear();
        let open = places.open();
        assert!(open.of.is_empty() && open.all == 0);
    }

    #[test]
    fn one_address_has_its_share_and_all_have_a_bound() {
        let places = Places::default();
        let of_each = |n| (0..MAX_FROM_ONE_ADDRESS).map(move |_| n);
        let all = (1..=MAX_CONNECTIONS / MAX_FROM_ONE_ADDRESS).flat_map(of_each);
        let mut held: Vec<_> = all.map(|n| places.take(peer(n))).collect();
        assert_eq!((held.len(), gone(&held)), (MAX_CONNECTIONS, 0));
        let own = places.take(peer(200));
        assert!(held[0].given_away.is_cancelled(), "the oldest of those with most");
        held.extend((201..=220).map(|n| places.take(peer(n))));
        assert!(!own.given_away.is_cancelled(), "others have more");
        assert_eq!(gone(&held), 21);
        assert_eq!(places.open().all, MAX_CONNECTIONS);

        held.clear();
        drop(own);
        drop(places.take(peer(200)));
        let open = places.open();
        assert!(open.of.is_empty() && open.all == 0, "nothing is kept of those who have left");
    }
}
