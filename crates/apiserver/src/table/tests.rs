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
