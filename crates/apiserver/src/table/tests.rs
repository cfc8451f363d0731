//! The rows of each kind.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{IncludeObject, NAME_DESCRIPTION, render};
use crate::kinds::{self, KindInfo, PrinterColumn};

const CREATED: &str = "2024-01-01T00:00:00Z";

fn now() -> Timestamp {
    "2024-01-01T00:05:30Z".parse().unwrap()
}

fn kind(plural: &str) -> KindInfo {
    kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap()
}

fn object(name: &str, rest: Value) -> Value {
    let mut object = json!({"metadata": {"name": name, "creationTimestamp": CREATED}});
    json_patch::merge(&mut object, &rest);
    object
}

/// Headers with their cells, wide ones marked.
fn print(kind: &KindInfo, object: &Value) -> Vec<(String, Value)> {
    let table = render(kind, [object], IncludeObject::None, now());
    let definitions = table["columnDefinitions"].as_array().unwrap();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(definitions.len(), cells.len());
    let header = |d: &Value| {
        let wide = if d["priority"] == 1 { "+" } else { "" };
        format!("{}{wide}", d["name"].as_str().unwrap())
    };
    definitions.iter().map(header).zip(cells.iter().cloned()).collect()
}

#[track_caller]
fn check(plural: &str, rest: Value, expected: &[(&str, Value)]) {
    let printed = print(&kind(plural), &object("x", rest));
    for (header, cell) in expected {
        let found = printed.iter().find(|(h, _)| h == header);
        assert_eq!(found.map(|(_, c)| c), Some(cell), "{plural} {header}");
    }
}

#[test]
fn a_table_has_the_real_shape() {
    let table = render(
        &kind("configmaps"),
        [&object("c", json!({"data": {"a": "1", "b": "2"}}))],
        IncludeObject::Metadata,
        now(),
    );
    assert_eq!(
        table,
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
            "columnDefinitions": [
                {"name": "Name", "type": "string", "format": "name", "description": NAME_DESCRIPTION, "priority": 0},
                {"name": "Data", "type": "string", "format": "", "description": "", "priority": 0},
                {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
            ],
            "rows": [{
                "cells": ["c", 2, "5m30s"],
                "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"name": "c", "creationTimestamp": CREATED},
                },
            }],
        })
    );
    assert_eq!(IncludeObject::parse("Object"), Some(IncludeObject::Object));
    assert_eq!(IncludeObject::parse("everything"), None);
}

