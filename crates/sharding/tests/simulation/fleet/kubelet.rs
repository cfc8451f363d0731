//! Containers that end, and the kubelet that says so.

use leasehold_sharding::api::MemberContainer;
use leasehold_sharding::death::Ended;
use leasehold_sharding::node::Input;

use super::{Fleet, Happening, MS};

/// The longest time until a kubelet has noticed that a container has ended, and home says so.
const KUBELET_MS: u64 = 1_300;

/// An instance of the container in a Pod.
pub(super) fn container(pod: usize, instance: u64) -> MemberContainer {
    MemberContainer {
        pod_uid: format!("pod-{pod}"),
        name: "leasehold".to_owned(),
        boot_id: "boot".to_owned(),
        token: format!("pod{pod}instance{instance}"),
        lock_id: Some(format!("pod-{pod}")),
    }
}

impl Fleet {
    pub(super) fn kill(&mut self, replica: usize) {
        if self.replicas[replica].gone {
            return;
        }
        let MemberContainer { pod_uid, name, token, .. } = self.replicas[replica].container.clone();
        self.stop(replica);
        let noticed_us = self.draw(0..KUBELET_MS * MS);
        for watcher in 0..self.replicas.len() {
            let (pod_uid, name, token) = (pod_uid.clone(), name.clone(), token.clone());
            let delay = noticed_us + self.delay();
            self.schedule(delay, watcher, Happening::Ended(Ended { pod_uid, name, token }));
        }
    }

    /// Half of them without a word of the kubelet.
    pub(super) fn restart(&mut self, replica: usize) {
        let container = self.replicas[replica].container.clone();
        match self.rng.bool() {
            true => self.kill(replica),
            false => self.stop(replica),
        }
        // Tokens need only differ.
        let token = format!("{}x", container.token);
        self.start_in(MemberContainer { token, ..container });
    }

    pub(super) fn tell_of_end(&mut self, replica: usize, ended: Ended) {
        let told = &mut self.replicas[replica];
        let deaf_until = told.cut_off_until.max(told.frozen_until);
        if deaf_until > self.now_us {
            let after = deaf_until - self.now_us + 1;
            self.schedule(after, replica, Happening::Ended(ended));
            return;
        }
        let now = told.clock.read(self.now_us);
        told.node.handle(Input::Ended(vec![ended]), now);
    }
}
