//! Which Pod is evicted next. Pure.
//!
//! One after another: the next Pod is evicted when the one before is gone and what its controller created in
//! its place is ready. What a budget does not let go holds up no Pod of another controller.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use sdk::condition::rest;

use super::follow::Trouble;
use super::pending::{Pending, PodRef, is_active};
use super::record::next_second;
use crate::children::controller;

/// How long a controller may take to create a Pod in place of an evicted one. After that it is taken to have
/// been scaled down.
pub(super) const REPLACEMENT: Duration = Duration::from_secs(120);
/// How long a Pod may take to end after its grace period, before that is told as what holds the restart up.
const ENDING: Duration = Duration::from_secs(120);
/// How long one may take to be ready, before that is told: as a Deployment has unless it says otherwise.
const READY: Duration = Duration::from_secs(600);
/// How many Pods are tried at once until one may be evicted.
const MAX_TRIES: usize = 16;

/// What to do about the Pods of a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// All are gone, and others are ready in their place.
    Done,
    /// Evict the first of these that may be evicted: each has another controller.
    Next(Vec<PodRef>),
    /// Wait, for these words, and at most this long.
    Wait(String, Option<Duration>),
    /// Wait, and say what holds it up.
    Held(Trouble),
}

/// Notes how many Pods are left, and since when.
pub(super) fn counted(pending: Pending, pods: &[Pod], now: Timestamp) -> Pending {
    let left = i32::try_from(left(&pending, pods).len()).unwrap_or(i32::MAX);
    match pending.left {
        Some(before) if before == left => pending,
        _ => Pending { left: Some(left), left_since: Some(next_second(now)), ..pending },
    }
}

/// The Pods of the restart that are not gone.
fn left<'a>(pending: &'a Pending, pods: &'a [Pod]) -> Vec<(&'a PodRef, &'a Pod)> {
    let found = |named: &'a PodRef| {
        let same = |pod: &&Pod| pod.metadata.uid.as_ref() == Some(&named.uid) && is_active(pod);
        pods.iter().find(same).map(|pod| (named, pod))
    };
    pending.pods.iter().filter_map(found).collect()
}

