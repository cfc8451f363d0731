//! What an answer may be, of each provider. For tests.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Address, Host, digitalocean, hetzner};

/// The hosts that an answer may be.
pub(crate) fn hosts(answer: &Value) -> Vec<Host> {
    let droplet = read::<digitalocean::Droplet>(answer).map(Host::from);
    droplet.into_iter().chain(read::<hetzner::Server>(answer).map(Host::from)).collect()
}

/// The addresses that an answer may be, of those that can be Tunnels'.
pub(crate) fn addresses(answer: &Value) -> Vec<Address> {
    let reserved = read::<digitalocean::ReservedIp>(answer).map(Address::from);
    let all = reserved.into_iter().chain(read::<hetzner::FloatingIp>(answer).map(Address::from));
    all.filter(Address::is_of_ipv4).collect()
}

fn read<T: DeserializeOwned>(answer: &Value) -> Option<T> {
    serde_json::from_value(answer.clone()).ok()
}
