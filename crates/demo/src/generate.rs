//! The objects of the demo and the changes made to them: pure, from a seed.
//!
//! Owns what is written to the workload clusters. A [`Planned`] object has its manifests; a [`Change`]
//! is the merge patch of one object. [`Want`] is the expected result, which `track` compares with what
//! the clusters show.

use std::sync::Arc;

use fastrand::Rng;
use jiff::tz::TimeZone;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use model::{ClusterName, ObjectKey};
use serde_json::{Value, json};

/// The examples that are applied as they stand, by their controller.
const EXAMPLES: [(Kind, &str); 2] =
    [(Kind::TdSet, "tdset"), (Kind::ConfigMonitor, "configmonitor")];

/// The namespaces of the objects; they are created in every workload cluster.
pub(crate) const NAMESPACES: [&str; 3] = ["default", "temp", "demo"];

/// Where generated objects go.
const NAMESPACE: &str = "demo";

/// Counts the changes of an object, so that a watch event says which change it shows.
pub(crate) const CHANGE: &str = "demo.leasehold.dev/change";

/// One object in this many is a ConfigMonitor.
const MONITOR_EVERY: usize = 20;

/// One TDSet in this many has a Service.
const SERVICE_EVERY: usize = 10;

/// The most replicas of a generated schedule: the demo does not need thousands of Pods.
const MAX_REPLICAS: i64 = 3;

const TIME_ZONES: [&str; 5] =
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney"];

/// The kinds that are counted as objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// `schedule.rs/v1` TDSet.
    TdSet,
    /// `magalix.com/v1` ConfigMonitor.
    ConfigMonitor,
}

/// Names one object of the demo.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its cluster, namespace and name.
    pub key: ObjectKey,
}

/// One object with everything that must be applied for it, in order.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// Which object.
    pub target: Target,
    /// The manifests: the object itself and what it refers to.
    pub manifests: Vec<DynamicObject>,
    /// The expected result.
    pub want: Want,
}

/// The expected result of an object.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// A Deployment of this image, with replicas by the hour.
    TdSet {
        /// The container's image.
        image: String,
        /// Replicas by the hour.
        schedule: Arc<Schedule>,
    },
    /// A rolled-out Deployment after each change of the ConfigMap.
    ConfigMonitor {
        /// The Deployment whose Pods are restarted.
        deployment: String,
        /// The ConfigMap that is watched.
        config_map: String,
    },
}

/// A schedule as the resource means it. It is evaluated here independently, so that the demo does not
/// rely on the controller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    windows: Vec<(i64, i64, i64)>,
    default: i64,
    zone: TimeZone,
}

/// One change to one object: a merge patch.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The object that must converge again.
    pub target: Target,
    /// Counts the changes of that object.
    pub number: u64,
    /// What to patch: the object itself, or the ConfigMap it watches.
    pub resource: ApiResource,
    /// Its name, in the target's namespace.
    pub name: String,
    /// The patch.
    pub patch: Value,
    /// The expected result.
    pub want: Want,
}

/// Every object of the demo, spread over the clusters: the examples first.
pub(crate) fn objects(count: u32, clusters: &[ClusterName], rng: &mut Rng) -> Vec<Planned> {
    let count = usize::try_from(count).expect("a count of objects fits into memory");
    let examples = EXAMPLES.iter().map(|(kind, controller)| (*kind, example(controller)));
    let generated = (1..).map(|number: usize| {
        if number.is_multiple_of(MONITOR_EVERY) { monitor(number) } else { tdset(number, rng) }
    });
    let placed = clusters.iter().cycle();
    examples
        .chain(generated)
        .zip(placed)
        .take(count)
        .map(|((kind, manifests), cluster)| planned(kind, manifests, cluster))
        .collect()
}

/// The next change to an object that has had `number - 1` of them.
pub(crate) fn change(target: &Target, want: &Want, number: u64, rng: &mut Rng) -> Change {
    match want {
        Want::TdSet { image, .. } => {
            let spec = if rng.bool() { image_change(image, number) } else { schedule_change(rng) };
            let annotations = json!({ CHANGE: number.to_string() });
            Change {
                target: target.clone(),
                number,
                resource: target.kind.resource(),
                name: target.key.name.to_string(),
                want: changed(want, &spec),
                patch: json!({"metadata": {"annotations": annotations}, "spec": spec}),
            }
        }
        Want::ConfigMonitor { config_map, .. } => Change {
            target: target.clone(),
            number,
            resource: resource("", "v1", "ConfigMap"),
            name: config_map.clone(),
            want: want.clone(),
            patch: json!({"data": {"change": number.to_string()}}),
        },
    }
}

/// The namespaces' manifests.
pub(crate) fn namespaces() -> Vec<DynamicObject> {
    NAMESPACES
        .iter()
        .map(|name| DynamicObject::new(name, &resource("", "v1", "Namespace")))
        .collect()
}

