//! The machines of a cloud, and their visible states over time. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use jiff::Timestamp;

/// One machine, existing or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its tags, as `key` to `value`.
    pub tags: BTreeMap<String, String>,
    /// Its region.
    pub region: String,
    /// When it was created.
    pub created: Timestamp,
    /// When it was deleted.
    pub deleted: Option<Timestamp>,
    /// Whether it was switched off.
    pub off: bool,
    /// Whether it has an IPv6 address.
    pub ipv6: bool,
}

/// An address that outlives machines, existing or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its tags, as `key` to `value`.
    pub tags: BTreeMap<String, String>,
    /// Its region.
    pub region: String,
    /// When it was reserved.
    pub created: Timestamp,
    /// When it was given up.
    pub deleted: Option<Timestamp>,
    /// The machine that was last given it, which may exist no more.
    pub machine: Option<u64>,
}

/// Why a machine is not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The quota is used up.
    Quota,
    /// Names are unique, and this one is taken.
    Taken,
    /// The region does not exist.
    Region,
}

/// All machines of an account.
#[derive(Clone, Debug)]
pub struct Machines {
    machines: BTreeMap<u64, Machine>,
    reserved: BTreeMap<u64, Reserved>,
    next: u64,
    /// How many addresses may be reserved.
    pub address_quota: usize,
    /// The account's token.
    pub token: String,
    /// How many machines there may be.
    pub quota: usize,
    /// How long a new one takes until it runs and has an address.
    pub boot: Duration,
    /// How far lists lag behind.
    pub lag: Duration,
    /// The existing regions; any, if none is named.
    pub regions: BTreeSet<String>,
}

impl Default for Machines {
    fn default() -> Self {
        Self {
            machines: BTreeMap::new(),
            reserved: BTreeMap::new(),
            address_quota: 1_000,
            next: 229_417_838,
            token: "secret".to_owned(),
            quota: 1_000,
            boot: Duration::from_secs(30),
            lag: Duration::ZERO,
            regions: BTreeSet::new(),
        }
    }
}

impl Machine {
    /// Its public address.
    pub fn address(&self) -> Ipv4Addr {
        address(self.id)
    }

    /// Its public IPv6 address, if it has one.
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        // 2001:2::/48 is reserved for tests of network devices (RFC 5180).
        let [.., c, d] = self.id.to_be_bytes();
        let network = u16::from_be_bytes([c, d]);
        self.ipv6.then(|| Ipv6Addr::new(0x2001, 2, 0, network, 0, 0, 0, 1))
    }

    /// Whether it has booted by `now`.
    pub fn runs(&self, boot: Duration, now: Timestamp) -> bool {
        self.created + boot <= now
    }
}

impl Reserved {
    /// The address.
    pub fn address(&self) -> Ipv4Addr {
        address(self.id)
    }
}

fn address(id: u64) -> Ipv4Addr {
    // 198.18.0.0/15 is reserved for tests of network devices (RFC 2544).
    let [.., b, c, d] = id.to_be_bytes();
    Ipv4Addr::new(198, 18 | (b & 1), c, d)
}

impl Machines {
    /// Creates a machine, without an IPv6 address. `unique` says whether a name may be used only once.
    ///
    /// # Errors
    /// As [`Refusal`] lists them.
    pub fn create(
        &mut self,
        name: &str,
        region: &str,
        tags: BTreeMap<String, String>,
        unique: bool,
        now: Timestamp,
    ) -> Result<&mut Machine, Refusal> {
        if !self.regions.is_empty() && !self.regions.contains(region) {
            return Err(Refusal::Region);
        }
        if unique && self.alive().any(|machine| machine.name == name) {
            return Err(Refusal::Taken);
        }
        if self.alive().count() >= self.quota {
            return Err(Refusal::Quota);
        }
        let id = self.next;
        self.next += 1;
        let (name, region) = (name.to_owned(), region.to_owned());
        let machine = Machine {
            id,
            name,
            tags,
            region,
            created: now,
            deleted: None,
            off: false,
            ipv6: false,
        };
        Ok(self.machines.entry(id).or_insert(machine))
    }

    /// The machine with an id, without lag.
    pub fn get(&self, id: u64) -> Option<&Machine> {
        self.machines.get(&id).filter(|machine| machine.deleted.is_none())
    }

    /// Deletes a machine. Returns whether there was one.
    pub fn delete(&mut self, id: u64, now: Timestamp) -> bool {
        let machine = self.machines.get_mut(&id).filter(|machine| machine.deleted.is_none());
        machine.map(|machine| machine.deleted = Some(now)).is_some()
    }

