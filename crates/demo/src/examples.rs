//! The examples of further controllers, for `--examples all`: what is applied beside the generated
//! objects, and what shows that each of them works. Pure but for [`watch`].

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject};
use model::ClusterName;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::follow::{Delivered, follow};
use crate::generate::resource;
use crate::sources::Event;
use crate::standin::{StandIns, TOKEN};
use crate::world::Clients;

/// One example.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Example {
    /// Its controller.
    pub controller: &'static str,
    /// Group, version and kind of the object that shows the result.
    kind: (&'static str, &'static str, &'static str),
    /// Its name, in the namespace `default`.
    name: &'static str,
    /// What the object shows once the controller has done its work.
    shows: fn(&Value) -> Option<String>,
    /// Makes a manifest refer to a stand-in instead of the service outside.
    adapt: fn(&mut Value, &StandIns),
    /// Further manifests.
    besides: fn(&StandIns) -> Vec<Value>,
    /// What the configuration says of its controller.
    settings: fn(&StandIns) -> Value,
}

/// What most examples have in common: they need no service outside, nothing else and no settings.
const PLAIN: Example = Example {
    controller: "",
    kind: ("", "", ""),
    name: "",
    shows: |_| None,
    adapt: |_, _| {},
    besides: |_| Vec::new(),
    settings: |_| json!({}),
};

/// The examples that are not among the generated objects, by the names of their controllers.
pub(crate) const EXAMPLES: &[Example] = &[
    Example {
        controller: "blogpost",
        kind: ("iximiuz.com", "v1alpha1", "BlogPost"),
        name: "blog-post-1",
        shows: |post| Some(format!("published at {}", text(post, "/status/publishedAt")?)),
        ..PLAIN
    },
    Example {
        controller: "etcd",
        kind: ("data.leasehold.dev", "v1alpha1", "EtcdCluster"),
        name: "db",
        shows: |cluster| {
            let members = text(cluster, "/status/ready").filter(|ready| *ready == "3/3")?;
            Some(format!("{members} members, led by {}", text(cluster, "/status/leader")?))
        },
        ..PLAIN
    },
    Example {
        controller: "memcached",
        kind: ("data.leasehold.dev", "v1alpha1", "Memcached"),
        name: "cache",
        shows: |cache| {
            ready(cache)?;
            let nodes = cache.pointer("/status/nodes")?.as_array()?;
            let first = nodes.first()?.as_str()?;
            Some(format!("{} nodes, the first at {first}", nodes.len()))
        },
        ..PLAIN
    },
    Example {
        controller: "mysql",
        kind: ("cr.mysqloperator.grtl.github.com", "v1", "MySQLCluster"),
        name: "carts",
        shows: |cluster| {
            let ready = text(cluster, "/status/ready").filter(|ready| *ready == "3/3")?;
            let primary = text(cluster, "/status/primary")?;
            (text(cluster, "/status/phase")? == "Running").then_some(())?;
            Some(format!("{ready} instances, {primary} takes writes"))
        },
        ..PLAIN
    },
    Example {
        controller: "restart-pods",
        kind: ("", "v1", "ConfigMap"),
        name: "greeting",
        shows: |map| {
            let record = text(map, "/metadata/annotations/leasehold.dev~1restart-pods-record")?;
            let record: Value = serde_json::from_str(record).ok()?;
            let hash = record["hash"].as_str()?.get(..8)?;
            Some(format!("watches content {hash}, restarts {}", record["restarts"]))
        },
        ..PLAIN
    },
    Example {
        controller: "sqs",
        kind: ("sqs.leasehold.dev", "v1alpha1", "Queue"),
        name: "orders",
        shows: |queue| {
            let ready = ready(queue)?;
            Some(format!("{}, {ready}", text(queue, "/status/arn")?))
        },
        adapt: |queue, standins| {
            queue["spec"]["endpoint"] = standins.sqs().into();
            // Often enough for a spectator to see it.
            queue["spec"]["driftCheckIntervalSeconds"] = 30.into();
        },
        settings: |standins| {
            let entry =
                json!({"namespaces": ["*"], "endpoints": [standins.sqs()], "ownIdentity": true});
            json!({"access": [entry]})
        },
        ..PLAIN
    },
    Example {
        controller: "tunnel",
        kind: ("", "v1", "Service"),
        name: "nginx-1",
        shows: |service| {
            let address = text(service, "/status/loadBalancer/ingress/0/ip")?;
            Some(format!("Service nginx-1 has the address {address}"))
        },
        besides: |standins| {
            let defaults = json!({
                "provider": "digitalocean", "endpoint": standins.cloud(), "tokenSecret": "cloud",
                "claimServicesWithoutClass": "true",
                // The stand-in's machines exist in name only: no connection comes through.
                "probe": "false",
            });
            vec![
                json!({
                    "apiVersion": "v1", "kind": "Secret",
                    "metadata": {"name": "cloud", "namespace": "kube-system"},
                    "stringData": {"token": TOKEN},
                }),
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "leasehold-tunnel", "namespace": "kube-system"},
                    "data": defaults,
                }),
            ]
        },
        settings: |_| json!({"configNamespace": "kube-system"}),
        ..PLAIN
    },
];

/// The results of the examples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress(BTreeMap<&'static str, Option<String>>);

impl Progress {
    /// These examples, without results.
    pub(crate) fn of(examples: &[Example]) -> Self {
        Self(examples.iter().map(|example| (example.controller, None)).collect())
    }

