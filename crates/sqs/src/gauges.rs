//! How many messages queues have, as series: `leasehold_sqs_queue_messages`. Pure, but for its lock.
//!
//! # Invariants
//! - A cluster has series of at most [`MAX_QUEUES`] queues; the others are summed up, as are those of all clusters
//!   that have no label value of their own.
//! - A queue has a series while its object is there and this member holds its shard.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};
use sdk::{ClusterName, Context, ObjectKey, Validity};

use super::api::Messages;

/// How many queues of a cluster have series of their own: the first by namespace and name.
const MAX_QUEUES: usize = 25;
/// The namespace and the name of the sum of all other queues. No object has this name.
const REST: &str = "<other>";
/// The label value of clusters without one of their own.
const OTHER_CLUSTERS: &str = "other";

type Key = (ClusterName, ObjectKey);

/// The series of all queues. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Gauges {
    shown: Arc<Mutex<BTreeMap<Key, Shown>>>,
    desc: Desc,
}

#[derive(Clone, Debug)]
struct Shown {
    validity: Validity,
    messages: Messages,
}

impl Gauges {
    pub(super) fn new() -> Self {
        let desc = family().desc()[0].clone();
        Self { shown: Arc::default(), desc }
    }

    /// Shows how many messages a queue has.
    pub(super) fn show(&self, ctx: &Context, messages: Messages) {
        let shown = Shown { validity: ctx.validity(), messages };
        self.lock().insert(key(ctx), shown);
    }

    /// Shows what was recorded, if nothing is shown yet.
    pub(super) fn begin(&self, ctx: &Context, recorded: Option<Messages>) {
        let lasts = self.lock().get(&key(ctx)).is_some_and(|shown| shown.validity.lasts());
        if let Some(messages) = recorded.filter(|_| !lasts) {
            self.show(ctx, messages);
        }
    }

    /// Shows nothing of a queue any more.
    pub(super) fn end(&self, ctx: &Context) {
        self.lock().remove(&key(ctx));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Shown>> {
        self.shown.lock().expect("no holder of this lock panics")
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut shown = self.lock();
        shown.retain(|_, shown| shown.validity.lasts());
        let all = shown.iter().map(|((_, key), shown)| {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            (shown.validity.cluster_label(), [namespace, &*key.name], shown.messages)
        });
        let family = family();
        for ([cluster, namespace, name], messages) in bounded(all) {
            let Messages { visible, in_flight, delayed } = messages;
            for (state, number) in
                [("visible", visible), ("in_flight", in_flight), ("delayed", delayed)]
            {
                family.with_label_values(&[cluster, namespace, name, state]).set(number);
            }
        }
        family.collect()
    }
}

/// The numbers of each queue, in order of clusters and names, with what has no series of its own summed up.
fn bounded<'a>(
    all: impl Iterator<Item = (&'a str, [&'a str; 2], Messages)>,
) -> BTreeMap<[&'a str; 3], Messages> {
    let mut own = BTreeMap::<&str, usize>::new();
    let mut numbers = BTreeMap::<_, Messages>::new();
    for (cluster, [namespace, name], messages) in all {
        let count = own.entry(cluster).or_default();
        *count += 1;
        let is_own = cluster != OTHER_CLUSTERS && *count <= MAX_QUEUES;
        let labels = if is_own { [cluster, namespace, name] } else { [cluster, REST, REST] };
        let sum = numbers.entry(labels).or_default();
        sum.visible = sum.visible.saturating_add(messages.visible);
        sum.in_flight = sum.in_flight.saturating_add(messages.in_flight);
        sum.delayed = sum.delayed.saturating_add(messages.delayed);
    }
    numbers
}

fn family() -> IntGaugeVec {
    let what = "Messages of a queue as last seen, about, by state: visible, in_flight, delayed.";
    let opts = Opts::new("leasehold_sqs_queue_messages", what);
    let family = IntGaugeVec::new(opts, &["cluster", "queue_namespace", "queue", "state"]);
    family.expect("the names are well formed")
}

fn key(ctx: &Context) -> Key {
    (ctx.cluster().clone(), ctx.key().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_may_not_show_by_itself_is_summed_up() {
        let names: Vec<_> = (0..40).map(|number| format!("q-{number:02}")).collect();
        let messages = Messages { visible: 2, in_flight: 1, delayed: 0 };
        let of = |cluster| names.iter().map(move |name| (cluster, ["shop", &**name], messages));
        let few = of("west").take(3);
        let numbers = bounded(of("east").chain(of("other")).chain(few));
        let of = |cluster: &str| numbers.keys().filter(|labels| labels[0] == cluster).count();
        assert_eq!([of("east"), of("other"), of("west")], [MAX_QUEUES + 1, 1, 3]);
        assert_eq!(numbers[&["east", "shop", "q-24"]], messages);
        let rest = numbers[&["east", REST, REST]];
        assert_eq!((rest.visible, rest.in_flight, rest.delayed), (30, 15, 0));
        assert_eq!(numbers[&["other", REST, REST]].visible, 80);
    }
}