/// A kind by its group and version.
pub(crate) fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

// === impl Kind ===

impl Kind {
    /// The kind as clients name it.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::TdSet => resource("schedule.rs", "v1", "TDSet"),
            Self::ConfigMonitor => resource("magalix.com", "v1", "ConfigMonitor"),
        }
    }

    /// The kind's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TdSet => "TDSet",
            Self::ConfigMonitor => "ConfigMonitor",
        }
    }
}

// === impl Schedule ===

impl Schedule {
    fn of(spec: &Value) -> Self {
        let hour = |window: &Value, name: &str| window[name].as_i64().unwrap_or_default();
        let windows = spec["schedulingConfig"].as_array().map(Vec::as_slice).unwrap_or_default();
        let zone = spec["timeZone"].as_str().unwrap_or("UTC");
        Self {
            windows: windows
                .iter()
                .map(|w| (hour(w, "startTime"), hour(w, "endTime"), hour(w, "replica")))
                .collect(),
            default: spec["defaultReplica"].as_i64().unwrap_or(1),
            zone: TimeZone::get(zone).unwrap_or(TimeZone::UTC),
        }
    }

    /// Replicas at this time: those of the first window that contains the hour.
    pub(crate) fn replicas(&self, at: jiff::Timestamp) -> i64 {
        let hour = i64::from(at.to_zoned(self.zone.clone()).hour());
        let holds = |&&(start, end, _): &&(i64, i64, i64)| {
            if start < end { (start..end).contains(&hour) } else { hour >= start || hour < end }
        };
        self.windows.iter().find(holds).map_or(self.default, |(_, _, replicas)| *replicas)
    }
}

fn planned(kind: Kind, mut manifests: Vec<DynamicObject>, cluster: &ClusterName) -> Planned {
    let wanted = kind.name();
    let is_object = |manifest: &DynamicObject| {
        manifest.types.as_ref().is_some_and(|types| types.kind == wanted)
    };
    for manifest in &mut manifests {
        manifest.metadata.namespace.get_or_insert_with(|| "default".to_owned());
    }
    let object =
        manifests.iter().find(|m| is_object(m)).expect("each set of manifests has its object");
    let (namespace, name) = (object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
    let key = ObjectKey::new(cluster.clone(), namespace, name.unwrap_or_default());
    let spec = &object.data["spec"];
    let want = match kind {
        Kind::TdSet => Want::TdSet {
            image: spec["container"]["image"].as_str().unwrap_or_default().to_owned(),
            schedule: Arc::new(Schedule::of(spec)),
        },
        Kind::ConfigMonitor => Want::ConfigMonitor {
            deployment: name_of(&manifests, "Deployment"),
            config_map: name_of(&manifests, "ConfigMap"),
        },
    };
    Planned { target: Target { kind, key }, manifests, want }
}

fn name_of(manifests: &[DynamicObject], kind: &str) -> String {
    manifests
        .iter()
        .find(|manifest| manifest.types.as_ref().is_some_and(|types| types.kind == kind))
        .and_then(|manifest| manifest.metadata.name.clone())
        .unwrap_or_default()
}

fn example(controller: &str) -> Vec<DynamicObject> {
    let builtin = controllers::get(controller).expect("both controllers are built in");
    serde_saphyr::from_multiple(builtin.example).expect("a test reads the examples")
}

fn manifest(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("a generated manifest has a kind and metadata")
}

fn tdset(number: usize, rng: &mut Rng) -> (Kind, Vec<DynamicObject>) {
    let mut spec = json!({
        "container": {"image": "demo/web:0", "port": 8080},
        "schedulingConfig": windows(rng),
        "defaultReplica": rng.i64(1..=MAX_REPLICAS),
        "timeZone": *rng.choice(&TIME_ZONES).expect("there are time zones"),
    });
    if number.is_multiple_of(SERVICE_EVERY) {
        spec["service"] = json!({"port": 80});
    }
    let object = manifest(json!({
        "apiVersion": "schedule.rs/v1",
        "kind": "TDSet",
        "metadata": {"name": format!("web-{number:05}"), "namespace": NAMESPACE},
        "spec": spec,
    }));
    (Kind::TdSet, vec![object])
}

fn monitor(number: usize) -> (Kind, Vec<DynamicObject>) {
    let name = format!("config-{number:05}");
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let labels = json!({"app": name});
    let pod = json!({"containers": [{"name": "app", "image": "demo/app:0"}]});
    let parts = [
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"change": "0"},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }),
        json!({
            "apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": metadata,
            // Latencies are those of the manager, so nothing is awaited.
            "spec": {"configMap": name, "podSelector": labels, "debounceSeconds": 0},
        }),
    ];
    (Kind::ConfigMonitor, parts.into_iter().map(manifest).collect())
}

