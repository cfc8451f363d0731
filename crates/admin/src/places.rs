//! How many connections may be open: in all, and from one address, so that one stranger does not take
//! every place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// The most open connections of one listener.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// The most open connections from one address.
pub const MAX_FROM_ONE_ADDRESS: usize = 8;

/// The open connections of one listener. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One open connection: dropped, its place is free again.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    peer: IpAddr,
}

impl Places {
    /// A place for a connection from `peer`, if one is left.
    pub(crate) fn take(&self, peer: IpAddr) -> Option<Place> {
        // An IPv4 client of a listener for both is the same client.
        let peer = peer.to_canonical();
        let mut open = self.0.lock().expect("no holder of this lock panics");
        let all: usize = open.values().sum();
        let from_peer = open.get(&peer).copied().unwrap_or_default();
        if all >= MAX_CONNECTIONS || from_peer >= MAX_FROM_ONE_ADDRESS {
            return None;
        }
        open.insert(peer, from_peer + 1);
        Some(Place { places: self.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.0.lock().expect("no holder of this lock panics");
        if let Some(count) = open.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.peer);
            }
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
        assert!(places.take(peer(200)).is_none());

        held.clear();
        assert!(places.take(peer(200)).is_some());
        assert!(places.0.lock().unwrap().is_empty(), "nothing is kept of those who have left");
    }
}