    /// Switches a machine off, or on again.
    pub fn switch(&mut self, id: u64, on: bool) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.off = !on;
        }
    }

    /// Takes all tags off a machine.
    pub fn untag(&mut self, id: u64) {
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.tags.clear();
        }
    }

    /// The machines whose tags are wanted, as of the lag ago.
    pub fn list(
        &self,
        now: Timestamp,
        wanted: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Vec<&Machine> {
        let then = now - jiff::SignedDuration::try_from(self.lag).unwrap_or_default();
        let seen = |machine: &&Machine| {
            machine.created <= then && machine.deleted.is_none_or(|deleted| then < deleted)
        };
        self.machines.values().filter(seen).filter(|machine| wanted(&machine.tags)).collect()
    }

    /// Reserves an address, for a machine if one is named. `unique` says whether a name may be used only once.
    ///
    /// # Errors
    /// As [`Refusal`] lists them: a machine has one address at most.
    pub fn reserve(
        &mut self,
        name: &str,
        region: &str,
        tags: BTreeMap<String, String>,
        machine: Option<u64>,
        unique: bool,
        now: Timestamp,
    ) -> Result<&Reserved, Refusal> {
        let has_one = |one: &Reserved| machine.is_some() && self.holder(one) == machine;
        if self.reserved().any(|one| (unique && one.name == name) || has_one(one)) {
            return Err(Refusal::Taken);
        }
        if self.reserved().count() >= self.address_quota {
            return Err(Refusal::Quota);
        }
        let region = match machine {
            Some(id) => self.get(id).ok_or(Refusal::Region)?.region.clone(),
            None => region.to_owned(),
        };
        let id = self.next;
        self.next += 1;
        let name = name.to_owned();
        let one = Reserved { id, name, tags, region, created: now, deleted: None, machine };
        Ok(self.reserved.entry(id).or_insert(one))
    }

    /// Every reserved address.
    pub fn reserved(&self) -> impl Iterator<Item = &Reserved> {
        self.reserved.values().filter(|one| one.deleted.is_none())
    }

    /// The machine that has an address.
    pub fn holder(&self, one: &Reserved) -> Option<u64> {
        one.machine.filter(|id| self.get(*id).is_some())
    }

    /// Gives a machine an address. Returns whether both exist.
    pub fn assign(&mut self, id: u64, machine: u64) -> bool {
        let exists = self.get(machine).is_some();
        let one = self.reserved.get_mut(&id).filter(|one| exists && one.deleted.is_none());
        one.map(|one| one.machine = Some(machine)).is_some()
    }

    /// Gives an address up. Returns whether there was one.
    pub fn release(&mut self, id: u64, now: Timestamp) -> bool {
        let one = self.reserved.get_mut(&id).filter(|one| one.deleted.is_none());
        one.map(|one| one.deleted = Some(now)).is_some()
    }

    /// The reserved addresses, as of the lag ago.
    pub fn list_reserved(&self, now: Timestamp) -> Vec<&Reserved> {
        let then = now - jiff::SignedDuration::try_from(self.lag).unwrap_or_default();
        let seen =
            |one: &&Reserved| one.created <= then && one.deleted.is_none_or(|end| then < end);
        self.reserved.values().filter(seen).collect()
    }

    /// The most addresses that were ever reserved at once.
    pub fn most_reserved(&self) -> usize {
        let at = |then: Timestamp| {
            let lives =
                |one: &&Reserved| one.created <= then && one.deleted.is_none_or(|end| then < end);
            self.reserved.values().filter(lives).count()
        };
        self.reserved.values().map(|one| at(one.created)).max().unwrap_or(0)
    }

    /// Every existing machine.
    pub fn alive(&self) -> impl Iterator<Item = &Machine> {
        self.machines.values().filter(|machine| machine.deleted.is_none())
    }

    /// The most machines with the same value of a tag that ever existed at once.
    pub fn most_at_once(&self, key: &str) -> usize {
        let tagged = self.machines.values().filter_map(|one| Some((one.tags.get(key)?, one)));
        let overlaps = |tag: &String, at: Timestamp| {
            let same = self.machines.values().filter(|other| other.tags.get(key) == Some(tag));
            same.filter(|other| other.created <= at && other.deleted.is_none_or(|end| at < end))
                .count()
        };
        tagged.map(|(tag, one)| overlaps(tag, one.created)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn lists_lag_and_reads_do_not() {
        let mut machines = Machines { lag: Duration::from_secs(5), ..Machines::default() };
        let tags = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        let id = machines.create("a", "r", tags.clone(), true, at(10)).unwrap().id;
        assert!(machines.get(id).is_some());
        assert_eq!(machines.create("a", "r", tags, true, at(11)), Err(Refusal::Taken));
        let seen = |machines: &Machines, second| {
            machines.list(at(second), |tags| tags.contains_key("k")).len()
        };
        assert_eq!((seen(&machines, 14), seen(&machines, 15)), (0, 1));
        assert!(machines.delete(id, at(20)) && !machines.delete(id, at(21)));
        assert_eq!((seen(&machines, 24), seen(&machines, 25)), (1, 0));
        assert_eq!(machines.most_at_once("k"), 1);
    }
}
