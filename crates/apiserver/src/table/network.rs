//! Columns of Ingresses and of the addresses behind Services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cells::{NONE, UNSET, first};
use super::{Column, Row};

/// How many addresses, ports or hosts a cell shows.
const SHOWN: usize = 3;

pub(crate) const INGRESSES: &[Column] = &[
    Column::NAME,
    Column::text("Class", |row| row.text_or_none("/spec/ingressClassName")),
    Column::text("Hosts", hosts),
    Column::text("Address", address),
    Column::text("Ports", ports),
    Column::AGE,
];

pub(crate) const ENDPOINTS: &[Column] =
    &[Column::NAME, Column::text("Endpoints", endpoints), Column::AGE];

pub(crate) const ENDPOINT_SLICES: &[Column] = &[
    Column::NAME,
    Column::text("AddressType", |row| json!(row.text("/addressType"))),
    Column::text("Ports", |row| {
        let port = |port: &Value| match port["port"].as_i64() {
            Some(number) => number.to_string(),
            None => port["name"].as_str().unwrap_or("*").to_owned(),
        };
        first_or_unset(row.list("/ports").iter().map(port).collect())
    }),
    Column::text("Endpoints", |row| {
        let endpoints = row.list("/endpoints").iter();
        let addresses = endpoints.flat_map(|endpoint| texts(&endpoint["addresses"]));
        first_or_unset(addresses.map(str::to_owned).collect())
    }),
    Column::AGE,
];

fn first_or_unset(items: Vec<String>) -> Value {
    match first(&items, SHOWN, ",") {
        text if text.is_empty() => json!(UNSET),
        text => json!(text),
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn hosts(row: &Row<'_>) -> Value {
    let hosts = row.list("/spec/rules").iter().filter_map(|rule| rule["host"].as_str());
    let hosts: Vec<String> = hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect();
    json!(if hosts.is_empty() { "*".to_owned() } else { first(&hosts, SHOWN, ",") })
}

fn ports(row: &Row<'_>) -> Value {
    json!(if row.length("/spec/tls") > 0 { "80, 443" } else { "80" })
}

fn address(row: &Row<'_>) -> Value {
    let ingress = row.list("/status/loadBalancer/ingress").iter();
    let addresses: BTreeSet<&str> =
        ingress.filter_map(|at| at["ip"].as_str().or(at["hostname"].as_str())).collect();
    json!(addresses.into_iter().collect::<Vec<_>>().join(","))
}

/// Every address with every port of its subset.
fn endpoints(row: &Row<'_>) -> Value {
    let subsets = row.list("/subsets");
    if subsets.is_empty() {
        return json!(NONE);
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || {
            let addresses = subset["addresses"].as_array().into_iter().flatten();
            addresses.filter_map(|address| address["ip"].as_str())
        };
        let ports = subset["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports.iter().map(|port| port["port"].as_i64().unwrap_or_default()) {
            all.extend(addresses().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            }));
        }
    }
    json!(first(&all, SHOWN, ","))
}