#[test]
fn what_databases_need() {
    check(
        "persistentvolumeclaims",
        json!({"spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}}),
        &[
            ("Status", json!("Pending")),
            ("Volume", json!("")),
            ("Capacity", json!("")),
            ("Access Modes", json!("")),
            ("StorageClass", json!("fast")),
            ("VolumeAttributesClass", json!("<unset>")),
            ("VolumeMode+", json!("<unset>")),
        ],
    );
    check(
        "persistentvolumeclaims",
        json!({
            "spec": {"volumeName": "pv-1", "volumeMode": "Filesystem"},
            "status": {
                "phase": "Bound", "capacity": {"storage": "8Gi"},
                "accessModes": ["ReadWriteOncePod", "ReadWriteOnce"],
            },
        }),
        &[
            ("Status", json!("Bound")),
            ("Volume", json!("pv-1")),
            ("Capacity", json!("8Gi")),
            ("Access Modes", json!("RWO,RWOP")),
            ("VolumeMode+", json!("Filesystem")),
        ],
    );
    check(
        "persistentvolumeclaims",
        json!({"metadata": {"deletionTimestamp": CREATED}, "status": {"phase": "Bound"}}),
        &[("Status", json!("Terminating"))],
    );
    check(
        "poddisruptionbudgets",
        json!({"spec": {"maxUnavailable": "25%"}, "status": {"disruptionsAllowed": 2}}),
        &[
            ("Min Available", json!("N/A")),
            ("Max Unavailable", json!("25%")),
            ("Allowed Disruptions", json!(2)),
            ("Age", json!("5m30s")),
        ],
    );
    check(
        "poddisruptionbudgets",
        json!({"spec": {"minAvailable": 1}}),
        &[("Min Available", json!("1")), ("Allowed Disruptions", json!(0))],
    );
}

#[test]
fn volumes_and_their_classes() {
    check(
        "persistentvolumes",
        json!({
            "spec": {
                "capacity": {"storage": "8Gi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast",
                "claimRef": {"namespace": "n", "name": "data"},
            },
            "status": {"phase": "Bound"},
        }),
        &[
            ("Capacity", json!("8Gi")),
            ("Access Modes", json!("RWO")),
            ("Reclaim Policy", json!("Retain")),
            ("Status", json!("Bound")),
            ("Claim", json!("n/data")),
            ("StorageClass", json!("fast")),
            ("VolumeAttributesClass", json!("<unset>")),
            ("Reason", json!("")),
            ("VolumeMode+", json!("<unset>")),
        ],
    );
    check("persistentvolumes", json!({}), &[("Capacity", json!("0")), ("Claim", json!(""))]);
    check(
        "storageclasses",
        json!({"provisioner": "example.org/disk", "allowVolumeExpansion": true}),
        &[
            ("Provisioner", json!("example.org/disk")),
            ("ReclaimPolicy", json!("Delete")),
            ("VolumeBindingMode", json!("Immediate")),
            ("AllowVolumeExpansion", json!(true)),
        ],
    );
}

#[test]
fn ingresses_and_endpoints() {
    let rules = ["a", "b", "c", "d"].map(|host| json!({ "host": host }));
    check(
        "ingresses",
        json!({
            "spec": {"rules": rules, "tls": [{}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}, {"hostname": "10.h"}]}},
        }),
        &[
            ("Class", json!("<none>")),
            ("Hosts", json!("a,b,c + 1 more...")),
            ("Address", json!("10.0.0.2,10.h")),
            ("Ports", json!("80, 443")),
        ],
    );
    let expected = [("Hosts", json!("*")), ("Address", json!("")), ("Ports", json!("80"))];
    check("ingresses", json!({"spec": {"rules": [{}]}}), &expected);
    check("endpoints", json!({}), &[("Endpoints", json!("<none>"))]);
    check(
        "endpoints",
        json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "ports": [{"port": 1}, {"port": 2}]},
            {"addresses": [{"ip": "10.0.0.2"}]},
        ]}),
        &[("Endpoints", json!("10.0.0.1:1,[::1]:1,10.0.0.1:2 + 2 more..."))],
    );
    check(
        "endpointslices",
        json!({
            "addressType": "IPv4", "ports": [{"port": 80}, {"name": "any"}, {}],
            "endpoints": [{"addresses": ["10.0.0.1"]}],
        }),
        &[
            ("AddressType", json!("IPv4")),
            ("Ports", json!("80,any,*")),
            ("Endpoints", json!("10.0.0.1")),
        ],
    );
    check("endpointslices", json!({}), &[("Ports", json!("<unset>"))]);
}

#[test]
fn bindings_name_who_may() {
    let user = |name: &str| json!({"kind": "User", "name": name});
    check(
        "rolebindings",
        json!({
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [
                user("a"), user("b"), {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
            ],
        }),
        &[
            ("Role", json!("ClusterRole/view")),
            ("Users+", json!("a, b")),
            ("Groups+", json!("")),
            ("ServiceAccounts+", json!("n/s")),
        ],
    );
}

#[test]
fn cron_jobs() {
    let containers = json!([{"name": "a", "image": "i:1"}]);
    check(
        "cronjobs",
        json!({
            "spec": {
                "schedule": "0 * * * *", "suspend": false,
                "jobTemplate": {"spec": {"template": {"spec": {"containers": containers}}}},
            },
            "status": {"active": [{}], "lastScheduleTime": CREATED},
        }),
        &[
            ("Schedule", json!("0 * * * *")),
            ("Timezone", json!("<none>")),
            ("Suspend", json!("False")),
            ("Active", json!(1)),
            ("Last Schedule", json!("5m30s")),
            ("Containers+", json!("a")),
            ("Images+", json!("i:1")),
            ("Selector+", json!("<none>")),
        ],
    );
    let expected = [("Suspend", json!("<unset>")), ("Last Schedule", json!("<none>"))];
    check("cronjobs", json!({}), &expected);
}

#[test]
fn autoscalers_say_what_they_aim_at() {
    let of = |kind: &str, place: &str, source: Value| json!({"type": kind, place: source});
    let cpu = |target: Value| of("Resource", "resource", json!({"name": "cpu", "target": target}));
    let cases = [
        (cpu(json!({"averageUtilization": 80})), json!({"averageUtilization": 20}), "cpu: 20%/80%"),
        (cpu(json!({"averageUtilization": 80})), json!(null), "cpu: <unknown>/80%"),
        (cpu(json!({})), json!(null), "cpu: <unknown>/<auto>"),
        (cpu(json!({"averageValue": "1"})), json!({"averageValue": "2"}), "cpu: 2/1"),
        (of("Pods", "pods", json!({"target": {"averageValue": "1"}})), json!(null), "<unknown>/1"),
        (of("Object", "object", json!({"target": {"value": "3"}})), json!({"value": "4"}), "4/3"),
        (
            of("External", "external", json!({"target": {"averageValue": "3"}})),
            json!({"averageValue": "4"}),
            "4/3 (avg)",
        ),
        (json!({"type": "New"}), json!(null), "<unknown type>"),
    ];
    for (metric, current, expected) in cases {
        let place = metric["type"].as_str().unwrap().to_lowercase();
        check(
            "horizontalpodautoscalers",
            json!({
                "spec": {"metrics": [metric]},
                "status": {"currentMetrics": [{place: {"current": current}}]},
            }),
            &[("Targets", json!(expected))],
        );
    }
    let metric = cpu(json!({"averageUtilization": 80}));
    check(
        "horizontalpodautoscalers",
        json!({"spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
            "metrics": [metric, metric, metric],
        }}),
        &[
            ("Reference", json!("Deployment/web")),
            ("Targets", json!("cpu: <unknown>/80%, cpu: <unknown>/80% + 1 more...")),
            ("MinPods", json!("<unset>")),
            ("MaxPods", json!(9)),
            ("Replicas", json!(0)),
        ],
    );
    check("horizontalpodautoscalers", json!({}), &[("Targets", json!("<none>"))]);
}

