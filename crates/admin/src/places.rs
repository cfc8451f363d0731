//! How many connections may be open: in all, and from one address. Where all places are taken, the oldest connection
//! of the address that has most of them makes room, so that strangers of many addresses keep nobody out.

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
    /// Those of each address, the oldest first, with numbers.
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
    /// A place for a connection from `peer`, unless it has as many as it may.
    pub(crate) fn take(&self, peer: IpAddr) -> Option<Place> {
        // An IPv4 client of a listener for both is the same client.
        let peer = peer.to_canonical();
        let mut open = self.open();
        if open.of.get(&peer).map_or(0, VecDeque::len) >= MAX_FROM_ONE_ADDRESS {
            return None;
        }
        if open.all >= MAX_CONNECTIONS {
            open.make_room();
        }
        open.last += 1;
        open.all += 1;
        let (number, given_away) = (open.last, CancellationToken::new());
        open.of.entry(peer).or_default().push_back((number, given_away.clone()));
        Some(Place { places: self.clone(), peer, number, given_away })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

impl Open {
    /// Ends the oldest connection of the address that has most; of several, that of the oldest.
    fn make_room(&mut self) {
        let most = self.of.values_mut().max_by_key(|of| {
            (of.len(), std::cmp::Reverse(of.front().map_or(u64::MAX, |(number, _)| *number)))
        });
        if let Some((_, oldest)) = most.and_then(VecDeque::pop_front) {
            oldest.cancel();
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

    #[test]
    fn one_address_has_its_share_and_all_have_a_bound() {
        let places = Places::default();
        let peer = |n: usize| IpAddr::from([10, 0, 0, n as u8]);
        let mut held: Vec<_> = (0..MAX_FROM_ONE_ADDRESS).map(|_| places.take(peer(1))).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(places.take(peer(1)).is_none());
        assert!(places.take("::ffff:10.0.0.1".parse().unwrap()).is_none());

        let others = 2..=MAX_CONNECTIONS / MAX_FROM_ONE_ADDRESS;
        held.extend(
            others
                .flat_map(|n| (0..MAX_FROM_ONE_ADDRESS).map(move |_| n))
                .map(|n| places.take(peer(n))),
        );
        assert!(held.iter().all(Option::is_some));
        assert_eq!(held.len(), MAX_CONNECTIONS);
        let gone = |held: &[Option<Place>]| {
            let given_away =
                |place: &Option<Place>| place.as_ref().unwrap().given_away.is_cancelled();
            held.iter().filter(|place| given_away(place)).count()
        };
        let own = places.take(peer(200));
        assert!(
            held[0].as_ref().unwrap().given_away.is_cancelled(),
            "the oldest of those with most"
        );
        for n in 201..=220 {
            held.push(places.take(peer(n)));
        }
        assert!(!own.as_ref().unwrap().given_away.is_cancelled(), "others have more");
        assert_eq!(gone(&held), 21);
        assert_eq!(places.open().all, MAX_CONNECTIONS);

        held.clear();
        drop(own);
        assert!(places.take(peer(200)).is_some());
        let open = places.open();
        assert!(open.of.is_empty() && open.all == 0, "nothing is kept of those who have left");
    }
}