/// Up to four windows; where they overlap the first decides.
fn windows(rng: &mut Rng) -> Value {
    let count = rng.usize(0..=4);
    let window = |_| {
        let [start, end] = [rng.i64(0..24), rng.i64(0..24)];
        json!({"startTime": start, "endTime": end, "replica": rng.i64(0..=MAX_REPLICAS)})
    };
    (0..count).map(window).collect()
}

fn image_change(image: &str, number: u64) -> Value {
    let repository = image.rsplit_once(':').map_or(image, |(repository, _)| repository);
    json!({"container": {"image": format!("{repository}:{number}")}})
}

fn schedule_change(rng: &mut Rng) -> Value {
    json!({"schedulingConfig": windows(rng), "defaultReplica": rng.i64(1..=MAX_REPLICAS)})
}

/// The expected result of a TDSet once `spec` is merged into it.
fn changed(want: &Want, spec: &Value) -> Want {
    let Want::TdSet { image, schedule } = want else { return want.clone() };
    let image = spec["container"]["image"].as_str().unwrap_or(image).to_owned();
    let schedule = match spec.get("schedulingConfig") {
        Some(_) => Arc::new(Schedule { zone: schedule.zone.clone(), ..Schedule::of(spec) }),
        None => schedule.clone(),
    };
    Want::TdSet { image, schedule }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters() -> Vec<ClusterName> {
        ["east", "west", "north"].map(|name| name.parse().unwrap()).to_vec()
    }

    fn generated(count: u32) -> Vec<Planned> {
        objects(count, &clusters(), &mut Rng::with_seed(7))
    }

    #[test]
    fn the_examples_come_first_and_the_rest_is_spread_evenly() {
        let planned = generated(1000);
        let keys: Vec<_> = planned.iter().map(|p| p.target.key.to_string()).collect();
        assert_eq!(keys[0], "east/temp/tdset-hello-world");
        assert_eq!(keys[1], "west/default/flakapp-config-monitor");
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), 1000);
        let in_cluster =
            |name: &ClusterName| planned.iter().filter(|p| p.target.key.cluster == *name).count();
        assert_eq!(clusters().iter().map(in_cluster).collect::<Vec<_>>(), [334, 333, 333]);
        let monitors = planned.iter().filter(|p| p.target.kind == Kind::ConfigMonitor).count();
        assert_eq!(monitors, 50);
    }

    #[test]
    fn the_same_seed_gives_the_same_objects() {
        let text = |planned: &[Planned]| format!("{planned:?}");
        assert_eq!(text(&generated(50)), text(&generated(50)));
    }

    #[test]
    fn a_monitor_knows_its_deployment_and_config_map() {
        let Want::ConfigMonitor { deployment, config_map } = &generated(2)[1].want else {
            panic!("the second object is the ConfigMonitor example")
        };
        assert_eq!((deployment.as_str(), config_map.as_str()), ("frontend", "flaskapp-config"));
    }

    #[test]
    fn a_schedule_is_read_as_the_resource_means_it() {
        let spec = json!({
            "schedulingConfig": [
                {"startTime": 9, "endTime": 17, "replica": 5},
                {"startTime": 19, "endTime": 0, "replica": 2},
                {"startTime": 22, "endTime": 3, "replica": 9},
            ],
            "defaultReplica": 3,
            "timeZone": "Europe/Berlin",
        });
        let schedule = Schedule::of(&spec);
        // In winter Berlin is an hour ahead.
        for (time, replicas) in
            [("08:00", 5), ("15:59", 5), ("16:00", 3), ("18:00", 2), ("23:30", 9), ("02:00", 3)]
        {
            let at = format!("2026-01-15T{time}:00Z").parse().unwrap();
            assert_eq!(schedule.replicas(at), replicas, "{time}");
        }
        let all_day = json!({"schedulingConfig": [{"startTime": 4, "endTime": 4, "replica": 0}]});
        assert_eq!(Schedule::of(&all_day).replicas(jiff::Timestamp::UNIX_EPOCH), 0);
    }

    #[test]
    fn a_change_is_wanted_as_it_is_patched() {
        let planned = &generated(3)[2];
        let mut rng = Rng::with_seed(3);
        let mut want = planned.want.clone();
        for number in 1..20 {
            let change = change(&planned.target, &want, number, &mut rng);
            let annotations = &change.patch["metadata"]["annotations"];
            assert_eq!(annotations[CHANGE], number.to_string());
            let Want::TdSet { image, schedule } = &change.want else { panic!("{:?}", change.want) };
            match change.patch["spec"].get("container") {
                Some(container) => assert_eq!(&container["image"], image.as_str()),
                None => {
                    let patched = Schedule::of(&change.patch["spec"]);
                    assert_eq!(patched.windows, schedule.windows);
                    assert_eq!(patched.default, schedule.default);
                }
            }
            want = change.want;
        }
    }
}