#[test]
fn workloads() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}]}});
    let selector = json!({
        "matchLabels": {"app": "x"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
    });
    check(
        "deployments",
        json!({
            "spec": {"replicas": 3, "template": template, "selector": selector},
            "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1},
        }),
        &[
            ("Name", json!("x")),
            ("Ready", json!("2/3")),
            ("Up-to-date", json!(3)),
            ("Available", json!(1)),
            ("Age", json!("5m30s")),
            ("Containers+", json!("a,b")),
            ("Images+", json!("i:1,j:2")),
            ("Selector+", json!("app=x,tier in (a,b)")),
        ],
    );
    check(
        "replicasets",
        json!({"spec": {"replicas": 3}, "status": {"replicas": 2, "readyReplicas": 1}}),
        &[("Desired", json!(3)), ("Current", json!(2)), ("Ready", json!(1))],
    );
    check("statefulsets", json!({"spec": {"replicas": 2}}), &[("Ready", json!("0/2"))]);
    check(
        "daemonsets",
        json!({"status": {"desiredNumberScheduled": 3, "numberReady": 2}}),
        &[("Desired", json!(3)), ("Ready", json!(2)), ("Node Selector", json!("<none>"))],
    );
    check(
        "jobs",
        json!({
            "spec": {"completions": 2},
            "status": {"succeeded": 1, "startTime": CREATED, "conditions": [{"type": "Failed", "status": "True"}]},
        }),
        &[("Status", json!("Failed")), ("Completions", json!("1/2")), ("Duration", json!("5m30s"))],
    );
}

