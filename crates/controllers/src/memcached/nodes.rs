//! The nodes of a Memcached: what their Pods show, and which of them clients should use. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::api::Memcached;
use super::desired::{CONTAINER, address};
use sdk::controlled_by;

/// The Pods of a StatefulSet that are not being deleted, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes<'a>(BTreeMap<i32, &'a Pod>);

impl<'a> Nodes<'a> {
    /// The nodes of a StatefulSet among these Pods.
    pub(super) fn of(set: &StatefulSet, pods: &[&'a Pod]) -> Self {
        let ours = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none() && controlled_by(**pod, set));
        Self(ours.filter_map(|pod| Some((ordinal(set, pod)?, *pod))).collect())
    }

    /// How many there are.
    pub(super) fn count(&self) -> i32 {
        count(self.0.len())
    }

    /// How many of the first `size` are ready.
    pub(super) fn ready(&self, size: i32) -> i32 {
        count(self.0.range(..size.max(0)).filter(|(_, pod)| is_ready(pod)).count())
    }

    /// The servers that clients should use, in their order, given those that they were told before.
    ///
    /// The list changes at its end only. A node is appended when it is first ready, once all before it are
    /// in the list; it is taken away when it is no longer wanted and is gone; between the two it stays,
    /// ready or not.
    pub(super) fn listed(
        &self,
        memcached: &Memcached,
        before: &[String],
        size: i32,
    ) -> Vec<String> {
        let mut list = Vec::new();
        for ordinal in 0.. {
            let address = address(memcached, ordinal);
            let is_listed = before.get(list.len()) == Some(&address);
            let pod = self.0.get(&ordinal);
            let stays = match ordinal < size {
                true => is_listed || pod.is_some_and(|pod| is_ready(pod)),
                false => is_listed && pod.is_some(),
            };
            if !stays {
                break;
            }
            list.push(address);
        }
        list
    }

    /// The version that every node runs, if it is the same: the tag of the image.
    pub(super) fn version(&self) -> Option<String> {
        let mut images = self.0.values().map(|pod| image(pod));
        let first = images.next()??;
        images.all(|image| image == Some(first)).then(|| version(first))
    }

    /// The first of `size` nodes that is not ready, and what its Pod says about that.
    pub(super) fn trouble(&self, size: i32) -> Option<(i32, String)> {
        let ordinal = (0..size).find(|at| !self.0.get(at).is_some_and(|pod| is_ready(pod)))?;
        let why = match self.0.get(&ordinal) {
            Some(pod) => reason(pod).map_or_else(
                || "is not ready yet".to_owned(),
                |reason| format!("is not ready: {reason}"),
            ),
            None => "does not exist at present".to_owned(),
        };
        Some((ordinal, why))
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let name = pod.name_any();
    let number = name.strip_prefix(&set.name_any())?.strip_prefix('-')?;
    number.parse().ok().filter(|ordinal| *ordinal >= 0)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True")
}

fn image(pod: &Pod) -> Option<&str> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().find(|found| found.name == CONTAINER)?.image.as_deref()
}

