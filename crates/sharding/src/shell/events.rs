//! Events of the fleet in the home cluster (`events.k8s.io/v1`): what `kubectl get events` in home's namespace
//! shows. Best effort: home's Leases come first, so Events have a budget, and what exceeds it is counted in
//! the next one.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use model::{ClusterName, MemberId};
use tokio::sync::mpsc;
use tracing::debug;

use crate::api::{DownCluster, Member, ShardMap};
use crate::lease::{self, COORDINATOR};
use crate::node::Note;
use crate::record::{Kind, Target};

/// How many Events wait; further ones are dropped.
const WAITING: usize = 64;
/// How many are written at once, and how often one more may be.
const BURST: u32 = 20;
const REFILL: Duration = Duration::from_secs(1);
/// How long one write may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The API server's limit on notes, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// Who reports.
const CONTROLLER: &str = "leasehold.dev/sharding";

/// Something to tell about an object of the home cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    regarding: Target,
    /// What else it is about: the ShardMap of a cluster that a member cannot use.
    related: Option<Target>,
    warning: bool,
    reason: &'static str,
    action: &'static str,
    note: String,
}

/// Takes in what people should know.
pub(crate) struct Events {
    sender: mpsc::Sender<(Told, String, Timestamp)>,
    dropped: u64,
}

impl Told {
    pub(crate) fn regarding(&self) -> &Target {
        &self.regarding
    }

    /// What a note is as an Event; `None` if it is for logs and metrics only. `me` is the member that notes it.
    pub(crate) fn of(note: &Note, me: &MemberId) -> Option<Self> {
        let coordinator = || Target { kind: Kind::Lease, name: COORDINATOR.to_owned() };
        let member = |id: &MemberId| Target { kind: Kind::Member, name: id.to_string() };
        let map = |cluster: &ClusterName| Target { kind: Kind::Map, name: cluster.to_string() };
        let told = |regarding, warning, reason, action, note| {
            Some(Self { regarding, related: None, warning, reason, action, note })
        };
        let of_cluster = |cluster: &ClusterName, told: Option<Self>| {
            Some(Self { related: Some(map(cluster)), ..told? })
        };
        match note {
            Note::HistoryChanged { proof } => {
                let note = format!(
                    "{me} found that the home cluster was restored, emptied or replaced ({proof}): it is read anew, \
                     and every shard is given anew after one silence"
                );
                told(coordinator(), true, "HomeHistoryChanged", "ReadAnew", note)
            }
            Note::Fenced { was, is, cause } => {
                let note = format!("{was} fenced itself: {cause}; it goes on as {is}");
                told(member(was), true, "Fenced", "JoinAnew", note)
            }
            Note::Coordinating(true) => {
                told(coordinator(), false, "Coordinating", "Elect", format!("{me} coordinates"))
            }
            Note::Took(name) => {
                let subject = lease::subject(name);
                let regarding = subject.map_or_else(coordinator, |subject| member(&subject));
                let note = format!(
                    "{name} was taken: its holder is silent or dead, and others get its shards"
                );
                told(regarding, true, "MemberLost", "TakeOver", note)
            }
            Note::Ended(dead) => {
                let note = format!("the process of {dead} has ended: nobody waits for its Lease");
                told(member(dead), true, "ProcessEnded", "TakeOver", note)
            }
            Note::HandedOver(handover) => {
                let map = map(&handover.shard.cluster);
                told(map, false, "ShardMoved", "Move", handover.to_string())
            }
            Note::ClusterDown(DownCluster { cluster, reason }) => {
                let note = format!("cluster {cluster}: {reason}");
                of_cluster(cluster, told(member(me), true, "ClusterDown", "Report", note))
            }
            Note::ClusterUp(cluster) => {
                let note = format!("cluster {cluster} works again, or is not configured any more");
                of_cluster(cluster, told(member(me), false, "ClusterUp", "Report", note))
            }
            Note::Problem(text) => told(coordinator(), true, "Problem", "Repair", text.clone()),
            Note::Coordinating(false) | Note::Solved(_) => None,
        }
    }
}

impl Events {
    /// A way to tell, and the task that writes, which ends when this is dropped.
    pub(crate) fn spawn(
        client: kube::Client,
        namespace: String,
        instance: String,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { sender, dropped: 0 }, write_all(client, namespace, instance, receiver))
    }

    /// Tells something about an object with that uid.
    pub(crate) fn tell(&mut self, mut told: Told, uid: String, now: Timestamp) {
        if self.dropped > 0 {
            told.note += &format!(" (before this, {} Events were not written)", self.dropped);
        }
        match self.sender.try_send((told, uid, now)) {
            Ok(()) => self.dropped = 0,
            Err(_) => self.dropped += 1,
        }
    }
}