#[test]
fn pods_say_what_is_going_on() {
    let waiting = json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3,
        "lastState": {"terminated": {"finishedAt": "2024-01-01T00:05:00Z"}}});
    let running = json!({"state": {"running": {}}, "ready": true, "restartCount": 0});
    let spec = json!({"containers": [{}, {}], "nodeName": "n1"});
    let status =
        |phase: &str, containers: Value| json!({"phase": phase, "containerStatuses": containers});
    check(
        "pods",
        json!({"spec": spec, "status": status("Running", json!([running, running]))}),
        &[
            ("Ready", json!("2/2")),
            ("Status", json!("Running")),
            ("Restarts", json!("0")),
            ("Node+", json!("n1")),
            ("IP+", json!("<none>")),
        ],
    );
    check(
        "pods",
        json!({"spec": spec, "status": status("Running", json!([waiting, running]))}),
        &[
            ("Ready", json!("1/2")),
            ("Status", json!("CrashLoopBackOff")),
            ("Restarts", json!("3 (30s ago)")),
        ],
    );
    check(
        "pods",
        json!({"metadata": {"deletionTimestamp": CREATED}, "status": {"phase": "Running"}}),
        &[("Status", json!("Terminating"))],
    );
    check(
        "pods",
        json!({"spec": {"initContainers": [{}, {}]}, "status": {"phase": "Pending",
            "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}]}}),
        &[("Status", json!("Init:1/2"))],
    );
    check(
        "pods",
        json!({"status": status("Failed", json!([{"state": {"terminated": {"exitCode": 2}}}]))}),
        &[("Status", json!("ExitCode:2"))],
    );
}

#[test]
fn services_nodes_and_the_rest() {
    check(
        "services",
        json!({"spec": {
            "type": "LoadBalancer", "clusterIP": "10.0.0.1", "selector": {"app": "x"},
            "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
        }}),
        &[
            ("Type", json!("LoadBalancer")),
            ("External-IP", json!("<pending>")),
            ("Port(s)", json!("80:30080/TCP,53/UDP")),
            ("Selector+", json!("app=x")),
        ],
    );
    check(
        "services",
        json!({"spec": {}}),
        &[("External-IP", json!("<none>")), ("Port(s)", json!("<none>"))],
    );
    check(
        "nodes",
        json!({
            "metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
                "nodeInfo": {"kubeletVersion": "v1.37.0"},
            },
        }),
        &[
            ("Status", json!("Ready,SchedulingDisabled")),
            ("Roles", json!("control-plane")),
            ("Version", json!("v1.37.0")),
            ("Internal-IP+", json!("10.0.0.9")),
            ("External-IP+", json!("<none>")),
        ],
    );
    check("leases", json!({"spec": {"holderIdentity": "me"}}), &[("Holder", json!("me"))]);
    check("secrets", json!({"type": "Opaque"}), &[("Type", json!("Opaque")), ("Data", json!(0))]);
    check("namespaces", json!({"status": {"phase": "Active"}}), &[("Status", json!("Active"))]);
    check("serviceaccounts", json!({}), &[("Secrets", json!(0))]);
    check("customresourcedefinitions", json!({}), &[("Created At", json!(CREATED))]);
}

#[test]
fn events_of_both_generations() {
    check(
        "events",
        json!({
            "involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Started", "type": "Normal",
            "message": "ok\n", "lastTimestamp": "2024-01-01T00:05:00Z", "count": 4,
            "source": {"component": "kubelet", "host": "n1"},
        }),
        &[
            ("Last Seen", json!("30s")),
            ("Object", json!("pod/p")),
            ("Message", json!("ok")),
            ("Source+", json!("kubelet, n1")),
            ("Count+", json!(4)),
            ("First Seen+", json!("<unknown>")),
        ],
    );
    check(
        "events",
        json!({
            "regarding": {"kind": "TDSet", "name": "t"}, "note": "scaled",
            "eventTime": "2024-01-01T00:05:00.000000Z", "reportingController": "c",
        }),
        &[("Last Seen", json!("30s")), ("Object", json!("tdset/t")), ("Source+", json!("c"))],
    );
}

fn custom(columns: &[(&str, &str, &str)]) -> KindInfo {
    let column = |(name, kind, path): &(&str, &str, &str)| PrinterColumn {
        name: (*name).into(),
        kind: (*kind).into(),
        json_path: (*path).into(),
        ..PrinterColumn::default()
    };
    KindInfo { custom: true, columns: columns.iter().map(column).collect(), ..kind("configmaps") }
}

#[test]
fn declared_columns_find_their_values() {
    let kind = custom(&[
        ("Replicas", "integer", ".status.replicas"),
        ("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        ("First", "string", ".spec.items[0].name"),
        ("Dotted", "string", ".metadata.annotations.example\\.org/key"),
        ("Quoted", "string", ".metadata.annotations['example.org/key']"),
        ("Since", "date", ".metadata.creationTimestamp"),
        ("Map", "string", ".spec.map"),
        ("Wrong", "integer", ".spec.map"),
        ("Absent", "string", ".spec.absent.deep"),
        ("Broken", "string", ".spec["),
    ]);
    let object = object(
        "x",
        json!({
            "metadata": {"annotations": {"example.org/key": "v"}},
            "spec": {"items": [{"name": "one"}], "map": {"a": 1}},
            "status": {"replicas": 3, "conditions": [
                {"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"},
            ]},
        }),
    );
    let cells: Vec<Value> = print(&kind, &object).into_iter().map(|(_, cell)| cell).collect();
    let expected = json!(["x", 3, "True", "one", "v", "v", "5m30s", "{\"a\":1}", null, null, null]);
    assert_eq!(Value::Array(cells), expected);
}

#[test]
fn a_definition_without_columns_shows_the_age() {
    let printed = print(&custom(&[]), &object("x", json!({})));
    assert_eq!(printed, [("Name".to_owned(), json!("x")), ("Age".to_owned(), json!("5m30s"))]);
}
