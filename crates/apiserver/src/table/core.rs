//! Columns of the core group, volumes aside, of Leases, of bindings of roles, and of kinds without specific
//! columns.

use serde_json::{Value, json};

use super::cells::{NONE, selector};
use super::{Column, Row, age};

/// Columns of kinds without specific ones.
pub(crate) const OTHERS: &[Column] = &[Column::NAME, Column::CREATED_AT];

pub(crate) const CONFIG_MAPS: &[Column] = &[
    Column::NAME,
    Column::text("Data", |row| json!(row.length("/data") + row.length("/binaryData"))),
    Column::AGE,
];

pub(crate) const SECRETS: &[Column] = &[
    Column::NAME,
    Column::text("Type", |row| json!(row.text("/type"))),
    Column::text("Data", |row| json!(row.length("/data"))),
    Column::AGE,
];

pub(crate) const SERVICE_ACCOUNTS: &[Column] =
    &[Column::NAME, Column::text("Secrets", |row| json!(row.length("/secrets"))), Column::AGE];

pub(crate) const NAMESPACES: &[Column] =
    &[Column::NAME, Column::text("Status", |row| json!(row.text("/status/phase"))), Column::AGE];

pub(crate) const LEASES: &[Column] = &[
    Column::NAME,
    Column::text("Holder", |row| json!(row.text("/spec/holderIdentity"))),
    Column::AGE,
];

/// Of RoleBindings and ClusterRoleBindings.
pub(crate) const BINDINGS: &[Column] = &[
    Column::NAME,
    Column::text("Role", |row| {
        json!(format!("{}/{}", row.text("/roleRef/kind"), row.text("/roleRef/name")))
    }),
    Column::AGE,
    Column::wide("Users", |row| subjects(row, "User")),
    Column::wide("Groups", |row| subjects(row, "Group")),
    Column::wide("ServiceAccounts", |row| subjects(row, "ServiceAccount")),
];

pub(crate) const SERVICES: &[Column] = &[
    Column::NAME,
    Column::text("Type", |row| json!(row.text("/spec/type"))),
    Column::text("Cluster-IP", |row| row.text_or_none("/spec/clusterIP")),
    Column::text("External-IP", external_ip),
    Column::text("Port(s)", ports),
    Column::AGE,
    Column::wide("Selector", selector),
];

pub(crate) const NODES: &[Column] = &[
    Column::NAME,
    Column::text("Status", node_status),
    Column::text("Roles", roles),
    Column::AGE,
    Column::text("Version", |row| json!(row.text("/status/nodeInfo/kubeletVersion"))),
    Column::wide("Internal-IP", |row| node_address(row, "InternalIP")),
    Column::wide("External-IP", |row| node_address(row, "ExternalIP")),
    Column::wide("OS-Image", |row| row.text_or_unknown("/status/nodeInfo/osImage")),
    Column::wide("Kernel-Version", |row| row.text_or_unknown("/status/nodeInfo/kernelVersion")),
    Column::wide("Container-Runtime", |row| {
        row.text_or_unknown("/status/nodeInfo/containerRuntimeVersion")
    }),
];

pub(crate) const PODS: &[Column] = &[
    Column::NAME,
    Column::text("Ready", pod_ready),
    Column::text("Status", pod_status),
    Column::text("Restarts", restarts),
    Column::AGE,
    Column::wide("IP", |row| row.text_or_none("/status/podIP")),
    Column::wide("Node", |row| row.text_or_none("/spec/nodeName")),
    Column::wide("Nominated Node", |row| row.text_or_none("/status/nominatedNodeName")),
    Column::wide("Readiness Gates", readiness_gates),
];

pub(crate) const EVENTS: &[Column] = &[
    Column::text("Last Seen", |row| {
        event_time(row, &["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"])
    }),
    Column::text("Type", |row| json!(row.text("/type"))),
    Column::text("Reason", |row| json!(row.text("/reason"))),
    Column::text("Object", event_object),
    Column::wide("Subobject", |row| {
        json!(row.either("/involvedObject/fieldPath", "/regarding/fieldPath"))
    }),
    Column::wide("Source", event_source),
    Column::text("Message", |row| json!(row.either("/message", "/note").trim())),
    Column::wide("First Seen", |row| {
        event_time(row, &["/firstTimestamp", "/deprecatedFirstTimestamp"])
    }),
    Column::wide("Count", event_count),
    Column { format: "name", ..Column::wide("Name", super::cells::name) },
];

impl Row<'_> {
    fn text_or_unknown(&self, pointer: &str) -> Value {
        json!(self.text_or(pointer, "<unknown>"))
    }

    fn either(&self, first: &str, second: &str) -> &str {
        self.text_or(first, self.text(second))
    }
}

