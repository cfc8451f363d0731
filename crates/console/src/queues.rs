//! The queues of the replicas: where the work is, and which objects stand out. Pure.

use explain::time;
use fleet::{ClusterLoad, ControllerLoad, Key, Top};
use maud::{Markup, html};
use model::ClusterName;
use queue::QueueStatus;

use crate::page::{cluster_link, object_link, table};
use crate::source::Said;

/// The most rows of each table.
const ROWS: usize = 25;

pub(crate) fn queues(said: &Said<Vec<QueueStatus>>) -> Markup {
    let answered: Vec<(String, Vec<QueueStatus>)> = said
        .iter()
        .filter_map(|(replica, said)| Some((replica.clone(), said.as_ref().ok()?.clone())))
        .collect();
    let silent: Vec<_> =
        said.iter().filter_map(|(replica, said)| Some((replica, said.as_ref().err()?))).collect();
    let Top { controllers, clusters, longest, failing } = Top::of(&answered, ROWS);
    html! {
        p { "Answers of " (answered.len()) " of " (said.len()) " replicas." }
        @if !silent.is_empty() {
            h2 { "Replicas that do not say" }
            (table(["Replica", "Why"], "", silent.iter().take(ROWS).map(|(replica, why)| {
                [html! { (replica) }, html! { (why) }]
            })))
        }
        h2 { "Controllers" }
        (table(
            ["Controller", "Ready", "Delayed", "Running", "Oldest ready"],
            "No replica has a queue yet.",
            controllers.iter().map(controller),
        ))
        h2 { "Objects that fail most" }
        (table(
            ["Object", "Controller", "Replica", "Times", "Last", "Error"],
            "Nothing fails.",
            failing.iter().map(failing_row),
        ))
        h2 { "Objects that run longest" }
        (table(
            ["Object", "Controller", "Replica", "For"],
            "Nothing runs at the moment.",
            longest.iter().map(|key| {
                let ran = html! { (time(key.seconds)) };
                [object(key), html! { (key.controller) }, html! { (key.member) }, ran]
            }),
        ))
        h2 { "Clusters with ready keys" }
        (table(["Cluster", "Ready"], "No key waits.", clusters.iter().map(cluster)))
    }
}

fn controller(load: &ControllerLoad) -> [Markup; 5] {
    let ControllerLoad { controller, ready, delayed, running, oldest_seconds } = load;
    [
        html! { (controller) },
        html! { (ready) },
        html! { (delayed) },
        html! { (running) },
        html! { (time(*oldest_seconds)) },
    ]
}

fn cluster(load: &ClusterLoad) -> [Markup; 2] {
    let name = match load.cluster.parse::<ClusterName>() {
        Ok(name) => cluster_link(&name),
        Err(_) => html! { (load.cluster) },
    };
    [name, html! { (load.ready) }]
}

fn failing_row(key: &Key) -> [Markup; 6] {
    let error = model::error::foreign(key.error.as_deref().unwrap_or_default());
    [
        object(key),
        html! { (key.controller) },
        html! { (key.member) },
        html! { (key.times.unwrap_or_default()) },
        html! { (time(key.seconds)) " ago" },
        html! { code { (error) } },
    ]
}

/// The object of a key, with a link if its resource is known.
fn object(key: &Key) -> Markup {
    match (&key.resource, key.key.split_once('/')) {
        (Some(resource), Some((cluster, rest))) => {
            object_link(&format!("{cluster}/{resource}/{rest}"), &key.key)
        }
        _ => html! { (key.key) },
    }
}