/// What to do about a restart of which `pods` are those that its selector matches now.
pub(super) fn next(pending: &Pending, pods: &[Pod], now: Timestamp) -> Eviction {
    let left = left(pending, pods);
    let is_over =
        |since: Timestamp, length: Duration| since.checked_add(length).is_ok_and(|end| end < now);
    let mut ending = left.iter().filter_map(|(named, pod)| {
        pod.metadata.deletion_timestamp.as_ref().map(|end| (&named.name, end.0))
    });
    if let Some((name, end)) = ending.next() {
        if is_over(end, ENDING) {
            let words = format!(
                "Pod {name} was to end at {end} and has not: look at its finalizers and at its node"
            );
            return Eviction::Held(Trouble::new("PodNotEnding", words));
        }
        return Eviction::Wait(format!("Pod {name} is ending"), None);
    }
    let since = pending.left_since.as_ref().map_or(now, |since| since.0);
    let is_left = |pod: &Pod| left.iter().any(|(_, other)| other.metadata.uid == pod.metadata.uid);
    for uid in pending.pods.iter().filter_map(|pod| pod.controller.as_deref()) {
        let of_it = |pod: &&Pod| {
            is_active(pod)
                && pod.metadata.deletion_timestamp.is_none()
                && controller(*pod).is_some_and(|owner| owner.uid == uid)
        };
        if let Some(pod) = pods.iter().filter(of_it).find(|pod| !is_left(pod) && !is_ready(pod)) {
            let words = format!("Pod {} is not ready", pod.name_any());
            if is_over(since, READY) {
                let words = words + ", and others are evicted only once it is: look at it";
                return Eviction::Held(Trouble::new("PodNotReady", words));
            }
            return Eviction::Wait(words, None);
        }
        let before = pending.pods.iter().filter(|pod| pod.controller.as_deref() == Some(uid));
        let missing = before.count().saturating_sub(pods.iter().filter(of_it).count());
        if let Some(rest) = rest(since, REPLACEMENT, now).filter(|_| missing > 0) {
            return Eviction::Wait(format!("{missing} Pods were not replaced yet"), Some(rest));
        }
    }
    let mut seen = BTreeSet::new();
    let left = left.iter().map(|(named, _)| *named);
    let first = left.filter(|pod| seen.insert(pod.controller.as_ref().unwrap_or(&pod.uid)));
    let first: Vec<_> = first.take(MAX_TRIES).cloned().collect();
    if first.is_empty() { Eviction::Done } else { Eviction::Next(first) }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|found| found.type_ == "Ready" && found.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A Pod of a controller, or of none, with its uid for its name.
    fn pod(uid: &str, owner: Option<&str>, ready: bool) -> Pod {
        let mut pod = json!({
            "metadata": {"name": uid, "uid": uid},
            "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        });
        if let Some(uid) = owner {
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "example.com/v1", "kind": "Set", "name": "s", "uid": uid, "controller": true,
            }]);
        }
        serde_json::from_value(pod).unwrap()
    }

    fn pending(pods: &[(&str, Option<&str>)]) -> Pending {
        let pod = |(uid, owner): &(&str, Option<&str>)| PodRef {
            name: (*uid).to_owned(),
            uid: (*uid).to_owned(),
            controller: owner.map(str::to_owned),
        };
        Pending { pods: pods.iter().map(pod).collect(), ..Pending::default() }
    }

    fn words(pending: &Pending, pods: &[Pod], second: i64) -> String {
        match next(pending, pods, at(second)) {
            Eviction::Done => "done".to_owned(),
            Eviction::Next(pods) => {
                let names: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
                format!("evict {}", names.join(" or "))
            }
            Eviction::Wait(words, _) => words,
            Eviction::Held(trouble) => format!("{}: {}", trouble.reason, trouble.words),
        }
    }

    #[test]
    fn one_after_another_and_each_when_the_one_before_is_replaced() {
        let owner = Some("o");
        let old = |uid: &str| pod(uid, owner, true);
        let mut restart =
            counted(pending(&[("a", owner), ("b", owner)]), &[old("a"), old("b")], at(0));
        assert_eq!(words(&restart, &[old("a"), old("b")], 0), "evict a");
        let mut ending = old("a");
        ending.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(words(&restart, &[ending, old("b")], 1), "Pod a is ending");
        restart = counted(restart, &[old("b")], at(10));
        assert_eq!((restart.left, restart.left_since.as_ref().unwrap().0), (Some(1), at(10)));
        assert_eq!(words(&restart, &[old("b")], 11), "1 Pods were not replaced yet");
        let new = |ready| pod("c", owner, ready);
        assert_eq!(words(&restart, &[old("b"), new(false)], 500), "Pod c is not ready");
        let held =
            "PodNotReady: Pod c is not ready, and others are evicted only once it is: look at it";
        assert_eq!(words(&restart, &[old("b"), new(false)], 611), held);
        assert_eq!(words(&restart, &[old("b"), new(true)], 12), "evict b");
        // A controller that was scaled down creates none.
        assert_eq!(words(&restart, &[old("b")], 131), "evict b");
        // The clock was ahead when the Pod went.
        assert_eq!(words(&restart, &[old("b")], -1_000), "evict b");
        assert_eq!(words(&restart, &[new(true), pod("d", owner, true)], 131), "done");
    }

    #[test]
    fn nothing_is_awaited_in_place_of_a_bare_pod_and_namesakes_are_others() {
        let restart = pending(&[("a", None), ("b", None)]);
        assert_eq!(words(&restart, &[pod("b", None, false), pod("c", None, false)], 0), "evict b");
        assert_eq!(words(&restart, &[pod("c", None, false)], 0), "done");
        // One does not stand for the other, as Pods of one controller do.
        let both = [pod("a", None, false), pod("b", None, false)];
        assert_eq!(words(&restart, &both, 0), "evict a or b");
        let mut over = pod("a", None, false);
        over.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
        assert_eq!(words(&restart, &[over], 0), "done");
    }

    /// As behind a node that is gone, or with a finalizer.
    #[test]
    fn a_pod_that_never_ends_holds_the_others_up_and_is_told() {
        let restart = pending(&[("a", Some("o")), ("b", Some("o"))]);
        let mut ending = pod("a", Some("o"), true);
        // The end of its grace period.
        ending.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("1970-01-01T00:01:00Z")).unwrap());
        let all = [ending, pod("b", Some("o"), true)];
        for second in [0, 60, 180] {
            assert_eq!(words(&restart, &all, second), "Pod a is ending");
        }
        let held = words(&restart, &all, 181);
        let told = "PodNotEnding: Pod a was to end at 1970-01-01T00:01:00Z";
        assert!(held.starts_with(told), "{held}");
    }

    #[test]
    fn a_budget_holds_up_its_own_controller_alone() {
        let restart = pending(&[("a", Some("o")), ("b", Some("o")), ("c", Some("p"))]);
        let all = [pod("a", Some("o"), true), pod("b", Some("o"), true), pod("c", Some("p"), true)];
        assert_eq!(words(&restart, &all, 0), "evict a or c");
        let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), Some(name.as_str()))).collect();
        let pods: Vec<_> = many.iter().map(|(name, owner)| pod(name, *owner, true)).collect();
        let Eviction::Next(tried) = next(&pending(&many), &pods, at(0)) else { panic!("none") };
        assert_eq!(tried.len(), MAX_TRIES);
    }
}