/// The version in the name of an image: its tag; without one, what its digest begins with.
fn version(image: &str) -> String {
    let (name, digest) = image.split_once('@').map_or((image, None), |(n, d)| (n, Some(d)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let version = match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => tag.to_owned(),
        (None, Some(digest)) => digest.chars().take(19).collect(),
        (None, None) => "latest".to_owned(),
    };
    sdk::error::foreign(&version)
}

/// Why a Pod is not ready, in the words of the kubelet or the scheduler.
fn reason(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let waiting = containers.filter_map(|found| found.state.as_ref()?.waiting.as_ref());
    let waiting = waiting.filter_map(|waiting| waiting.reason.as_deref()).next();
    let unscheduled = || {
        let mut conditions = status.conditions.iter().flatten();
        let found = conditions.find(|found| found.type_ == "PodScheduled")?;
        (found.status == "False").then_some(found.message.as_deref()).flatten()
    };
    waiting.or_else(unscheduled).map(sdk::error::foreign)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn memcached() -> Memcached {
        let spec = serde_json::from_value(json!({})).unwrap();
        let mut memcached = Memcached::new("cache", spec);
        memcached.metadata.namespace = Some("web".to_owned());
        memcached
    }

    fn set() -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "cache", "uid": "set-uid"}})).unwrap()
    }

    /// A Pod: a digit is its number, `!` after it says that it is not ready, `x` that it is deleted.
    fn pod(text: &str) -> Pod {
        let ready = if text.ends_with('!') { "False" } else { "True" };
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": format!("cache-{}", &text[..1]),
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cache",
                    "uid": "set-uid", "controller": true,
                }],
            },
            "spec": {"containers": [{"name": "memcached", "image": "memcached:1.6.45"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap();
        if text.ends_with('x') {
            let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
            pod.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        }
        pod
    }

    /// How many nodes are listed, if the first `before` were.
    fn listed(before: i32, size: i32, pods: &str) -> usize {
        let pods: Vec<_> = pods.split_whitespace().map(pod).collect();
        let pods: Vec<_> = pods.iter().collect();
        let before: Vec<_> = (0..before).map(|at| address(&memcached(), at)).collect();
        let list = Nodes::of(&set(), &pods).listed(&memcached(), &before, size);
        let whole: Vec<_> = (0..100).map(|at| address(&memcached(), at)).collect();
        assert!(whole.starts_with(&list), "in their order, and without gaps");
        list.len()
    }

    #[test]
    fn the_list_changes_at_its_end_and_only_when_a_node_has_come_or_gone() {
        for (before, size, pods, expect) in [
            // New nodes come when they are ready, each after those before it.
            (0, 3, "", 0),
            (0, 3, "0! 1 2", 0),
            (0, 3, "0 1! 2", 1),
            (0, 3, "0 1 2", 3),
            (3, 5, "0 1 2 3! 4", 3),
            (3, 5, "0 1 2 3 4", 5),
            // Nodes that restart stay.
            (3, 3, "0 1 2!", 3),
            (3, 3, "0! 2x", 3),
            (3, 3, "", 3),
            // Those that are no longer wanted stay until they are gone.
            (5, 3, "0 1 2 3 4", 5),
            (5, 3, "0 1 2 3 4x", 4),
            (5, 3, "0 1 2 4", 3),
            (5, 3, "0 1 2", 3),
            (3, 0, "", 0),
            // Growing again takes back a node that never went.
            (5, 5, "0 1 2 3x", 5),
        ] {
            assert_eq!(listed(before, size, pods), expect, "{before} to {size}: {pods}");
        }
    }

    #[test]
    fn pods_of_others_are_no_nodes() {
        let (mut other, mut stray) = (pod("0"), pod("1"));
        other.metadata.owner_references.as_mut().unwrap()[0].uid = "another".to_owned();
        stray.metadata.name = Some("cache-1-debug".to_owned());
        let nodes = Nodes::of(&set(), &[&other, &stray]);
        assert_eq!((nodes.count(), nodes.ready(3)), (0, 0));
    }

    #[test]
    fn the_version_is_that_of_all_or_none() {
        let (one, mut two) = (pod("0"), pod("1"));
        assert_eq!(Nodes::of(&set(), &[&one, &two]).version().as_deref(), Some("1.6.45"));
        two.spec.as_mut().unwrap().containers[0].image = Some("memcached:1.6.46".to_owned());
        assert_eq!(Nodes::of(&set(), &[&one, &two]).version(), None);
        assert_eq!(Nodes::of(&set(), &[]).version(), None);
    }

    #[test]
    fn versions_of_images() {
        for (image, expect) in [
            ("memcached:1.6.45", "1.6.45"),
            ("registry.example.com:5000/a/memcached:1.6.45-alpine", "1.6.45-alpine"),
            ("registry.example.com:5000/a/memcached", "latest"),
            ("memcached:1.6.45@sha256:0123456789abcdef", "1.6.45"),
            ("memcached@sha256:0123456789abcdef0123", "sha256:0123456789ab"),
        ] {
            assert_eq!(version(image), expect, "{image}");
        }
    }

    #[test]
    fn trouble_is_named() {
        let mut pulling = pod("1!");
        let status = json!({"containerStatuses": [{
            "name": "memcached", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff"}},
        }]});
        pulling.status = Some(serde_json::from_value(status).unwrap());
        let zero = pod("0");
        let nodes = Nodes::of(&set(), &[&zero, &pulling]);
        assert_eq!(nodes.trouble(1), None);
        assert_eq!(nodes.trouble(3), Some((1, "is not ready: ImagePullBackOff".to_owned())));
        let nodes = Nodes::of(&set(), &[&zero]);
        assert_eq!(nodes.trouble(2), Some((1, "does not exist at present".to_owned())));
    }
}