    /// Notes a result. Returns whether it is the first of its example.
    pub(crate) fn note(&mut self, controller: &'static str, shown: String) -> bool {
        self.0.insert(controller, Some(shown)).flatten().is_none()
    }

    /// Whether each example has a result.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.values().all(Option::is_some)
    }

    /// Each example's controller and result.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        self.0.iter().map(|(controller, shown)| (*controller, shown.as_deref()))
    }
}

/// The resources of examples, for `kubectl get`.
pub(crate) fn resources(examples: &[Example]) -> String {
    let plurals: Vec<_> = examples.iter().map(|example| example.resource().plural).collect();
    plurals.join(",")
}

impl Example {
    /// What the configuration says of its controller.
    pub(crate) fn settings(&self, standins: &StandIns) -> Value {
        (self.settings)(standins)
    }

    /// The manifests to apply.
    pub(crate) fn manifests(&self, standins: &StandIns) -> Vec<DynamicObject> {
        let builtin = controllers::get(self.controller).expect("each example is of a built-in");
        let manifests: Vec<Value> =
            serde_saphyr::from_multiple(builtin.example).expect("a test reads the examples");
        let placed = |mut manifest: Value| {
            (self.adapt)(&mut manifest, standins);
            let mut object: DynamicObject =
                serde_json::from_value(manifest).expect("an example has a kind and metadata");
            object.metadata.namespace.get_or_insert_with(|| "default".to_owned());
            object
        };
        (self.besides)(standins).into_iter().chain(manifests).map(placed).collect()
    }

    fn resource(&self) -> ApiResource {
        let (group, version, kind) = self.kind;
        resource(group, version, kind)
    }

    /// What an object shows, if it is the example's and shows a result.
    fn read(&self, object: &DynamicObject) -> Option<Event> {
        let is_it = object.name_any() == self.name
            && object.namespace().as_deref().unwrap_or("default") == "default";
        let value = is_it.then(|| serde_json::to_value(object).ok()).flatten()?;
        let shown = (self.shows)(&value)?;
        Some(Event::Example(self.controller, shown))
    }
}

/// Watches for the results of examples in a cluster.
pub(crate) fn watch(
    clients: &Clients,
    cluster: &ClusterName,
    examples: &[Example],
    events: &mpsc::Sender<Event>,
    watches: &mut JoinSet<()>,
) {
    for &example in examples {
        let Some(api) = clients.all(cluster, &example.resource()) else { continue };
        let read = move |delivered| match delivered {
            Delivered::Present(object) => example.read(&object),
            Delivered::Deleted(_) => None,
        };
        watches.spawn(follow(api, read, events.clone()));
    }
}

/// The reason of an object's readiness, once it is ready.
fn ready(object: &Value) -> Option<&str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|found| found["type"] == "Ready")?;
    (ready["status"] == "True").then(|| ready["reason"].as_str()).flatten()
}

fn text<'v>(object: &'v Value, pointer: &str) -> Option<&'v str> {
    object.pointer(pointer)?.as_str()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::{Clock, ManualClock};

    use super::*;

    #[tokio::test]
    async fn every_built_in_controller_has_its_example_in_the_demo() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let standins = StandIns::start(&clock).await.unwrap();
        let generated = ["configmonitor", "tdset"];
        for controller in controllers::all() {
            let is_shown = EXAMPLES.iter().any(|example| example.controller == controller);
            assert!(is_shown != generated.contains(&controller), "{controller}");
        }
        for example in crate::args::Examples::All.further() {
            let (_, _, kind) = example.kind;
            let is_it = |manifest: &DynamicObject| {
                manifest.types.as_ref().is_some_and(|types| types.kind == kind)
                    && manifest.name_any() == example.name
            };
            assert!(example.manifests(&standins).iter().any(is_it), "{}", example.controller);
        }
    }

    /// A program may have been built without some: kubectl stops at a kind that a cluster does not serve.
    #[test]
    fn only_what_runs_is_named_for_kubectl() {
        assert_eq!(resources(EXAMPLES).split(',').count(), EXAMPLES.len());
        let without = EXAMPLES.iter().filter(|example| example.controller != "sqs").copied();
        let without = resources(&without.collect::<Vec<_>>());
        assert!(without.starts_with("blogposts,etcdclusters,memcacheds,"), "{without}");
        assert!(without.ends_with(",services") && !without.contains("queues"), "{without}");
    }

    #[test]
    fn an_example_shows_once_its_work_is_done() {
        let mut progress = Progress::of(EXAMPLES);
        let post = |status: Value| {
            serde_json::from_value(json!({
                "apiVersion": "iximiuz.com/v1alpha1", "kind": "BlogPost",
                "metadata": {"name": "blog-post-1", "namespace": "default"}, "status": status,
            }))
            .unwrap()
        };
        assert!(EXAMPLES[0].read(&post(json!({}))).is_none());
        let published = post(json!({"publishedAt": "2026-11-21T10:00:00Z"}));
        let Some(Event::Example(controller, shown)) = EXAMPLES[0].read(&published) else {
            panic!("it is published");
        };
        assert!(progress.note(controller, shown.clone()));
        assert!(!progress.note(controller, shown));
        assert!(!progress.is_complete());
        let first = progress.iter().next();
        assert_eq!(first, Some(("blogpost", Some("published at 2026-11-21T10:00:00Z"))));
    }
}
