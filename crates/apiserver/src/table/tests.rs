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
fn check(plural: &str, rest: Value, expected: Value) {
    let printed = print(&kind(plural), &object("x", rest));
    for (header, cell) in expected.as_object().unwrap() {
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
        json!({
            "Status": "Pending", "Volume": "", "Capacity": "", "Access Modes": "",
            "StorageClass": "fast", "VolumeAttributesClass": "<unset>", "VolumeMode+": "<unset>",
        }),
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
        json!({
            "Status": "Bound", "Volume": "pv-1", "Capacity": "8Gi", "Access Modes": "RWO,RWOP",
            "VolumeMode+": "Filesystem",
        }),
    );
    check(
        "persistentvolumeclaims",
        json!({"metadata": {"deletionTimestamp": CREATED}, "status": {"phase": "Bound"}}),
        json!({"Status": "Terminating"}),
    );
    check(
        "poddisruptionbudgets",
        json!({"spec": {"maxUnavailable": "25%"}, "status": {"disruptionsAllowed": 2}}),
        json!({
            "Min Available": "N/A", "Max Unavailable": "25%", "Allowed Disruptions": 2,
            "Age": "5m30s",
        }),
    );
    check(
        "poddisruptionbudgets",
        json!({"spec": {"minAvailable": 1}}),
        json!({"Min Available": "1", "Allowed Disruptions": 0}),
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
        json!({
            "Capacity": "8Gi", "Access Modes": "RWO", "Reclaim Policy": "Retain", "Status": "Bound",
            "Claim": "n/data", "StorageClass": "fast", "VolumeAttributesClass": "<unset>",
            "Reason": "", "VolumeMode+": "<unset>",
        }),
    );
    check("persistentvolumes", json!({}), json!({"Capacity": "0", "Claim": ""}));
    check(
        "storageclasses",
        json!({"provisioner": "example.org/disk", "allowVolumeExpansion": true}),
        json!({
            "Provisioner": "example.org/disk", "ReclaimPolicy": "Delete",
            "VolumeBindingMode": "Immediate", "AllowVolumeExpansion": true,
        }),
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
        json!({
            "Class": "<none>", "Hosts": "a,b,c + 1 more...", "Address": "10.0.0.2,10.h",
            "Ports": "80, 443",
        }),
    );
    let expected = json!({"Hosts": "*", "Address": "", "Ports": "80"});
    check("ingresses", json!({"spec": {"rules": [{}]}}), expected);
    check("endpoints", json!({}), json!({"Endpoints": "<none>"}));
    check(
        "endpoints",
        json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "ports": [{"port": 1}, {"port": 2}]},
            {"addresses": [{"ip": "10.0.0.2"}]},
        ]}),
        json!({"Endpoints": "10.0.0.1:1,[::1]:1,10.0.0.1:2 + 2 more..."}),
    );
    check(
        "endpointslices",
        json!({
            "addressType": "IPv4", "ports": [{"port": 80}, {"name": "any"}, {}],
            "endpoints": [{"addresses": ["10.0.0.1"]}],
        }),
        json!({"AddressType": "IPv4", "Ports": "80,any,*", "Endpoints": "10.0.0.1"}),
    );
    check("endpointslices", json!({}), json!({"Ports": "<unset>"}));
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
        json!({
            "Role": "ClusterRole/view", "Users+": "a, b", "Groups+": "", "ServiceAccounts+": "n/s",
        }),
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
        json!({
            "Schedule": "0 * * * *", "Timezone": "<none>", "Suspend": "False", "Active": 1,
            "Last Schedule": "5m30s", "Containers+": "a", "Images+": "i:1", "Selector+": "<none>",
        }),
    );
    check("cronjobs", json!({}), json!({"Suspend": "<unset>", "Last Schedule": "<none>"}));
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
            json!({"Targets": expected}),
        );
    }
    let metric = cpu(json!({"averageUtilization": 80}));
    check(
        "horizontalpodautoscalers",
        json!({"spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
            "metrics": [metric, metric, metric],
        }}),
        json!({
            "Reference": "Deployment/web",
            "Targets": "cpu: <unknown>/80%, cpu: <unknown>/80% + 1 more...", "MinPods": "<unset>",
            "MaxPods": 9, "Replicas": 0,
        }),
    );
    check("horizontalpodautoscalers", json!({}), json!({"Targets": "<none>"}));
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
        json!({
            "Name": "x", "Ready": "2/3", "Up-to-date": 3, "Available": 1, "Age": "5m30s",
            "Containers+": "a,b", "Images+": "i:1,j:2", "Selector+": "app=x,tier in (a,b)",
        }),
    );
    check(
        "replicasets",
        json!({"spec": {"replicas": 3}, "status": {"replicas": 2, "readyReplicas": 1}}),
        json!({"Desired": 3, "Current": 2, "Ready": 1}),
    );
    check("statefulsets", json!({"spec": {"replicas": 2}}), json!({"Ready": "0/2"}));
    check(
        "daemonsets",
        json!({"status": {"desiredNumberScheduled": 3, "numberReady": 2}}),
        json!({"Desired": 3, "Ready": 2, "Node Selector": "<none>"}),
    );
    check(
        "jobs",
        json!({
            "spec": {"completions": 2},
            "status": {"succeeded": 1, "startTime": CREATED, "conditions": [{"type": "Failed", "status": "True"}]},
        }),
        json!({"Status": "Failed", "Completions": "1/2", "Duration": "5m30s"}),
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
        json!({
            "Ready": "2/2", "Status": "Running", "Restarts": "0", "Node+": "n1", "IP+": "<none>",
        }),
    );
    check(
        "pods",
        json!({"spec": spec, "status": status("Running", json!([waiting, running]))}),
        json!({"Ready": "1/2", "Status": "CrashLoopBackOff", "Restarts": "3 (30s ago)"}),
    );
    check(
        "pods",
        json!({"metadata": {"deletionTimestamp": CREATED}, "status": {"phase": "Running"}}),
        json!({"Status": "Terminating"}),
    );
    check(
        "pods",
        json!({"spec": {"initContainers": [{}, {}]}, "status": {"phase": "Pending",
            "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}]}}),
        json!({"Status": "Init:1/2"}),
    );
    check(
        "pods",
        json!({"status": status("Failed", json!([{"state": {"terminated": {"exitCode": 2}}}]))}),
        json!({"Status": "ExitCode:2"}),
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
        json!({
            "Type": "LoadBalancer", "External-IP": "<pending>", "Port(s)": "80:30080/TCP,53/UDP",
            "Selector+": "app=x",
        }),
    );
    check("services", json!({"spec": {}}), json!({"External-IP": "<none>", "Port(s)": "<none>"}));
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
        json!({
            "Status": "Ready,SchedulingDisabled", "Roles": "control-plane", "Version": "v1.37.0",
            "Internal-IP+": "10.0.0.9", "External-IP+": "<none>",
        }),
    );
    check("leases", json!({"spec": {"holderIdentity": "me"}}), json!({"Holder": "me"}));
    check("secrets", json!({"type": "Opaque"}), json!({"Type": "Opaque", "Data": 0}));
    check("namespaces", json!({"status": {"phase": "Active"}}), json!({"Status": "Active"}));
    check("serviceaccounts", json!({}), json!({"Secrets": 0}));
    check("customresourcedefinitions", json!({}), json!({"Created At": CREATED}));
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
        json!({
            "Last Seen": "30s", "Object": "pod/p", "Message": "ok", "Source+": "kubelet, n1",
            "Count+": 4, "First Seen+": "<unknown>",
        }),
    );
    check(
        "events",
        json!({
            "regarding": {"kind": "TDSet", "name": "t"}, "note": "scaled",
            "eventTime": "2024-01-01T00:05:00.000000Z", "reportingController": "c",
        }),
        json!({"Last Seen": "30s", "Object": "tdset/t", "Source+": "c"}),
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