async fn write_all(
    client: kube::Client,
    namespace: String,
    instance: String,
    mut receiver: mpsc::Receiver<(Told, String, Timestamp)>,
) {
    let api = Api::<Event>::namespaced(client, &namespace);
    let mut tokens = BURST;
    let mut refill = tokio::time::interval(REFILL);
    loop {
        let told = tokio::select! {
            biased;
            told = receiver.recv(), if tokens > 0 => told,
            _ = refill.tick() => {
                tokens = (tokens + 1).min(BURST);
                continue;
            }
        };
        let Some((told, uid, at)) = told else { return };
        tokens -= 1;
        let event = event(told, uid, at, &namespace, &instance);
        let (params, name) = (PostParams::default(), event.metadata.name.clone());
        match tokio::time::timeout(TIMEOUT, api.create(&params, &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(?name, "write an Event: {}", model::error::chain(&error)),
            Err(_) => debug!(?name, "write an Event: no answer within {TIMEOUT:?}"),
        }
    }
}

fn event(told: Told, uid: String, at: Timestamp, namespace: &str, instance: &str) -> Event {
    let Told { regarding, related, warning, reason, action, mut note } = told;
    let end = (0..=MAX_NOTE_BYTES.min(note.len())).rev().find(|&end| note.is_char_boundary(end));
    note.truncate(end.unwrap_or_default());
    // As client-go names them: the object and the time.
    let name = format!("{}.{:x}", regarding.name, at.as_nanosecond());
    let uid = Some(uid).filter(|uid| !uid.is_empty());
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        action: Some(action.to_owned()),
        note: Some(note),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        regarding: Some(ObjectReference { uid, ..reference(regarding, namespace) }),
        related: related.map(|related| reference(related, namespace)),
        ..Event::default()
    }
}

fn reference(target: Target, namespace: &str) -> ObjectReference {
    let (api_version, kind) = match target.kind {
        Kind::Lease => ("coordination.k8s.io/v1".into(), "Lease".into()),
        Kind::Member => (api_version::<Member>(), kind::<Member>()),
        Kind::Map => (api_version::<ShardMap>(), kind::<ShardMap>()),
    };
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind),
        name: Some(target.name),
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    }
}

fn api_version<K: kube::Resource<DynamicType = ()>>() -> String {
    K::api_version(&()).into_owned()
}

fn kind<K: kube::Resource<DynamicType = ()>>() -> String {
    K::kind(&()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Told {
        Told::of(&Note::Problem(text.to_owned()), &"m-1".parse().unwrap()).unwrap()
    }

    #[test]
    fn what_exceeds_the_budget_is_counted_in_the_next_event() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut events = Events { sender, dropped: 0 };
        for text in ["a", "b", "c", "d"] {
            events.tell(problem(text), String::new(), Timestamp::UNIX_EPOCH);
        }
        receiver.try_recv().unwrap();
        events.tell(problem("e"), String::new(), Timestamp::UNIX_EPOCH);
        let notes = || Some(receiver.try_recv().ok()?.0.note);
        let notes: Vec<String> = std::iter::from_fn(notes).collect();
        assert_eq!(notes, ["b", "e (before this, 2 Events were not written)"]);
    }

    #[test]
    fn that_a_cluster_is_down_is_told_of_the_member_and_of_the_cluster() {
        let reason = "kubeconfig east has no contexts; fix: add a context".to_owned();
        let down = DownCluster { cluster: "east".parse().unwrap(), reason };
        for note in [Note::ClusterUp(down.cluster.clone()), Note::ClusterDown(down)] {
            let told = Told::of(&note, &"m-1".parse().unwrap()).unwrap();
            let event = event(told, "u".into(), Timestamp::UNIX_EPOCH, "ns", "replica-0");
            let names = |about: Option<ObjectReference>| {
                let ObjectReference { kind, name, namespace, uid, .. } = about.unwrap();
                [kind, name, namespace, uid].map(Option::unwrap_or_default)
            };
            assert_eq!(names(event.regarding), ["Member", "m-1", "ns", "u"]);
            assert_eq!(names(event.related), ["ShardMap", "east", "ns", ""]);
        }
    }

    #[test]
    fn a_note_is_cut_to_what_a_server_takes_and_names_stay_valid() {
        let told = problem(&"ä".repeat(1000));
        let event = event(told, "u".into(), Timestamp::UNIX_EPOCH, "ns", "replica-0");
        assert!(event.note.unwrap().len() <= MAX_NOTE_BYTES);
        let regarding = event.regarding.unwrap();
        assert_eq!(regarding.kind.as_deref(), Some("Lease"));
        assert_eq!(event.metadata.name.as_deref(), Some("leasehold-coordinator.0"));
    }
}