/// The subjects of one kind; those that are in a namespace with it.
fn subjects(row: &Row<'_>, kind: &str) -> Value {
    let subjects = row.list("/subjects").iter().filter(|subject| subject["kind"] == kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = subjects
        .map(|subject| match kind {
            "ServiceAccount" => {
                format!("{}/{}", text(&subject["namespace"]), text(&subject["name"]))
            }
            _ => text(&subject["name"]),
        })
        .collect();
    json!(names.join(", "))
}

fn external_ip(row: &Row<'_>) -> Value {
    let mut addresses: Vec<&str> =
        row.list("/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    if row.text("/spec/type") == "ExternalName" {
        return json!(row.text("/spec/externalName"));
    }
    if row.text("/spec/type") == "LoadBalancer" {
        let ingress = row.list("/status/loadBalancer/ingress");
        addresses
            .extend(ingress.iter().filter_map(|i| i["ip"].as_str().or(i["hostname"].as_str())));
        if addresses.is_empty() {
            return json!("<pending>");
        }
    }
    json!(if addresses.is_empty() { NONE.to_owned() } else { addresses.join(",") })
}

fn ports(row: &Row<'_>) -> Value {
    let port = |port: &Value| {
        let number = port["port"].as_i64().unwrap_or(0);
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["nodePort"].as_i64() {
            Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    };
    let ports: Vec<String> = row.list("/spec/ports").iter().map(port).collect();
    json!(if ports.is_empty() { NONE.to_owned() } else { ports.join(",") })
}

fn node_status(row: &Row<'_>) -> Value {
    let ready = row.list("/status/conditions").iter().find(|c| c["type"] == "Ready");
    let mut status = match ready.and_then(|c| c["status"].as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if row.at("/spec/unschedulable") == &json!(true) {
        status.push_str(",SchedulingDisabled");
    }
    json!(status)
}

fn roles(row: &Row<'_>) -> Value {
    let labels = row.at("/metadata/labels").as_object();
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| match name.as_str() {
            "kubernetes.io/role" => value.as_str(),
            name => name.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    json!(if roles.is_empty() { NONE.to_owned() } else { roles.join(",") })
}

fn node_address(row: &Row<'_>, kind: &str) -> Value {
    let address = row.list("/status/addresses").iter().find(|a| a["type"] == kind);
    json!(address.and_then(|a| a["address"].as_str()).unwrap_or(NONE))
}

fn pod_ready(row: &Row<'_>) -> Value {
    let ready = row.list("/status/containerStatuses").iter().filter(|c| c["ready"] == true);
    json!(format!("{}/{}", ready.count(), row.length("/spec/containers")))
}

/// The phase, unless the state of a container or a deletion says more.
fn pod_status(row: &Row<'_>) -> Value {
    if row.at("/metadata/deletionTimestamp").is_string() {
        let lost = row.text("/status/reason") == "NodeLost";
        return json!(if lost { "Unknown" } else { "Terminating" });
    }
    let mut status = row.either("/status/reason", "/status/phase").to_owned();
    for (i, container) in row.list("/status/initContainerStatuses").iter().enumerate() {
        let finished = &container["state"]["terminated"];
        if finished["exitCode"] == 0 || container["started"] == true {
            continue;
        }
        let total = row.length("/spec/initContainers");
        return json!(match (reason_of(finished), reason_of(&container["state"]["waiting"])) {
            (Some(reason), _) => format!("Init:{reason}"),
            (_, Some(reason)) if reason != "PodInitializing" => format!("Init:{reason}"),
            _ => format!("Init:{i}/{total}"),
        });
    }
    let mut running = false;
    for container in row.list("/status/containerStatuses").iter().rev() {
        let state = &container["state"];
        if let Some(reason) = reason_of(&state["waiting"]).or(reason_of(&state["terminated"])) {
            status = reason.to_owned();
        } else if let Some(code) = state["terminated"]["exitCode"].as_i64() {
            status = format!("ExitCode:{code}");
        } else if state["running"].is_object() && container["ready"] == true {
            running = true;
        }
    }
    if status == "Completed" && running {
        let conditions = row.list("/status/conditions");
        let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        status = if ready { "Running" } else { "NotReady" }.into();
    }
    json!(status)
}

fn reason_of(state: &Value) -> Option<&str> {
    state["reason"].as_str().filter(|reason| !reason.is_empty())
}

fn restarts(row: &Row<'_>) -> Value {
    let containers = row.list("/status/containerStatuses");
    let count: i64 = containers.iter().filter_map(|c| c["restartCount"].as_i64()).sum();
    let last = containers
        .iter()
        .filter_map(|c| c.pointer("/lastState/terminated/finishedAt")?.as_str()?.parse().ok())
        .max();
    json!(match last {
        Some(at) if count > 0 => format!("{count} ({} ago)", age::since(at, row.now)),
        _ => count.to_string(),
    })
}

fn readiness_gates(row: &Row<'_>) -> Value {
    let gates = row.list("/spec/readinessGates");
    if gates.is_empty() {
        return json!(NONE);
    }
    let open = |gate: &&Value| {
        row.list("/status/conditions")
            .iter()
            .any(|c| c["type"] == gate["conditionType"] && c["status"] == "True")
    };
    json!(format!("{}/{}", gates.iter().filter(open).count(), gates.len()))
}

fn event_time(row: &Row<'_>, pointers: &[&str]) -> Value {
    let given = pointers.iter().chain(&["/eventTime"]).find(|p| row.time(p).is_some());
    given.map_or(json!("<unknown>"), |pointer| row.since(pointer))
}

fn event_object(row: &Row<'_>) -> Value {
    let kind = row.either("/involvedObject/kind", "/regarding/kind").to_lowercase();
    match row.either("/involvedObject/name", "/regarding/name") {
        "" => json!(kind),
        name => json!(format!("{kind}/{name}")),
    }
}

fn event_source(row: &Row<'_>) -> Value {
    let component = match row.either("/source/component", "/deprecatedSource/component") {
        "" => row.either("/reportingComponent", "/reportingController"),
        component => component,
    };
    let host = match row.either("/source/host", "/deprecatedSource/host") {
        "" => row.text("/reportingInstance"),
        host => host,
    };
    json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
}

fn event_count(row: &Row<'_>) -> Value {
    let counts = ["/series/count", "/count", "/deprecatedCount"].map(|pointer| row.number(pointer));
    json!(counts.into_iter().find(|count| *count > 0).unwrap_or(1))
}
